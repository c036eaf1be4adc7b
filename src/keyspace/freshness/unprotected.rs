//! Counts the seconds in which the filter answers no lookup with 404, by reason.
//!
//! Every observation adds the time since the last one to the reason found by the last one. There is one at each change
//! of the right, each second, and at each scrape.

use std::time::Duration;

use parking_lot::Mutex;

use super::FreshnessTracker;
use super::reason::Distrust;
use crate::clock::Moment;
use crate::config::Enforcement;
use crate::labels::UnprotectedReason;
use crate::metrics::UnprotectedMetrics;

/// The time of one keyspace that is counted.
#[derive(Debug)]
pub(super) struct UnprotectedTime(Mutex<Observed>);

#[derive(Debug)]
struct Observed {
    at: Moment,
    /// What was found then; `None`: the filter answers 404.
    reason: Option<UnprotectedReason>,
    /// By reason. The metric has the whole seconds of it.
    totals: [Duration; UnprotectedReason::ALL.len()],
}

impl UnprotectedTime {
    /// Begins with a keyspace that has no filter.
    pub(super) fn new(now: Moment) -> Self {
        let totals = [Duration::ZERO; UnprotectedReason::ALL.len()];
        Self(Mutex::new(Observed { at: now, reason: Some(UnprotectedReason::NoFilter), totals }))
    }

    fn observe(&self, now: Moment, reason: Option<UnprotectedReason>, metrics: &UnprotectedMetrics) {
        let mut observed = self.0.lock();
        let passed = now.since(observed.at);
        observed.at = observed.at.max(now);
        if let Some(reason) = std::mem::replace(&mut observed.reason, reason) {
            let total = &mut observed.totals[reason as usize];
            let counted = total.as_secs();
            *total += passed;
            metrics.add(reason, total.as_secs() - counted);
        }
    }
}

impl FreshnessTracker {
    /// Counts the time since the last call.
    pub(super) fn count_unprotected_time(&self) {
        let now = Moment::now();
        self.unprotected.observe(now, self.unprotected_by(now), &self.metrics.unprotected);
    }

    /// Why the filter answers no lookup with 404; `None`: it does.
    pub(super) fn unprotected_by(&self, now: Moment) -> Option<UnprotectedReason> {
        let inputs = self.inputs.lock();
        let Some(scan_started) = inputs.scan_started else { return Some(UnprotectedReason::NoFilter) };
        let active = self.enforcement.active();
        match (active.mode(), self.distrust(&inputs, scan_started, now)) {
            (Enforcement::Shadow, _) => Some(UnprotectedReason::Shadow),
            (Enforcement::Enforce, Some(Distrust { reason, .. })) => Some(reason),
            (Enforcement::Enforce, None) => active.is_proving().then_some(UnprotectedReason::Proof),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn time_counts_for_the_reason_found_before_it_and_fractions_add_up() {
        let metrics = Metrics::new();
        let recorders = metrics.keyspace("users");
        let at = |tenths: u64| Moment::from_nanos(1 + tenths * 100_000_000);
        let time = UnprotectedTime::new(at(0));
        time.observe(at(14), Some(UnprotectedReason::Shadow), &recorders.unprotected);
        time.observe(at(20), None, &recorders.unprotected);
        time.observe(at(100), Some(UnprotectedReason::Shadow), &recorders.unprotected);
        time.observe(at(107), Some(UnprotectedReason::LogLost), &recorders.unprotected);
        time.observe(at(106), Some(UnprotectedReason::LogLost), &recorders.unprotected);
        time.observe(at(137), None, &recorders.unprotected);
        let text = metrics.render();
        for (reason, seconds) in [("no_filter", 1), ("shadow", 1), ("log_lost", 3), ("stale", 0)] {
            let line = format!(
                "bloomguard_keyspace_unprotected_seconds_total{{keyspace=\"users\",reason=\"{reason}\"}} {seconds}\n"
            );
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}

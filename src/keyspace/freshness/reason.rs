//! The state of a keyspace and its reason, in words for people.

use std::time::Duration;

use super::FreshnessTracker;
use super::inputs::{FreshnessInputs, LogRole};
use crate::clock::Moment;
use crate::config::{EnforcementSetting, Freshness};
use crate::labels::{State, UnprotectedReason};

/// Why the filter is not trusted.
#[derive(Debug, Clone)]
pub(super) struct Distrust {
    pub(super) reason: UnprotectedReason,
    /// For people.
    pub(super) text: String,
}

impl FreshnessTracker {
    /// The present state, and why.
    pub(crate) fn explain(&self, now: Moment) -> (State, String) {
        let inputs = self.inputs.lock();
        let Some(scan_started) = inputs.scan_started else {
            let mut reason = inputs.cold_reason.clone().unwrap_or_else(|| "the first filter is not built yet".into());
            if let Some(start) = &inputs.young_start {
                reason = format!("{reason}; {}", start.describe(now));
            }
            return (State::Cold, reason);
        };
        let distrust = self.distrust(&inputs, scan_started, now);
        let state = Self::state(self.enforcement.active(), true, distrust.is_none());
        let enforcement = self.enforcement.status();
        let reason = match (state, distrust) {
            (State::Shadow, None) => enforcement.reason(),
            (State::Shadow, Some(distrust)) => {
                format!("{}; it could not enforce: {}", enforcement.reason(), distrust.text)
            }
            (_, Some(distrust)) => distrust.text,
            (_, None) if enforcement.in_force.percent < EnforcementSetting::ALL => {
                format!("the filter is as fresh as promised; {}", enforcement.reason())
            }
            (_, None) => "the filter is as fresh as promised".into(),
        };
        (state, reason)
    }

    /// Returns true while announces may be missing in the filter: until a scan has mended their loss, it explains each
    /// row that the filter lacks.
    pub(crate) fn may_lack_announces(&self) -> bool {
        let inputs = self.inputs.lock();
        [&inputs.revoked, &inputs.awaits_reports].into_iter().flatten().any(|(_, why)| why.reason.loses_announces())
    }

    /// Why the filter is not trusted; `None`: it is.
    pub(super) fn distrust(&self, inputs: &FreshnessInputs, scan_started: Moment, now: Moment) -> Option<Distrust> {
        let because = |reason| move |text| Distrust { reason, text };
        if let Some(conflict) = &inputs.conflict {
            return Some(because(UnprotectedReason::KeyForm)(conflict.clone()));
        }
        if let Some(why) = inputs.revocation(now) {
            return Some(why);
        }
        if let Some(length) = inputs.hold.length() {
            return Some(because(UnprotectedReason::FalseNegative)(format!(
                "a row was found that the filter had called absent: a rebuild has fixed the filter, which answers no \
                 lookup with 404 for {} after that",
                humantime::format_duration(length)
            )));
        }
        self.staleness(inputs, scan_started, now)
            .map(because(UnprotectedReason::Stale))
            .or_else(|| self.lag(inputs, now).map(because(UnprotectedReason::LogLag)))
    }

    /// Why the filter is older than promised; `None`: it is not.
    fn staleness(&self, inputs: &FreshnessInputs, scan_started: Moment, now: Moment) -> Option<String> {
        let max_staleness = self.promise.max_staleness;
        match self.promise.freshness {
            Freshness::Rebuilt if now.since(scan_started) > max_staleness => Some(format!(
                "the filter's scan began {} ago, longer than max_staleness = {}",
                seconds(now.since(scan_started)),
                humantime::format_duration(max_staleness)
            )),
            Freshness::Polled => inputs.polls.lack(scan_started, now, max_staleness),
            Freshness::Announced | Freshness::Rebuilt | Freshness::Static => None,
        }
    }

    /// Why other instances' announces may be missing here.
    fn lag(&self, inputs: &FreshnessInputs, now: Moment) -> Option<String> {
        if self.promise.log == LogRole::DropsOnly && !inputs.log_asked {
            return Some("Redis has not been asked for the fleet's enforcement setting yet".into());
        }
        let max_lag = self.promise.max_lag()?;
        if inputs.log_read.is_some_and(|sent| now.since(sent) < max_lag) {
            return None;
        }
        let since = inputs.log_read.map_or("yet".to_owned(), |sent| format!("for {}", seconds(now.since(sent))));
        let why = inputs.log_error.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        Some(format!(
            "the delta log has not been read to its end {since}, redis.max_lag is {}{why}",
            humantime::format_duration(max_lag)
        ))
    }

    /// What the promise depends on.
    pub(crate) fn promise_in_words(&self) -> String {
        let max_staleness = humantime::format_duration(self.promise.max_staleness);
        match self.promise.freshness {
            Freshness::Announced => {
                let where_to = if self.promise.rests_on_log() { "an" } else { "this" };
                format!("announced: every writer announces a key to {where_to} instance before it commits the row")
            }
            Freshness::Polled => {
                format!("polled: the source is polled for new keys at least every {max_staleness}")
            }
            Freshness::Rebuilt => format!("rebuilt: the key set is scanned again at least every {max_staleness}"),
            Freshness::Static => "static: the key set does not change".into(),
        }
    }
}

fn seconds(duration: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(duration.as_secs()))
}

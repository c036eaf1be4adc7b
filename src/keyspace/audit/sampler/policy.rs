//! Which of the filter's absences the canary checks, and how many: most while the filter is new, and first the keys
//! that it has not checked lately.
//!
//! ```text
//! usual  = max(sample_rate · a, max_per_second / 10)     a: absences per second
//! budget = usual + (max_per_second − usual) · heat       checks per second, never above max_per_second
//! heat   = 1 for a new filter, halved by each 300 checks that find nothing
//! ```
//!
//! A filter that lacks rows lacks them from its start, and writers that do not announce come with deployments and
//! changed configurations: checks are worth most then. If few absences are answered, a tenth of `max_per_second` checks
//! a much larger share of them than `sample_rate` does.
//!
//! A key checked a moment ago is checked again only while half of a second's budget is left: it may have got its row
//! since.

use std::collections::HashSet;
use std::time::Duration;

use crate::clock::Moment;
use crate::config::CanaryConfig;
use crate::key::KeyHash;

/// Share of `max_per_second` that is used however few absences there are.
const IDLE: f64 = 0.1;
/// Checks without a finding that halve the heat.
const HALF_LIFE: f64 = 300.0;
/// Heat after a scheduled rebuild.
const WARM: f64 = 0.25;
/// Draws for each check of the budget: some come while the backend is busy.
const DRAWS: f64 = 1.5;
/// Keys not checked lately are assumed to be at least this share of all drawn keys.
const LEAST_NEW: f64 = 1.0 / 64.0;
/// Checked keys are remembered for one to two of these periods.
const REMEMBERED: Duration = Duration::from_secs(300);
/// At most this many in each of two sets.
const MAX_REMEMBERED: usize = 16_384;

/// Budget and memory of one keyspace's canary.
#[derive(Debug)]
pub(super) struct Policy {
    sample_rate: f64,
    max_per_second: f64,
    /// 0 to 1: how much of the rest of `max_per_second` is used beyond the usual.
    heat: f64,
    /// Checks that may be made now.
    tokens: f64,
    filled: Option<Moment>,
    absences_per_second: f64,
    /// When the absences were last counted, and their number.
    counted: Option<(Moment, u64)>,
    /// Keys drawn lately: not checked before (`new`), and checked (`repeated`).
    new: f64,
    repeated: f64,
    checked: [HashSet<KeyHash>; 2],
    rotated_at: Option<Moment>,
}

impl Policy {
    pub(super) fn new(config: &CanaryConfig) -> Self {
        let mut policy = Self {
            sample_rate: 0.0,
            max_per_second: 0.0,
            heat: 1.0,
            tokens: 0.0,
            filled: None,
            absences_per_second: 0.0,
            counted: None,
            new: 0.0,
            repeated: 0.0,
            checked: Default::default(),
            rotated_at: None,
        };
        policy.reconfigure(config);
        policy
    }

    pub(super) fn reconfigure(&mut self, config: &CanaryConfig) {
        self.sample_rate = config.sample_rate;
        self.max_per_second = f64::from(config.max_per_second.max(1));
        self.heat = 1.0;
    }

    /// The filter counts as new: most checks are useful now.
    pub(super) const fn heat_up(&mut self) {
        self.heat = 1.0;
    }

    /// The filter comes from a later scan of the same source.
    pub(super) const fn warm_up(&mut self) {
        self.heat = self.heat.max(WARM);
    }

    /// Checks of one second.
    fn budget(&self) -> f64 {
        if self.sample_rate <= 0.0 {
            return 0.0;
        }
        let usual =
            (self.sample_rate * self.absences_per_second).max(IDLE * self.max_per_second).min(self.max_per_second);
        usual + (self.max_per_second - usual) * self.heat
    }

    /// Share of the absences that are drawn.
    pub(super) fn probability(&self) -> f64 {
        if self.sample_rate <= 0.0 {
            return 0.0;
        }
        let new = ((self.new + 1.0) / (self.new + self.repeated + 1.0)).max(LEAST_NEW);
        (DRAWS * self.budget() / (self.absences_per_second * new).max(f64::MIN_POSITIVE)).clamp(self.sample_rate, 1.0)
    }

    /// `absences`: how many were answered so far. Call it about once a second.
    pub(super) fn tick(&mut self, absences: u64, now: Moment) {
        if let Some((then, before)) = self.counted.filter(|(then, _)| now > *then) {
            // The count restarts with each filter.
            let since = absences.checked_sub(before).unwrap_or(absences) as f64 / now.since(then).as_secs_f64();
            self.absences_per_second = since.max(self.absences_per_second / 2.0);
        }
        self.counted = Some((now, absences));
        self.new /= 2.0;
        self.repeated /= 2.0;
        if now.since(*self.rotated_at.get_or_insert(now)) >= REMEMBERED {
            self.rotate(now);
        }
    }

    fn rotate(&mut self, now: Moment) {
        self.checked[1] = std::mem::take(&mut self.checked[0]);
        self.rotated_at = Some(now);
    }

    /// Returns true if the key is checked now.
    pub(super) fn admits(&mut self, hash: KeyHash, now: Moment) -> bool {
        let (budget, most) = (self.budget(), self.budget().max(2.0));
        self.tokens =
            self.filled.map_or(most, |filled| (self.tokens + budget * now.since(filled).as_secs_f64()).min(most));
        self.filled = Some(now);
        let repeated = self.checked.iter().any(|checked| checked.contains(&hash));
        *if repeated { &mut self.repeated } else { &mut self.new } += 1.0;
        budget > 0.0 && self.tokens >= if repeated { (most / 2.0).max(1.0) } else { 1.0 }
    }

    /// The key was checked; `clean`: it has no row.
    pub(super) fn checked(&mut self, hash: KeyHash, clean: bool, now: Moment) {
        self.tokens = (self.tokens - 1.0).max(0.0);
        if clean {
            self.heat *= 0.5_f64.powf(1.0 / HALF_LIFE);
            if self.checked[0].len() >= MAX_REMEMBERED {
                self.rotate(now);
            }
            self.checked[0].insert(hash);
        }
    }
}

#[cfg(test)]
mod tests;

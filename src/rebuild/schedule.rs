//! When the next scheduled build begins.

use std::time::Duration;

use chrono::{DateTime, Utc};
use croner::Cron;

/// A cron schedule in UTC. A random part of the jitter delays each occurrence, so that a fleet does not scan all at
/// once.
#[derive(Debug, Clone)]
pub struct Schedule {
    cron: Cron,
    jitter: Duration,
}

impl Schedule {
    /// Parses a cron expression of 5 fields, or 6 with seconds first.
    ///
    /// # Errors
    /// What is wrong with the expression.
    pub fn new(expression: &str, jitter: Duration) -> Result<Self, String> {
        let cron = crate::config::parse_schedule(expression).map_err(|e| e.to_string())?;
        Ok(Self { cron, jitter })
    }

    /// A random part of the jitter, and no more than `longest`.
    #[must_use]
    pub fn spread(&self, longest: Duration) -> Duration {
        self.jitter.min(longest).mul_f64(rand::random())
    }

    /// The next start after `now`; `None` if the expression never matches again.
    #[must_use]
    pub fn next_after(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let occurrence = self.cron.find_next_occurrence(&now, false).ok()?;
        let jitter = Duration::from_secs_f64(self.jitter.as_secs_f64() * rand::random::<f64>());
        Some(occurrence + chrono::TimeDelta::from_std(jitter).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone;

    use super::*;

    #[test]
    fn occurrences_are_utc_and_delayed_by_less_than_the_jitter() {
        let schedule = Schedule::new("0 2 * * *", Duration::from_secs(300)).unwrap();
        let now = Utc.with_ymd_and_hms(2026, 3, 1, 12, 0, 0).unwrap();
        let due = Utc.with_ymd_and_hms(2026, 3, 2, 2, 0, 0).unwrap();
        let starts: Vec<_> = (0..100).map(|_| schedule.next_after(now).unwrap()).collect();
        assert!(starts.iter().all(|s| *s >= due && *s < due + chrono::TimeDelta::seconds(300)));
        assert!(starts.iter().max() > starts.iter().min());
    }

    #[test]
    fn six_fields_begin_with_seconds() {
        let schedule = Schedule::new("*/2 * * * * *", Duration::ZERO).unwrap();
        let now = Utc.with_ymd_and_hms(2026, 3, 1, 12, 0, 1).unwrap();
        assert_eq!(schedule.next_after(now), Some(Utc.with_ymd_and_hms(2026, 3, 1, 12, 0, 2).unwrap()));
        assert!(Schedule::new("every day", Duration::ZERO).is_err());
    }
}

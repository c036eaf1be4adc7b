//! The section of the configuration that is being validated.

use std::fmt::Display;
use std::time::Duration;

use crate::config::error::ErrorCollector;

/// Redis counts milliseconds, so shorter durations would be 0.
const MIN_DURATION: Duration = Duration::from_millis(1);
/// Longer durations are mistyped units, and could overflow a clock.
const MAX_DURATION: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A section of the configuration and the errors found in it.
pub(super) struct Section<'m> {
    pub(super) path: String,
    pub(super) errors: &'m mut ErrorCollector,
}

impl<'m> Section<'m> {
    pub(super) fn new(path: impl Into<String>, errors: &'m mut ErrorCollector) -> Self {
        Self { path: path.into(), errors }
    }

    /// The subsection `name`.
    pub(super) fn inner(&mut self, name: &str) -> Section<'_> {
        Section { path: self.path_of(name), errors: self.errors }
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    pub(super) fn was_rejected(&self, key: &str) -> bool {
        self.errors.was_rejected(&self.path_of(key))
    }

    pub(super) fn add(&mut self, key: &str, rule: impl Into<String>) {
        self.errors.add(self.path_of(key), rule);
    }

    pub(super) fn must(&mut self, holds: bool, key: &str, rule: &str, value: impl Display) {
        if !holds {
            self.add(key, format!("must {rule}, is {value}"));
        }
    }

    /// A duration that must not be zero.
    pub(super) fn duration(&mut self, key: &str, value: Duration) {
        self.must(value >= MIN_DURATION, key, "be at least 1ms", humantime::format_duration(value));
        self.duration_or_zero(key, value);
    }

    pub(super) fn duration_or_zero(&mut self, key: &str, value: Duration) {
        self.must(value <= MAX_DURATION, key, "be at most 10 years", humantime::format_duration(value));
    }

    /// A share from 0 to 1; NaN is rejected.
    pub(super) fn share(&mut self, key: &str, value: f64) {
        self.must((0.0..=1.0).contains(&value), key, "be from 0 to 1", value);
    }

    /// Reports a missing query. Returns whether there is one.
    pub(super) fn require_query(&mut self, query: &str) -> bool {
        let given = !query.trim().is_empty();
        // If the kind was rejected, the true kind may take no query.
        if !given && !self.was_rejected("kind") {
            self.add("query", "is required");
        }
        given
    }
}

//! Checks that a keyspace's schedule fits its freshness.

use std::collections::BTreeMap;
use std::time::Duration;

use humantime::format_duration;

use super::section::Section;
use crate::config::error::ErrorCollector;
use crate::config::schedule::longest_gap;
use crate::config::{Enforcement, Freshness, KeyspaceConfig, parse_schedule};

/// With `freshness = "rebuilt"` a filter stops answering 404 `max_staleness` after the start of its scan. If the next
/// scheduled scan may come later, the keyspace would degrade between builds.
pub(super) fn check(keyspace: &KeyspaceConfig, section: &mut Section<'_>) {
    let Ok(schedule) = parse_schedule(&keyspace.rebuild.schedule) else { return };
    let Some(gap) = longest_gap(&schedule) else {
        section.add(
            "rebuild.schedule",
            format!("must come at least once in eight years, is {:?}", keyspace.rebuild.schedule),
        );
        return;
    };
    // A default that replaced a rejected value proves nothing.
    let involved = ["freshness", "enforcement", "max_staleness", "rebuild.schedule", "rebuild.jitter"];
    let applies = keyspace.freshness == Freshness::Rebuilt && keyspace.enforcement == Enforcement::Enforce;
    if !applies || involved.iter().any(|key| section.was_rejected(key)) {
        return;
    }
    let needed = gap.saturating_add(keyspace.rebuild.jitter);
    if needed >= keyspace.max_staleness {
        section.add("max_staleness", message(keyspace, gap, needed));
    }
}

impl KeyspaceConfig {
    /// Whether the schedule is frequent enough for the keyspace's freshness.
    pub(in crate::config) fn schedule_fits_staleness(&self) -> bool {
        let mut errors = ErrorCollector::default();
        check(self, &mut Section::new("keyspace", &mut errors));
        errors.into_errors(&BTreeMap::new()).is_none()
    }
}

fn message(keyspace: &KeyspaceConfig, gap: Duration, needed: Duration) -> String {
    format!(
        "must be longer than {needed}, the longest time between two scheduled scans (rebuild.schedule {schedule:?}: \
         {gap}, plus rebuild.jitter: {jitter}), is {is}; otherwise the filter stops answering 404 between two builds: \
         raise max_staleness, make rebuild.schedule more frequent, lower rebuild.jitter, poll for new keys \
         (source.incremental), or set freshness to \"announced\" or \"static\" if that is true",
        needed = format_duration(needed),
        schedule = keyspace.rebuild.schedule,
        gap = format_duration(gap),
        jitter = format_duration(keyspace.rebuild.jitter),
        is = format_duration(keyspace.max_staleness),
    )
}

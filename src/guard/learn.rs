//! What the backend's answers teach: of the filter, and of the backend itself.

use std::sync::Arc;

use super::Guard;
use super::load::Errand;
use crate::cache::Mark;
use crate::clock::Moment;
use crate::key::{Key, KeyHash};
use crate::words::{FoundBy, MismatchKind, Verdict};

impl Guard {
    /// What the backend's answer says of the filter.
    pub(super) fn learn(&self, errand: &Errand, found: bool) {
        let now = Moment::now();
        let probe = errand.glance.probe;
        if found {
            self.proven.found(errand.hash, &errand.asked(), now);
        }
        match (probe.generation, probe.verdict, found) {
            (0, ..) | (_, Verdict::Absent, false) => {}
            // Nobody asked for this key, so it is neither a mistake of the filter's nor one of the lookups that tell of a storm.
            (_, Verdict::Maybe, _) if errand.refresh => {}
            (_, Verdict::Maybe, true) => self.storm.found(now),
            (_, Verdict::Maybe, false) => {
                if !self.is_in_filter_by_right(errand, now) {
                    self.false_positive(errand);
                    if let Some(believed) = self.storm.absent(errand.hash, &errand.key, now) {
                        self.storm_began(believed);
                    }
                }
            }
            // Its announce has not been read yet, as the caller knew: the filter could not have it.
            (_, Verdict::Absent, true) if errand.options.unapplied_version => {}
            (_, Verdict::Absent, true) => self.found_although_absent(&errand.key, errand.hash, probe),
        }
    }

    /// Whether the filter holds an absent key by right: one that was deleted, or whose row is still to come.
    pub(super) fn is_in_filter_by_right(&self, errand: &Errand, now: Moment) -> bool {
        self.recent.contains(errand.hash, now) || self.deleted.contains(errand.hash)
    }

    pub(super) fn false_positive(&self, errand: &Errand) {
        self.metrics.false_positive();
        self.observed.false_positive();
        self.growth.false_positive(errand.hash);
        self.note_mismatch(MismatchKind::FalsePositive, FoundBy::Lookup, errand.glance.probe, errand.hash, &errand.key);
    }

    /// Takes back the absences that were cached before the storm was seen: they may be of rows that exist.
    fn storm_began(&self, believed: Vec<(KeyHash, Key)>) {
        tracing::error!(keyspace = %self.name, "most keys that pass the filter are absent at the backend: no absence is cached while it looks empty, lagging or broken");
        self.metrics.absence_storm();
        self.hot.drop_all_absences();
        let (shared, life) = (Arc::clone(&self.shared), self.recent.life());
        // Beside the lookup, which is not to wait for it; at most one of it a storm.
        tokio::spawn(async move {
            for (_, key) in believed {
                if let Err(error) = shared.put_mark(&key, Mark::Dropped, life).await {
                    tracing::warn!(%error, "an absence from the beginning of an absence storm may still be cached");
                }
            }
        });
    }
}

//! Steps four to seven where the backend is a set in memory: nothing to wait for, to share or to cache.

use std::time::Instant;

use super::load::Errand;
use super::single_flight::Loaded;
use super::{Answer, Keyspace, LookupError};
use crate::backend::{Members, Membership, SetStatus};
use crate::clock::Moment;
use crate::key::KeyHash;
use crate::labels::{BackendOutcome, Source, Verdict};

impl Keyspace {
    /// Asks the members. They are those of the scan that the errand's glance trusted, or of a later one, for a swap stores them before anybody
    /// can trust it.
    pub(super) fn ask_set(&self, members: &Members, errand: &Errand) -> Loaded {
        let started = Instant::now();
        let membership = members.look_up(errand.hash, &errand.key);
        let (outcome, told) = match membership {
            Membership::Scanned | Membership::Announced => {
                (BackendOutcome::Found, Ok(Some(members.value(&errand.key))))
            }
            Membership::Stranger if self.may_call_absent(errand) => (BackendOutcome::Absent, Ok(None)),
            Membership::Stranger | Membership::Unknown => (BackendOutcome::Unavailable, Err(LookupError::SetTooOld)),
        };
        self.metrics.backend(outcome, started.elapsed());
        if told.is_ok() {
            self.learn_from_set(errand, membership);
        }
        told.map(|value| Answer::fresh(value, Source::Backend))
    }

    /// Whether a key that is not in the set is absent: the scan was as fresh as promised before the set was read, and still is, which a pause of
    /// the whole process in between would have ended.
    fn may_call_absent(&self, errand: &Errand) -> bool {
        // A row that another instance knows of is not in this one's set.
        !errand.options.unapplied_version && errand.glance.trusted && self.glance(errand.hash, Moment::now()).trusted
    }

    /// What the set's answer says of the filter.
    fn learn_from_set(&self, errand: &Errand, membership: Membership) {
        let (probe, now) = (errand.glance.probe, Moment::now());
        match (probe.verdict, membership) {
            _ if probe.generation == 0 => {}
            (Verdict::Maybe, Membership::Stranger) if !self.is_in_filter_by_right(errand, now) => {
                self.false_positive(errand)
            }
            // An announce alone proves no row: the set may still hold one that the filter has been built without.
            (Verdict::Absent, Membership::Scanned) => self.found_although_absent(&errand.key, errand.hash, probe),
            _ => {}
        }
    }

    /// The set's part of an announce.
    pub(super) fn note_announced(&self, hashes: &[KeyHash]) {
        if let Some(members) = self.backend.members()
            && members.announce(hashes, Moment::now())
        {
            tracing::warn!(keyspace = %self.name, "so many keys were announced since the last scan that a rebuild is due before its time");
            self.rebuild_wanted.notify_one();
        }
    }

    /// The members, where the backend is a set.
    pub(crate) fn members(&self) -> Option<&Members> {
        self.backend.members()
    }

    pub(super) fn set_status(&self) -> Option<SetStatus> {
        self.members().map(Members::status)
    }

    /// What an operator should know of the set.
    pub(super) fn set_warning(&self) -> Option<String> {
        self.members()?.lost_until()?;
        Some("more keys were announced since the last scan than are held: keys that are not in the set are answered 503 until a scan after their commit window".into())
    }
}

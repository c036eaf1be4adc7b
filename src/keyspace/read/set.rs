//! Steps four to seven of a lookup if the backend is a set in memory: no wait, no sharing, no cache.

use std::time::Instant;

use super::Reader;
use crate::backend::{Members, Membership};
use crate::clock::Moment;
use crate::keyspace::error::LookupError;
use crate::keyspace::outcome::Answer;
use crate::keyspace::request::LookupRequest;
use crate::keyspace::single_flight::Loaded;
use crate::labels::{BackendOutcome, Source};

impl Reader {
    /// Asks the members. They are those of the scan that the request's probe trusted, or of a later one: a swap stores
    /// them before the filter is trusted.
    pub(super) fn ask_set(&self, members: &Members, request: &LookupRequest) -> Loaded {
        let started = Instant::now();
        let membership = members.look_up(request.hash, &request.key);
        let (outcome, answer) = match membership {
            Membership::Scanned | Membership::Announced => {
                (BackendOutcome::Found, Ok(Some(members.value(&request.key))))
            }
            Membership::Stranger if self.may_call_absent(request) => (BackendOutcome::Absent, Ok(None)),
            Membership::Stranger | Membership::Unknown => (BackendOutcome::Unavailable, Err(LookupError::SetTooOld)),
        };
        self.metrics.backend(outcome, started.elapsed());
        if answer.is_ok() {
            self.audit.record_membership(request, membership);
        }
        answer.map(|value| Answer::fresh(value, Source::Backend))
    }

    /// Returns true if a key that is not in the set is absent: the scan was as fresh as promised before the set was
    /// read, and still is. A pause of the whole process in between would have ended that.
    fn may_call_absent(&self, request: &LookupRequest) -> bool {
        // The caller has seen a row of another instance, which is not in this set.
        !request.options.unapplied_version
            && request.probed.trusted
            && self.prober.probe_hash(request.hash, Moment::now()).trusted
    }
}

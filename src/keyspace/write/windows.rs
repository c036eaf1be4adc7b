//! Which keys are within their commit window, and how long that is.
//!
//! While a key is within its window no absence of it is served or stored. Announces of this and other instances and the
//! rows of polls open one; the longest window of the fleet applies.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::peers::{Peers, Windows};
use super::polled_rows::SeenRows;
use super::recent::Recent;
use crate::clock::Moment;
use crate::fleet::{LogPage, Roster, Terms, WriterId};
use crate::key::KeyHash;
use crate::keyspace::backend::BackendClient;
use crate::keyspace::identity::Identity;

pub(crate) struct CommitWindows {
    pub(crate) recent: Recent,
    pub(crate) peers: Peers,
    pub(crate) polled: Polled,
    pub(crate) identity: Arc<Identity>,
    pub(crate) backend: Arc<BackendClient>,
}

/// The rows of recent polls.
pub(crate) struct Polled {
    rows: Mutex<SeenRows>,
    /// False if no source is polled.
    pub(crate) is_polled: bool,
}

impl Polled {
    pub(crate) fn new(is_polled: bool) -> Self {
        Self { rows: Mutex::default(), is_polled }
    }

    pub(crate) fn rows(&self) -> MutexGuard<'_, SeenRows> {
        self.rows.lock()
    }
}

impl CommitWindows {
    /// Returns true if no absence of the key is to be believed.
    pub(crate) fn contains(&self, hash: KeyHash, now: Moment) -> bool {
        self.recent.contains(hash, now) || self.was_polled(hash, now)
    }

    fn was_polled(&self, hash: KeyHash, now: Moment) -> bool {
        self.polled.is_polled && self.polled.rows().contains(hash, now, self.recent.life())
    }

    /// The terms under which this instance announces.
    pub(crate) fn terms(&self) -> Terms {
        self.peers.own(self.identity.form())
    }

    /// The longest active windows.
    pub(crate) fn longest(&self) -> Windows {
        self.peers.windows(Moment::now())
    }

    /// Makes announces and their marks last as long as the longest window of the fleet.
    pub(crate) fn apply_longest(&self) {
        let life = self.longest().life();
        self.recent.set_life(life);
        if let Some(members) = self.backend.members() {
            members.set_life(life);
        }
    }

    /// Records the members of the log with which reading begins. Call it before that page is recorded.
    pub(crate) fn record_members(&self, roster: &Roster) {
        self.peers.record_members(roster, Moment::now());
    }

    /// Records who wrote a page of the log. Call it before the page is evaluated: how far back the log must reach
    /// depends on it.
    pub(crate) fn record_page(&self, ours: WriterId, page: &LogPage) {
        self.peers.record(ours, page, Moment::now());
        self.apply_longest();
    }

    /// For an operator.
    pub(crate) fn warning(&self, now: Moment) -> Option<String> {
        let why = "more announces of other instances are within their commit window than server.max_announce_bytes \
                   holds: no filter is built and no absence cached until it closes";
        self.recent.lacks_some(now).then(|| why.into())
    }
}

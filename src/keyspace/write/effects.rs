//! The effects of an announce or a drop in this process, from any origin: a writer here, another instance, a poll or
//! the journal.

use std::sync::Arc;

use crate::cache::HotCache;
use crate::clock::Moment;
use crate::key::KeyHash;
use crate::keyspace::backend::BackendClient;
use crate::keyspace::probe::Prober;
use crate::keyspace::rebuild_signal::RebuildSignal;
use crate::keyspace::single_flight::Flights;
use crate::keyspace::stats::FilterStats;

pub(crate) struct LocalEffects {
    pub(crate) prober: Arc<Prober>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) hot: Arc<HotCache>,
    pub(crate) stats: Arc<FilterStats>,
    pub(crate) backend: Arc<BackendClient>,
    pub(crate) rebuild: Arc<RebuildSignal>,
}

impl LocalEffects {
    /// Rows of these keys may become visible at any moment. The caller has put the keys into the commit windows before.
    pub(crate) fn apply_announce(&self, hashes: &[KeyHash]) {
        for hash in hashes {
            // Detached first: an attached flight would store an absence after the drop.
            self.flights.detach(*hash);
            self.hot.drop_absence(*hash);
            self.prober.insert(*hash);
        }
        self.stats.record_inserts(hashes);
        self.announce_to_members(hashes);
    }

    /// Rows of these keys have changed or are gone. The caller has set their tombstones before.
    pub(crate) fn apply_drop(&self, hashes: &[KeyHash]) {
        for hash in hashes {
            // Detached first: an attached flight would store the old value after the drop.
            self.flights.detach(*hash);
            self.hot.drop_entry(*hash);
        }
    }

    /// A row was changed or removed whose hash is not known here: drops what is cached in this process.
    pub(crate) fn drop_everything(&self) {
        // Detached first, as for one key.
        self.flights.detach_all();
        self.hot.drop_all();
    }

    /// Announces that a restart or another secret brings back: no cache and no flight knows these hashes yet.
    pub(crate) fn restore_announces(&self, hashes: &[KeyHash]) {
        hashes.iter().for_each(|hash| self.prober.insert(*hash));
        self.announce_to_members(hashes);
    }

    fn announce_to_members(&self, hashes: &[KeyHash]) {
        if let Some(members) = self.backend.members()
            && members.announce(hashes, Moment::now())
        {
            tracing::warn!(
                keyspace = %self.prober.identity.name,
                "too many announces since the last scan: requesting a rebuild"
            );
            self.rebuild.request();
        }
    }
}

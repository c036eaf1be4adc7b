//! How many announces a keyspace accepts, and what they cost.

use super::rate::AnnounceRate;
use super::recent::MemoryLimits;
use crate::cache::MARK_BYTES;
use crate::config::ServerConfig;

/// Upper bound on held announces, however much memory there is: each build inserts all of them into its candidate.
const MOST: usize = 1 << 19;
/// Bytes of a key within its window, without the key itself: an entry of 17 bytes in a table that is 7/16 to 7/8 full.
const RECENT_BYTES: usize = 40;

/// Bounds on the announces of one keyspace.
#[derive(Debug, Clone, Copy)]
pub struct AnnounceLimits {
    /// `server.max_announces_per_second`.
    pub per_second: u32,
    /// `server.max_batch_keys`: the size of a burst.
    pub batch: usize,
    /// `server.max_announce_bytes`.
    pub bytes: u64,
    /// True if marks are in a shared cache that may lose them: then keys are kept, so that their marks can be set
    /// again. Otherwise the marks are in this process too.
    pub remarks: bool,
}

impl AnnounceLimits {
    /// The configured limits, with or without Redis.
    #[must_use]
    pub const fn new(server: &ServerConfig, with_redis: bool) -> Self {
        Self {
            per_second: server.max_announces_per_second,
            batch: server.max_batch_keys,
            bytes: server.max_announce_bytes,
            remarks: with_redis,
        }
    }

    /// Bytes of each announce, without its key.
    #[must_use]
    pub const fn cost(&self) -> usize {
        // A quarter more marks, to leave room for those of drops.
        if self.remarks { RECENT_BYTES } else { RECENT_BYTES + MARK_BYTES * 5 / 4 }
    }

    /// How many announces fit, without the bytes of their keys.
    #[must_use]
    pub fn most(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX).checked_div(self.cost()).unwrap_or(MOST).min(MOST)
    }

    /// Marks that an in-process shared cache holds.
    #[must_use]
    pub fn marks(&self) -> usize {
        self.most() * 5 / 4
    }

    pub(crate) fn of_memory(&self) -> MemoryLimits {
        let bytes = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        MemoryLimits { count: MOST, bytes, cost: self.cost(), keeps_keys: self.remarks }
    }

    pub(crate) fn rate(&self) -> AnnounceRate {
        AnnounceRate::new(self.per_second, self.batch)
    }
}

impl Default for AnnounceLimits {
    fn default() -> Self {
        Self::new(&ServerConfig::default(), true)
    }
}

//! Why the filter keeps no absent key from the backend.

use serde::{Deserialize, Serialize};

labels! {
    /// Why a keyspace does not answer 404 from the filter.
    UnprotectedReason {
        /// `cold`: there is no filter yet.
        NoFilter = "no_filter",
        /// `enforcement = "shadow"`, or switched to it.
        Shadow = "shadow",
        /// The filter is compared with the backend before it answers.
        Proof = "proof",
        /// The scan or the last complete poll is older than `max_staleness`.
        Stale = "stale",
        /// The delta log was not read to its end for `redis.max_lag`.
        LogLag = "log_lag",
        /// Entries of the delta log may be lost: Redis restarted, was wiped or failed over, or the log has a hole.
        LogLost = "log_lost",
        /// The delta log was replaced, and not every instance has announced again yet.
        RollCall = "roll_call",
        /// An instance with another configuration announces.
        Configuration = "configuration",
        /// The keyspace secret has changed.
        Secret = "secret",
        /// The journal has lost announces.
        Journal = "journal",
        /// A row was found that the filter had called absent, or the hold after it has not ended.
        FalseNegative = "false_negative",
        /// The key form does not distinguish keys as the database does.
        KeyForm = "key_form",
    }
}

impl UnprotectedReason {
    /// Returns true if announces may be missing in the filter: they explain a row that it lacks.
    #[must_use]
    pub const fn loses_announces(self) -> bool {
        matches!(self, Self::LogLost | Self::RollCall | Self::Configuration | Self::Secret | Self::Journal)
    }
}

//! Label values as types. Each has one spelling, which headers, metrics and `/status` share.

use serde::{Deserialize, Serialize};

/// Defines an enum whose variants have a fixed spelling, with `ALL` for metrics that must exist at 0 from the start.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+ }

        impl $name {
            /// Every variant, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The spelling of this value.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

mod unprotected;

pub use self::unprotected::UnprotectedReason;

labels! {
    /// The filter's verdict on a key.
    Verdict {
        /// Certainly not in the filter.
        Absent = "absent",
        /// In the filter, or a false positive.
        Maybe = "maybe",
    }
}

labels! {
    /// Why a request or response was rejected or cut because of the bytes that it holds.
    BufferRefusal {
        /// No room for the request: its head, its body, or the working memory of a batch.
        Request = "request",
        /// No room for the values of a batch; the remaining keys fail.
        Values = "values",
        /// No room for the response.
        Response = "response",
        /// The client sent its body too slowly.
        SlowBody = "slow_body",
        /// The client did not read a response within `server.send_timeout`.
        SlowClient = "slow_client",
    }
}

labels! {
    /// What answered a lookup.
    Source {
        /// The filter.
        Filter = "filter",
        /// The in-process tier.
        Hot = "hot",
        /// The shared cache: Redis, or its stand-in in this process.
        Redis = "redis",
        /// The backend.
        Backend = "backend",
        /// Nothing: the lookup failed.
        None = "none",
    }
}

labels! {
    /// How a lookup ended.
    LookupResult {
        /// 200.
        Found = "found",
        /// 404.
        Absent = "absent",
        /// Any failure; a failure is never an absence.
        Error = "error",
    }
}

labels! {
    /// Why an instance scans again: announces of other instances may have been lost.
    ResyncReason {
        /// The log is younger than the commit window.
        Young = "young",
        /// Another log has replaced it.
        Replaced = "replaced",
        /// It was trimmed before it was read.
        Trimmed = "trimmed",
        /// An entry is missing or unreadable, or a writer dropped some.
        Gap = "gap",
        /// The log does not continue from the position of the snapshot that the process started from.
        Snapshot = "snapshot",
        /// An instance with another configuration writes to it.
        Configuration = "configuration",
    }
}

labels! {
    /// How reports of other instances stood in for a scan after the delta log was replaced.
    RollCallOutcome {
        /// All have reported: no scan.
        Complete = "complete",
        /// They can't stand in for it any more: the scan follows.
        Failed = "failed",
    }
}

labels! {
    /// The state of a keyspace. Only `enforcing` answers 404 from the filter.
    State {
        /// No filter yet.
        Cold = "cold",
        /// The filter decides nothing; its verdicts are only compared.
        Shadow = "shadow",
        /// The filter answers 404.
        Enforcing = "enforcing",
        /// The required freshness can't be proven at present.
        Degraded = "degraded",
    }
}

labels! {
    /// The kind of a wrong verdict.
    MismatchKind {
        /// The filter said absent, and the row exists.
        FalseNegative = "false_negative",
        /// The filter said maybe, and the row does not exist.
        FalsePositive = "false_positive",
    }
}

labels! {
    /// What found a wrong verdict.
    FoundBy {
        /// A lookup that asked the backend.
        Lookup = "lookup",
        /// A canary check.
        Canary = "canary",
    }
}

labels! {
    /// The result of a canary check.
    CanaryResult {
        /// The backend has no such row either.
        Absent = "absent",
        /// The backend has the row, and so has the filter by now: the row is younger than the answer.
        Late = "late",
        /// The backend has the row, and the filter should have known it.
        FalseNegative = "false_negative",
        /// The backend has the row, and lost announces explain why the filter has not.
        Explained = "explained",
        /// The backend or the delta log did not answer.
        Error = "error",
    }
}

labels! {
    /// A cache tier.
    CacheTier {
        /// In-process.
        Hot = "hot",
        /// Shared.
        Redis = "redis",
    }
}

labels! {
    /// The result of a cache read.
    CacheResult {
        /// It has the value.
        Hit = "hit",
        /// It has a usable absence.
        Absent = "absent",
        /// It has nothing usable.
        Miss = "miss",
        /// It failed.
        Error = "error",
    }
}

labels! {
    /// How a backend call ended.
    BackendOutcome {
        /// A row.
        Found = "found",
        /// No row.
        Absent = "absent",
        /// No answer before the timeout.
        Timeout = "timeout",
        /// Unreachable.
        Unavailable = "unavailable",
        /// An unusable answer: a query or row that does not fit.
        Invalid = "invalid",
    }
}

labels! {
    /// The outcome of loading a value ahead of its expiry.
    RefreshOutcome {
        /// The value was replaced.
        Refreshed = "refreshed",
        /// The row is gone.
        Absent = "absent",
        /// The backend failed; the old value stays.
        Error = "error",
        /// Another instance was loading it, no backend call was free, or the result could not be stored.
        Skipped = "skipped",
    }
}

labels! {
    /// How the wait for another instance's load ended.
    LeaseWait {
        /// The other instance stored its answer.
        Filled = "filled",
        /// The lease expired, and this lookup took it over.
        TakenOver = "taken_over",
        /// The other instance stored nothing.
        Freed = "freed",
        /// The deadline came near.
        TimedOut = "timed_out",
        /// The shared cache failed.
        Error = "error",
    }
}

labels! {
    /// Why a lookup was shed.
    ShedReason {
        /// `backend.max_queue` lookups already wait for the backend.
        QueueFull = "queue_full",
        /// No backend call became free in time.
        QueueTimeout = "queue_timeout",
        /// The breaker is open: the backend failed repeatedly, and one call at a time probes it.
        BreakerOpen = "breaker_open",
    }
}

labels! {
    /// How an announce ended.
    AnnounceOutcome {
        /// Acknowledged with 204.
        Accepted = "accepted",
        /// It could not be made durable.
        NotDurable = "not_durable",
        /// Too many pending announces.
        Full = "full",
        /// More per second than `server.max_announces_per_second`.
        Limited = "limited",
        /// Other instances do not know this one yet.
        Enrolling = "enrolling",
        /// The keyspace takes none: `announces = false`.
        Off = "off",
    }
}

labels! {
    /// How a rebuild ended.
    RebuildOutcome {
        /// The new filter is active.
        Swapped = "swapped",
        /// The source could not be read completely.
        SourceFailed = "source_failed",
        /// Fewer keys than `min_keys_ratio` allows.
        Collapsed = "collapsed",
        /// No keys, and `allow_empty` is off.
        Empty = "empty",
        /// More keys than the candidate was sized for.
        Overfull = "overfull",
        /// A key that the backend answered recently is missing from the candidate.
        MissingKeys = "missing_keys",
        /// Source and backend disagree on keys: another column or spelling.
        Mismatch = "mismatch",
        /// The backend did not answer a check.
        BackendFailed = "backend_failed",
        /// Filter, candidate and caches would not fit the memory limit.
        NoMemory = "no_memory",
        /// The keyspace secret is not known yet.
        NoSecret = "no_secret",
        /// The delta log has not been read yet.
        NoLog = "no_log",
        /// The process is stopping.
        Cancelled = "cancelled",
    }
}

labels! {
    /// How a scan got its turn among the instances.
    ScanTurn {
        /// It was granted.
        Granted = "granted",
        /// It waited as long as it may.
        TimedOut = "timed_out",
        /// Redis did not answer.
        Unreachable = "unreachable",
        /// Redis refused the command.
        Refused = "refused",
        /// An operator started the rebuild without waiting.
        Overridden = "overridden",
    }
}

labels! {
    /// How a poll for new keys ended.
    PollOutcome {
        /// Every source was read completely.
        Completed = "completed",
        /// A source is unreachable.
        Unavailable = "unavailable",
        /// A source's answer is unusable.
        Invalid = "invalid",
        /// Cached absences of new keys could not be checked.
        CacheFailed = "cache_failed",
        /// It took longer than `max_staleness`.
        TimedOut = "timed_out",
    }
}

labels! {
    /// What a circuit breaker protects.
    Dependency {
        /// The connection to Redis.
        Redis = "redis",
        /// The connection for announces, if these wait for replicas.
        RedisAnnounces = "redis_announces",
        /// The backends of the keyspaces.
        Backend = "backend",
    }
}

labels! {
    /// The outcome of a snapshot.
    SnapshotOutcome {
        /// Written to disk.
        Written = "written",
        /// The disk failed.
        Failed = "failed",
        /// No time was left to write it, or the filter turned out to be wrong.
        Abandoned = "abandoned",
        /// The process started from it.
        Restored = "restored",
        /// The process could not start from it.
        Refused = "refused",
    }
}

labels! {
    /// State of a circuit breaker.
    BreakerState {
        /// Calls pass.
        Closed = "closed",
        /// One call probes the dependency.
        HalfOpen = "half_open",
        /// Calls fail at once.
        Open = "open",
    }
}

labels! {
    /// The outcome of a configuration reload.
    ReloadOutcome {
        /// All changes are active.
        Applied = "applied",
        /// Some changes need a restart.
        NeedsRestart = "needs_restart",
        /// Nothing has changed.
        Unchanged = "unchanged",
        /// The configuration is invalid; nothing has changed.
        Failed = "failed",
    }
}

labels! {
    /// A listener.
    Listener {
        /// For applications.
        Data = "data",
        /// For probes and Prometheus.
        Telemetry = "telemetry",
        /// For operators.
        Admin = "admin",
    }
}

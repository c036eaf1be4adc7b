//! The words of the outside as types: each has one spelling, used by headers, metrics and `/status` alike.

use serde::{Deserialize, Serialize};

/// Defines an enum whose variants have one fixed spelling, with `ALL` for metrics that must exist at 0 from the start.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)+ }

        impl $name {
            /// Every variant, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The one spelling of this word.
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

labels! {
    /// What the filter says of a key.
    Verdict {
        /// Certainly not in the filter.
        Absent = "absent",
        /// In the filter, or a false positive.
        Maybe = "maybe",
    }
}

labels! {
    /// Why a request or a response was refused or cut because of the bytes that it holds.
    BufferRefusal {
        /// No room for the request: its head, its body, or what a batch is worked with.
        Request = "request",
        /// No room for the values of a batch; the keys that are left fail.
        Values = "values",
        /// No room for the response.
        Response = "response",
        /// The client sent its body too slowly.
        SlowBody = "slow_body",
        /// The client did not take a response within `server.send_timeout`.
        SlowClient = "slow_client",
    }
}

labels! {
    /// Who answered a lookup.
    Source {
        /// The filter said absent.
        Filter = "filter",
        /// The in-process tier.
        Hot = "hot",
        /// The shared cache: Redis, or the one in this process where no Redis is configured.
        Redis = "redis",
        /// The database.
        Backend = "backend",
        /// Nobody could.
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
        /// Anything else: a failure is never an absence.
        Error = "error",
    }
}

labels! {
    /// Why an instance scans again, because announces of others may have been lost.
    ResyncReason {
        /// The log is younger than the commit window.
        Young = "young",
        /// Another log is in its place.
        Replaced = "replaced",
        /// It was trimmed before it was read.
        Trimmed = "trimmed",
        /// An entry is missing or can't be read, or a writer had to forget some.
        Gap = "gap",
        /// It does not go on from where the snapshot had come that the process started from.
        Snapshot = "snapshot",
        /// An instance that is configured otherwise writes to it.
        Configuration = "configuration",
    }
}

labels! {
    /// The state of a keyspace. Only `enforcing` answers 404 from the filter.
    State {
        /// No filter yet.
        Cold = "cold",
        /// The filter decides nothing, it is only compared.
        Shadow = "shadow",
        /// The filter answers.
        Enforcing = "enforcing",
        /// The promise can't be shown at present.
        Degraded = "degraded",
    }
}

labels! {
    /// What the filter got wrong.
    MismatchKind {
        /// It said absent of a row that exists.
        FalseNegative = "false_negative",
        /// It said maybe of a key that does not.
        FalsePositive = "false_positive",
    }
}

labels! {
    /// Who asked the backend and so found the filter wrong.
    FoundBy {
        /// A lookup that the filter did not answer.
        Lookup = "lookup",
        /// A check of an answer that the filter had given.
        Canary = "canary",
    }
}

labels! {
    /// What became of a check of one of the filter's answers.
    CanaryResult {
        /// The backend has no such row either.
        Absent = "absent",
        /// It has, and so has the filter by now: the row is younger than the answer.
        Late = "late",
        /// It has, and the filter should have known.
        FalseNegative = "false_negative",
        /// The backend, or the log that tells what the filter should know, gave no answer.
        Error = "error",
    }
}

labels! {
    /// A tier that caches.
    CacheTier {
        /// In-process.
        Hot = "hot",
        /// Shared.
        Redis = "redis",
    }
}

labels! {
    /// What a cache said.
    CacheResult {
        /// It holds the value.
        Hit = "hit",
        /// It holds a usable absence.
        Absent = "absent",
        /// It holds nothing usable.
        Miss = "miss",
        /// It did not answer.
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
        /// No answer within its time.
        Timeout = "timeout",
        /// Not reachable.
        Unavailable = "unavailable",
        /// An answer that can't be used: a query that does not fit, a row that can't be read.
        Invalid = "invalid",
    }
}

labels! {
    /// What became of a value that was to be loaded again ahead of its expiry.
    RefreshOutcome {
        /// A newer one is in its place.
        Refreshed = "refreshed",
        /// The row is gone.
        Absent = "absent",
        /// The backend failed; the value stays.
        Error = "error",
        /// Another instance was at it, no backend call was free at once, or what came back could not be stored.
        Skipped = "skipped",
    }
}

labels! {
    /// How waiting for another instance's load ended.
    LeaseWait {
        /// It stored its answer.
        Filled = "filled",
        /// It died or took too long: its lease ended, and the lookup got the next.
        TakenOver = "taken_over",
        /// It stored nothing.
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
        /// No turn came while there was time left for a call.
        QueueTimeout = "queue_timeout",
        /// The backend has failed again and again: it is asked by one call at a time until that is answered.
        BreakerOpen = "breaker_open",
    }
}

labels! {
    /// How an announce ended.
    AnnounceOutcome {
        /// 204.
        Accepted = "accepted",
        /// It could not be made durable.
        NotDurable = "not_durable",
        /// Too many announces within their window.
        Full = "full",
        /// More a second than `server.max_announces_per_second`.
        Limited = "limited",
    }
}

labels! {
    /// How a rebuild ended.
    RebuildOutcome {
        /// The new filter is in force.
        Swapped = "swapped",
        /// The source could not be read to its end.
        SourceFailed = "source_failed",
        /// Fewer keys than `min_keys_ratio` allows.
        Collapsed = "collapsed",
        /// No keys, and `allow_empty` is off.
        Empty = "empty",
        /// More keys than the candidate was sized for.
        Overfull = "overfull",
        /// A key that the backend has answered lately is missing from the candidate.
        MissingKeys = "missing_keys",
        /// Source and backend disagree on keys: another column, another spelling.
        Mismatch = "mismatch",
        /// The backend did not answer a check.
        BackendFailed = "backend_failed",
        /// Filter, candidate and caches would not fit the memory limit.
        NoMemory = "no_memory",
        /// Redis has not told the secret under which keys are hashed.
        NoSecret = "no_secret",
        /// The delta log has not been read yet.
        NoLog = "no_log",
        /// The process stops.
        Cancelled = "cancelled",
    }
}

labels! {
    /// How a scan came to begin where instances take turns.
    ScanTurn {
        /// It was its turn.
        Granted = "granted",
        /// It had waited as long as it may.
        TimedOut = "timed_out",
        /// Redis did not answer.
        Unreachable = "unreachable",
        /// Redis refused the command.
        Refused = "refused",
        /// An operator asked for it at once.
        Overridden = "overridden",
    }
}

labels! {
    /// How a poll for new keys ended.
    PollOutcome {
        /// Every source was read to its end.
        Completed = "completed",
        /// A source can't be reached.
        Unavailable = "unavailable",
        /// A source's answer can't be used.
        Invalid = "invalid",
        /// Cached absences of new keys could not be looked for.
        CacheFailed = "cache_failed",
        /// It took longer than `max_staleness`.
        TimedOut = "timed_out",
    }
}

labels! {
    /// What a circuit breaker stands before.
    Dependency {
        /// The connection to Redis.
        Redis = "redis",
        /// The one for announces, where these wait for replicas.
        RedisAnnounces = "redis_announces",
        /// The backends of the keyspaces.
        Backend = "backend",
    }
}

labels! {
    /// What became of a snapshot of a filter.
    SnapshotOutcome {
        /// It is on disk.
        Written = "written",
        /// The disk refused.
        Failed = "failed",
        /// There was no time left to write it, or the filter turned out wrong meanwhile.
        Abandoned = "abandoned",
        /// The process has started from it.
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
        /// One call tries.
        HalfOpen = "half_open",
        /// Calls fail at once.
        Open = "open",
    }
}

labels! {
    /// What became of a configuration that was read again.
    ReloadOutcome {
        /// All of it is in force.
        Applied = "applied",
        /// Some of it is not in force before a restart.
        NeedsRestart = "needs_restart",
        /// It says what it said before.
        Unchanged = "unchanged",
        /// It is bad; nothing has changed.
        Failed = "failed",
    }
}

labels! {
    /// Who listens.
    Listener {
        /// To the application.
        Data = "data",
        /// To probes and Prometheus.
        Telemetry = "telemetry",
        /// To operators.
        Admin = "admin",
    }
}

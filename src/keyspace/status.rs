//! What `/status` says of a keyspace.

use serde::Serialize;

use super::{EnforcementStatus, SnapshotStatus};
use crate::backend::SetStatus;
use crate::cache::CacheStatus;
use crate::labels::{BreakerState, RebuildOutcome, State};

/// One keyspace, as `/status` shows it. Holds no database error text: the telemetry listener is open to the cluster.
#[derive(Debug, Clone, Serialize)]
pub struct KeyspaceStatus {
    /// `cold`, `shadow`, `enforcing` or `degraded`.
    pub state: State,
    /// Why it is in that state.
    pub reason: String,
    /// Whose absences the filter answers while it may decide, and where that comes from.
    pub enforcement: EnforcementStatus,
    /// Number of the filter in force; 0 = none.
    pub generation: u64,
    /// Keys in the filter, estimated from its fill.
    pub items: u64,
    /// Keys it was sized for.
    pub capacity: u64,
    /// items / capacity.
    pub load_ratio: f64,
    /// Share of bits that are set.
    pub fill_ratio: f64,
    /// Bits of the filter.
    pub bits: u64,
    /// Bytes of the filter.
    pub bytes: u64,
    /// Layers of the filter: one, and those by which it has grown past what it was made for.
    pub layers: usize,
    /// False-positive rate asked for.
    pub asked_fpr: f64,
    /// False-positive rate that the present fill predicts.
    pub estimated_fpr: f64,
    /// FP / (FP + TN) since the swap; `None` before the first.
    pub observed_fpr: Option<f64>,
    /// Rows found although the filter had said absent, since the start.
    pub false_negatives: u64,
    /// Distinct absent keys that were asked for in the last five minutes, estimated.
    pub distinct_absent_keys: u64,
    /// Distinct keys that announces and polls have brought in the last five minutes, estimated.
    pub distinct_inserted_keys: u64,
    /// Share of the keys sampled from the source by the last scan that the backend had no row for; `None` where none were sampled.
    pub source_sample_absent_ratio: Option<f64>,
    /// Announces within their commit window.
    pub announces: AnnounceStatus,
    /// Seconds since the swap.
    pub age_seconds: Option<f64>,
    /// Seconds since the start of the last complete poll (`polled`), else of the scan behind the filter in force.
    pub freshness_lag_seconds: Option<f64>,
    /// Seconds of that lag at which the keyspace stops rejecting; `None`: it never does for its age.
    pub max_staleness_seconds: Option<f64>,
    /// Seconds since the delta log was read to its end; `None`: never, or there is none.
    pub delta_lag_seconds: Option<f64>,
    /// What the promise rests on, in words.
    pub freshness: String,
    /// Canonical form of the keys, once known.
    pub key_form: Option<&'static str>,
    /// What the rebuild under way waits for before it reads the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild_waits: Option<&'static str>,
    /// The last rebuild.
    pub last_rebuild: Option<LastRebuild>,
    /// The shared cache.
    pub cache: CacheStatus,
    /// The backend, where there is one to ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendStatus>,
    /// The keys held exactly, where `backend.kind = "set"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<SetStatus>,
    /// The filter on disk, where it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotStatus>,
    /// What an operator should mend.
    pub warnings: Vec<String>,
}

/// Whether the backend is asked.
#[derive(Debug, Clone, Serialize)]
pub struct BackendStatus {
    /// `closed`; `open` or `half_open`: it has given no answer for a while.
    pub breaker: BreakerState,
}

/// What is remembered of announces, this instance's and the others'.
#[derive(Debug, Clone, Serialize)]
pub struct AnnounceStatus {
    /// Keys.
    pub held: u64,
    /// What they take, with their marks where these are in this process.
    pub bytes: u64,
    /// `server.max_announce_bytes`.
    pub max_bytes: u64,
}

/// How the last rebuild went.
#[derive(Debug, Clone, Serialize)]
pub struct LastRebuild {
    /// Its number, as the admin API told it.
    pub job: u64,
    /// How it ended.
    pub outcome: RebuildOutcome,
    /// Unix time of its end, seconds.
    pub finished_unix: u64,
    /// How long it took, seconds.
    pub duration_seconds: f64,
    /// How much of that it read keys and filled the filter, seconds; the rest is counting before and checking after.
    pub scan_seconds: f64,
    /// Keys read.
    pub keys: u64,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

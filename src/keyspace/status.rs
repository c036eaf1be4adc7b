//! A keyspace, as `/status` shows it.

use serde::Serialize;

use super::Keyspace;
use super::build_state::LastRebuild;
use super::freshness::EnforcementStatus;
use super::snapshot_file::SnapshotStatus;
use crate::backend::{Members, SetStatus};
use crate::cache::CacheStatus;
use crate::clock::Moment;
use crate::config::Freshness;
use crate::filter::Filter;
use crate::labels::{BreakerState, State};

/// One keyspace, as `/status` shows it. Contains no database error text: the telemetry listener is open to the cluster.
#[derive(Debug, Clone, Serialize)]
pub struct KeyspaceStatus {
    /// `cold`, `shadow`, `enforcing` or `degraded`.
    pub state: State,
    /// Why it is in that state.
    pub reason: String,
    /// For which keys the filter answers 404 while it is trusted, and the origin of that setting.
    pub enforcement: EnforcementStatus,
    /// Number of the active filter; 0 = none.
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
    /// Layers of the filter: one, plus one for each growth past its capacity.
    pub layers: usize,
    /// Configured false-positive rate.
    pub asked_fpr: f64,
    /// False-positive rate that the present fill predicts.
    pub estimated_fpr: f64,
    /// FP / (FP + TN) since the swap; `None` before the first.
    pub observed_fpr: Option<f64>,
    /// Rows found although the filter had answered absent, since the start.
    pub false_negatives: u64,
    /// Distinct absent keys requested in the last five minutes, estimated.
    pub distinct_absent_keys: u64,
    /// Distinct keys inserted by announces and polls in the last five minutes, estimated.
    pub distinct_inserted_keys: u64,
    /// Share of the last scan's sampled keys for which the backend had no row; `None`: no keys were sampled.
    pub source_sample_absent_ratio: Option<f64>,
    /// Announces within their commit window.
    pub announces: AnnounceStatus,
    /// Seconds since the swap.
    pub age_seconds: Option<f64>,
    /// Seconds since the start of the last complete poll (`polled`), else of the active filter's scan.
    pub freshness_lag_seconds: Option<f64>,
    /// Lag in seconds at which the keyspace stops answering 404 from the filter; `None`: age does not matter.
    pub max_staleness_seconds: Option<f64>,
    /// Seconds since the delta log was read to its end; `None`: never, or there is none.
    pub delta_lag_seconds: Option<f64>,
    /// What the promise depends on, in words.
    pub freshness: String,
    /// Canonical form of the keys, once known.
    pub key_form: Option<&'static str>,
    /// What the running rebuild waits for before it reads the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild_waits: Option<&'static str>,
    /// The last rebuild.
    pub last_rebuild: Option<LastRebuild>,
    /// The shared cache.
    pub cache: CacheStatus,
    /// The backend, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendStatus>,
    /// The exact keys, if `backend.kind = "set"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<SetStatus>,
    /// The filter on disk, if snapshots are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotStatus>,
    /// What an operator should fix.
    pub warnings: Vec<String>,
}

/// Whether the backend is asked.
#[derive(Debug, Clone, Serialize)]
pub struct BackendStatus {
    /// `closed`; `open` or `half_open`: it has not answered for a while.
    pub breaker: BreakerState,
}

/// Announces within their commit window, of this instance and the others.
#[derive(Debug, Clone, Serialize)]
pub struct AnnounceStatus {
    /// Keys.
    pub held: u64,
    /// Their bytes, including marks that are in this process.
    pub bytes: u64,
    /// `server.max_announce_bytes`.
    pub max_bytes: u64,
}

impl Keyspace {
    /// For `/status`.
    #[must_use]
    pub fn status(&self) -> KeyspaceStatus {
        let now = Moment::now();
        let (state, reason) = self.freshness.observe_state();
        let (growth, promise, windows) = (self.stats.growth(), self.freshness.promise(), &self.writer.windows);
        let current = self.prober.current();
        let filter = current.as_ref().map(|g| &g.filter);
        let exceeded = filter.and_then(|filter| growth.exceeded_rate(filter));
        let reason = exceeded.map_or_else(|| reason.clone(), |exceeded| format!("{reason}; {exceeded}"));
        let (items, capacity) = filter.map_or((0, 0), |f| (f.items(), f.capacity()));
        let cache = self.writer.shared.status();
        let (held, held_bytes) = windows.recent.held();
        let depends_on_age = matches!(promise.freshness, Freshness::Rebuilt | Freshness::Polled);
        KeyspaceStatus {
            state,
            reason,
            enforcement: self.enforcement(),
            generation: current.as_ref().map_or(0, |g| g.number),
            items,
            capacity,
            load_ratio: if capacity == 0 { 0.0 } else { items as f64 / capacity as f64 },
            fill_ratio: filter.map_or(0.0, |f| f.fill_ratio()),
            bits: filter.map_or(0, |f| f.bits()),
            bytes: filter.map_or(0, |f| f.bytes()),
            layers: filter.map_or(0, |f| f.layer_count()),
            asked_fpr: growth.asked_fpr(),
            estimated_fpr: filter.map_or(0.0, |f| f.estimated_fpr()),
            observed_fpr: self.stats.observed_rate(),
            false_negatives: self.stats.false_negatives(),
            distinct_absent_keys: growth.distinct_absent(),
            distinct_inserted_keys: growth.distinct_inserted(),
            source_sample_absent_ratio: self.builds.sampled_absent_ratio(),
            announces: AnnounceStatus {
                held: held as u64,
                bytes: held_bytes as u64,
                max_bytes: self.writer.limits.bytes,
            },
            age_seconds: self.builds.swapped_at().map(|at| now.since(at).as_secs_f64()),
            freshness_lag_seconds: self.freshness.fresh_since().map(|at| now.since(at).as_secs_f64()),
            max_staleness_seconds: depends_on_age.then_some(promise.max_staleness.as_secs_f64()),
            delta_lag_seconds: self.freshness.log_lag(now).map(|lag| lag.as_secs_f64()),
            freshness: self.freshness.promise_in_words(),
            key_form: self.identity.form().map(|form| form.as_str()),
            rebuild_waits: self.builds.waits_for(),
            last_rebuild: self.builds.last_rebuild(),
            warnings: self.warnings(now, filter.map(|filter| &**filter), cache.warning.as_deref()),
            backend: self.backend.members().is_none().then(|| BackendStatus { breaker: self.backend.breaker_state() }),
            set: self.backend.members().map(Members::status),
            snapshot: self.snapshots.file.as_ref().map(|file| file.status()),
            cache,
        }
    }

    /// What an operator should fix.
    fn warnings(&self, now: Moment, filter: Option<&Filter>, cache: Option<&str>) -> Vec<String> {
        let mut warnings: Vec<String> = cache.map(str::to_owned).into_iter().collect();
        warnings.extend(self.builds.warnings());
        warnings.extend(self.follower.iter().flat_map(|follower| follower.warnings()));
        warnings.extend(self.set_warning());
        warnings.extend(self.polls.warning());
        warnings.extend(self.writer.windows.warning(now));
        warnings.extend(filter.and_then(|filter| self.stats.growth().warning(filter)));
        warnings
    }

    fn set_warning(&self) -> Option<String> {
        self.backend.members()?.lost_until()?;
        Some(
            "more keys were announced since the last scan than are held: keys that are not in the set are answered \
            503 until a scan after their commit window"
                .into(),
        )
    }
}

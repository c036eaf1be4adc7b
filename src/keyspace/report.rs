//! What a keyspace shows of itself: status, state changes, the last rebuild.

use std::sync::Arc;

use super::{AnnounceStatus, BackendStatus, Keyspace, KeyspaceStatus, LastRebuild};
use crate::background;
use crate::clock::Moment;
use crate::config::Freshness;
use crate::labels::State;

/// Bytes of announces whose windows have closed that are worth a search for pages to return.
const WORTH_RETURNING: usize = 8 << 20;

impl Keyspace {
    /// For `/status`.
    #[must_use]
    pub fn status(&self) -> KeyspaceStatus {
        let now = Moment::now();
        let (state, reason) = self.standing.explain(now);
        self.note_state(state, &reason);
        let current = self.active.current();
        let filter = current.as_ref().map(|g| &g.filter);
        let exceeded = filter.and_then(|filter| self.exceeded_rate(filter));
        let reason = exceeded.map_or_else(|| reason.clone(), |exceeded| format!("{reason}; {exceeded}"));
        let (items, capacity) = filter.map_or((0, 0), |f| (f.items(), f.capacity()));
        let cache = self.shared.status();
        let (sampled_absent, sample_warning) = {
            let sampled = self.sampled.lock();
            (sampled.absent_ratio(), sampled.warning())
        };
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
            asked_fpr: self.asked_fpr,
            estimated_fpr: filter.map_or(0.0, |f| f.estimated_fpr()),
            observed_fpr: self.observed.rate(),
            false_negatives: self.observed.false_negatives(),
            distinct_absent_keys: self.growth.distinct_absent(),
            distinct_inserted_keys: self.growth.distinct_inserted(),
            source_sample_absent_ratio: sampled_absent,
            announces: self.announce_status(),
            age_seconds: self.swapped_at.lock().map(|at| now.since(at).as_secs_f64()),
            freshness_lag_seconds: self.standing.fresh_since().map(|at| now.since(at).as_secs_f64()),
            max_staleness_seconds: self.rests_on_age().then(|| self.standing.max_staleness().as_secs_f64()),
            delta_lag_seconds: self.standing.log_lag(now).map(|lag| lag.as_secs_f64()),
            freshness: self.standing.basis(),
            key_form: self.form.get().map(|form| form.as_str()),
            rebuild_waits: *self.rebuild_waits.lock(),
            last_rebuild: self.last_rebuild.lock().clone(),
            warnings: cache
                .warning
                .iter()
                .cloned()
                .chain(self.source_warning.lock().clone())
                .chain(sample_warning)
                .chain(self.peer_warnings())
                .chain(self.set_warning())
                .chain(self.poll_warning())
                .chain(self.announce_warning(now))
                .chain(filter.and_then(|filter| self.growth_warning(filter)))
                .collect(),
            backend: self.members().is_none().then(|| BackendStatus { breaker: self.breaker.state() }),
            set: self.set_status(),
            snapshot: self.snapshots.as_ref().map(|snapshots| snapshots.status()),
            cache,
        }
    }

    fn announce_warning(&self, now: Moment) -> Option<String> {
        let why = "more announces of other instances are within their commit window than server.max_announce_bytes holds: no filter is built and no absence cached until it closes";
        self.recent.lacks_some(now).then(|| why.into())
    }

    fn announce_status(&self) -> AnnounceStatus {
        let (held, bytes) = self.recent.held();
        AnnounceStatus { held: held as u64, bytes: bytes as u64, max_bytes: self.announce_limits.bytes }
    }

    fn rests_on_age(&self) -> bool {
        matches!(self.standing.freshness(), Freshness::Rebuilt | Freshness::Polled)
    }

    /// Counts and logs a change of state. Called when the status is shown, after each build, and every second.
    pub fn note_state(&self, state: State, reason: &str) {
        if !self.standing.is_news(state) {
            return;
        }
        self.metrics.state_entered(state);
        if state == State::Degraded {
            // No absence that this instance holds from before may be served once the keyspace enforces again. Those in the shared cache may:
            // each was true when it was stored, and none outlives `max_staleness`.
            self.hot.drop_all_absences();
            tracing::warn!(keyspace = %self.name, %state, reason, "the keyspace does not reject any more");
        } else {
            tracing::info!(keyspace = %self.name, %state, reason, "the keyspace changed its state");
        }
    }

    /// Looks at the state every second, so that a filter that ages unasked is told of too, one that is too small built anew, and a hold lifted. Runs until dropped.
    pub async fn keep_watch(self: Arc<Self>) {
        let mut most = 0;
        let mut every = tokio::time::interval(std::time::Duration::from_secs(1));
        loop {
            every.tick().await;
            let now = Moment::now();
            if self.standing.hold_is_over(now) {
                // Until this moment the keyspace could not reject: no absence from before may be served from now on.
                self.hot.drop_all_absences();
                self.standing.lift_hold();
            }
            let (state, reason) = self.standing.explain(now);
            self.note_state(state, &reason);
            self.settle_windows();
            self.recent.purge(now);
            self.shared.purge();
            let held = self.recent.held().1;
            most = most.max(held);
            // What is left at the end is returned too, however little it is.
            let is_last = held == 0 && most >= WORTH_RETURNING / 8;
            if is_last || held + WORTH_RETURNING <= most && held <= most / 2 {
                most = held;
                // Beside this task; nobody waits for it.
                drop(tokio::task::spawn_blocking(background::give_memory_back));
            }
            self.watch_growth(now);
            self.canary.tick(self.observed.absent_verdicts(), now);
        }
    }

    /// Keeps how a rebuild ended.
    pub(crate) fn rebuild_ended(&self, last: LastRebuild) {
        *self.last_rebuild.lock() = Some(last);
    }

    /// How the last rebuild ended.
    #[must_use]
    pub fn last_rebuild(&self) -> Option<LastRebuild> {
        self.last_rebuild.lock().clone()
    }
}

//! The metrics of one keyspace.

use std::sync::Arc;
use std::time::Duration;

use super::filter_gauges::FilterGauges;
use super::series::{Counter, Gauge, Histogram};
use super::{
    BreakerMetrics, Gauges, LATENCY_BUCKETS, LogMetrics, PollMetrics, RebuildMetrics, Registry, SnapshotMetrics,
    UnprotectedMetrics,
};
use crate::labels::{
    AnnounceOutcome, BackendOutcome, BreakerState, CacheResult, CacheTier, CanaryResult, Dependency, LeaseWait,
    LookupResult, RefreshOutcome, ShedReason, Source, State, Verdict,
};

/// Recorders of one keyspace. Every method is lock-free.
#[derive(Debug)]
pub struct KeyspaceMetrics {
    name: String,
    breakers: Arc<BreakerMetrics>,
    lookups: Vec<Counter>,
    lookup_duration: Vec<Histogram>,
    checks: Vec<Counter>,
    false_positives: Counter,
    false_negatives: Counter,
    explained_negatives: Counter,
    canary_checks: Vec<Counter>,
    cache: Vec<Counter>,
    refreshes: Vec<Counter>,
    lease_waits: Vec<Counter>,
    backend: Vec<Counter>,
    backend_duration: Histogram,
    backend_inflight: Gauge,
    coalesced: Counter,
    bypasses: Counter,
    shed: Vec<Counter>,
    stale_answers: Counter,
    absence_storms: Counter,
    announces: Vec<Counter>,
    /// Recorders of the delta log.
    pub log: LogMetrics,
    delta_lag: Gauge,
    deletes: Counter,
    invalidated: Counter,
    /// Recorders of rebuilds.
    pub rebuilds: RebuildMetrics,
    state: Vec<Gauge>,
    state_changes: Vec<Counter>,
    filter: FilterGauges,
    max_staleness: Gauge,
    proof_remaining: Gauge,
    source_sample_absent: Gauge,
    set_keys: Gauge,
    set_bytes: Gauge,
    /// Polls for new keys.
    pub polls: PollMetrics,
    /// Snapshots of the filter.
    pub snapshots: SnapshotMetrics,
    /// Time without the filter's answers.
    pub unprotected: UnprotectedMetrics,
}

/// Counts a backend call as in flight until dropped.
#[derive(Debug)]
pub struct Inflight<'a>(&'a Gauge);

impl Drop for Inflight<'_> {
    fn drop(&mut self) {
        self.0.add(-1.0);
    }
}

impl KeyspaceMetrics {
    pub(super) fn new(registry: &Registry, keyspace: &str, breakers: Arc<BreakerMetrics>) -> Self {
        let ks = ("keyspace", keyspace);
        let counter =
            |name, help, label: &[(&'static str, &str)]| registry.counter(name, help, &[&[ks], label].concat());
        let gauge = |name, help| registry.gauge(name, help, &[ks]);
        let mut lookups = vec![];
        for source in Source::ALL {
            for result in LookupResult::ALL {
                lookups.push(counter(
                    "lookups_total",
                    "Lookups by source of the answer and result",
                    &[("source", source.as_str()), ("result", result.as_str())],
                ));
            }
        }
        let mut cache = vec![];
        for tier in CacheTier::ALL {
            for result in CacheResult::ALL {
                cache.push(counter(
                    "cache_requests_total",
                    "Cache reads by tier and result",
                    &[("tier", tier.as_str()), ("result", result.as_str())],
                ));
            }
        }
        Self {
            name: keyspace.to_owned(),
            breakers,
            lookups,
            lookup_duration: Source::ALL
                .iter()
                .map(|s| {
                    registry.histogram(
                        "lookup_duration_seconds",
                        "Duration of lookups",
                        LATENCY_BUCKETS,
                        &[ks, ("source", s.as_str())],
                    )
                })
                .collect(),
            checks: Verdict::ALL
                .iter()
                .map(|v| {
                    counter(
                        "filter_checks_total",
                        "Raw verdicts of the filter, in every state of the keyspace",
                        &[("verdict", v.as_str())],
                    )
                })
                .collect(),
            false_positives: counter(
                "filter_false_positives_total",
                "Maybe verdicts for keys that the backend does not have",
                &[],
            ),
            false_negatives: counter(
                "filter_false_negatives_total",
                "Absent verdicts for keys that the backend has",
                &[],
            ),
            explained_negatives: counter(
                "filter_false_negatives_explained_total",
                "Absent verdicts for keys that the backend has, explained by lost announces; not in \
                 filter_false_negatives_total",
                &[],
            ),
            canary_checks: CanaryResult::ALL
                .iter()
                .map(|r| {
                    counter(
                        "filter_canary_checks_total",
                        "Absences of the filter checked at the backend, by result",
                        &[("result", r.as_str())],
                    )
                })
                .collect(),
            cache,
            refreshes: RefreshOutcome::ALL
                .iter()
                .map(|o| {
                    counter(
                        "cache_refreshes_total",
                        "Values refreshed ahead of their expiry, by outcome",
                        &[("outcome", o.as_str())],
                    )
                })
                .collect(),
            lease_waits: LeaseWait::ALL
                .iter()
                .map(|o| {
                    counter(
                        "cache_lease_waits_total",
                        "Loads that waited for another instance, by outcome",
                        &[("outcome", o.as_str())],
                    )
                })
                .collect(),
            backend: BackendOutcome::ALL
                .iter()
                .map(|o| {
                    counter(
                        "backend_requests_total",
                        "Backend calls of guarded reads by outcome",
                        &[("outcome", o.as_str())],
                    )
                })
                .collect(),
            backend_duration: registry.histogram(
                "backend_request_duration_seconds",
                "Duration of backend calls of guarded reads",
                LATENCY_BUCKETS,
                &[ks],
            ),
            backend_inflight: gauge("backend_inflight_requests", "Backend calls of guarded reads in flight"),
            coalesced: counter("coalesced_lookups_total", "Lookups that joined another's load of the same key", &[]),
            bypasses: counter("bypasses_total", "Lookups that skipped filter and caches on request", &[]),
            shed: ShedReason::ALL
                .iter()
                .map(|r| counter("shed_total", "Lookups shed, by reason", &[("reason", r.as_str())]))
                .collect(),
            stale_answers: counter(
                "stale_answers_total",
                "Lookups answered with an expired value because the backend failed",
                &[],
            ),
            absence_storms: counter(
                "backend_absence_storms_total",
                "Times that the backend seemed to have lost rows",
                &[],
            ),
            announces: AnnounceOutcome::ALL
                .iter()
                .map(|o| counter("announces_total", "Announces by outcome", &[("outcome", o.as_str())]))
                .collect(),
            log: LogMetrics::new(registry, keyspace),
            delta_lag: gauge(
                "delta_lag_seconds",
                "Seconds since the delta log was last read completely; 0 without a log",
            ),
            invalidated: counter("invalidated_keys_total", "Keys whose cached answers were invalidated", &[]),
            deletes: counter("deletes_total", "Deletes acknowledged", &[]),
            rebuilds: RebuildMetrics::new(registry, keyspace),
            state: State::ALL
                .iter()
                .map(|s| {
                    let help = "State of the keyspace: 1 for the current state, else 0";
                    registry.gauge("keyspace_state", help, &[ks, ("state", s.as_str())])
                })
                .collect(),
            state_changes: State::ALL
                .iter()
                .map(|s| {
                    counter(
                        "keyspace_state_changes_total",
                        "Times the keyspace entered a state",
                        &[("state", s.as_str())],
                    )
                })
                .collect(),
            max_staleness: gauge(
                "keyspace_max_staleness_seconds",
                "Freshness lag in seconds at which the keyspace stops answering 404: max_staleness",
            ),
            proof_remaining: gauge(
                "keyspace_proof_remaining",
                "Comparisons with the backend that the keyspace needs before it enforces; 0 = none",
            ),
            source_sample_absent: gauge(
                "source_sample_absent_ratio",
                "Share of the keys sampled by the last scan that have no row in the backend",
            ),
            set_keys: gauge("set_keys", "Keys of the last scan held exactly; 0 if the backend is not a key set"),
            set_bytes: gauge("set_bytes", "Bytes of the keys held exactly"),
            polls: PollMetrics::new(registry, keyspace),
            snapshots: SnapshotMetrics::new(registry, keyspace),
            unprotected: UnprotectedMetrics::new(registry, keyspace),
            filter: FilterGauges::new(registry, keyspace),
        }
    }

    /// Counts a finished lookup.
    pub fn lookup(&self, source: Source, result: LookupResult, took: Duration) {
        self.lookups[source as usize * LookupResult::ALL.len() + result as usize].increment(1);
        self.lookup_duration[source as usize].record(took);
    }

    /// Counts a raw verdict.
    pub fn check(&self, verdict: Verdict) {
        self.checked(verdict, 1);
    }

    /// Counts the raw verdicts of a batch.
    pub fn checked(&self, verdict: Verdict, keys: u64) {
        self.checks[verdict as usize].increment(keys);
    }

    /// Counts a raw maybe for a key that the backend does not have.
    pub fn false_positive(&self) {
        self.false_positives.increment(1);
    }

    /// Counts a raw absent for a key that the backend has.
    pub fn false_negative(&self) {
        self.false_negatives.increment(1);
    }

    /// Counts a raw absent for a key that the backend has and whose announce may be lost.
    pub fn explained_negative(&self) {
        self.explained_negatives.increment(1);
    }

    /// Counts a canary check.
    pub fn canary_check(&self, result: CanaryResult) {
        self.canary_checks[result as usize].increment(1);
    }

    /// Counts a cache read.
    pub fn cache(&self, tier: CacheTier, result: CacheResult) {
        self.cache[tier as usize * CacheResult::ALL.len() + result as usize].increment(1);
    }

    /// Counts a refresh ahead of expiry.
    pub fn refresh(&self, outcome: RefreshOutcome) {
        self.refreshes[outcome as usize].increment(1);
    }

    /// Counts a load that waited for another instance.
    pub fn lease_wait(&self, outcome: LeaseWait) {
        self.lease_waits[outcome as usize].increment(1);
    }

    /// Counts a finished backend call of a guarded read.
    pub fn backend(&self, outcome: BackendOutcome, took: Duration) {
        self.backend[outcome as usize].increment(1);
        self.backend_duration.record(took);
    }

    /// Counts a backend call as in flight until the guard is dropped.
    #[must_use]
    pub fn backend_inflight(&self) -> Inflight<'_> {
        self.backend_inflight.add(1.0);
        Inflight(&self.backend_inflight)
    }

    /// Counts a lookup that joined another's load.
    pub fn coalesced(&self) {
        self.coalesced.increment(1);
    }

    /// Counts a lookup that asked to skip filter and caches.
    pub fn bypass(&self) {
        self.bypasses.increment(1);
    }

    /// Counts a shed lookup.
    pub fn shed(&self, reason: ShedReason) {
        self.shed[reason as usize].increment(1);
    }

    /// Counts a lookup that was answered with an expired value.
    pub fn stale_answer(&self) {
        self.stale_answers.increment(1);
    }

    /// Sets the state of the breaker in front of the keyspace's backend.
    pub fn backend_breaker(&self, state: BreakerState) {
        self.breakers.set(Dependency::Backend, &self.name, state);
    }

    /// Counts an absence storm: the backend seems to have lost rows.
    pub fn absence_storm(&self) {
        self.absence_storms.increment(1);
    }

    /// Counts announces that ended together.
    pub fn announces(&self, outcome: AnnounceOutcome, keys: u64) {
        self.announces[outcome as usize].increment(keys);
    }

    /// Counts invalidated keys.
    pub fn invalidated(&self, keys: u64) {
        self.invalidated.increment(keys);
    }

    /// Counts an acknowledged delete.
    pub fn delete(&self) {
        self.deletes.increment(1);
    }

    /// Counts a change to `state`.
    pub fn state_entered(&self, state: State) {
        self.state_changes[state as usize].increment(1);
    }

    /// Sets every gauge; call before a scrape is rendered.
    pub fn set_gauges(&self, g: &Gauges) {
        for (state, gauge) in State::ALL.iter().zip(&self.state) {
            gauge.set(f64::from(u8::from(*state == g.state)));
        }
        self.delta_lag.set(g.delta_lag_seconds);
        self.max_staleness.set(g.max_staleness_seconds);
        self.proof_remaining.set(f64::from(g.proof_remaining));
        self.source_sample_absent.set(g.source_sample_absent_ratio);
        self.set_keys.set(g.set_keys as f64);
        self.set_bytes.set(g.set_bytes as f64);
        self.filter.set(g);
    }
}

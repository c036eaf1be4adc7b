//! A keyspace without announces: its right rests on no log, and it changes its secret without a gap.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bloomguard::clock::Moment;
use bloomguard::config::{EnforcementSetting, Freshness, KeyspaceConfig};
use bloomguard::fleet::{Delta, DeltaLog, EntryId, LogEntry, LogEntryKind, LogError, LogPage, Switch, WriterId};
use bloomguard::key::{KeyHash, KeySecret};
use bloomguard::keyspace::{AnnounceError, LogParts};
use bloomguard::labels::{RebuildOutcome, State};
use bloomguard::redis::LogIdentity;
use bloomguard::source::PolledKey;
use parking_lot::Mutex;

use crate::support::eventually;
use crate::support::keyspace::{TestKeyspace, config};
use crate::support::scripted::{DeadCache, key};

/// A log that the test writes: pages in order, then nothing can be read.
#[derive(Default)]
struct WrittenLog(Mutex<Vec<LogPage>>);

fn gone<T>() -> Result<T, LogError> {
    Err(LogError::Unavailable("connection refused".into()))
}

#[async_trait]
impl DeltaLog for WrittenLog {
    fn retention(&self) -> Duration {
        Duration::from_secs(3600)
    }

    async fn append(&self, _: &[Delta], _: Option<u64>) -> Result<(LogIdentity, EntryId), LogError> {
        gone()
    }

    async fn read(&self, _: EntryId, _: Option<&str>) -> Result<LogPage, LogError> {
        self.0.lock().pop().map_or_else(gone, Ok)
    }

    async fn switch(&self, _: Option<EnforcementSetting>, _: u64) -> Result<Switch, LogError> {
        gone()
    }

    async fn restore_switch(&self, _: Switch) -> Result<(), LogError> {
        gone()
    }
}

/// A page of a log that has just been made, with one entry of another instance, hashed under a secret of its own.
fn page(log: u8, kind: LogEntryKind) -> LogPage {
    let now = 1_000_000;
    let id = EntryId { millis: now, sequence: u64::from(log) };
    let delta = Delta { kind, secret: 7, terms: None, hashes: vec![KeyHash::from_bits(1)] };
    let entry = LogEntry { id, writer: WriterId::random(), previous: EntryId::at(now - 1), delta };
    LogPage {
        identity: LogIdentity([log; 16]),
        born: now,
        now,
        last: id,
        made: 9,
        floor: EntryId::at(now),
        entries: vec![(id, Some(entry))],
        complete: true,
        switch: None,
        peers: Vec::new(),
        roster: None,
        is_registered: true,
        is_evictable: false,
    }
}

fn without_announces() -> KeyspaceConfig {
    let day = Duration::from_secs(24 * 3600);
    KeyspaceConfig { freshness: Freshness::Rebuilt, announces: Some(false), max_staleness: day, ..config() }
}

/// Its Redis is down, but for what is written to the log.
fn instance() -> (TestKeyspace, Arc<WrittenLog>) {
    let (log, writer) = (Arc::<WrittenLog>::default(), WriterId::random());
    let parts = LogParts {
        log: log.clone(),
        writer,
        max_lag: Duration::from_millis(1),
        roll_call: None,
        is_first_start: false,
    };
    (TestKeyspace::with_log(without_announces(), Arc::new(DeadCache::default()), parts), log)
}

/// Invariant: redis-is-not-the-promise
#[tokio::test]
async fn no_loss_of_the_log_ends_the_right_that_does_not_rest_on_it() {
    let (ks, log) = instance();
    let ks = ks.built().await;
    eventually("it rejects", || ks.keyspace.state() == State::Enforcing).await;
    let absent = ks.absent();
    for kind in [LogEntryKind::Announce, LogEntryKind::Gap, LogEntryKind::Drop] {
        // Read from the end: another log, then its entry that comes after a hole, then another log once more.
        *log.0.lock() = vec![page(3, kind), page(2, kind), page(2, kind)];
        eventually("the log is read", || log.0.lock().is_empty()).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!((ks.keyspace.state(), ks.get(&absent).await.as_str()), (State::Enforcing, "404 filter"));
    }
    assert!(ks.keyspace.rescan_in().is_none());
    assert!(
        ks.metrics.render().lines().filter(|line| line.contains("delta_resyncs_total{")).all(|l| l.ends_with(" 0"))
    );
}

/// Invariant: removed-rows-stay-removed
#[tokio::test]
async fn a_drop_that_is_hashed_under_another_secret_drops_all_that_is_hot() {
    let (ks, log) = instance();
    let ks = ks.built().await;
    assert_eq!(ks.get("user:1").await, "200 backend");
    assert_eq!(ks.get("user:1").await, "200 hot");
    *log.0.lock() = vec![page(2, LogEntryKind::Drop), page(2, LogEntryKind::Drop)];
    eventually("the log is read", || log.0.lock().is_empty()).await;
    let mut told = String::new();
    for _ in 0..1000 {
        told = ks.get("user:1").await;
        if told == "200 backend" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(told, "200 backend");
}

/// Invariant: redis-is-not-the-promise
#[tokio::test]
async fn rows_polled_while_a_secret_is_adopted_are_in_the_new_filter() {
    let (ks, _log) = instance();
    let ks = ks.built().await;
    eventually("it rejects", || ks.keyspace.state() == State::Enforcing).await;
    let (absent, generation) = (ks.absent(), ks.keyspace.generation());
    let scan = ks.source.hold_after_scan();
    ks.keyspace.agree_on_secret(KeySecret::random());
    ks.begin_rebuild();
    scan.reached().await;
    let new = ["polled:1", "polled:2"];
    ks.keyspace.polls().begin(Moment::now());
    let rows = new.map(|text| PolledKey { key: key(text), stamp: 7 });
    assert_eq!(ks.keyspace.polls().learn(&rows).await.unwrap(), 2, "no mark can be set, and none is needed");
    assert_eq!(ks.get(&absent).await, "404 filter", "under the old secret, meanwhile");
    scan.release();
    ks.rebuilt().await;
    assert!(ks.keyspace.generation() > generation);
    let known = (0..1000).map(|i| format!("user:{i}")).chain(new.map(str::to_owned));
    assert!(known.into_iter().all(|text| ks.maybe(&text)), "a key is missing under the new secret");
    let absent = ks.absent();
    assert_eq!((ks.keyspace.state(), ks.get(&absent).await.as_str()), (State::Enforcing, "404 filter"));
    assert!(ks.keyspace.has_known_fleet_secret());
}

/// Invariant: redis-is-not-the-promise
#[tokio::test]
async fn a_filter_under_a_secret_that_went_and_came_back_is_not_adopted() {
    let (ks, _log) = instance();
    let ks = ks.built().await;
    let (before, fleets) = (ks.keyspace.proposed_secret(), KeySecret::random());
    let scan = ks.source.hold_after_scan();
    ks.keyspace.agree_on_secret(fleets.clone());
    ks.begin_rebuild();
    scan.reached().await;
    ks.keyspace.agree_on_secret(before);
    ks.keyspace.polls().begin(Moment::now());
    // Under the present secret only: there is no other one now.
    ks.keyspace.polls().learn(&[PolledKey { key: key("polled:1"), stamp: 7 }]).await.unwrap();
    ks.keyspace.agree_on_secret(fleets);
    scan.release();
    assert_eq!(ks.rebuilt().await, RebuildOutcome::Cancelled);
    assert!(ks.maybe("polled:1") && ks.maybe("user:1"), "the filter in force has them all");
}

#[tokio::test]
async fn an_announce_where_they_are_off_changes_nothing() {
    let (ks, _log) = instance();
    let ks = ks.built().await;
    let absent = ks.absent();
    let refused = ks.keyspace.announce(&[key(&absent)]).await.unwrap_err();
    assert!(matches!(&refused, AnnounceError::Off(name) if name == "users"), "{refused}");
    assert!(!ks.maybe(&absent));
    assert_eq!(ks.metric("bloomguard_announces_total{keyspace=\"users\",outcome=\"off\"}"), 1.0);
}

//! The fleet's secret comes late: Redis was away at the start.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bloomguard::config::EnforcementSetting;
use bloomguard::fleet::{Delta, DeltaLog, EntryId, LogError, LogPage, Switch, WriterId};
use bloomguard::key::{KeyHash, KeySecret};
use bloomguard::keyspace::LogParts;
use bloomguard::labels::RebuildOutcome;
use bloomguard::redis::LogIdentity;
use parking_lot::Mutex;

use crate::support::eventually;
use crate::support::keyspace::{TestKeyspace, config};
use crate::support::scripted::key;

/// Longer than a build waits for the secret, and than a requested one after the last.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_secret_that_comes_while_a_build_waits_costs_one_scan() {
    let ks = TestKeyspace::without_secret(config());
    assert_eq!(ks.rebuild().await, RebuildOutcome::NoSecret);
    eventually("it is tried again by itself", || ks.rebuild.progress().running.is_some()).await;
    // The time itself matters: the build waits by now, and for longer.
    tokio::time::sleep(Duration::from_secs(1)).await;
    ks.keyspace.agree_on_secret(KeySecret::random());
    assert_eq!(ks.rebuilt().await, RebuildOutcome::Swapped);
    tokio::time::sleep(LONG).await;
    assert_eq!(ks.keyspace.generation(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_comes_after_all_builds_have_failed_requests_one() {
    let ks = TestKeyspace::without_secret(config());
    // The pauses between two builds grow to a minute.
    for _ in 0..8 {
        eventually("no build is under way", || ks.rebuild.progress().running.is_none()).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        let _ = ks.rebuild.request(bloomguard::rebuild::RebuildRequest::default());
        assert_eq!(ks.rebuilt().await, RebuildOutcome::NoSecret);
    }
    let failed = tokio::time::Instant::now();
    ks.keyspace.agree_on_secret(KeySecret::random());
    eventually("the secret requests a build", || ks.keyspace.generation() == 1).await;
    assert!(failed.elapsed() < LONG / 2, "{:?}", failed.elapsed());
}

/// Keeps the hashes that are appended. Nothing can be read from it.
#[derive(Default)]
struct KeptLog(Mutex<Vec<KeyHash>>);

#[async_trait]
impl DeltaLog for KeptLog {
    fn retention(&self) -> Duration {
        Duration::from_secs(3600)
    }

    async fn append(&self, deltas: &[Delta], _: Option<u64>) -> Result<(LogIdentity, EntryId), LogError> {
        self.0.lock().extend(deltas.iter().flat_map(|delta| delta.hashes.iter().copied()));
        Ok((LogIdentity([1; 16]), EntryId::at(1)))
    }

    async fn read(&self, _: EntryId, _: Option<&str>) -> Result<LogPage, LogError> {
        Err(LogError::Timeout)
    }

    async fn switch(&self, _: Option<EnforcementSetting>, _: u64) -> Result<Switch, LogError> {
        Err(LogError::Timeout)
    }

    async fn restore_switch(&self, _: Switch) -> Result<(), LogError> {
        Err(LogError::Timeout)
    }
}

/// Invariant: announced-found-by-fleet
#[tokio::test]
async fn announces_of_the_journal_are_appended_once_the_secret_is_known() {
    let before = TestKeyspace::cold(config());
    before.keyspace.announce(&[key("new:1"), key("new:2")]).await.unwrap();
    let log = Arc::<KeptLog>::default();
    let parts = LogParts {
        log: log.clone(),
        writer: WriterId::random(),
        max_lag: Duration::from_secs(2),
        roll_call: None,
        is_first_start: false,
    };
    let ks = before.restarted_without_secret(config(), parts);
    // The time itself is needed: it has tried to append them.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(log.0.lock().is_empty(), "under a secret that nobody else knows");
    let fleets = KeySecret::random();
    ks.keyspace.agree_on_secret(fleets.clone());
    for text in ["new:1", "new:2"] {
        let hash = fleets.hash(&key(text));
        eventually("it is appended", || log.0.lock().contains(&hash)).await;
    }
}

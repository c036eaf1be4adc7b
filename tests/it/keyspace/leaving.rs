//! An instance that leaves the roster.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bloomguard::config::EnforcementSetting;
use bloomguard::fleet::{
    Delta, DeltaLog, Enrolled, EntryId, LogError, LogPage, RedisDeltaLog, Retention, RollCallTerms, RosterChange,
    Switch, WriterId,
};
use bloomguard::keyspace::LogParts;
use bloomguard::redis::LogIdentity;
use tokio::sync::watch;

use super::marks::{redis_cache, redis_link};
use crate::support::assert_eventually;
use crate::support::keyspace::{TestKeyspace, config};
use crate::support::redis::RedisServer;

const ROSTER: &str = "bloomguard:roster:users";

/// A log at which an enrolment arrives when the test lets it.
struct SlowEnrolment {
    log: RedisDeltaLog,
    sent: watch::Sender<bool>,
    open: watch::Receiver<bool>,
}

#[async_trait]
impl DeltaLog for SlowEnrolment {
    fn retention(&self) -> Duration {
        self.log.retention()
    }

    async fn append(&self, deltas: &[Delta], epoch: Option<u64>) -> Result<(LogIdentity, EntryId), LogError> {
        self.log.append(deltas, epoch).await
    }

    async fn read(&self, after: EntryId, roster: Option<&str>) -> Result<LogPage, LogError> {
        self.log.read(after, roster).await
    }

    async fn change_roster(&self, change: RosterChange, epoch: Option<u64>) -> Result<Enrolled, LogError> {
        if matches!(change, RosterChange::Enrol { .. }) {
            self.sent.send_replace(true);
            let _ = self.open.clone().wait_for(|open| *open).await;
        }
        self.log.change_roster(change, epoch).await
    }

    async fn switch(&self, setting: Option<EnforcementSetting>, known: u64) -> Result<Switch, LogError> {
        self.log.switch(setting, known).await
    }

    async fn restore_switch(&self, switch: Switch) -> Result<(), LogError> {
        self.log.restore_switch(switch).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_enrolment_under_way_does_not_undo_that_an_instance_has_left() {
    let (redis, writer) = (RedisServer::start(), WriterId::random());
    let ((sent, mut is_sent), (gate, open)) = (watch::channel(false), watch::channel(false));
    let retention = Retention { time: Duration::from_secs(3600), bytes: 64 << 20 };
    let log = RedisDeltaLog::new(redis_link(&redis).await, "users", writer, retention).enrolling();
    let parts = LogParts {
        log: Arc::new(SlowEnrolment { log, sent, open }),
        writer,
        max_lag: Duration::from_secs(60),
        roll_call: Some(RollCallTerms { lease: Duration::from_secs(60), window: Duration::from_secs(600) }),
        is_first_start: false,
    };
    let ks = TestKeyspace::with_log(config(), redis_cache(&redis).await, parts);
    is_sent.wait_for(|sent| *sent).await.unwrap();
    ks.keyspace.leave_roster().await;
    gate.send_replace(true);
    let field = |name: &str| -> Option<String> {
        redis::cmd("HGET").arg(ROSTER).arg(name).query(&mut redis.connection()).unwrap()
    };
    assert_eventually!(field("view").as_deref() == Some("1"), "the enrolment does not arrive");
    assert_eventually!(field(&writer.to_string()).is_none(), "others wait for it");
    // The time itself is needed: it does not enrol again.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((field("view").as_deref(), field(&writer.to_string())), (Some("1"), None));
}

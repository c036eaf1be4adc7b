//! The delta log on a real Redis: what one process appends another one reads, and what was lost is noticed.

use std::sync::Arc;
use std::time::Duration;

use bloomguard::config::{RedisConfig, SecretUrl};
use bloomguard::fleet::{
    Committer, Delta, DeltaLog, EntryId, Follower, LogEntryKind, LogError, Loss, PageOutcome, RedisDeltaLog, Retention,
    WriterId,
};
use bloomguard::key::KeyHash;
use bloomguard::redis::RedisLink;

use crate::support::assert_eventually;
use crate::support::redis::RedisServer;

const KEEP: Retention = Retention { time: Duration::from_secs(3600), bytes: 64 << 20 };
const WINDOW: Duration = Duration::from_millis(300);

/// A process: its connection and its log.
struct Instance {
    link: Arc<RedisLink>,
    log: RedisDeltaLog,
    follower: Follower,
}

impl Instance {
    async fn at(server: &RedisServer, retention: Retention) -> Self {
        let config = RedisConfig {
            url: SecretUrl::new(server.url()),
            timeout: Duration::from_secs(5),
            ..RedisConfig::default()
        };
        let link = RedisLink::connect(&config, |_| ()).unwrap();
        assert!(link.wait_connected(Duration::from_secs(60)).await);
        let log = RedisDeltaLog::new(Arc::clone(&link), "users", WriterId::random(), retention);
        Self { link, log, follower: Follower::new(WINDOW, WINDOW) }
    }

    fn epoch(&self) -> u64 {
        *self.link.epochs().borrow()
    }

    async fn append(&self, deltas: &[Delta]) -> EntryId {
        self.log.append(deltas, Some(self.epoch())).await.unwrap().1
    }

    /// Reads once, as soon as Redis answers.
    async fn step(&mut self) -> PageOutcome {
        let read = async |instance: &mut Self| match instance.log.read(instance.follower.after(), None).await {
            Ok(page) => {
                let step = instance.follower.evaluate(page);
                instance.follower.applied(&step);
                Some(step)
            }
            Err(LogError::Unavailable(_) | LogError::Timeout) => None,
            Err(error) => panic!("{error}"),
        };
        let mut step;
        assert_eventually!(
            {
                step = read(self).await;
                step.is_some()
            },
            "Redis does not answer"
        );
        step.unwrap()
    }

    /// Follows a log that is old enough to be believed.
    async fn settled(mut self) -> Self {
        assert_eventually!(
            {
                self.follower = Follower::new(WINDOW, WINDOW);
                !matches!(self.step().await.loss, Some(Loss::Young { .. }))
            },
            "the log stays young"
        );
        assert!(self.step().await.complete);
        self
    }
}

fn delta(kind: LogEntryKind, hashes: std::ops::Range<u128>) -> Delta {
    Delta { kind, secret: 9, terms: None, hashes: hashes.map(KeyHash::from_bits).collect() }
}

#[tokio::test]
async fn what_one_appends_the_other_reads_in_order() {
    let server = RedisServer::start_young();
    let (writer, mut reader) = (Instance::at(&server, KEEP).await, Instance::at(&server, KEEP).await.settled().await);
    let said = [delta(LogEntryKind::Announce, 0..3), delta(LogEntryKind::Drop, 1..2)];
    let last = writer.append(&said).await;
    let after = writer.append(&[delta(LogEntryKind::Announce, 7..8)]).await;
    assert!(after > last);
    let step = reader.step().await;
    assert_eq!((step.loss, step.complete), (None, true));
    let heard: Vec<Delta> = step.entries.iter().map(|entry| entry.delta.clone()).collect();
    assert_eq!(heard, [said[0].clone(), said[1].clone(), delta(LogEntryKind::Announce, 7..8)]);
    assert_eq!(step.entries[2].previous, last, "each writer's entries are a chain");
    assert_eq!(reader.follower.place().unwrap().1, after);
    assert_eq!(reader.step().await.entries, [], "read once");
}

#[tokio::test]
async fn a_drop_beside_an_announce_that_is_not_admitted_is_appended() {
    let server = RedisServer::start_young();
    let (writer, mut reader) = (Instance::at(&server, KEEP).await, Instance::at(&server, KEEP).await.settled().await);
    let epoch = Some(writer.epoch());
    // It is in no roster.
    let committer = Committer::new(Arc::new(writer.log.enrolling()));
    let append = |kind, hashes| committer.append(delta(kind, hashes), epoch);
    let (announced, dropped) = tokio::join!(append(LogEntryKind::Announce, 0..1), append(LogEntryKind::Drop, 1..2));
    assert_eq!(announced, Err(LogError::NotAdmitted));
    let step = reader.step().await;
    let heard: Vec<Delta> = step.entries.iter().map(|entry| entry.delta.clone()).collect();
    assert_eq!((heard, step.entries[0].id), (vec![delta(LogEntryKind::Drop, 1..2)], dropped.unwrap().1));
}

#[tokio::test]
async fn announces_with_an_open_window_are_read_by_newcomers() {
    let server = RedisServer::start_young();
    let writer = Instance::at(&server, KEEP).await.settled().await;
    writer.append(&[delta(LogEntryKind::Announce, 0..1)]).await;
    // The time itself is tested: the window of the first announce closes.
    tokio::time::sleep(WINDOW + Duration::from_millis(50)).await;
    writer.append(&[delta(LogEntryKind::Announce, 1..2)]).await;
    let mut reader = Instance::at(&server, KEEP).await;
    assert_eq!(reader.step().await.loss, None);
    let step = reader.step().await;
    let heard: Vec<Delta> = step.entries.iter().map(|entry| entry.delta.clone()).collect();
    assert_eq!((step.loss, heard), (None, vec![delta(LogEntryKind::Announce, 1..2)]), "and no others");
}

#[tokio::test]
async fn a_restarted_redis_is_another_log_and_a_young_one() {
    let mut server = RedisServer::start_young();
    let mut reader = Instance::at(&server, KEEP).await.settled().await;
    server.kill();
    server.restart();
    assert_eq!(reader.step().await.loss, Some(Loss::Replaced));
    let mut newcomer = Instance::at(&server, KEEP).await;
    // Where the machine is slow, the log has come of age meanwhile.
    assert!(matches!(newcomer.step().await.loss, None | Some(Loss::Young { .. })));
}

#[tokio::test]
async fn a_wiped_redis_takes_no_append_from_a_writer_that_has_not_noticed() {
    let server = RedisServer::start_young();
    let writer = Instance::at(&server, KEEP).await;
    let epoch = writer.epoch();
    let _: () = redis::cmd("FLUSHALL").query(&mut server.connection()).unwrap();
    let refused = writer.log.append(&[delta(LogEntryKind::Announce, 0..1)], Some(epoch)).await;
    assert!(matches!(refused, Err(LogError::Replaced | LogError::Unavailable(_))), "{refused:?}");
}

#[tokio::test]
async fn an_append_goes_over_the_connection_that_set_the_markers_or_not_at_all() {
    let server = RedisServer::start_young();
    let writer = Instance::at(&server, KEEP).await;
    assert_eq!(
        writer.log.append(&[delta(LogEntryKind::Announce, 0..1)], Some(writer.epoch() + 1)).await,
        Err(LogError::Replaced)
    );
}

/// Invariant: lost-log-is-noticed
#[tokio::test]
async fn entries_that_were_trimmed_or_deleted_before_they_were_read_are_a_loss() {
    let server = RedisServer::start_young();
    let (writer, mut reader) = (Instance::at(&server, KEEP).await, Instance::at(&server, KEEP).await.settled().await);
    let mut raw = server.connection();
    for n in 0..3 {
        writer.append(&[delta(LogEntryKind::Announce, n..n + 1)]).await;
    }
    let _: i64 = redis::cmd("XTRIM").arg("bloomguard:deltas:users").arg("MAXLEN").arg(1).query(&mut raw).unwrap();
    let step = reader.step().await;
    assert_eq!((step.loss, step.entries.len()), (Some(Loss::Trimmed), 1), "what is left is read");
    assert_eq!(reader.step().await.loss, None);
    let gone = writer.append(&[delta(LogEntryKind::Announce, 9..10)]).await;
    let _: i64 = redis::cmd("XDEL").arg("bloomguard:deltas:users").arg(gone.to_string()).query(&mut raw).unwrap();
    assert_eq!(reader.step().await.loss, Some(Loss::Trimmed));
    let _: i64 = redis::cmd("DEL").arg("bloomguard:deltas:users").query(&mut raw).unwrap();
    assert_eq!(reader.step().await.loss, Some(Loss::Shrunk));
}

/// Invariant: lost-log-is-noticed
#[tokio::test]
async fn a_stream_that_is_deleted_under_its_identity_is_noticed_at_a_start() {
    let server = RedisServer::start_young();
    let (writer, mut reader) = (Instance::at(&server, KEEP).await, Instance::at(&server, KEEP).await.settled().await);
    let empty = reader.follower.resumable().expect("it has read the log to its end");
    writer.append(&[delta(LogEntryKind::Announce, 0..1)]).await;
    reader.step().await;
    let counted = reader.follower.resumable().unwrap();
    assert_eq!((empty.made, counted.made), (0, 1));
    writer.append(&[delta(LogEntryKind::Announce, 1..2)]).await;
    let _: () = redis::cmd("DEL").arg("bloomguard:deltas:users").query(&mut server.connection()).unwrap();
    for is_written_again in [false, true] {
        if is_written_again {
            writer.append(&[delta(LogEntryKind::Announce, 2..3)]).await;
        }
        // By age, the deletion is within the memory of a reader on any machine.
        let follower = || Follower::new(Duration::from_secs(600), WINDOW);
        for place in [None, Some(empty), Some(counted)] {
            let mut newcomer = Instance::at(&server, KEEP).await;
            newcomer.follower = follower().resuming(place);
            // Where as many entries are there again, their count shows it on the next page.
            let losses = [newcomer.step().await.loss, newcomer.step().await.loss];
            let told: Vec<Loss> = losses.into_iter().flatten().collect();
            assert!(matches!(told[..], [Loss::Trimmed | Loss::Shrunk, ..]), "{place:?} {is_written_again}: {losses:?}");
        }
    }
}

/// Invariant: lost-log-is-noticed
#[tokio::test]
async fn a_log_that_redis_may_evict_is_not_believed_at_a_start() {
    let server = RedisServer::start();
    for (policy, loss) in [("noeviction", None), ("volatile-lru", None), ("allkeys-lru", Some(Loss::Evictable))] {
        let mut raw = server.connection();
        let _: () = redis::cmd("CONFIG").arg(&["SET", "maxmemory-policy", policy]).query(&mut raw).unwrap();
        let mut newcomer = Instance::at(&server, KEEP).await;
        assert_eq!([newcomer.step().await.loss, newcomer.step().await.loss], [loss, None], "{policy}");
    }
}

#[tokio::test]
async fn a_log_stays_within_its_bytes() {
    let server = RedisServer::start_young();
    let small = Retention { bytes: 200_000, ..KEEP };
    let (writer, mut reader) = (Instance::at(&server, small).await, Instance::at(&server, small).await.settled().await);
    for _ in 0..200 {
        writer.append(&[delta(LogEntryKind::Announce, 0..256), delta(LogEntryKind::Announce, 256..512)]).await;
    }
    let used: u64 =
        redis::cmd("MEMORY").arg("USAGE").arg("bloomguard:deltas:users").query(&mut server.connection()).unwrap();
    assert!(used < 400_000, "{used}");
    assert_eq!(reader.step().await.loss, Some(Loss::Trimmed));
}

#[tokio::test]
async fn strangers_in_the_stream_are_a_loss_and_no_panic() {
    let server = RedisServer::start_young();
    let mut reader = Instance::at(&server, KEEP).await.settled().await;
    let mut raw = server.connection();
    let _: String =
        redis::cmd("XADD").arg("bloomguard:deltas:users").arg("*").arg("d").arg("hello").query(&mut raw).unwrap();
    assert_eq!(reader.step().await.loss, Some(Loss::Unreadable));
    let _: i64 = redis::cmd("DEL").arg("bloomguard:deltas:users").query(&mut raw).unwrap();
    let _: () = redis::cmd("SET").arg("bloomguard:deltas:users").arg("x").query(&mut raw).unwrap();
    assert!(matches!(reader.log.read(EntryId::ZERO, None).await, Err(LogError::Refused(_))));
}

/// Invariant: announced-found-by-fleet
#[tokio::test]
async fn a_demoted_primary_is_not_read_over_kept_connections() {
    let (server, other) = (RedisServer::start_young(), RedisServer::start_young());
    let mut raw = server.connection();
    let (writer, reader) = (Instance::at(&server, KEEP).await, Instance::at(&server, KEEP).await.settled().await);
    writer.append(&[delta(LogEntryKind::Announce, 0..1)]).await;
    let _: () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(other.port()).query(&mut raw).unwrap();
    // No check of its role came since. On a slow machine one may have come, and closed the connection.
    let read = reader.log.read(reader.follower.after(), None).await;
    assert!(matches!(read, Err(LogError::Replaced | LogError::Unavailable(_))), "{read:?}");
    let role: (String, String, i64, String, i64) = redis::cmd("ROLE").query(&mut raw).unwrap();
    assert_eq!(role.0, "slave", "over a connection that it kept");
}

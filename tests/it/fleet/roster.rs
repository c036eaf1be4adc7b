//! The roster on a real Redis: who may announce at once, and in a log of which age.

use std::sync::Arc;
use std::time::Duration;

use bloomguard::config::{RedisConfig, SecretUrl};
use bloomguard::fleet::{
    Delta, DeltaLog, EntryId, LogEntryKind, LogError, Member, RedisDeltaLog, Retention, RollCallTerms, Roster,
    RosterChange, Terms, WriterId,
};
use bloomguard::key::KeyHash;
use bloomguard::redis::{LogIdentity, RedisLink};

use crate::support::redis::RedisServer;

const KEEP: Retention = Retention { time: Duration::from_secs(3600), bytes: 64 << 20 };
/// In which the writer was admitted before.
const EARLIER: LogIdentity = LogIdentity([9; 16]);
const LONG: Duration = Duration::from_secs(3600);

async fn link(server: &RedisServer) -> Arc<RedisLink> {
    let config =
        RedisConfig { url: SecretUrl::new(server.url()), timeout: Duration::from_secs(5), ..RedisConfig::default() };
    let link = RedisLink::connect(&config, |_| ()).unwrap();
    assert!(link.wait_connected(Duration::from_secs(60)).await);
    link
}

fn log(link: &Arc<RedisLink>) -> RedisDeltaLog {
    RedisDeltaLog::new(Arc::clone(link), "users", WriterId::random(), KEEP).enrolling()
}

/// Enrols under this lease.
async fn enrol(log: &RedisDeltaLog, lease: Duration, admitted_in: Option<LogIdentity>) -> (LogIdentity, Member) {
    let terms = RollCallTerms { lease, window: LONG };
    let change = RosterChange::Enrol { terms, confirmed: None, admitted_in };
    let answer = log.change_roster(change, None).await.unwrap();
    (answer.log, answer.member.unwrap())
}

async fn announce(log: &RedisDeltaLog) -> Result<EntryId, LogError> {
    let hashes = vec![KeyHash::from_bits(1)];
    let delta = Delta { kind: LogEntryKind::Announce, secret: 9, terms: None, hashes };
    log.append(&[delta], None).await.map(|(_, id)| id)
}

async fn roster(log: &RedisDeltaLog) -> Roster {
    log.read(EntryId::ZERO, None).await.unwrap().roster.unwrap()
}

/// Invariant: announced-found-by-fleet
#[tokio::test]
async fn a_descendant_announces_at_once_only_in_a_log_of_less_than_a_lease() {
    let server = RedisServer::start_young();
    let link = link(&server).await;
    let descendant = log(&link);
    let (here, member) = enrol(&descendant, LONG, Some(EARLIER)).await;
    assert!(member.admitted, "in a young log");
    announce(&descendant).await.unwrap();
    assert!(!enrol(&log(&link), LONG, None).await.1.admitted, "a newcomer");
    assert!(!enrol(&log(&link), LONG, Some(here)).await.1.admitted, "it was admitted in no other log");
    // The time itself is tested: the log becomes older than this lease.
    let lease = Duration::from_millis(500);
    tokio::time::sleep(lease).await;
    let late = log(&link);
    assert!(!enrol(&late, lease, Some(EARLIER)).await.1.admitted, "others may have forgotten it by now");
    assert_eq!(announce(&late).await, Err(LogError::NotAdmitted));
}

/// Invariant: announced-found-by-fleet
#[tokio::test]
async fn a_roster_that_is_lost_alone_is_young_in_an_old_log_and_has_nobody() {
    let server = RedisServer::start();
    let link = link(&server).await;
    let (one, other) = (log(&link), log(&link));
    for member in [&one, &other] {
        enrol(member, LONG, None).await;
        member.change_roster(RosterChange::Admit, None).await.unwrap();
        announce(member).await.unwrap();
    }
    assert!(roster(&one).await.age > LONG);
    let _: () = redis::cmd("DEL").arg("bloomguard:roster:users").query(&mut server.connection()).unwrap();
    assert!(roster(&one).await.age < LONG, "it may be made at any moment");
    assert_eq!(announce(&one).await, Err(LogError::NotAdmitted));
    let (_, member) = enrol(&one, LONG, None).await;
    assert!(!member.admitted);
    let now = roster(&one).await;
    assert!(now.age < LONG && now.members.len() == 1, "{now:?}");
    assert_eq!(announce(&other).await, Err(LogError::NotAdmitted), "it is not in the new one");
    assert_eq!(announce(&one).await, Err(LogError::NotAdmitted));
}

#[tokio::test]
async fn a_page_says_whether_its_reader_is_registered() {
    let server = RedisServer::start();
    let link = link(&server).await;
    let (one, other) = (log(&link), log(&link));
    let is_registered = async |log: &RedisDeltaLog| log.read(EntryId::ZERO, None).await.unwrap().is_registered;
    let terms = Terms { form: 1, data: 2, window: 3000, deadline: 4 };
    other.register(&terms).await.unwrap();
    assert!(!is_registered(&one).await && is_registered(&other).await);
    one.register(&terms).await.unwrap();
    assert!(is_registered(&one).await);
    let _: () = redis::cmd("DEL").arg("bloomguard:instances:users").query(&mut server.connection()).unwrap();
    assert!(!is_registered(&one).await && !is_registered(&other).await);
}

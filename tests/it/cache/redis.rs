//! What the Redis cache does when Redis is not well, and what it makes of entries that it did not write.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bloomguard::cache::{CacheError, Entry, Mark, RedisCache, SharedCache, Stored};
use bloomguard::key::KeySecret;
use bloomguard::labels::BreakerState;
use bloomguard::redis::{LinkError, RedisLink};

use crate::cache::contract::{LONG, Linked, entry, key, redis_config, value};
use crate::support::chaos_proxy::{ChaosProxy, Weather};
use crate::support::redis::RedisServer;
use crate::support::{assert_eventually, eventually};

/// No command of a test waits longer than this for a well Redis, however busy the machine is.
const PATIENT: Duration = Duration::from_secs(5);
const ENTRY: &str = "bloomguard:entry:users:1";

async fn put_absence(cache: &RedisCache, text: &str) -> Stored {
    let stamp = cache.get(&key(text)).await.unwrap().stamp;
    cache.put_absence(&key(text), LONG, &stamp).await.unwrap()
}

async fn put_value(cache: &RedisCache, text: &str, body: &str) -> Stored {
    let stamp = cache.get(&key(text)).await.unwrap().stamp;
    cache.put_value(&key(text), &value(body), LONG, Duration::ZERO, &stamp).await.unwrap()
}

/// Waits until `cache` answers again.
async fn recovered(cache: &RedisCache) {
    assert_eventually!(cache.get(&key("any")).await.is_ok(), "it never recovered: {:?}", cache.status());
}

#[tokio::test]
async fn entries_of_another_query_are_misses_and_marks_are_not() {
    let linked = Linked::to(RedisServer::start()).await;
    let (ours, other) = (linked.cache_of("users", 1), linked.cache_of("users", 2));
    assert_eq!(put_value(&ours, "1", "ours").await, Stored::Yes);
    assert_eq!(put_absence(&ours, "2").await, Stored::Yes);
    ours.put_mark(&key("3"), Mark::Dropped, LONG).await.unwrap();
    assert_eq!(entry(&other, &key("1")).await, Entry::Nothing);
    assert_eq!(entry(&other, &key("2")).await, Entry::Nothing);
    assert_eq!(entry(&other, &key("3")).await, Entry::Mark(Mark::Dropped));
    // A value of the other query may take the place, and then is the miss of this one.
    assert_eq!(put_value(&other, "1", "other").await, Stored::Yes);
    assert_eq!(entry(&other, &key("1")).await, Entry::Value(value("other")));
    assert_eq!(entry(&ours, &key("1")).await, Entry::Nothing);
}

#[tokio::test]
async fn keyspaces_do_not_see_each_other() {
    let linked = Linked::to(RedisServer::start()).await;
    let (users, orders) = (linked.cache_of("users", 1), linked.cache_of("orders", 1));
    put_value(&users, "1", "user").await;
    assert_eq!(entry(&orders, &key("1")).await, Entry::Nothing);
}

/// Invariant: undecodable-is-a-miss
#[tokio::test]
async fn what_can_not_be_decoded_is_a_miss_and_gives_way_to_a_value() {
    let linked = Linked::to(RedisServer::start()).await;
    let mut raw = linked.server.connection();
    let cache = linked.cache();
    for garbage in [&b""[..], b"B", b"BGe\x01A", b"absent", &[0xff; 200]] {
        let _: () = redis::cmd("SET").arg(ENTRY).arg(garbage).query(&mut raw).unwrap();
        let seen = cache.get(&key("1")).await.unwrap();
        assert_eq!(seen.entry, Entry::Nothing, "{garbage:?}");
        assert_eq!(cache.put_absence(&key("1"), LONG, &seen.stamp).await.unwrap(), Stored::No, "{garbage:?}");
        assert_eq!(
            cache.put_value(&key("1"), &value("a"), LONG, Duration::ZERO, &seen.stamp).await.unwrap(),
            Stored::Yes,
            "{garbage:?}"
        );
        assert_eq!(entry(&cache, &key("1")).await, Entry::Value(value("a")));
    }
}

#[tokio::test]
async fn a_mark_over_a_short_entry_is_not_overwritten_by_its_reader() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache = linked.cache();
    // The beginning of every mark: comparing only as much as was seen would take the mark for it.
    let _: () = redis::cmd("SET").arg(ENTRY).arg(b"BGe\x01").query(&mut linked.server.connection()).unwrap();
    let before = cache.get(&key("1")).await.unwrap().stamp;
    cache.put_mark(&key("1"), Mark::Dropped, LONG).await.unwrap();
    assert_eq!(cache.put_value(&key("1"), &value("old"), LONG, Duration::ZERO, &before).await.unwrap(), Stored::No);
    assert_eq!(entry(&cache, &key("1")).await, Entry::Mark(Mark::Dropped));
}

#[tokio::test]
async fn entry_of_another_type_is_an_error_and_never_an_absence() {
    let linked = Linked::to(RedisServer::start()).await;
    let _: () = redis::cmd("LPUSH").arg(ENTRY).arg("x").query(&mut linked.server.connection()).unwrap();
    let error = linked.cache().get(&key("1")).await.unwrap_err();
    assert!(matches!(error, CacheError::Refused(_)), "{error}");
    assert_eq!(
        entry(&linked.cache(), &key("2")).await,
        Entry::Nothing,
        "a refused command must not cost the connection"
    );
}

#[tokio::test]
async fn every_entry_expires() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache = linked.cache();
    put_value(&cache, "1", "a").await;
    put_value(&cache, "1", "b").await;
    put_absence(&cache, "2").await;
    cache.put_mark(&key("3"), Mark::Announced, LONG).await.unwrap();
    let mut raw = linked.server.connection();
    for n in 1..=3 {
        let left: i64 = redis::cmd("PTTL").arg(format!("bloomguard:entry:users:{n}")).query(&mut raw).unwrap();
        assert!(left > 0 && left <= LONG.as_millis() as i64, "entry {n}: {left} ms left");
    }
}

#[tokio::test]
async fn compare_and_set_works_after_the_scripts_were_flushed() {
    let linked = Linked::to(RedisServer::start()).await;
    put_value(&linked.cache(), "1", "a").await;
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut linked.server.connection()).unwrap();
    assert_eq!(put_value(&linked.cache(), "1", "b").await, Stored::Yes);
    assert_eq!(entry(&linked.cache(), &key("1")).await, Entry::Value(value("b")));
}

#[tokio::test]
async fn nothing_is_ever_deleted_and_each_step_is_one_command() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache = linked.cache();
    let mut raw = linked.server.connection();
    let _: () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut raw).unwrap();
    put_value(&cache, "1", "a").await;
    put_value(&cache, "1", "b").await;
    put_absence(&cache, "2").await;
    cache.put_mark(&key("1"), Mark::Dropped, LONG).await.unwrap();
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut raw).unwrap();
    let calls = |command: &str| -> u64 {
        let line = stats.lines().find_map(|l| l.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    };
    // The SETs within the scripts count too. The link's own checks of the connection may add to the GETs.
    assert_eq!(
        (calls("evalsha"), calls("eval"), calls("set"), calls("del"), calls("unlink")),
        (3, 0, 4, 0, 0),
        "{stats}"
    );
    assert!(calls("get") >= 3, "{stats}");
}

#[tokio::test]
async fn secret_of_a_keyspace_is_the_same_for_every_instance() {
    let linked = Linked::to(RedisServer::start()).await;
    let second = RedisLink::connect(&redis_config(&linked.server.url(), PATIENT), |_| {}).unwrap();
    assert!(second.wait_connected(PATIENT).await);
    let (one, other) = (KeySecret::random(), KeySecret::random());
    let (a, b) = tokio::join!(linked.link.secret("users", &one), second.secret("users", &other));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a.as_bytes(), b.as_bytes());
    assert_ne!(a.as_bytes(), linked.link.secret("orders", &KeySecret::random()).await.unwrap().as_bytes());
    assert_eq!(a.as_bytes(), linked.link.secret("users", &KeySecret::random()).await.unwrap().as_bytes());
}

#[tokio::test]
async fn full_redis_is_read_and_refuses_writes_without_losing_the_connection() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache = linked.cache();
    put_value(&cache, "1", "a").await;
    linked.link.secret("users", &KeySecret::random()).await.unwrap();
    let _: () =
        redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").query(&mut linked.server.connection()).unwrap();
    let error = cache.put_mark(&key("2"), Mark::Announced, LONG).await.unwrap_err();
    assert!(matches!(&error, CacheError::Refused(why) if why.contains("OOM")), "{error}");
    // Not even an instance that comes now is kept from reading.
    let second = RedisLink::connect(&redis_config(&linked.server.url(), PATIENT), |_| {}).unwrap();
    assert!(second.wait_connected(PATIENT).await);
    second.secret("users", &KeySecret::random()).await.unwrap();
    assert_eq!(entry(&RedisCache::new(second, "users", 7), &key("1")).await, Entry::Value(value("a")));
}

#[tokio::test]
async fn what_is_no_secret_is_refused() {
    let linked = Linked::to(RedisServer::start()).await;
    let _: () =
        redis::cmd("SET").arg("bloomguard:secret:users").arg("short").query(&mut linked.server.connection()).unwrap();
    let error = linked.link.secret("users", &KeySecret::random()).await.unwrap_err();
    assert!(matches!(&error, LinkError::Refused(why) if why.contains("5 bytes")), "{error}");
}

#[tokio::test]
async fn link_begins_without_redis_and_connects_when_it_comes() {
    let mut server = RedisServer::start();
    server.kill();
    let link = RedisLink::connect(&redis_config(&server.url(), PATIENT), |_| {}).unwrap();
    let cache = RedisCache::new(Arc::clone(&link), "users", 1).storing_within(LONG);
    assert!(!link.wait_connected(Duration::from_millis(50)).await);
    assert!(matches!(cache.get(&key("1")).await, Err(CacheError::Unavailable(_))));
    eventually("the status says why", || cache.status().warning.is_some_and(|w| w.contains("refused"))).await;
    assert!(!cache.status().reachable);
    server.restart();
    assert!(link.wait_connected(Duration::from_secs(30)).await);
    assert_eq!(entry(&cache, &key("1")).await, Entry::Nothing);
    assert!(cache.status().reachable);
}

#[tokio::test]
async fn killed_redis_fails_commands_at_once_and_is_found_again_by_itself() {
    let Linked { mut server, link } = Linked::to(RedisServer::start()).await;
    let cache = RedisCache::new(Arc::clone(&link), "users", 1).storing_within(LONG);
    let mut epochs = cache.epochs();
    let before = *epochs.borrow_and_update();
    let old_stamp = cache.get(&key("1")).await.unwrap().stamp;
    server.kill();
    // The first command may still find out; every later one must know.
    let _ = cache.get(&key("1")).await;
    let start = Instant::now();
    for _ in 0..100 {
        assert!(matches!(cache.get(&key("1")).await, Err(CacheError::Unavailable(_))));
        assert!(matches!(cache.put_mark(&key("1"), Mark::Dropped, LONG).await, Err(CacheError::Unavailable(_))));
    }
    assert!(start.elapsed() < Duration::from_secs(60), "200 commands took {:?}", start.elapsed());
    assert!(!cache.status().reachable);
    server.restart();
    recovered(&cache).await;
    assert!(epochs.has_changed().unwrap() && *epochs.borrow() > before);
    assert!(cache.status().reachable);
    // What was seen at the old Redis stores nothing at the new one.
    assert_eq!(cache.put_value(&key("1"), &value("old"), LONG, Duration::ZERO, &old_stamp).await.unwrap(), Stored::No);
    assert_eq!(cache.put_absence(&key("1"), LONG, &old_stamp).await.unwrap(), Stored::No);
    assert_eq!(entry(&cache, &key("1")).await, Entry::Nothing);
}

#[tokio::test]
async fn connection_lost_to_a_well_redis_is_made_anew_without_delay() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache = linked.cache();
    let mut raw = linked.server.connection();
    let mut lost = Vec::new();
    for _ in 0..20 {
        let _: i64 = redis::cmd("CLIENT")
            .arg("KILL")
            .arg("TYPE")
            .arg("normal")
            .arg("SKIPME")
            .arg("yes")
            .query(&mut raw)
            .unwrap();
        let start = Instant::now();
        recovered(&cache).await;
        lost.push(start.elapsed());
    }
    // A pause of 50 to 75 ms each; waiting for the next look at the connection would be about a second each. Half of
    // them may meet a busy machine.
    lost.sort_unstable();
    assert!(lost[..10].iter().sum::<Duration>() < Duration::from_secs(6), "{lost:?} for twenty lost connections");
}

#[tokio::test]
async fn answers_of_before_a_restart_are_not_believed_after_it() {
    let Linked { mut server, link } = Linked::to(RedisServer::start()).await;
    let cache = RedisCache::new(Arc::clone(&link), "users", 1).storing_within(LONG);
    assert_eq!(put_absence(&cache, "1").await, Stored::Yes);
    assert_eq!(put_value(&cache, "2", "kept").await, Stored::Yes);
    assert_eq!(entry(&cache, &key("1")).await, Entry::Absence);
    let _: () = redis::cmd("SAVE").query(&mut server.connection()).unwrap();
    server.kill();
    server.restart();
    recovered(&cache).await;
    let kept: bool = redis::cmd("EXISTS").arg(ENTRY).query(&mut server.connection()).unwrap();
    assert!(kept, "the test wants the entry to have survived");
    assert_eq!(entry(&cache, &key("1")).await, Entry::Nothing);
    assert_eq!(entry(&cache, &key("2")).await, Entry::Nothing, "a tombstone may have been in its place");
    assert_eq!(put_value(&cache, "2", "new").await, Stored::Yes);
}

#[tokio::test]
async fn wiped_redis_is_taken_for_a_new_one() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache = linked.cache();
    let mut epochs = cache.epochs();
    epochs.borrow_and_update();
    let before = cache.get(&key("1")).await.unwrap().stamp;
    let _: () = redis::cmd("FLUSHALL").query(&mut linked.server.connection()).unwrap();
    tokio::time::timeout(Duration::from_secs(30), epochs.changed()).await.expect("the wipe went unnoticed").unwrap();
    assert_eq!(cache.put_absence(&key("1"), LONG, &before).await.unwrap(), Stored::No);
}

#[tokio::test]
async fn instances_of_one_redis_share_its_absences() {
    let linked = Linked::to(RedisServer::start()).await;
    let second = RedisLink::connect(&redis_config(&linked.server.url(), PATIENT), |_| {}).unwrap();
    assert!(second.wait_connected(PATIENT).await);
    put_absence(&linked.cache_of("users", 1), "1").await;
    assert_eq!(entry(&RedisCache::new(second, "users", 1), &key("1")).await, Entry::Absence);
}

#[tokio::test]
async fn eviction_policy_that_takes_marks_forbids_absences() {
    let linked = Linked::to(RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"])).await;
    let cache = linked.cache();
    let warning = cache.status().warning.expect("a warning");
    assert!(warning.contains("allkeys-lru") && warning.contains("noeviction"), "{warning}");
    assert!(cache.status().reachable);
    assert_eq!(put_absence(&cache, "1").await, Stored::No);
    assert_eq!(entry(&cache, &key("1")).await, Entry::Nothing);
    assert_eq!(put_value(&cache, "1", "a").await, Stored::Yes);
}

#[tokio::test]
async fn eviction_policy_changed_at_run_time_is_noticed() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache = linked.cache();
    assert_eq!(put_absence(&cache, "1").await, Stored::Yes);
    let _: () = redis::cmd("CONFIG")
        .arg("SET")
        .arg("maxmemory-policy")
        .arg("volatile-lru")
        .query(&mut linked.server.connection())
        .unwrap();
    eventually("the warning", || cache.status().reachable && cache.status().warning.is_some()).await;
    assert_eq!(put_absence(&cache, "2").await, Stored::No);
}

#[tokio::test]
async fn primary_that_becomes_a_replica_is_left() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache = linked.cache();
    let mut raw = linked.server.connection();
    let _: () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1).query(&mut raw).unwrap();
    eventually("it is refused", || cache.status().warning.is_some_and(|w| w.contains("replica"))).await;
    assert!(matches!(cache.get(&key("1")).await, Err(CacheError::Unavailable(_))));
    let _: () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query(&mut raw).unwrap();
    recovered(&cache).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hung_redis_times_out_opens_the_breaker_and_recovers() {
    let server = RedisServer::start();
    let timeout = Duration::from_millis(200);
    let states = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&states);
    let link = RedisLink::connect(&redis_config(&server.url(), timeout), move |state| log.lock().unwrap().push(state))
        .unwrap();
    let cache = RedisCache::new(Arc::clone(&link), "users", 1).storing_within(LONG);
    recovered(&cache).await;
    server.pause();
    let start = Instant::now();
    let error = cache.get(&key("1")).await.unwrap_err();
    let took = start.elapsed();
    assert!(matches!(error, CacheError::Timeout(t) if t == timeout), "{error}");
    assert!(took >= timeout && took < timeout + Duration::from_secs(60), "{took:?}");
    assert_eventually!(
        matches!(cache.get(&key("1")).await, Err(CacheError::Unavailable(_))),
        "it never failed at once"
    );
    assert!(states.lock().unwrap().contains(&BreakerState::Open));
    let start = Instant::now();
    // Each would wait for its timeout, all for 100 s, were they sent.
    for _ in 0..500 {
        assert!(matches!(cache.get(&key("1")).await, Err(CacheError::Unavailable(_))));
    }
    assert!(start.elapsed() < Duration::from_secs(50), "500 commands took {:?}", start.elapsed());
    server.resume();
    recovered(&cache).await;
    eventually("the breaker closes", || states.lock().unwrap().last() == Some(&BreakerState::Closed)).await;
}

#[tokio::test]
async fn wrong_password_is_unreachable_and_never_shown() {
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    for password in [Some("hunter2-wrong"), None] {
        let link = RedisLink::connect(&redis_config(&server.url_with_password(password), PATIENT), |_| {}).unwrap();
        let cache = RedisCache::new(Arc::clone(&link), "users", 1).storing_within(LONG);
        eventually("the status says why", || cache.status().warning.is_some_and(|w| w.contains("password"))).await;
        assert!(!cache.status().reachable);
        let error = cache.get(&key("1")).await.unwrap_err();
        let shown = format!("{error} {error:?} {:?} {cache:?} {link:?}", cache.status());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let linked = Linked::to(server).await;
    assert_eq!(entry(&linked.cache(), &key("1")).await, Entry::Nothing);
}

#[tokio::test]
async fn url_that_is_none_is_refused_without_showing_its_password() {
    for url in ["", "nonsense", "http://:hunter2@127.0.0.1/", "redis://:hunter2@127.0.0.1/notanumber"] {
        let error = RedisLink::connect(&redis_config(url, PATIENT), |_| {}).unwrap_err();
        assert!(matches!(error, LinkError::Refused(_)), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}

/// Connections to a port, by Linux' table of this network namespace: closed ones are in another state. Only this process
/// knows the port.
fn established_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    // sl local_address rem_address st …, in hexadecimal.
    let is_one = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[2].ends_with(&format!(":{port:04X}")) && fields[3] == "01"
    };
    table.lines().skip(1).filter(is_one).count()
}

/// Its task must not wait until the server takes what is still to be written: it never does.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_link_closes_its_connection_to_a_server_that_hangs() {
    let server = RedisServer::start();
    let link = RedisLink::connect(&redis_config(&server.url(), Duration::from_millis(500)), |_| {}).unwrap();
    assert!(link.wait_connected(PATIENT).await);
    let cache = RedisCache::new(Arc::clone(&link), "users", 1).storing_within(LONG);
    let stamp = cache.get(&key("1")).await.unwrap().stamp;
    server.pause();
    // More than the kernel takes for a reader that reads nothing.
    let large = value(&"x".repeat(64 << 20));
    assert!(cache.put_value(&key("1"), &large, LONG, Duration::ZERO, &stamp).await.is_err());
    assert_eq!(established_to(server.port()), 1, "the connection outlives a command without an answer");
    drop((cache, link));
    eventually("the connection is closed", || established_to(server.port()) == 0).await;
    server.resume();
}

#[tokio::test]
async fn dropped_link_closes_its_connection() {
    let linked = Linked::to(RedisServer::start()).await;
    let Linked { server, link } = linked;
    let mut raw = server.connection();
    let mut clients = move || redis::cmd("CLIENT").arg("LIST").query::<String>(&mut raw).unwrap().lines().count();
    assert_eq!(clients(), 2);
    drop(link);
    eventually("only the test's own connection is left", || clients() == 1).await;
}

/// The network keeps what was sent, also when its sender has given up: a mark that came in between may have lived and
/// ended before it arrives.
///
/// Invariant: announced-never-cached-absent
#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_after_the_marks_that_forbid_it_have_ended_is_not_stored() {
    let server = RedisServer::start();
    let proxy = ChaosProxy::start(server.port(), 1, |_| false).await;
    let link =
        RedisLink::connect(&redis_config(&format!("redis://127.0.0.1:{}", proxy.port()), PATIENT), |_| {}).unwrap();
    assert!(link.wait_connected(PATIENT).await);
    let cache = RedisCache::new(link, "users", 1).storing_within(Duration::from_millis(300));
    let stamps = [cache.get(&key("1")).await.unwrap().stamp, cache.get(&key("2")).await.unwrap().stamp];
    proxy.set(Weather { black_hole: true, ..Weather::default() });
    let (absent, old) = (key("1"), value("old"));
    let (absence, kept) = (cache.put_absence(&absent, LONG, &stamps[0]), key("2"));
    let sent = async { tokio::join!(absence, cache.put_value(&kept, &old, LONG, Duration::ZERO, &stamps[1])) };
    let later = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        proxy.heal();
    };
    let ((absence, value), ()) = tokio::join!(sent, later);
    // Or no caller waited for the answer any more.
    assert!(!matches!(absence, Ok(Stored::Yes)) && !matches!(value, Ok(Stored::Yes)), "{absence:?}, {value:?}");
    let mut raw = server.connection();
    eventually("both have arrived", || {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut raw).unwrap();
        stats.contains("cmdstat_evalsha:calls=2,")
    })
    .await;
    let there: i64 = redis::cmd("EXISTS").arg(ENTRY).arg("bloomguard:entry:users:2").query(&mut raw).unwrap();
    assert_eq!(there, 0);
    // What comes in time is.
    assert_eq!(put_absence(&cache.storing_within(LONG), "3").await, Stored::Yes);
}

//! Keys from a real Redis: names by pattern, members of a set, and what fails a scan.

use std::time::Duration;

use bloomguard::config::{RedisConfig, SecretUrl, SourceConfig, SourceKind};
use bloomguard::key::KeyForm;
use bloomguard::source::{KeySource, RedisSource, SourceError};
use tokio::sync::mpsc;

use crate::support::app::TestApp;
use crate::support::config::{Config, Source};
use crate::support::database::Site;
use crate::support::redis::RedisServer;
use crate::support::scan::{distinct, scan};

fn names(server: &RedisServer, pattern: &str, prefix: &str) -> RedisSource {
    let pattern = Some(pattern.to_owned());
    let config =
        SourceConfig { kind: SourceKind::Redis, pattern, strip_prefix: prefix.to_owned(), ..SourceConfig::default() };
    let shared = RedisConfig { url: SecretUrl::new(server.url()), ..RedisConfig::default() };
    RedisSource::new(&config, Some(&shared)).unwrap()
}

fn members(server: &RedisServer, set: &str) -> RedisSource {
    let config = SourceConfig {
        kind: SourceKind::Redis,
        set: Some(set.to_owned()),
        url: SecretUrl::new(server.url()),
        ..SourceConfig::default()
    };
    RedisSource::new(&config, None).unwrap()
}

/// Fills a set and names of its own kind: `users` with 1 to `count`, and `user:1` to `user:{count}`.
fn fill(server: &RedisServer, count: u32) {
    let script =
        "for i = 1, tonumber(ARGV[1]) do redis.call('SADD', 'users', i) redis.call('SET', 'user:' .. i, 'x') end";
    let mut run = redis::cmd("EVAL");
    run.arg(script).arg(0).arg(count).exec(&mut server.connection()).unwrap();
}

fn command(server: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]).exec(&mut server.connection()).unwrap();
}

#[tokio::test]
async fn every_name_and_every_member_arrives() {
    let server = RedisServer::start();
    fill(&server, 10_000);
    command(&server, &["SET", "order:1", "x"]);
    let mut expected: Vec<String> = (1..=10_000).map(|i| i.to_string()).collect();
    expected.sort();
    assert_eq!(distinct(&names(&server, "user:*", "user:"), KeyForm::Integer).await, expected);
    assert_eq!(distinct(&members(&server, "users"), KeyForm::Integer).await, expected);
    assert_eq!(distinct(&names(&server, "order:*", ""), KeyForm::Text).await, ["order:1"]);
    assert_eq!(members(&server, "users").count().await.unwrap(), Some(10_000));
    assert_eq!(names(&server, "user:*", "").count().await.unwrap(), None, "only a scan can tell");
    assert_eq!(members(&server, "users").key_form().await.unwrap(), None);
}

#[tokio::test]
async fn members_of_any_bytes_are_keys() {
    let server = RedisServer::start();
    redis::cmd("SADD").arg("s").arg(b"\x00\xff").arg("\u{e9}").exec(&mut server.connection()).unwrap();
    assert_eq!(distinct(&members(&server, "s"), KeyForm::Bytes).await, [r"\x00\xff", r"\xc3\xa9"]);
    let error = scan(&members(&server, "s"), KeyForm::Text).await.unwrap_err().to_string();
    assert!(error.contains(r#"the element "\x00\xff": the key is not valid UTF-8"#), "{error}");
}

#[tokio::test]
async fn an_element_that_is_no_key_is_told_by_name() {
    let server = RedisServer::start();
    command(&server, &["MSET", "user:1", "x", "user:1:settings", "x"]);
    let error = scan(&names(&server, "user:*", "user:"), KeyForm::Integer).await.unwrap_err();
    assert!(
        matches!(&error, SourceError::Invalid(why) if why.starts_with("the element \"user:1:settings\": the key is \
            not a decimal")),
        "{error}"
    );
}

#[tokio::test]
async fn no_set_is_an_empty_one_and_another_type_is_invalid() {
    let server = RedisServer::start();
    assert!(scan(&members(&server, "users"), KeyForm::Text).await.unwrap().is_empty());
    assert_eq!(members(&server, "users").count().await.unwrap(), Some(0));
    command(&server, &["SET", "users", "x"]);
    for error in [
        scan(&members(&server, "users"), KeyForm::Text).await.unwrap_err(),
        members(&server, "users").count().await.unwrap_err(),
    ] {
        assert!(matches!(&error, SourceError::Invalid(why) if why.contains("WRONGTYPE")), "{error}");
    }
}

#[tokio::test]
async fn unreachable_or_locked_redis_is_unavailable_and_shows_no_password() {
    let mut server = RedisServer::start_with(&["--requirepass", "hunter2"]);
    let source = names(&server, "*", "");
    assert!(scan(&source, KeyForm::Text).await.unwrap().is_empty());
    let wrong = SourceConfig {
        kind: SourceKind::Redis,
        set: Some("users".into()),
        url: SecretUrl::new(server.url_with_password(Some("hunter3"))),
        ..SourceConfig::default()
    };
    let locked = scan(&RedisSource::new(&wrong, None).unwrap(), KeyForm::Text).await.unwrap_err();
    server.kill();
    for error in [locked, scan(&source, KeyForm::Text).await.unwrap_err()] {
        assert!(matches!(error, SourceError::Unavailable(_)), "{error}");
        assert!(!error.to_string().contains("hunter"), "{error}");
    }
}

#[tokio::test]
async fn a_replica_is_refused() {
    let server = RedisServer::start();
    fill(&server, 10);
    command(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    let error = scan(&members(&server, "users"), KeyForm::Text).await.unwrap_err();
    assert!(error.to_string().contains("is a replica; the url must name the primary"), "{error}");
}

/// A scan of many pages whose first keys have arrived, and which can't go on before the rest of them is taken.
struct UnderWay {
    batches: mpsc::Receiver<bloomguard::key::KeyBatch>,
    scan: tokio::task::JoinHandle<Result<u64, SourceError>>,
    keys: Vec<bloomguard::key::Key>,
}

impl UnderWay {
    async fn start(source: RedisSource) -> Self {
        let (sender, mut batches) = mpsc::channel(1);
        let scan = tokio::spawn(async move { source.scan(KeyForm::Integer, sender).await });
        let keys = batches.recv().await.expect("keys flow").into_iter().collect();
        Self { batches, scan, keys }
    }

    async fn end(mut self) -> Result<u64, SourceError> {
        while self.batches.recv().await.is_some() {}
        self.scan.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_in_the_middle_is_a_failed_scan_and_not_a_shorter_list() {
    for restarted in [false, true] {
        let mut server = RedisServer::start();
        fill(&server, 100_000);
        for source in [names(&server, "user:*", "user:"), members(&server, "users")] {
            let scan = UnderWay::start(source).await;
            server.kill();
            server.restart();
            if restarted {
                fill(&server, 100_000);
            }
            let ended = scan.end().await;
            assert!(matches!(ended, Err(SourceError::Unavailable(_))), "{ended:?}");
            fill(&server, 100_000);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_becomes_a_replica_in_the_middle_is_a_failed_scan() {
    let server = RedisServer::start();
    fill(&server, 100_000);
    let scan = UnderWay::start(members(&server, "users")).await;
    command(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    let ended = scan.end().await;
    assert!(matches!(ended, Err(SourceError::Invalid(_) | SourceError::Unavailable(_))), "{ended:?}");
    command(&server, &["REPLICAOF", "NO", "ONE"]);
    let scan = UnderWay::start(members(&server, "users")).await;
    command(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    command(&server, &["REPLICAOF", "NO", "ONE"]);
    let ended = scan.end().await;
    assert!(
        matches!(&ended, Err(SourceError::Unavailable(why)) if why.contains("another server")),
        "its history is another one: {ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_is_emptied_in_the_middle_is_a_failed_scan() {
    let server = RedisServer::start();
    for refilled in [0, 10, 60_000] {
        fill(&server, 100_000);
        let scan = UnderWay::start(members(&server, "users")).await;
        command(&server, &["DEL", "users"]);
        fill(&server, refilled);
        let ended = scan.end().await;
        assert!(
            matches!(&ended, Err(SourceError::Invalid(why)) if why.contains("the set had 100000 members and then")),
            "{refilled}: {ended:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_another_is_renamed_over_in_the_middle_is_read_whole() {
    let server = RedisServer::start();
    fill(&server, 100_000);
    command(&server, &["COPY", "users", "new"]);
    command(&server, &["SADD", "new", "0"]);
    command(&server, &["SREM", "new", "1", "2", "3"]);
    let mut scan = UnderWay::start(members(&server, "users")).await;
    command(&server, &["RENAME", "new", "users"]);
    let mut found = scan.keys;
    while let Some(batch) = scan.batches.recv().await {
        found.extend(batch);
    }
    scan.scan.await.unwrap().unwrap();
    let found: std::collections::HashSet<u32> =
        found.iter().map(|key| key.as_str().unwrap().parse().unwrap()).collect();
    assert!((4..=100_000).all(|i| found.contains(&i)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elements_that_stay_are_found_while_others_come_and_go() {
    let server = RedisServer::start();
    fill(&server, 50_000);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = server.connection();
            for i in (1_000_000..).take_while(|_| !stop.load(std::sync::atomic::Ordering::Relaxed)) {
                redis::pipe()
                    .cmd("SADD")
                    .arg("users")
                    .arg(i)
                    .cmd("SREM")
                    .arg("users")
                    .arg(i - 20_000)
                    .exec(&mut connection)
                    .unwrap();
            }
        });
        let found = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(scan(&members(&server, "users"), KeyForm::Integer)).unwrap()
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let found: std::collections::HashSet<u32> =
            found.iter().map(|key| key.as_str().unwrap().parse().unwrap()).collect();
        assert!((1..=50_000).all(|i| found.contains(&i)));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_that_left_cancels_the_scan() {
    let server = RedisServer::start();
    fill(&server, 100_000);
    let UnderWay { batches, scan, .. } = UnderWay::start(members(&server, "users")).await;
    server.pause();
    drop(batches);
    let ended = tokio::time::timeout(Duration::from_secs(10), scan).await.expect("the scan ends").unwrap();
    server.resume();
    assert!(matches!(ended, Err(SourceError::Cancelled)), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyspace_is_guarded_by_a_set_and_warned_of_what_endangers_it() {
    let (server, site) = (RedisServer::start(), Site::sqlite());
    site.run("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO users VALUES (1, 'one'), (2, 'two')")
        .await;
    command(&server, &["SADD", "users", "1", "2"]);
    let config = Config::new().redis(&server).users(|k| {
        k.set("key", "integer")
            .set("freshness", "static")
            .set("deadline", "2s")
            .backend(&site.url(), "SELECT name FROM users WHERE id = ?")
            .source(Source::new("redis").set("set", "users"))
    });
    let app = TestApp::enforcing(&config).await;
    assert_eq!(app.get("/v1/keys/users/2").await.told(), "200 backend");
    assert_eq!(app.get("/v1/keys/users/3").await.told(), "404 filter");
    let warnings = async || app.status("users").await["warnings"].to_string();
    assert_eq!(warnings().await, "[]");
    command(&server, &["EXPIRE", "users", "1000"]);
    assert_eq!(app.rebuild("users").await, "swapped");
    assert!(warnings().await.contains("the key source's set expires"), "{}", warnings().await);
    command(&server, &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert_eq!(app.rebuild("users").await, "swapped");
    assert!(warnings().await.contains("the key source's maxmemory-policy is allkeys-lru"), "{}", warnings().await);
}

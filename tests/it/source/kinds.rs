//! What a key source of any kind does.

use std::any::Any;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bloomguard::config::{RedisConfig, SecretUrl, SourceConfig, SourceKind};
use bloomguard::key::{KeyBatch, KeyForm};
use bloomguard::source::{BATCH_KEYS, FileSource, KeySource, Member, RedisSource, SourceError, SqlSource, Union};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::support::database::Site;
use crate::support::redis::RedisServer;
use crate::support::scan::{distinct, scan};

/// A source and the servers and files behind it.
struct Fixture {
    source: Arc<dyn KeySource>,
    _behind: Box<dyn Any + Send + Sync>,
}

impl Fixture {
    fn new(source: impl KeySource + 'static, behind: impl Any + Send + Sync) -> Self {
        Self { source: Arc::new(source), _behind: Box::new(behind) }
    }
}

async fn on_database(site: Site, keys: &[String]) -> Fixture {
    site.run("CREATE TABLE t (id TEXT)").await;
    for part in keys.chunks(10_000) {
        let rows: Vec<String> = part.iter().map(|key| format!("('{key}')")).collect();
        site.run(&format!("INSERT INTO t VALUES {}", rows.join(", "))).await;
    }
    let config = SourceConfig { query: "SELECT id FROM t".to_owned(), ..SourceConfig::default() };
    Fixture::new(SqlSource::new(&config, &SecretUrl::new(site.url())).unwrap(), site)
}

fn in_file(name: &str, keys: &[String]) -> Fixture {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    let file = std::fs::File::create(&path).unwrap();
    let text: String = keys.iter().map(|key| format!("{key}\r\n")).collect();
    match name {
        "keys.gz" => {
            flate2::write::GzEncoder::new(file, flate2::Compression::fast()).write_all(text.as_bytes()).unwrap()
        }
        "keys.zst" => zstd::Encoder::new(file, 1).unwrap().auto_finish().write_all(text.as_bytes()).unwrap(),
        _ => (&file).write_all(text.as_bytes()).unwrap(),
    }
    let config = SourceConfig { kind: SourceKind::File, path, ..SourceConfig::default() };
    Fixture::new(FileSource::new(&config, 100), folder)
}

fn in_redis(config: SourceConfig, command: &str, prefix: &str, keys: &[String]) -> Fixture {
    let server = RedisServer::start();
    for part in keys.chunks(1000) {
        let mut fill = redis::pipe();
        for key in part {
            match command {
                "SADD" => fill.cmd("SADD").arg("users").arg(key),
                _ => fill.cmd("SET").arg(format!("{prefix}{key}")).arg("x"),
            };
        }
        fill.exec(&mut server.connection()).unwrap();
    }
    let shared = RedisConfig { url: SecretUrl::new(server.url()), ..RedisConfig::default() };
    let source = RedisSource::new(&SourceConfig { kind: SourceKind::Redis, ..config }, Some(&shared)).unwrap();
    Fixture::new(source, server)
}

async fn sqlite(keys: &[String]) -> Fixture {
    on_database(Site::sqlite(), keys).await
}

async fn postgres(keys: &[String]) -> Fixture {
    on_database(Site::postgres(), keys).await
}

async fn plain_file(keys: &[String]) -> Fixture {
    in_file("keys", keys)
}

async fn gzip_file(keys: &[String]) -> Fixture {
    in_file("keys.gz", keys)
}

async fn zstd_file(keys: &[String]) -> Fixture {
    in_file("keys.zst", keys)
}

async fn redis_names(keys: &[String]) -> Fixture {
    let config =
        SourceConfig { pattern: Some("user:*".into()), strip_prefix: "user:".into(), ..SourceConfig::default() };
    in_redis(config, "SET", "user:", keys)
}

async fn redis_set(keys: &[String]) -> Fixture {
    in_redis(SourceConfig { set: Some("users".into()), ..SourceConfig::default() }, "SADD", "", keys)
}

async fn union(keys: &[String]) -> Fixture {
    let (one, two) = keys.split_at(keys.len() / 2);
    let (one, two) = (sqlite(one).await, in_file("keys", two));
    let member = |fixture: &Fixture| Member { source: Arc::clone(&fixture.source), allow_empty: true };
    Fixture::new(Union::new(vec![member(&one), member(&two)]), (one, two))
}

macro_rules! on_every_kind {
    ($($test:ident),+ $(,)?) => { on_every_kind!(@kinds [sqlite postgres plain_file gzip_file zstd_file redis_names redis_set union] [$($test)+]); };
    (@kinds [$($kind:ident)+] $tests:tt) => { $(on_every_kind!(@tests $kind $tests);)+ };
    (@tests $kind:ident [$($test:ident)+]) => {
        mod $kind {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::$test(async |keys: Vec<String>| super::$kind(&keys).await).await; })+
        }
    };
}

on_every_kind!(
    every_key_arrives_and_the_count_is_right_where_there_is_one,
    no_keys_are_no_failure,
    one_key_without_the_form_fails_the_scan,
    keys_are_canonical,
    reader_that_left_cancels_the_scan,
);

fn numbers(count: usize) -> Vec<String> {
    (1..=count).map(|i| i.to_string()).collect()
}

async fn every_key_arrives_and_the_count_is_right_where_there_is_one(listing: impl AsyncFn(Vec<String>) -> Fixture) {
    let count = BATCH_KEYS * 2 + 5;
    let fixture = listing(numbers(count)).await;
    let keys = scan(&*fixture.source, KeyForm::Integer).await.unwrap();
    let found: BTreeSet<u64> = keys.iter().map(|key| key.as_str().unwrap().parse().unwrap()).collect();
    assert!(found.into_iter().eq(1..=count as u64));
    assert!([None, Some(count as u64)].contains(&fixture.source.count().await.unwrap()));
}

async fn no_keys_are_no_failure(listing: impl AsyncFn(Vec<String>) -> Fixture) {
    let fixture = listing(vec![]).await;
    assert!(scan(&*fixture.source, KeyForm::Text).await.unwrap().is_empty());
    assert!([None, Some(0)].contains(&fixture.source.count().await.unwrap()));
}

async fn one_key_without_the_form_fails_the_scan(listing: impl AsyncFn(Vec<String>) -> Fixture) {
    let fixture = listing(vec!["1".into(), "two".into(), "3".into()]).await;
    let error = scan(&*fixture.source, KeyForm::Integer).await.unwrap_err().to_string();
    assert!(error.contains("the key is not a decimal integer"), "{error}");
}

async fn keys_are_canonical(listing: impl AsyncFn(Vec<String>) -> Fixture) {
    let fixture = listing(vec!["007".into(), "+8".into()]).await;
    assert_eq!(distinct(&*fixture.source, KeyForm::Integer).await, ["7", "8"]);
}

async fn reader_that_left_cancels_the_scan(listing: impl AsyncFn(Vec<String>) -> Fixture) {
    // More than the channel and what is read ahead of it hold.
    let fixture = listing(numbers(BATCH_KEYS * 8)).await;
    let (sender, mut batches) = mpsc::channel::<KeyBatch>(1);
    let source = Arc::clone(&fixture.source);
    let scan = tokio::spawn(async move { source.scan(KeyForm::Integer, sender).await });
    batches.recv().await.expect("keys flow");
    drop(batches);
    let ended = tokio::time::timeout(Duration::from_secs(30), scan).await.expect("the scan ends").unwrap();
    assert!(matches!(ended, Err(SourceError::Cancelled)), "{ended:?}");
}

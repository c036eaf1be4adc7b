//! The process and a Redis with TLS: what the log and `/status` say, and that it works as without.

use tempfile::TempDir;

use super::users::{config, site};
use crate::support::app::{Http, TestApp};
use crate::support::assert_eventually;
use crate::support::certificates::{Authority, text};
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::process::Process;
use crate::support::redis_tls::{HERE, TlsRedis};

fn over_tls(site: &Site, redis: &TlsRedis, ca: &Authority) -> Config {
    config(&site.url()).redis_at(&redis.url()).set("redis.ca_file", text(&ca.pem()))
}

/// Waits until the keyspace's warnings hold this reason.
async fn is_told(telemetry: &str, reason: &str) {
    let http = Http::default();
    let mut status;
    assert_eventually!(
        {
            status = http.get(&format!("http://{telemetry}/status")).await.text().to_owned();
            status.contains(reason)
        },
        "{reason:?} is not in {status}"
    );
}

/// Whatever is wrong: many attempts, one line.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_certificate_is_one_warning_and_the_reason_in_the_status() {
    let (redis, site) = (TlsRedis::start(), site(Site::sqlite()).await);
    redis.present(&redis.authority.issue_expired(HERE));
    let dir = TempDir::new().unwrap();
    let file = over_tls(&site, &redis, &redis.authority).write(dir.path());
    let mut process = Process::start(dir.path(), &["serve", "--config", &file]);
    let (data, telemetry) = process.addresses();
    let expired = "its certificate has expired, on 2021-02-03 04:05 UTC";
    is_told(&telemetry, expired).await;
    let warnings = |process: &Process| {
        let log = process.log();
        let warned = log.lines().filter(|line| line.contains("\"WARN\"") && line.contains("Redis"));
        warned.map(str::to_owned).collect::<Vec<_>>()
    };
    let attempts = || redis.command::<String>(&["INFO", "stats"]);
    let before = attempts();
    let made = |stats: &str| -> u64 {
        let count = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
        count.trim().parse().unwrap()
    };
    // Its own commands here are two of them at most a look.
    assert_eventually!(made(&attempts()) > made(&before) + 20, "it tries no more");
    let told = warnings(&process).into_iter().filter(|line| line.contains("connect")).collect::<Vec<_>>();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].contains(expired), "{told:?}");
    let http = Http::default();
    assert_eq!(http.get(&format!("http://{data}/v1/keys/users/1")).await.status, 200);
    redis.present(&redis.authority.issue("DNS:elsewhere"));
    is_told(&telemetry, "its certificate is not for 127.0.0.1 but for elsewhere").await;
    redis.present(&redis.authority.issue(HERE));
    process.logged("connected to Redis");
    let announce = async || http.send("PUT", &format!("http://{data}/v1/keys/users/5000000"), &[], "").await.status;
    assert_eventually!(announce().await == 204, "{}", process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authorities_of_the_system_are_trusted_without_a_ca_file() {
    let (redis, site) = (TlsRedis::start(), site(Site::sqlite()).await);
    let dir = TempDir::new().unwrap();
    let file = config(&site.url()).redis_at(&redis.url()).write(dir.path());
    let authority = redis.authority.pem();
    let mut process =
        Process::start_with(dir.path(), &["serve", "--config", &file], &[("SSL_CERT_FILE", text(&authority))]);
    process.logged("connected to Redis");
    assert_eq!(redis.secure_clients(), 1);
}

/// Instances that hear from each other by a Redis over TLS.
#[tokio::test(flavor = "multi_thread")]
async fn announces_travel_over_tls_with_replicas_too() {
    let (redis, site) = (TlsRedis::start(), site(Site::sqlite()).await);
    let config = over_tls(&site, &redis, &redis.authority).users(|k| k.set("commit_window", "1s"));
    let (writer, reader) = (TestApp::start(&config).await, TestApp::start(&config).await);
    writer.wait_for("enforcing").await;
    reader.wait_for("enforcing").await;
    let id = super::users::absent(&reader);
    let path = format!("/v1/keys/users/{id}");
    assert_eq!(reader.get(&path).await.told(), "404 filter");
    assert_eq!(writer.send("PUT", &path, &[]).await.status, 204);
    site.run(&format!("INSERT INTO users VALUES ({id}, 'new')")).await;
    assert_eventually!(reader.get(&path).await.status == 200, "the announce does not arrive");
    assert_eq!(redis.secure_clients(), 2);
}

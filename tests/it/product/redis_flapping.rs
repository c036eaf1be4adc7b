//! Connections to Redis that come and go many times a second: few lines in the log.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::users::{config, site};
use crate::support::app::Http;
use crate::support::assert_eventually;
use crate::support::database::Site;
use crate::support::process::Process;
use crate::support::redis::RedisServer;

/// Lines of one kind within this time, of each connection.
const LINES: usize = 2;
const WITHIN: Duration = Duration::from_secs(10);
const KILL_EVERY: Duration = Duration::from_millis(70);

/// The lines of the log with this message.
fn told(process: &Process, message: &str) -> Vec<serde_json::Value> {
    let log = process.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter(|line| line["message"] == message).collect()
}

fn suppressed(lines: &[serde_json::Value]) -> u64 {
    lines.iter().filter_map(|line| line["suppressed"].as_u64()).sum()
}

/// The most lines of one kind in this time.
fn most(time: Duration) -> usize {
    LINES * (1 + usize::try_from(time.as_secs() / WITHIN.as_secs()).unwrap())
}

/// A name with two addresses behind which two things are wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_fails_in_two_ways_in_turn_makes_few_lines() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", server.local_addr().unwrap());
    let attempts = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = std::sync::Arc::clone(&attempts);
    let made = move || attempts.load(std::sync::atomic::Ordering::Relaxed);
    let _failing = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((mut client, _)) = server.accept().await {
            let _ = client.read(&mut [0; 1024]).await;
            let attempt = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let no_login = b"-NOAUTH Authentication required.\r\n-NOAUTH Authentication required.\r\n";
            let answer = if attempt.is_multiple_of(2) { &no_login[..] } else { b"HTTP/1.1 400 Bad\r\n\r\n" };
            let _ = client.write_all(answer).await;
        }
    }));
    let (site, dir) = (site(Site::sqlite()).await, TempDir::new().unwrap());
    let file = config(&site.url()).redis_at(&url).write(dir.path());
    let begin = Instant::now();
    let mut process = Process::start(dir.path(), &["serve", "--config", &file]);
    process.logged("can't connect to Redis");
    assert_eventually!(made() >= 25, "{} attempts", made());
    let failed = told(&process, "can't connect to Redis");
    assert!(
        failed.len() <= most(begin.elapsed()),
        "{} lines in {:?}:\n{}",
        failed.len(),
        begin.elapsed(),
        process.log()
    );
    // The count of what was left out comes with the next line.
    assert_eventually!(suppressed(&told(&process, "can't connect to Redis")) >= 20, "{}", process.log());
    let failed = told(&process, "can't connect to Redis");
    assert!(suppressed(&failed) + failed.len() as u64 <= made(), "{} attempts: {failed:#?}", made());
    let reasons: std::collections::BTreeSet<_> = failed.iter().map(|line| line["reason"].to_string()).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_lost_at_once_again_and_again_make_few_lines() {
    let (redis, site, dir) = (RedisServer::start(), site(Site::sqlite()).await, TempDir::new().unwrap());
    let file = config(&site.url()).redis(&redis).users(|k| k.set("commit_window", "1m")).write(dir.path());
    let mut process = Process::start(dir.path(), &["serve", "--config", &file]);
    let (data, _) = process.addresses();
    process.logged("connected to Redis");
    // Which is sent again after each reconnect.
    let (http, url) = (Http::default(), format!("http://{data}/v1/keys/users/5000000"));
    assert_eventually!(http.send("PUT", &url, &[], "").await.status == 204, "{}", process.log());
    let mut raw = redis.connection();
    let mut command = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).query::<redis::Value>(&mut raw).unwrap();
    let (begin, before) = (Instant::now(), process.log().lines().count());
    while begin.elapsed() < WITHIN {
        command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        tokio::time::sleep(KILL_EVERY).await;
    }
    // All lines, of any part of the process.
    let (lines, log) = (process.log().lines().count() - before, process.log());
    assert!(lines <= 4 * most(begin.elapsed()), "{lines} lines in {:?}:\n{log}", begin.elapsed());
    for message in ["lost connection to Redis", "connected to Redis"] {
        let lines = told(&process, message).len();
        assert!(lines <= most(begin.elapsed()) + 1, "{message}: {lines} in {:?}:\n{log}", begin.elapsed());
    }
    // The first loss and the first reconnect of a flood are there, and in the end its last state.
    assert!(!told(&process, "lost connection to Redis").is_empty(), "{log}");
    let connected = || told(&process, "connected to Redis");
    assert_eventually!(suppressed(&connected()) > 20, "{}", process.log());
    let last = process.log().lines().rfind(|line| line.contains("connect")).map(str::to_owned);
    assert!(last.as_deref().is_some_and(|line| line.contains("\"connected to Redis\"")), "{last:?}");
}

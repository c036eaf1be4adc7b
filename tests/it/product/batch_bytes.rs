//! How much batches may hold, on real servers.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::app::TestApp;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::process::Process;
use crate::support::redis::RedisServer;
use std::path::Path;

const ROWS: usize = 40;
const BYTES: usize = 60_000;

async fn start(site: &Site, redis: Option<&RedisServer>, raw: bool) -> TestApp {
    let columns = if raw { "name AS value" } else { "id, name" };
    let query = site.query(&format!("SELECT {columns} FROM users WHERE id = $1"));
    let config = Config::new().server("max_batch_bytes", "200KiB").users(|k| {
        k.set("freshness", "static")
            .set("deadline", "20s")
            .backend(&site.url(), &query)
            .set("backend.timeout", "20s")
            .source_sql("SELECT id FROM users")
    });
    let config = match redis {
        Some(redis) => config.redis(redis).set("redis.timeout", "20s"),
        None => config,
    };
    TestApp::enforcing(&config).await
}

async fn lookup(app: &TestApp, ids: &BTreeSet<usize>) -> Vec<Value> {
    let body = serde_json::to_string(ids).unwrap();
    let answer =
        app.http.send("POST", &app.url("/v1/lookup/users"), &[("content-type", "application/json")], &body).await;
    assert_eq!(answer.status, 200);
    // In base64 a value takes a third more.
    assert!(answer.body.len() < 300_000, "{}", answer.body.len());
    answer.json()["results"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_large_rows_is_answered_in_parts() {
    let redis = RedisServer::start();
    for site in [Site::postgres(), Site::mariadb(), Site::sqlite()] {
        let name = "n".repeat(BYTES);
        let rows = site.series(ROWS);
        site.run(&format!(
            "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO users SELECT i, '{name}' FROM \
                ({rows}) AS n"
        ))
        .await;
        // The second time they come from Redis or the process.
        for (redis, raw) in [(None, true), (Some(&redis), false), (Some(&redis), false)] {
            let app = start(&site, redis, raw).await;
            let mut open: BTreeSet<usize> = (1..=ROWS).collect();
            while !open.is_empty() {
                let results = lookup(&app, &open).await;
                let found: Vec<usize> = open
                    .iter()
                    .zip(&results)
                    .filter(|(_, result)| result["status"] == 200)
                    .map(|(id, _)| *id)
                    .collect();
                assert!((1..=3).contains(&found.len()), "{found:?}");
                for result in results.iter().filter(|result| result["status"] != 200) {
                    assert_eq!(
                        (&result["status"], &result["type"]),
                        (&503.into(), &"/problems/batch-full".into()),
                        "{result}"
                    );
                    assert!(result["detail"].as_str().unwrap().contains("server.max_batch_bytes = 204800"), "{result}");
                }
                open.retain(|id| !found.contains(id));
            }
        }
    }
}

#[test]
fn lines_are_not_held_while_the_others_arrive() {
    const BODIES: usize = 3;
    const LINES: usize = 15_000;
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("keys.txt"), "a\n").unwrap();
    let config = Config::new().server("max_batch_keys", 15_000).users(|k| {
        k.set("key", "text").set("freshness", "static").set("backend.kind", "set").source_file(Path::new("keys.txt"))
    });
    let mut process = Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())]);
    let (data, _) = process.addresses();
    let before = process.resident_bytes();
    let line = [&[b'x'; 1_000][..], b"\n"].concat();
    let lines = line.repeat(LINES - 1);
    let length = lines.len() + line.len();
    let head = format!(
        "POST /v1/check/users HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: \
            {length}\r\nConnection: close\r\n\r\n"
    );
    let mut clients: Vec<TcpStream> = (0..BODIES).map(|_| TcpStream::connect(&data).unwrap()).collect();
    for client in &mut clients {
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(&lines).unwrap();
    }
    let grown = process.resident_bytes().saturating_sub(before);
    assert!(grown < 12 << 20, "{grown} bytes for {BODIES} bodies of {length}");
    for client in &mut clients {
        client.write_all(&line).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains(&format!("\"checked\":{LINES},")),
            "{answer:.300}"
        );
    }
}

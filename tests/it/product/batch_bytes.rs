//! How much one batch lookup may hold, on real servers.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::app::TestApp;
use crate::support::database::Site;
use crate::support::redis::RedisServer;

const ROWS: usize = 40;
const BYTES: usize = 60_000;

async fn start(site: &Site, redis: &str, raw: bool) -> TestApp {
    let columns = if raw { "name AS value" } else { "id, name" };
    let query = site.query(&format!("SELECT {columns} FROM users WHERE id = $1"));
    TestApp::enforcing(&format!(
        "max_batch_bytes = \"200KiB\"\n{redis}\n\
         [keyspaces.users]\nfreshness = \"static\"\ndeadline = \"20s\"\n\
         [keyspaces.users.backend]\nurl = \"{}\"\nquery = \"{query}\"\ntimeout = \"20s\"\n\
         [keyspaces.users.source]\nquery = \"SELECT id FROM users\"\n",
        site.url()
    ))
    .await
}

async fn lookup(app: &TestApp, ids: &BTreeSet<usize>) -> Vec<Value> {
    let body = serde_json::to_string(ids).unwrap();
    let answer = app.http.send("POST", &app.url("/v1/lookup/users"), &[("content-type", "application/json")], &body).await;
    assert_eq!(answer.status, 200);
    // In base64 a value takes a third more.
    assert!(answer.body.len() < 300_000, "{}", answer.body.len());
    answer.json()["results"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_large_rows_is_answered_in_parts() {
    let redis = RedisServer::start();
    let redis = format!("[redis]\nurl = \"{}\"\ntimeout = \"20s\"", redis.url());
    for site in [Site::postgres(), Site::mariadb(), Site::sqlite()] {
        let name = "n".repeat(BYTES);
        let rows = site.series(ROWS);
        site.run(&format!(
            "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO users SELECT i, '{name}' FROM ({rows}) AS n"
        ))
        .await;
        // The second time they come from Redis or the process.
        for (redis, raw) in [("", true), (redis.as_str(), false), (redis.as_str(), false)] {
            let app = start(&site, redis, raw).await;
            let mut open: BTreeSet<usize> = (1..=ROWS).collect();
            while !open.is_empty() {
                let results = lookup(&app, &open).await;
                let found: Vec<usize> =
                    open.iter().zip(&results).filter(|(_, result)| result["status"] == 200).map(|(id, _)| *id).collect();
                assert!((1..=3).contains(&found.len()), "{found:?}");
                for result in results.iter().filter(|result| result["status"] != 200) {
                    assert_eq!((&result["status"], &result["type"]), (&503.into(), &"/problems/batch-full".into()), "{result}");
                    assert!(result["detail"].as_str().unwrap().contains("server.max_batch_bytes = 204800"), "{result}");
                }
                open.retain(|id| !found.contains(id));
            }
        }
    }
}

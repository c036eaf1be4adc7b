//! A batch lookup of as many keys as there may be, which took memory by the square of them.

use std::sync::Arc;

use bloomguard::keyspace::LookupOptions;
use tempfile::TempDir;

use crate::support::allocations::peak_bytes;
use crate::support::app::Http;
use crate::support::assert_eventually;
use crate::support::config::{Config, Edit};
use crate::support::database::Site;
use crate::support::keyspace::{TestKeyspace, config, told, unlimited};
use crate::support::process::Process;
use crate::support::scripted::key;

const KEYS: usize = 10_000;
/// What a process with a small filter and next to no caches may take while it answers such a batch ...
const MOST: u64 = 64 << 20;
/// ... and what it may keep of that: pages of its code that it had not needed before, and fragments.
const KEPT: u64 = 24 << 20;

#[tokio::test]
async fn a_batch_takes_memory_by_its_keys_and_not_by_their_square() {
    for together in [1, 32, 100] {
        for (first, status) in [(0, "200"), (KEYS, "404")] {
            let ks = Arc::new(TestKeyspace::cold(config()));
            (0..KEYS).for_each(|i| ks.backend.commit(&format!("user:{i}")));
            ks.backend.answer_together(together);
            let keys = (first..first + KEYS).map(|i| key(format!("user:{i}"))).collect();
            let (peak, lookups) =
                peak_bytes(ks.keyspace.lookup_all(keys, LookupOptions::default(), 64 << 20, &mut unlimited())).await;
            assert!(lookups.iter().all(|lookup| told(lookup).starts_with(status)), "each key is {status}");
            assert!(peak < 16 << 20, "{peak} bytes for {KEYS} keys by {together}, all {status}");
        }
    }
}

/// Starts on a table of as many rows.
fn start(dir: &TempDir, site: &Site, edit: Edit) -> Process {
    let config = Config::new().users(|k| {
        edit(k)
            .set("key", "integer")
            .set("freshness", "static")
            .set("deadline", "100s")
            .set("cache.hot_capacity", "1KiB")
            .backend(&site.url(), &site.query("SELECT id, name FROM users WHERE id = $1"))
            .set("backend.timeout", "50s")
            .source_sql("SELECT id FROM users")
    });
    Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_batch_takes_less_than_64_mib_of_a_process() {
    for site in [Site::sqlite(), Site::postgres()] {
        let rows = site.series(KEYS);
        site.run(&format!(
            "CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT); INSERT INTO users SELECT i, 'User ' || i FROM \
                ({rows}) AS n"
        ))
        .await;
        let states: [(&str, Edit); 3] = [
            ("cold", |k| k.set("rebuild.on_start", false)),
            ("shadow", |k| k.set("enforcement", "shadow")),
            ("enforcing", |k| k),
        ];
        for (state, edit) in states {
            let dir = TempDir::new().unwrap();
            let mut process = start(&dir, &site, edit);
            let (data, telemetry) = process.addresses();
            let http = Http::default();
            assert_eventually!(
                http.get(&format!("http://{telemetry}/status")).await.json()["keyspaces"]["users"]["state"] == state,
                "it is never {state}"
            );
            let before = process.resident_bytes();
            process.forget_peak();
            for (first, status, bypass) in [(1, 200, "0"), (1, 200, "1"), (KEYS + 1, 404, "1")] {
                let keys = serde_json::to_string(&(first..first + KEYS).collect::<Vec<_>>()).unwrap();
                let headers = [("content-type", "application/json"), ("bloomguard-bypass", bypass)];
                let answer = http.send("POST", &format!("http://{data}/v1/lookup/users"), &headers, &keys).await;
                let results = answer.json()["results"].as_array().unwrap().clone();
                assert!(
                    results.len() == KEYS && results.iter().all(|result| result["status"] == status),
                    "{:.300}",
                    answer.text()
                );
            }
            let (peak, after) = (process.peak_bytes(), process.resident_bytes());
            assert!(peak < MOST, "{state}: {before} bytes before, {peak} at the most");
            assert!(after < before + KEPT, "{state}: {before} bytes before, {after} after");
        }
    }
}

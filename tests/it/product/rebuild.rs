//! Rebuilds of the running program.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::process::enforces;
use super::users::{USERS, absent, config, site};
use crate::support::app::{Http, TestApp};
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::process::Process;
use crate::support::{assert_eventually, eventually};

/// Invariant: announced-never-404
#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_under_load_loses_no_request_and_no_announced_key() {
    let site = Arc::new(site(Site::postgres()).await);
    let app = Arc::new(TestApp::enforcing(&config(&site.url())).await);
    let writer = tokio::spawn({
        let (app, site) = (Arc::clone(&app), Arc::clone(&site));
        async move {
            for id in 10_000_000..10_000_100 {
                let path = format!("/v1/keys/users/{id}");
                assert_eq!(app.send("PUT", &path, &[]).await.status, 204);
                site.run(&format!("INSERT INTO users VALUES ({id}, 'new')")).await;
                assert_eq!(app.get(&path).await.status, 200, "{id}");
            }
        }
    });
    let readers: Vec<_> = (0..2)
        .map(|reader| {
            let app = Arc::clone(&app);
            tokio::spawn(async move {
                for i in 0..3000 {
                    let answer = app.get(&format!("/v1/keys/users/{}", (i * 7 + reader) % USERS + 1)).await;
                    assert_eq!(answer.status, 200, "{answer:?}");
                }
            })
        })
        .collect();
    let mut swaps = 0;
    while !(writer.is_finished() && readers.iter().all(tokio::task::JoinHandle::is_finished)) {
        assert_eq!(app.rebuild("users").await, "swapped");
        swaps += 1;
    }
    writer.await.unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
    assert!(swaps >= 3, "{swaps} swaps");
    assert_eq!(app.metric("bloomguard_filter_false_negatives_total{keyspace=\"users\"}").await, 0.0);
    for id in 10_000_000..10_000_100 {
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.status, 200, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_api_starts_a_rebuild_and_shows_it() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let path = "/admin/keyspaces/users/rebuild";
    let started = app.admin("POST", path, "{}").await;
    assert_eq!(started.status, 202, "{started:?}");
    assert!(started.json()["job"].as_u64().is_some_and(|job| job >= 2), "{started:?}");
    assert_eq!(app.rebuild("users").await, "swapped");
    site.run("DELETE FROM users WHERE id > 10").await;
    assert_eq!(app.rebuild("users").await, "collapsed");
    assert!(app.admin("GET", path, "").await.json()["last_error"].as_str().unwrap().contains("min_keys_ratio"));
    loop {
        let accepted = app.admin("POST", path, r#"{"accept_fewer": true}"#).await.status;
        if accepted == 202 {
            break;
        }
        assert_eq!(accepted, 409);
    }
    assert_eventually!(
        app.admin("GET", path, "").await.json()["last"]["keys"] == 10
            && app.status("users").await["last_rebuild"]["outcome"] == "swapped",
        "the smaller table is not accepted"
    );
    let refused = app.http.send("POST", &format!("http://{}{path}", app.admin), &[], "").await;
    assert_eq!(refused.status, 415, "a form of a web page can't start it");
    let foreign = app
        .http
        .send(
            "POST",
            &format!("http://{}{path}", app.admin),
            &[("content-type", "application/json"), ("host", "evil.example")],
            "",
        )
        .await;
    assert_eq!(foreign.status, 403, "nor a page behind a rebound name");
    assert_eq!(app.admin("POST", "/admin/keyspaces/orders/rebuild", "{}").await.status, 404);
    let _ = absent(&app);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waits_for_filters_is_over_once_each_keyspace_has_one() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::start(&config(&site.url()).users(|k| k.set("rebuild.on_start", false))).await;
    let cold = app.telemetry("/startupz").await;
    assert_eq!((cold.status, cold.text()), (503, "cold: users\n"));
    assert_eq!(app.telemetry("/readyz").await.status, 200, "it serves all the same");
    assert_eq!(app.rebuild("users").await, "swapped");
    assert_eq!(app.telemetry("/startupz").await.status, 200);
}

/// Niceness of a process's threads of that name.
fn nice(process: &Process, named: &str) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    // Threads that end meanwhile have none. The niceness is field 19 of proc(5), the name stands in parentheses.
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let of_name = |stat: String| {
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(')')?;
        (name == named).then(|| fields.split_whitespace().nth(16)?.parse().ok()).flatten()
    };
    stats.filter_map(of_name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_yield_to_lookups_unless_there_is_no_filter_yet() {
    let (dir, site) = (TempDir::new().unwrap(), site(Site::sqlite()).await);
    let keys = dir.path().join("keys");
    std::fs::write(&keys, (1..=USERS).map(|id| format!("{id}\n")).collect::<String>()).unwrap();
    let config = Config::new().users(|k| {
        k.set("key", "integer")
            .set("freshness", "static")
            .set("filter.expected_keys", USERS)
            .set("rebuild.max_keys_per_second", 500)
            .backend(&site.url(), "SELECT name FROM users WHERE id = $1")
            .source_file(&keys)
    });
    let mut process = Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())]);
    let (_, telemetry) = process.addresses();
    let answering = nice(&process, "tokio-rt-worker")[0];
    eventually("a filter is filled", || !nice(&process, "fill-filter").is_empty()).await;
    // The time itself is tested: a thread lowers its priority a moment after it starts, and this one does not.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(nice(&process, "fill-filter").iter().all(|nice| *nice == answering));
    let http = Http::default();
    enforces(&http, &telemetry).await;
    http.send(
        "POST",
        &format!("http://{}/admin/keyspaces/users/rebuild", process.admin()),
        &[("content-type", "application/json")],
        "{}",
    )
    .await;
    // The process that runs the tests may be nice already.
    eventually("one is filled by a nice thread", || {
        nice(&process, "fill-filter").iter().any(|nice| *nice > answering.min(4))
    })
    .await;
    let runtimes = nice(&process, "tokio-rt-worker");
    assert!(runtimes.iter().all(|nice| *nice == answering), "{runtimes:?}");
}

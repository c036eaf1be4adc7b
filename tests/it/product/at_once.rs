//! Most answers wait for nothing and are given in front of the layers: they are those that the layers give.

use std::collections::BTreeMap;

use super::users::{absent, config, site};
use crate::support::app::{Answer, Http, TestApp};
use crate::support::database::Site;

/// Counters that moved, and by how much.
async fn counted(app: &TestApp, before: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let moved = counters(app).await.into_iter().map(|(series, value)| (series.clone(), value - before.get(&series).unwrap_or(&0.0)));
    // How long they took, and what asking for them counts itself.
    moved.filter(|(series, by)| *by != 0.0 && !series.contains("seconds") && !series.contains("route=\"metrics\"")).collect()
}

async fn counters(app: &TestApp) -> BTreeMap<String, f64> {
    let metrics = app.http.get(&format!("http://{}/metrics", app.telemetry)).await;
    // The snapshot of the first filter is written when there is time for it.
    let lines = metrics.text().lines().filter(|line| line.contains("_total") && !line.starts_with("bloomguard_snapshots_total"));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(series, value)| (series.to_owned(), value.parse().unwrap_or(0.0))).collect()
}

fn told(answer: Answer) -> (u16, BTreeMap<String, String>, String) {
    let headers = answer.headers.into_iter().filter(|(name, _)| name != "date").collect();
    (answer.status, headers, String::from_utf8_lossy(&answer.body).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_at_once_is_answered_and_counted_as_the_layers_do() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url(), "", "cache.hot_ttl = \"1h\"")).await;
    let absent = absent(&app);
    let (lookup, check) = (format!("/v1/keys/users/{absent}"), format!("/v1/check/users/{absent}"));
    // Both values are hot from here on.
    app.get("/v1/keys/users/42").await;
    let trace = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let cases: &[(&str, &[(&str, &str)])] = &[
        (&lookup, &[]),
        (&lookup, &[("accept", "*/*"), ("user-agent", "curl"), ("bloomguard-timeout", "1s"), trace]),
        (&lookup, &[("bloomguard-bypass", "1")]),
        (&lookup, &[("bloomguard-bypass", "0")]),
        (&check, &[]),
        (&check, &[("bloomguard-min-version", "not a version")]),
        ("/v1/keys/users/42", &[]),
        ("/v1/keys/users/042", &[("bloomguard-timeout", "soon")]),
        ("/v1/keys/users/%34%32?page=1", &[]),
        ("/v1/check/users/42", &[]),
        ("/v1/keys/users/forty", &[]),
        ("/v1/keys/users/", &[]),
        ("/v1/keys/users", &[]),
        ("/v1/keys/nobody/42", &[]),
        ("/v1/lookup/users/42", &[]),
        ("/elsewhere", &[]),
    ];
    let clients = [Http::default(), Http::h2c()];
    for (http, (path, headers)) in clients.iter().flat_map(|http| cases.iter().map(move |case| (http, case))) {
        let mut ways = Vec::new();
        // Whoever sends a body is answered by the layers.
        for body in ["", "a body"] {
            let before = counters(&app).await;
            let answer = http.send("GET", &format!("http://{}{path}", app.data), headers, body).await;
            ways.push((told(answer), counted(&app, &before).await));
        }
        assert_eq!(ways[0], ways[1], "{path} {headers:?}");
        assert!(ways[0].1.keys().any(|series| series.contains("http_requests_total")), "{path}: {:?}", ways[0].1);
    }
    // A version that this instance can't have applied: the row may be there, and the header is not lost on the way.
    let unapplied = [("bloomguard-min-version", "not a version")];
    let answer = app.http.send("GET", &format!("http://{}{lookup}", app.data), &unapplied, "").await;
    assert_eq!(answer.told(), "404 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_answered_at_once_without_the_token() {
    let site = site(Site::sqlite()).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "s3cret").unwrap();
    let app = TestApp::enforcing(&format!("token_file = {file:?}\n{}", config(&site.url(), "", "cache.hot_ttl = \"1h\""))).await;
    let ask = async |path: &str, headers: &[(&str, &str)]| app.http.send("GET", &format!("http://{}{path}", app.data), headers, "").await;
    let token = [("authorization", "Bearer s3cret")];
    assert_eq!(ask("/v1/keys/users/42", &token).await.told(), "200 backend");
    let absent = absent(&app);
    let paths = [
        ("/v1/keys/users/42".to_owned(), 200),
        (format!("/v1/keys/users/{absent}"), 404),
        (format!("/v1/check/users/{absent}"), 404),
        ("/v1/check/users/42".to_owned(), 204),
    ];
    for (path, status) in &paths {
        for headers in [&[][..], &[("authorization", "Bearer wrong")]] {
            let before = counters(&app).await;
            let answer = ask(path, headers).await;
            assert_eq!(answer.status, 401, "{path}");
            assert!(!answer.headers.keys().any(|name| name.starts_with("bloomguard-")), "{path}: {:?}", answer.headers);
            let moved = counted(&app, &before).await;
            assert!(moved.len() == 1 && moved.keys().all(|series| series.contains("code=\"401\"")), "{path}: {moved:?}");
        }
        assert_eq!(ask(path, &token).await.status, *status, "{path}");
    }
}

//! The whole program before an API, with no database at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::users::{absent, false_positive};
use crate::support::app::TestApp;
use crate::support::config::{Config, Source};
use crate::support::eventually;
use crate::support::http_server::{HttpServer, Reply, ok, status};
use crate::support::process::Process;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// An API of users 1 to 1000, and the list of them.
async fn api() -> HttpServer {
    HttpServer::start(|request| match request.target() {
        "/keys" => ok("text/plain", &(1..=1000).map(|id| format!("{id}\r\n")).collect::<String>()),
        target => user(target),
    })
    .await
}

fn user(target: &str) -> Reply {
    match target.strip_prefix("/users/").and_then(|id| id.parse::<u32>().ok()) {
        Some(id @ 1..=1000) => ok("text/plain; charset=utf-8", &format!("User {id}")),
        Some(_) => status("404 Not Found", "content-type: application/json\r\n", "{}"),
        None => status("400 Bad Request", "", "no such key"),
    }
}

fn config(api: &HttpServer) -> Config {
    Config::new().users(|k| {
        k.set("key", "integer")
            .set("freshness", "static")
            .set("deadline", "30s")
            .set("canary.sample_rate", 0)
            .set("filter.expected_keys", 1000)
            .set("backend.kind", "http")
            .set("backend.url", api.url("/users/{key}"))
            .set("backend.timeout", "25s")
            .source(Source::new("http").set("url", api.url("/keys")))
    })
}

fn asked(api: &HttpServer, path: &str) -> usize {
    api.seen().iter().filter(|request| request.target() == path).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_before_an_api_with_redis() {
    let api = api().await;
    let redis = crate::support::redis::RedisServer::start();
    let config = config(&api).redis(&redis);
    let app = TestApp::enforcing(&config).await;

    let id = absent(&app);
    assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 filter");
    assert_eq!(asked(&api, &format!("/users/{id}")), 0);

    let answer = app.get("/v1/keys/users/042").await;
    assert_eq!((answer.told().as_str(), answer.text()), ("200 backend", "User 42"));
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(app.get("/v1/keys/users/42").await.told(), "200 hot");

    let other = TestApp::enforcing(&config).await;
    let answer = other.get("/v1/keys/users/42").await;
    assert_eq!((answer.told().as_str(), answer.text()), ("200 redis", "User 42"));
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8", "the media type outlives the cache");
    assert_eq!(asked(&api, "/users/42"), 1);

    let id = false_positive(&app);
    assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 backend");
    assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 hot");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_api_is_503_and_its_failures_are_never_cached() {
    let broken = Arc::new(AtomicBool::new(false));
    let api = HttpServer::start({
        let broken = Arc::clone(&broken);
        move |request| match request.target() {
            "/keys" => ok("text/plain", "1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
            _ if !broken.load(Ordering::SeqCst) => ok("application/json", "{}"),
            "/users/1" => status("500 Internal Server Error", "", ""),
            "/users/2" => status("404 Not Found", "content-type: text/html\r\n", "<center>nginx</center>"),
            "/users/3" => status("302 Found", "location: /login\r\n", ""),
            "/users/4" => Reply::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".to_vec()),
            _ => status("429 Too Many Requests", "retry-after: 9\r\n", ""),
        }
    })
    .await;
    let config = config(&api)
        .users(|k| k.set("backend.absent_header", "Content-Type: application/json").set("filter.expected_keys", 9));
    let app = TestApp::enforcing(&config).await;
    broken.store(true, Ordering::SeqCst);
    for (id, kind) in [
        (1, "backend-unavailable"),
        (2, "backend-invalid"),
        (3, "backend-invalid"),
        (4, "backend-unavailable"),
        (5, "backend-unavailable"),
    ] {
        let answer = app.get(&format!("/v1/keys/users/{id}")).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"), "{id}: {answer:?}");
        assert_eq!(answer.json()["type"], format!("/problems/{kind}"), "{id}");
    }
    broken.store(false, Ordering::SeqCst);
    for id in 1..=5 {
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "200 backend", "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_a_folder_is_no_key() {
    let api = HttpServer::start(|request| match request.target() {
        // A folder, and keys in other spellings, are 400 here: a build that tries them must not take offence.
        "/keys" => ok("application/x-ndjson", "\"a\"\n\"..\"\n\"b/c\"\n\"...\"\n"),
        "/users/a" | "/users/b%2Fc" | "/users/..." => ok("application/json", "{}"),
        _ => status("400 Bad Request", "", ""),
    })
    .await;
    let config = config(&api).users(|k| k.set("key", "text").set("filter.expected_keys", 4));
    let app = TestApp::enforcing(&config).await;
    for path in ["..", ".", "%2e%2e", "%2E", "../admin", "..%2Fadmin", "%2e%2e%5cadmin", "x/../../admin", "x%2F.."] {
        for (method, route) in [("GET", "keys"), ("GET", "check"), ("PUT", "keys"), ("DELETE", "keys")] {
            let answer = app.send(method, &format!("/v1/{route}/users/{path}"), &[("bloomguard-bypass", "1")]).await;
            assert_eq!(answer.status, 400, "{method} {path}: {answer:?}");
            assert_eq!(
                (&answer.json()["type"], &answer.json()["reason"]),
                (&"/problems/bad-key".into(), &"dot-segment".into())
            );
        }
    }
    for path in ["a", "b/c", "b%2Fc", "..."] {
        assert_eq!(app.get(&format!("/v1/keys/users/{path}")).await.status, 200, "{path}");
    }
    let targets: Vec<String> = api.seen().iter().map(|request| request.target().to_owned()).collect();
    assert!(targets.iter().all(|target| *target == "/keys" || !target.contains("admin")), "{targets:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_carries_the_trace_and_the_deadline_of_its_leader() {
    let api = api().await;
    let app = TestApp::enforcing(&config(&api)).await;
    let headers = [
        ("traceparent", TRACE),
        ("tracestate", "a=1"),
        ("cookie", "session=1"),
        ("authorization", "Bearer x"),
        ("bloomguard-timeout", "9s"),
    ];
    assert_eq!(app.send("GET", "/v1/keys/users/42", &headers).await.told(), "200 backend");
    assert_eq!(app.get("/v1/keys/users/43").await.told(), "200 backend");
    let find = |path: &str| api.seen().into_iter().find(|request| request.target() == path).unwrap();
    let traced = find("/users/42");
    assert_eq!((traced.header("traceparent"), traced.header("tracestate")), (Some(TRACE), Some("a=1")));
    assert_eq!(
        (traced.header("cookie"), traced.header("authorization")),
        (None, None),
        "nothing else of the client's goes on"
    );
    let left: u64 = traced.header("bloomguard-timeout").unwrap().strip_suffix("ms").unwrap().parse().unwrap();
    assert!((1..=25_000).contains(&left), "{left}: no longer than backend.timeout");
    assert_eq!(find("/users/43").header("traceparent"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_holds_what_an_api_says_is_json_and_is_and_all_else_as_bytes() {
    let api = HttpServer::start(|request| match request.target() {
        "/keys" => ok("text/plain", "1\n2\n3\n4\n"),
        "/users/1" => ok("application/json; charset=utf-8", " {\"a\": 1}\n"),
        "/users/2" => ok("application/json", "{broken"),
        "/users/3" => ok("text/plain", "{}"),
        _ => status("500 Internal Server Error", "", ""),
    })
    .await;
    let config = config(&api).users(|k| k.set("filter.expected_keys", 4));
    let app = TestApp::start(&config).await;
    let headers = [("content-type", "application/json"), ("traceparent", TRACE)];
    let answer = app.http.send("POST", &app.url("/v1/lookup/users"), &headers, "[1, 2, 3, 4]").await;
    let results = answer.json()["results"].clone();
    assert_eq!(results[0]["value"], serde_json::json!({"a": 1}), "{results}");
    assert_eq!(
        (&results[1]["value_base64"], &results[2]["value_base64"]),
        (&"e2Jyb2tlbg==".into(), &"e30=".into()),
        "{results}"
    );
    assert_eq!(
        (&results[3]["status"], &results[3]["type"]),
        (&503.into(), &"/problems/backend-unavailable".into()),
        "{results}"
    );
    assert!(
        api.seen().iter().any(|request| request.target() == "/users/1" && request.header("traceparent") == Some(TRACE))
    );
}

/// Invariant: bad-input-changes-nothing
#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_ends_short_keeps_the_old_filter() {
    let short = Arc::new(AtomicBool::new(false));
    let api = HttpServer::start({
        let short = Arc::clone(&short);
        move |request| match request.target() {
            "/keys" if short.load(Ordering::SeqCst) => {
                Reply::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n1\n2\n".to_vec())
            }
            "/keys" => ok("text/plain", "1\n2\n3\n"),
            target => user(target),
        }
    })
    .await;
    let app = TestApp::enforcing(&config(&api).users(|k| k.set("filter.expected_keys", 3))).await;
    short.store(true, Ordering::SeqCst);
    assert_eq!(app.rebuild("users").await, "source_failed");
    assert_eq!(app.get("/v1/keys/users/3").await.told(), "200 backend");
    assert_eq!(app.status("users").await["generation"], 1);
    short.store(false, Ordering::SeqCst);
    assert_eq!(app.rebuild("users").await, "swapped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_longer_than_expected_is_told_as_such() {
    let api = api().await;
    let app = TestApp::start(&config(&api).users(|k| k.set("filter.expected_keys", 10))).await;
    eventually("the first build has failed", || app.keyspace("users").last_rebuild().is_some()).await;
    let error =
        app.admin("GET", "/admin/keyspaces/users/rebuild", "").await.json()["last_error"].as_str().unwrap().to_owned();
    assert!(error.contains("filter.expected_keys"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_proxy_of_the_environment_is_used() {
    let api = api().await;
    let proxy = HttpServer::start(|_| status("200 OK", "content-type: text/plain\r\n", "from the proxy")).await;
    let dir = tempfile::tempdir().unwrap();
    config(&api).write(dir.path());
    let at = proxy.url("");
    let names = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    let variables: Vec<(&str, &str)> =
        names.iter().map(|name| (*name, at.as_str())).chain([("REQUEST_METHOD", ""), ("no_proxy", "")]).collect();
    let mut process = Process::start_with(dir.path(), &["--config", "bloomguard.toml"], &variables);
    let (data, _) = tokio::task::block_in_place(|| process.addresses());
    let answer = crate::support::app::Http::default().get(&format!("http://{data}/v1/keys/users/42")).await;
    assert_eq!((answer.told().as_str(), answer.text()), ("200 backend", "User 42"));
    assert!(proxy.seen().is_empty(), "{:?}", proxy.seen());
}

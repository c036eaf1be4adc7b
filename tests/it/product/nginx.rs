//! nginx in front of the API, as in most houses: what it answers by itself is no answer of the API's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::users::{absent, false_positive};
use crate::support::app::{Http, TestApp};
use crate::support::config::{Config, Source};
use crate::support::eventually;
use crate::support::http_server::{HttpServer, ok, status};
use crate::support::nginx::Nginx;

const USERS: u32 = 500;

/// An API whose absences say that they are its own.
async fn api() -> HttpServer {
    HttpServer::start(|request| match request.target().strip_prefix("/users/").and_then(|id| id.parse::<u32>().ok()) {
        Some(id @ 1..=USERS) => ok("application/json", &format!("{{\"id\":{id}}}")),
        _ => status("404 Not Found", "content-type: application/json\r\nx-row: absent\r\n", "{}"),
    })
    .await
}

fn server(api: &str) -> String {
    let keys: String = (1..=USERS).map(|id| format!("{id}\n")).collect();
    format!(
        "location /users/ {{ proxy_pass http://{api}; }} location = /keys {{ default_type text/plain; return \
            200 \"{}\"; }}",
        keys.replace("\\n", "\n")
    )
}

fn config(nginx: &Nginx) -> Config {
    let at = nginx.address();
    Config::new().users(|k| {
        k.set("key", "integer")
            .set("freshness", "static")
            .set("deadline", "30s")
            .set("filter.expected_keys", USERS)
            .set("cache.hot_ttl", "1ms")
            .set("cache.ttl", "1ms")
            .set("backend.kind", "http")
            .set("backend.url", format!("http://{at}/users/{{key}}"))
            .set("backend.timeout", "25s")
            .set("backend.absent_header", "X-Row: absent")
            .source(Source::new("http").set("url", format!("http://{at}/keys")))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_api_behind_nginx_is_503() {
    let api = api().await;
    let nginx = Nginx::start("", &server(&api.address.to_string()));
    let app = TestApp::enforcing(&config(&nginx)).await;
    let stranger = false_positive(&app);
    assert_eq!(app.get("/v1/keys/users/42").await.told(), "200 backend");
    drop(api);
    let path = format!("/v1/keys/users/{stranger}");
    loop {
        // The connection that nginx kept may serve some more.
        let answer = app.get(&path).await;
        assert!([404, 503].contains(&answer.status), "{answer:?}");
        if answer.status == 503 {
            assert!(answer.text().contains("/problems/backend-unavailable"), "{}", answer.text());
            break;
        }
    }
    for id in 1..=20 {
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.status, 503);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_own_404_is_no_absence_and_leaves_nothing_behind() {
    let api = api().await;
    let route = server(&api.address.to_string());
    let mut nginx = Nginx::start("", &route);
    let app = TestApp::enforcing(&config(&nginx)).await;
    let stranger = false_positive(&app);
    assert_eq!(app.get(&format!("/v1/keys/users/{stranger}")).await.told(), "404 backend");
    // Somebody loads a configuration that lacks the route.
    nginx.reload("");
    let plain = Http::default().get(&format!("http://{}/users/42", nginx.address())).await;
    assert_eq!(
        (plain.status, plain.header("content-type")),
        (404, "text/html"),
        "this is the page that must not pass for an absence"
    );
    for id in 1..=50 {
        let answer = app.get(&format!("/v1/keys/users/{id}")).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.text().contains("/problems/backend-invalid"), "{}", answer.text());
    }
    assert_eq!(app.rebuild("users").await, "source_failed");
    nginx.reload(&route);
    for id in 1..=50 {
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "200 backend", "{id}");
    }
    assert_eq!(app.metric("bloomguard_filter_false_positives_total{keyspace=\"users\"}").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_exist_stay_found_while_nginx_reloads() {
    let api = api().await;
    let route = server(&api.address.to_string());
    let mut nginx = Nginx::start("", &route);
    let app = Arc::new(TestApp::enforcing(&config(&nginx)).await);
    let stranger = absent(&app);
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let (app, stop, answered) = (Arc::clone(&app), Arc::clone(&stop), Arc::clone(&answered));
            tokio::spawn(async move {
                for i in (0..).map(|i| (i * 7 + client) % USERS + 1) {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let answer = app.get(&format!("/v1/keys/users/{i}")).await;
                    assert_eq!(answer.status, 200, "{answer:?}: {}", answer.text());
                    assert_eq!(app.get(&format!("/v1/keys/users/{stranger}")).await.told(), "404 filter");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..5 {
        let before = answered.load(Ordering::Relaxed);
        tokio::task::block_in_place(|| nginx.reload(&route));
        eventually("lookups go on", || answered.load(Ordering::Relaxed) > before + 50).await;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_nginx_would_take_for_another_path_are_refused() {
    let nginx = Nginx::start(
        "",
        "location /users/ { return 404; } location /admin { return 200 'secrets'; } location = /keys \
            { default_type text/plain; return 200 \"a\nb\"; }",
    );
    let exposed = Http::default().get(&format!("http://{}/users/..%2Fadmin", nginx.address())).await;
    assert_eq!(exposed.text(), "secrets", "if this changes, the rule may be laxer");
    let app = TestApp::start(&config(&nginx).users(|k| k.set("key", "text"))).await;
    for path in ["..%2Fadmin", "../admin", "x%2F..%2F..%2Fadmin", "%2e%2e%2fadmin"] {
        let answer = app.get(&format!("/v1/keys/users/{path}")).await;
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
    }
}

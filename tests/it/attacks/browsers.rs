//! Web pages in a browser on the same machine: DNS rebinding, and requests across sites.

use bloomguard::app::App;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::product::users::{absent, config, site};
use crate::support::app::{Http, TestApp};
use crate::support::database::Site;
use crate::support::eventually;

/// Status lines of what comes back until the server closes.
async fn statuses(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), requests: &str) -> Vec<String> {
    stream.write_all(requests.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].to_owned()).collect()
}

/// Invariant: scopes-limit-tokens
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_made_to_resolve_to_loopback_is_refused() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url()).server("allowed_hosts", vec!["api.internal"])).await;
    app.get("/v1/keys/users/1").await;
    let paths = [
        format!("/v1/keys/users/{}", absent(&app)),
        "/v1/keys/users/1".into(),
        "/v1/check/users/1".into(),
        "/status".into(),
        "/metrics".into(),
    ];
    for path in paths {
        let address = if path.starts_with("/v1") { app.data } else { app.telemetry };
        let url = format!("http://{address}{path}");
        for host in ["rebound.example", "rebound.example:4040", "localhost.rebound.example", "127.0.0.1.nip.io", ""] {
            let refused = app.http.send("GET", &url, &[("host", host)], "").await;
            assert_eq!(
                (refused.status, &refused.json()["type"]),
                (403, &json!("/problems/host-not-allowed")),
                "{path} {host}"
            );
        }
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:4040", "[::1]", "10.1.2.3", "api.internal:4040"] {
            assert_ne!(app.http.send("GET", &url, &[("host", host)], "").await.status, 403, "{path} {host}");
        }
        let over_http2 = Http::h2c().send("GET", &url, &[("host", "rebound.example")], "").await;
        assert_eq!(over_http2.status, 403, "{path}");
    }
}

/// Invariant: scopes-limit-tokens
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_first_host_was_right_is_looked_at_again() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let path = format!("/v1/keys/users/{}", absent(&app));
    let ask = |host: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
    let requests = [
        ask("localhost", ""),
        ask("rebound.example", ""),
        ask("localhost", ""),
        // The authority of an absolute target is a host too.
        ask("localhost", "").replace(&path, &format!("http://rebound.example{path}")),
        ask("localhost:4040", ""),
        ask("localhost", "Connection: close\r\n"),
    ];
    let told = statuses(&mut TcpStream::connect(app.data).await.unwrap(), &requests.concat()).await;
    assert_eq!(told, ["404", "403", "404", "403", "404", "404"]);
}

/// Invariant: scopes-limit-tokens
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_changes_nothing() {
    let site = site(Site::sqlite()).await;
    let config = config(&site.url()).server("honor_no_cache", true).server("allowed_hosts", vec!["app.internal"]);
    let app = TestApp::enforcing(&config).await;
    let (text, far) = (("content-type", "text/plain"), absent(&app));
    let changes = [
        ("PUT", format!("/v1/keys/users/{far}"), ""),
        ("POST", "/v1/keys/users".to_owned(), "7000001"),
        ("DELETE", "/v1/keys/users/1".to_owned(), ""),
        ("POST", "/v1/invalidate/users".to_owned(), "1"),
    ];
    for (method, path, body) in &changes {
        for header in [
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("origin", "http://localhost:3000"),
            ("sec-fetch-site", "cross-site"),
        ] {
            let refused = app.http.send(method, &app.url(path), &[text, header], body).await;
            assert_eq!(
                (refused.status, &refused.json()["type"]),
                (403, &json!("/problems/origin-not-allowed")),
                "{method} {path} {header:?}"
            );
        }
    }
    assert_eq!(app.get(&format!("/v1/keys/users/{far}")).await.told(), "404 filter", "nothing was announced");
    assert_eq!(app.metric("bloomguard_deletes_total{keyspace=\"users\"}").await, 0.0);
    // A read is answered, and what it wishes for is not its to wish.
    let url = app.url(&format!("/v1/keys/users/{far}"));
    let foreign = ("origin", "https://evil.example");
    assert_eq!(app.http.send("GET", &url, &[foreign], "").await.told(), "404 filter");
    assert_eq!(app.http.send("GET", &url, &[foreign, ("bloomguard-bypass", "1")], "").await.status, 403);
    assert_eq!(app.http.send("GET", &url, &[foreign, ("cache-control", "no-cache")], "").await.told(), "404 filter");
    assert_eq!(app.http.send("GET", &url, &[("cache-control", "no-cache")], "").await.told(), "404 backend");
    let admin = format!("http://{}/admin/keyspaces/users/enforcement", app.admin);
    let refused =
        app.http.send("POST", &admin, &[("content-type", "application/json"), foreign], "{\"mode\":\"shadow\"}").await;
    assert_eq!((refused.status, app.status("users").await["state"].as_str()), (403, Some("enforcing")));
    let own = format!("http://{}", app.data);
    for header in [("origin", own.as_str()), ("origin", "https://app.internal:8443"), ("sec-fetch-site", "same-origin")]
    {
        for (method, path, body) in &changes {
            let answer = app.http.send(method, &app.url(path), &[text, header], body).await;
            assert!((200..300).contains(&answer.status), "{method} {path} {header:?}: {answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_serves_any_host() {
    let (dir, site) = (tempfile::tempdir().unwrap(), site(Site::sqlite()).await);
    let socket = dir.path().join("data.sock");
    let file = config(&site.url())
        .server("listen", format!("unix:{}", socket.display()))
        .server("telemetry_listen", "127.0.0.1:0")
        .server("admin_listen", "127.0.0.1:0")
        .server("data_dir", dir.path().join("data").to_str().unwrap())
        .write(dir.path());
    let app = App::build(&bloomguard::config::load(&[file.into()], std::iter::empty()).unwrap()).await.unwrap();
    let (keyspace, stop) = (app.keyspace("users").unwrap(), CancellationToken::new());
    let _stopped = stop.clone().drop_guard();
    tokio::spawn(app.run(stop));
    eventually("it enforces", || keyspace.state().as_str() == "enforcing").await;
    let mut stream = UnixStream::connect(&socket).await.unwrap();
    let head = "HTTP/1.1\r\nHost: anything.example\r\nOrigin: https://anything.example:1\r\n";
    let requests = format!(
        "GET /v1/keys/users/1 {head}\r\nPUT /v1/keys/users/7000001 {head}Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(statuses(&mut stream, &requests).await, ["200", "204"]);
}

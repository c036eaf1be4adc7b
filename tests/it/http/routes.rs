//! What the three listeners answer before any keyspace is asked, on real sockets.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderMap, Method, Request, Version};
use bloomguard::config::{SecretText, ServerConfig};
use bloomguard::http::{
    BoundListener, ConnectionLimits, FastResponder, HttpContext, HttpSettings, admin_router, data_service, serve,
    serve_with_fast_path, telemetry_router,
};
use bloomguard::labels::Listener;
use bloomguard::metrics::Metrics;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

struct Listeners {
    data: String,
    telemetry: String,
    admin: String,
    context: Arc<HttpContext>,
    http1: Client<HttpConnector, Full<Bytes>>,
    http2: Client<HttpConnector, Full<Bytes>>,
    _stop: DropGuard,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }

    /// The name of the problem that the answer is.
    fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.body);
        let document: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(document["status"], self.status);
        assert!(!document["title"].as_str().unwrap().is_empty() && !document["detail"].as_str().unwrap().is_empty());
        document["type"].as_str().unwrap().strip_prefix("/problems/").unwrap().to_owned()
    }
}

async fn start(token: Option<&str>) -> Listeners {
    let tokens: Vec<SecretText> = token.iter().map(|token| SecretText::new((*token).to_owned())).collect();
    let file = token.map(|_| "of a test".into());
    let config = ServerConfig {
        max_body_bytes: 1000,
        token_file: file.clone(),
        admin_token_file: file,
        token: tokens.clone(),
        admin_token: tokens,
        ..ServerConfig::default()
    };
    let settings = HttpSettings::new(&config);
    let context = Arc::new(HttpContext::new(BTreeMap::new(), Arc::new(Metrics::new()), settings));
    let limits = ConnectionLimits::from(&config);
    let stop = CancellationToken::new();
    let mut addresses = Vec::new();
    for _ in 0..3 {
        addresses.push(BoundListener::bind("127.0.0.1:0", 0).await.unwrap());
    }
    let [data, telemetry, admin] = <[BoundListener; 3]>::try_from(addresses).unwrap();
    let url = |bound: &BoundListener| format!("http://{}", bound.local_addr());
    let urls = (url(&data), url(&telemetry), url(&admin));
    let counted = |listener| context.metrics.connections(listener);
    let responder = Arc::new(FastResponder::new(Arc::clone(&context)));
    tokio::spawn(serve_with_fast_path(
        data,
        data_service(Arc::clone(&context)),
        responder,
        limits,
        counted(Listener::Data),
        stop.clone(),
    ));
    tokio::spawn(serve(
        telemetry,
        telemetry_router(Arc::clone(&context)),
        limits,
        counted(Listener::Telemetry),
        stop.clone(),
    ));
    tokio::spawn(serve(admin, admin_router(Arc::clone(&context)), limits, counted(Listener::Admin), stop.clone()));
    let client = || Client::builder(TokioExecutor::new());
    Listeners {
        data: urls.0,
        telemetry: urls.1,
        admin: urls.2,
        context,
        http1: client().build_http(),
        http2: client().http2_only(true).build_http(),
        _stop: stop.drop_guard(),
    }
}

impl Listeners {
    async fn send(
        &self,
        version: Version,
        method: &str,
        url: String,
        headers: &[(&str, &str)],
        body: &'static str,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let client = if version == Version::HTTP_2 { &self.http2 } else { &self.http1 };
        let response = client.request(request.body(Full::from(body)).unwrap()).await.unwrap();
        let (head, body) = response.into_parts();
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Answer { status: head.status.as_u16(), headers: head.headers, body }
    }

    async fn data(&self, method: &str, path: &str) -> Answer {
        self.send(Version::HTTP_11, method, format!("{}{path}", self.data), &[], "").await
    }

    async fn telemetry(&self, method: &str, path: &str) -> Answer {
        self.send(Version::HTTP_11, method, format!("{}{path}", self.telemetry), &[], "").await
    }

    async fn admin(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(Version::HTTP_11, method, format!("{}{path}", self.admin), headers, "").await
    }
}

#[tokio::test]
async fn no_wrong_request_is_a_404_on_the_data_listener() {
    let listeners = start(None).await;
    for path in [
        "/",
        "/v1",
        "/v1/keys",
        "/v1/keys/",
        "/v1/lookup/users/1",
        "/livez",
        "/status",
        "/admin/keyspaces/users/rebuild",
        "//v1/keys/users/1",
    ] {
        let answer = listeners.data("GET", path).await;
        assert_eq!((answer.status, answer.problem().as_str()), (400, "unknown-route"), "{path}");
    }
    for path in
        ["/v1/keys/nobody/1", "/v1/check/nobody/1", "/v1/keys//1", "/v1/keys/nobody/../../admin", "/v1/keys/nobody/"]
    {
        let answer = listeners.data("GET", path).await;
        assert_eq!((answer.status, answer.problem().as_str()), (400, "unknown-keyspace"), "{path}");
    }
}

#[tokio::test]
async fn wrong_methods_are_405_and_name_the_right_ones() {
    let listeners = start(None).await;
    for (path, method, allow) in [
        ("/v1/keys/users/1", "POST", "GET, HEAD, PUT, DELETE"),
        ("/v1/keys/users/1", "OPTIONS", "GET, HEAD, PUT, DELETE"),
        ("/v1/check/users/1", "PUT", "GET, HEAD"),
        ("/v1/check/users/1", "DELETE", "GET, HEAD"),
    ] {
        let answer = listeners.data(method, path).await;
        assert_eq!((answer.status, answer.problem().as_str()), (405, "wrong-method"), "{method} {path}");
        assert_eq!(answer.header("allow"), allow);
    }
    let answer = listeners.telemetry("POST", "/status").await;
    assert_eq!((answer.status, answer.problem().as_str()), (405, "wrong-method"));
    assert_eq!(answer.header("allow").replace(' ', ""), "GET,HEAD");
}

#[tokio::test]
async fn a_problem_of_a_head_request_has_no_body_in_either_protocol() {
    let listeners = start(None).await;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let url = format!("{}/v1/keys/nobody/1", listeners.data);
        let answer = listeners.send(version, "HEAD", url.clone(), &[], "").await;
        let full = listeners.send(version, "GET", url, &[], "").await;
        assert_eq!((answer.status, answer.body.as_str()), (400, ""));
        assert_eq!(answer.header("content-length"), full.body.len().to_string());
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_by_its_length() {
    let listeners = start(None).await;
    let url = format!("{}/v1/keys/users/1", listeners.data);
    let long: &'static str = Box::leak("x".repeat(1001).into_boxed_str());
    let answer = listeners.send(Version::HTTP_11, "PUT", url, &[], long).await;
    assert_eq!((answer.status, answer.problem().as_str()), (413, "body-too-large"));
    assert!(answer.body.contains("\"limit\":1000"), "{}", answer.body);
}

#[tokio::test]
async fn a_token_is_demanded_where_one_is_configured() {
    let listeners = start(Some("s3cret")).await;
    let data = format!("{}/v1/keys/nobody/1", listeners.data);
    let admin = format!("{}/admin/keyspaces/nobody/rebuild", listeners.admin);
    for (url, admitted) in [(data, 400), (admin, 404)] {
        for (headers, challenge) in [
            (&[][..], "Bearer realm=\"bloomguard\""),
            (&[("authorization", "Bearer wrong")][..], "Bearer realm=\"bloomguard\", error=\"invalid_token\""),
        ] {
            let answer = listeners.send(Version::HTTP_11, "GET", url.clone(), headers, "").await;
            assert_eq!((answer.status, answer.problem().as_str()), (401, "unauthorized"), "{url}");
            assert_eq!(answer.header("www-authenticate"), challenge);
        }
        // With the token, the host does not matter.
        let headers = [("authorization", "Bearer s3cret"), ("host", "sidecar.example")];
        let answer = listeners.send(Version::HTTP_11, "GET", url.clone(), &headers, "").await;
        assert_eq!((answer.status, answer.problem().as_str()), (admitted, "unknown-keyspace"), "{url}");
    }
    assert_eq!(listeners.telemetry("GET", "/livez").await.status, 200, "telemetry is open");
}

#[tokio::test]
async fn telemetry_tells_life_readiness_and_status() {
    let listeners = start(None).await;
    assert_eq!(listeners.telemetry("GET", "/livez").await.status, 200);
    assert_eq!(listeners.telemetry("HEAD", "/livez").await.header("content-length"), "3");
    assert_eq!(listeners.telemetry("GET", "/readyz").await.status, 200);
    assert_eq!(listeners.telemetry("GET", "/startupz").await.status, 200, "no keyspace lacks a filter");
    let status: Value = serde_json::from_str(&listeners.telemetry("GET", "/status").await.body).unwrap();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&status["draining"], status["uptime_seconds"].is_u64()), (&Value::Bool(false), true));
    assert_eq!(status["keyspaces"], serde_json::json!({}));

    listeners.context.begin_drain();
    assert_eq!(listeners.telemetry("GET", "/readyz").await.status, 503);
    assert_eq!(listeners.telemetry("GET", "/livez").await.status, 200);
    let status: Value = serde_json::from_str(&listeners.telemetry("GET", "/status").await.body).unwrap();
    assert_eq!(status["draining"], true);
    let unknown = listeners.telemetry("GET", "/v1/keys/users/1").await;
    assert_eq!((unknown.status, unknown.problem().as_str()), (404, "unknown-route"));
}

#[tokio::test]
async fn metrics_count_each_request_once() {
    let listeners = start(None).await;
    listeners.data("GET", "/v1/keys/nobody/1").await;
    listeners.data("PUT", "/v1/check/nobody/1").await;
    listeners.data("GET", "/nowhere").await;
    listeners.admin("POST", "/admin/keyspaces/nobody/rebuild", &[]).await;
    let metrics = listeners.telemetry("GET", "/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(
        metrics.header("content-type").starts_with("text/plain; version=0.0.4"),
        "{}",
        metrics.header("content-type")
    );
    let requests = |labels: &str| {
        let line = format!("bloomguard_http_requests_total{{{labels}}} ");
        metrics
            .body
            .lines()
            .find_map(|l| l.strip_prefix(&line))
            .unwrap_or_else(|| panic!("{labels} in {}", metrics.body))
            .to_owned()
    };
    for (labels, count) in [
        (r#"route="keys",method="GET",code="400""#, "1"),
        (r#"route="keys",method="GET",code="404""#, "0"),
        (r#"route="check",method="other",code="405""#, "1"),
        (r#"route="unknown",method="other",code="400""#, "1"),
        (r#"route="admin",method="POST",code="415""#, "1"),
    ] {
        assert_eq!(requests(labels), count, "{labels}");
    }
}

#[tokio::test]
async fn admin_serves_loopback_hosts_and_changes_things_for_json_only() {
    let listeners = start(None).await;
    let path = "/admin/keyspaces/nobody/rebuild";
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let answer = listeners
            .admin(method.as_str(), path, &[("host", "rebound.example"), ("content-type", "application/json")])
            .await;
        assert_eq!((answer.status, answer.problem().as_str()), (403, "host-not-loopback"), "{method}");
    }
    for host in ["localhost:4042", "127.0.0.1", "[::1]:4042"] {
        let answer = listeners.admin("GET", path, &[("host", host)]).await;
        assert_eq!((answer.status, answer.problem().as_str()), (404, "unknown-keyspace"), "{host}");
    }
    let answer = listeners.admin("POST", path, &[("content-type", "text/plain")]).await;
    assert_eq!((answer.status, answer.problem().as_str()), (415, "not-json"));
    let answer = listeners.admin("POST", path, &[("content-type", "application/json")]).await;
    assert_eq!((answer.status, answer.problem().as_str()), (404, "unknown-keyspace"));
    let answer = listeners.admin("DELETE", path, &[]).await;
    assert_eq!((answer.status, answer.problem().as_str()), (405, "wrong-method"));
    for path in ["/", "/admin/config/server", "/admin/config", "/admin/keyspaces/nobody/colour"] {
        let answer = listeners.admin("GET", path, &[]).await;
        assert_eq!((answer.status, answer.problem().as_str()), (404, "unknown-route"), "{path}");
    }
    let answer =
        listeners.admin("POST", "/admin/keyspaces/nobody/mismatches", &[("content-type", "application/json")]).await;
    assert_eq!((answer.status, answer.problem().as_str()), (405, "wrong-method"), "it only shows");
    let answer = listeners.admin("GET", "/admin/reload", &[]).await;
    assert_eq!((answer.status, answer.problem().as_str()), (405, "wrong-method"), "it changes things");
    let over_http2 = listeners.send(Version::HTTP_2, "GET", format!("{}{path}", listeners.admin), &[], "").await;
    assert_eq!(over_http2.status, 404, "the authority is the host");
}

#[tokio::test]
async fn open_connections_are_counted_until_they_are_closed() {
    let listeners = start(None).await;
    let open = |count: f64| {
        let line = "bloomguard_http_open_connections{listener=\"data\"}";
        crate::support::metric(&listeners.context.metrics.render(), line) == count
    };
    assert!(open(0.0));
    let address = listeners.data.strip_prefix("http://").unwrap();
    let connections = [
        tokio::net::TcpStream::connect(address).await.unwrap(),
        tokio::net::TcpStream::connect(address).await.unwrap(),
    ];
    crate::support::eventually("both are counted", || open(2.0)).await;
    drop(connections);
    crate::support::eventually("none is left", || open(0.0)).await;
}

//! Rows of an HTTP API, seen from the wire: what is sent, and what is made of what comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bloomguard::backend::{Backend, BackendError, ContentType, FetchContext, HttpBackend, Value};
use bloomguard::client::Trust;
use bloomguard::config::{BackendConfig, BackendKind, Headers, SecretUrl};
use bloomguard::key::{Key, KeyForm};
use bloomguard::labels::BackendOutcome;

use crate::support::http_server::{HttpServer, Reply, ok, status};
use crate::support::nginx::{Certificates, Nginx};

fn config(url: &str) -> BackendConfig {
    // Long, so that a busy machine fails no test that isn't about time.
    BackendConfig {
        kind: BackendKind::Http,
        url: SecretUrl::new(url.to_owned()),
        timeout: Duration::from_secs(60),
        ..Default::default()
    }
}

fn backend(server: &HttpServer) -> HttpBackend {
    HttpBackend::new(&config(&server.url("/users/{key}"))).unwrap()
}

fn key(bytes: &[u8]) -> Key {
    KeyForm::Bytes.canonical(bytes).unwrap()
}

async fn fetch(backend: &HttpBackend) -> Result<Option<Value>, BackendError> {
    backend.fetch(&key(b"1"), &FetchContext::default()).await
}

fn raw(text: &str) -> Reply {
    Reply::Close(text.as_bytes().to_vec())
}

#[tokio::test]
async fn a_key_of_any_bytes_is_one_encoded_segment() {
    let server = HttpServer::start(|_| ok("application/json", "{}")).await;
    let backend = backend(&server);
    let table: &[(&[u8], &str)] = &[
        (b"42", "42"),
        (b"%2e%2e", "%252e%252e"),
        (b"%2F", "%252F"),
        (b"...", "..."),
        (b"a/b", "a%2Fb"),
        (b"//evil.example/x", "%2F%2Fevil.example%2Fx"),
        (b"http://evil.example", "http%3A%2F%2Fevil.example"),
        (b"a?b=c#d", "a%3Fb%3Dc%23d"),
        (b"a\\b", "a%5Cb"),
        (b"@evil.example:80", "%40evil.example%3A80"),
        ("straße é".as_bytes(), "stra%C3%9Fe%20%C3%A9"),
        (
            b"x\r\nHost: evil.example\r\n\r\nGET /admin HTTP/1.1",
            "x%0D%0AHost%3A%20evil.example%0D%0A%0D%0AGET%20%2Fadmin%20HTTP%2F1.1",
        ),
        (b"\0\x01\x7f\x80\xff", "%00%01%7F%80%FF"),
        (b"{key}", "%7Bkey%7D"),
        (b"1; DROP TABLE users", "1%3B%20DROP%20TABLE%20users"),
    ];
    for (raw, encoded) in table {
        let key = key(raw);
        assert_eq!(backend.admits((&key).into()), Ok(()));
        backend.fetch(&key, &FetchContext::default()).await.unwrap().unwrap();
        let seen = server.seen();
        let last = seen.last().unwrap();
        assert_eq!(last.line, format!("GET /users/{encoded} HTTP/1.1"));
        assert_eq!(last.header("host"), Some(server.address.to_string().as_str()));
    }
    assert_eq!(server.seen().len(), table.len(), "one request a key, and nothing smuggled behind it");
}

#[tokio::test]
async fn keys_that_are_folders_are_never_asked_for() {
    let server = HttpServer::start(|_| ok("application/json", "{}")).await;
    let backend = backend(&server);
    for raw in [&b"."[..], b"..", b"../admin", b"a/../../admin", b"a/.", b"..\\admin"] {
        assert!(backend.admits((&key(raw)).into()).is_err());
        for form in KeyForm::ALL.into_iter().filter(|form| backend.admits_all(*form)) {
            assert!(form.canonical(raw).is_err(), "no request has {raw:?} as a key of form {form}");
        }
        let error = backend.fetch(&key(raw), &FetchContext::default()).await.unwrap_err();
        assert!(matches!(error, BackendError::Invalid(_)), "{error}");
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn only_the_statuses_that_mean_it_are_absences_and_failures_never_are() {
    let server =
        HttpServer::start(|request| status(&format!("{} X", request.target().trim_start_matches('/')), "", "body"))
            .await;
    let ask = async |absent_status: Vec<u16>, code: u16| {
        let backend = HttpBackend::new(&BackendConfig { absent_status, ..config(&server.url("/{key}")) }).unwrap();
        backend.fetch(&key(code.to_string().as_bytes()), &FetchContext::default()).await
    };
    for code in [200, 203] {
        assert_eq!(ask(vec![404], code).await.unwrap().unwrap().body, "body", "{code}");
    }
    assert_eq!(ask(vec![404], 404).await.unwrap(), None);
    assert_eq!(ask(vec![404, 410], 410).await.unwrap(), None);
    for code in [201, 202, 206, 300, 301, 302, 303, 307, 308, 400, 401, 403, 405, 408, 410, 418] {
        let error = ask(vec![404], code).await.unwrap_err();
        assert!(matches!(&error, BackendError::Invalid(why) if why.contains(&code.to_string())), "{code}: {error}");
    }
    for code in [429, 500, 501, 502, 503, 504] {
        let error = ask(vec![404], code).await.unwrap_err();
        assert!(matches!(&error, BackendError::Unavailable(why) if why.contains(&code.to_string())), "{code}: {error}");
    }
    assert!(matches!(ask(vec![410], 404).await, Err(BackendError::Invalid(_))), "404 where it does not mean that");
}

#[tokio::test]
async fn no_content_is_an_absence_only_where_it_was_said_to_be() {
    let server = HttpServer::start(|_| Reply::Keep(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())).await;
    assert!(matches!(fetch(&backend(&server)).await, Err(BackendError::Invalid(_))));
    let config = BackendConfig { absent_status: vec![404, 204], ..config(&server.url("/users/{key}")) };
    assert_eq!(fetch(&HttpBackend::new(&config).unwrap()).await.unwrap(), None);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let server = HttpServer::start(|request| match request.target() {
        "/users/1" => status("302 Found", "location: /elsewhere\r\n", ""),
        _ => ok("application/json", "{}"),
    })
    .await;
    let error = fetch(&backend(&server)).await.unwrap_err();
    assert!(matches!(&error, BackendError::Invalid(why) if why.contains("redirects are not followed")), "{error}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn an_absence_without_the_header_that_it_must_have_is_a_failure() {
    let server = HttpServer::start(|request| match request.target() {
        "/users/1" => status("404 Not Found", "content-type: text/html\r\n", "<h1>404</h1>"),
        _ => status("404 Not Found", "content-type: application/problem+json; charset=utf-8\r\n", "{}"),
    })
    .await;
    let demanded = Some("Content-Type: application/problem+json".parse().unwrap());
    let backend =
        HttpBackend::new(&BackendConfig { absent_header: demanded, ..config(&server.url("/users/{key}")) }).unwrap();
    let error = fetch(&backend).await.unwrap_err();
    assert!(
        matches!(&error, BackendError::Invalid(why) if why.contains("absent_header") && why.contains("problem+json")),
        "{error}"
    );
    assert_eq!(backend.fetch(&key(b"2"), &FetchContext::default()).await.unwrap(), None);
}

#[tokio::test]
async fn the_media_type_is_kept() {
    let server = HttpServer::start(|request| match request.target() {
        "/users/none" => status("200 OK", "", "x"),
        "/users/broken" => status("200 OK", "content-type: text/pl\u{e4}in\r\n", "x"),
        target => ok(&target["/users/".len()..].replace("%2F", "/").replace("%3B%20", "; ").replace("%3D", "="), "x"),
    })
    .await;
    let backend = backend(&server);
    for written in ["application/json", "application/octet-stream", "text/plain; charset=utf-8", "image/png"] {
        let value = backend.fetch(&key(written.as_bytes()), &FetchContext::default()).await.unwrap().unwrap();
        assert_eq!(value.content_type, ContentType::parse(written.as_bytes()).unwrap());
        assert_eq!(value.content_type.header(), written);
    }
    let value = backend.fetch(&key(b"none"), &FetchContext::default()).await.unwrap().unwrap();
    assert_eq!(value.content_type, ContentType::OctetStream);
    assert!(matches!(backend.fetch(&key(b"broken"), &FetchContext::default()).await, Err(BackendError::Invalid(_))));
}

#[tokio::test]
async fn a_body_that_ends_short_is_a_failure() {
    for (reply, kind) in [
        (raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{}"), "unavailable"),
        (
            raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"),
            "unavailable",
        ),
        (raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"), "unavailable"),
        (raw("HTTP/1.1 404 Not Found\r\ncontent-length: 100\r\n\r\nno"), "unavailable"),
        (raw("HTTP/1.1 200 OK\r\ncontent-le"), "unavailable"),
        (raw(""), "unavailable"),
        (Reply::Reset(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nab".to_vec()), "unavailable"),
        (raw("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nwhole or not?"), "invalid"),
        (raw("HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\nwhole or not?"), "invalid"),
        (raw("HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{\"a\": [1, 2"), "invalid"),
        (raw("HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n12"), "invalid"),
        (raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n"), "any"),
        (raw("SSH-2.0-OpenSSH_9.2\r\n"), "any"),
    ] {
        let shown = match &reply {
            Reply::Close(bytes) | Reply::Reset(bytes) | Reply::Keep(bytes) => {
                String::from_utf8_lossy(bytes).into_owned()
            }
            Reply::Hang => String::new(),
        };
        let server = HttpServer::start(move |_| reply.clone()).await;
        let error = fetch(&backend(&server)).await.unwrap_err();
        let told = error.outcome().unwrap().as_str();
        assert!(kind == "any" || told == kind, "{shown:?}: {error}");
    }
}

#[tokio::test]
async fn json_that_shows_its_own_end_needs_no_length() {
    let server =
        HttpServer::start(|_| raw("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\": [1, 2]}\n")).await;
    assert_eq!(fetch(&backend(&server)).await.unwrap().unwrap().body, "{\"a\": [1, 2]}\n");
}

#[tokio::test]
async fn bodies_are_bounded_whether_announced_or_not() {
    const LIMIT: usize = 16 << 20;
    let server = HttpServer::start(|request| match request.target() {
        "/users/announced" => raw(&format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", LIMIT + 1)),
        "/users/chunked" => {
            let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
            raw(&format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(17)))
        }
        _ => ok("text/plain", &"x".repeat(LIMIT)),
    })
    .await;
    let backend = backend(&server);
    for over in ["announced", "chunked"] {
        let error = backend.fetch(&key(over.as_bytes()), &FetchContext::default()).await.unwrap_err();
        assert!(matches!(&error, BackendError::Invalid(why) if why.contains(&LIMIT.to_string())), "{over}: {error}");
    }
    assert_eq!(backend.fetch(&key(b"just"), &FetchContext::default()).await.unwrap().unwrap().body.len(), LIMIT);
}

#[tokio::test]
async fn compression_is_not_asked_for_and_not_passed_on() {
    let server = HttpServer::start(|request| match request.target() {
        "/users/1" => status("200 OK", "content-encoding: gzip\r\n", "\u{1f}"),
        _ => status("200 OK", "content-encoding: identity\r\n", "x"),
    })
    .await;
    let backend = backend(&server);
    let error = fetch(&backend).await.unwrap_err();
    assert!(matches!(&error, BackendError::Invalid(why) if why.contains("gzip")), "{error}");
    assert!(backend.fetch(&key(b"2"), &FetchContext::default()).await.unwrap().is_some());
    assert_eq!(server.seen()[0].header("accept-encoding"), Some("identity"));
}

#[tokio::test]
async fn own_headers_win_and_only_they_and_what_the_lookup_is_about_are_sent() {
    let server = HttpServer::start(|_| ok("application/json", "{}")).await;
    let pairs =
        |pairs: &[(&str, &str)]| Headers::new(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect());
    let url = server.url("/users/{key}").replace("http://", "http://app:hunter%3A2@");
    let config = BackendConfig {
        headers: pairs(&[("Accept", "application/json"), ("User-Agent", "shop"), ("Host", "users.internal")]),
        secret_headers: pairs(&[("X-Api-Key", "hunter2")]),
        ..config(&url)
    };
    let backend = HttpBackend::new(&config).unwrap();
    fetch(&backend).await.unwrap();
    let request = server.seen().pop().unwrap();
    for (name, value) in [
        ("accept", "application/json"),
        ("user-agent", "shop"),
        ("host", "users.internal"),
        ("x-api-key", "hunter2"),
        ("authorization", "Basic YXBwOmh1bnRlcjoy"),
        ("accept-encoding", "identity"),
        ("bloomguard-timeout", "60000ms"),
    ] {
        assert_eq!(request.header(name), Some(value), "{request:?}");
    }
    assert_eq!(request.headers.len(), 7, "{request:?}");
    assert!(!format!("{config:?} {backend:?}").contains("hunter"), "{config:?} {backend:?}");
}

#[tokio::test]
async fn the_backend_is_told_how_much_time_is_left() {
    let server = HttpServer::start(|_| ok("application/json", "{}")).await;
    let backend = backend(&server);
    let context = FetchContext {
        deadline: Some(tokio::time::Instant::now() + Duration::from_millis(500)),
        ..FetchContext::default()
    };
    backend.fetch(&key(b"1"), &context).await.unwrap();
    let told =
        server.seen()[0].header("bloomguard-timeout").unwrap().strip_suffix("ms").unwrap().parse::<u64>().unwrap();
    assert!((1..=500).contains(&told), "{told}");
}

#[tokio::test]
async fn a_refused_connection_fails_at_once_a_silent_one_at_the_timeout() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = HttpBackend::new(&config(&format!("http://app:hunter2@127.0.0.1:{free}/users/{{key}}"))).unwrap();
    let started = Instant::now();
    let error = fetch(&refused).await.unwrap_err();
    assert!(
        matches!(&error, BackendError::Unavailable(why) if why.contains("refused") && !why.contains("hunter2")),
        "{error}"
    );
    assert!(started.elapsed() < Duration::from_secs(45), "a refusal is an answer at once");

    let silent = HttpServer::start(|request| match request.target() {
        "/users/1" => Reply::Hang,
        _ => ok("application/json", "{}"),
    })
    .await;
    let config = BackendConfig {
        timeout: Duration::from_millis(100),
        max_concurrency: 1,
        ..config(&silent.url("/users/{key}"))
    };
    let backend = HttpBackend::new(&config).unwrap();
    assert!(matches!(fetch(&backend).await, Err(BackendError::Timeout(_))));
    // What was given up leaves its place to the next.
    let patient = HttpBackend::new(&BackendConfig { timeout: Duration::from_secs(20), ..config }).unwrap();
    let given_up = tokio::time::timeout(Duration::from_millis(50), fetch(&patient)).await;
    assert!(given_up.is_err());
    assert!(patient.fetch(&key(b"2"), &FetchContext::default()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_host_that_does_not_exist_is_unavailable() {
    let backend = HttpBackend::new(&config("http://no-such-host.invalid/users/{key}")).unwrap();
    assert!(matches!(fetch(&backend).await, Err(BackendError::Unavailable(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_few_and_used_again() {
    let server = HttpServer::start(|request| match request.target() {
        target if target.ends_with('7') => status("404 Not Found", "", "no such user"),
        target if target.ends_with('8') => status("503 Service Unavailable", "", "try again"),
        _ => ok("application/json", "{}"),
    })
    .await;
    let backend = Arc::new(
        HttpBackend::new(&BackendConfig { max_concurrency: 2, ..config(&server.url("/users/{key}")) }).unwrap(),
    );
    let lookups: Vec<_> = (0..200)
        .map(|i| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move { backend.fetch(&key(i.to_string().as_bytes()), &FetchContext::default()).await })
        })
        .collect();
    for (i, lookup) in lookups.into_iter().enumerate() {
        let told = lookup.await.unwrap().map(|value| value.is_some()).map_err(|error| error.outcome().unwrap());
        assert_eq!(told, if i % 10 == 8 { Err(BackendOutcome::Unavailable) } else { Ok(i % 10 != 7) }, "{i}");
    }
    // A failure costs no connection either.
    assert!((1..=2).contains(&server.most_open()), "{} connections at a time", server.most_open());
    assert!(server.connections() <= 3, "{} connections for 200 lookups", server.connections());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_died_while_idle_costs_no_answer() {
    // Each connection answers once and is closed without a word.
    let server = HttpServer::start(|_| raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")).await;
    let backend = Arc::new(
        HttpBackend::new(&BackendConfig { max_concurrency: 4, ..config(&server.url("/users/{key}")) }).unwrap(),
    );
    for _ in 0..50 {
        let four = (0..4).map(|_| fetch(&backend));
        for answer in futures_util::future::join_all(four).await {
            assert!(answer.unwrap().is_some());
        }
    }
}

#[tokio::test]
async fn a_server_that_always_breaks_off_is_asked_no_more_than_twice() {
    let asked = Arc::new(AtomicUsize::new(0));
    let server = HttpServer::start({
        let asked = Arc::clone(&asked);
        move |_| if asked.fetch_add(1, Ordering::SeqCst) == 0 { ok("application/json", "{}") } else { raw("") }
    })
    .await;
    let backend = backend(&server);
    assert!(fetch(&backend).await.unwrap().is_some());
    assert!(matches!(fetch(&backend).await, Err(BackendError::Unavailable(_))));
    assert_eq!(asked.load(Ordering::SeqCst), 3, "once on the connection that was kept, once on a new one");
}

/// Invariant: fingerprint-guards-values
#[tokio::test]
async fn the_fingerprint_covers_what_selects_rows_and_no_credentials() {
    let of = |change: &dyn Fn(&mut BackendConfig)| {
        let mut config = config("http://app:old@api/users/{key}");
        config.headers = Headers::new(vec![("X-Tenant".into(), "A".into()), ("Authorization".into(), "old".into())]);
        config.secret_headers = Headers::new(vec![("X-Sig".into(), "old".into())]);
        change(&mut config);
        HttpBackend::new(&config).unwrap().fingerprint()
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let same = of(&|_| {});
    assert_eq!(same, of(&|c| c.url = SecretUrl::new("http://app:new@api/users/{key}".into())));
    assert_eq!(same, of(&|c| c.headers = Headers::new(vec![pair("authorization", "new"), pair("x-tenant", "A")])));
    assert_eq!(same, of(&|c| c.secret_headers = Headers::new(vec![pair("X-Sig", "new")])));
    assert_eq!(same, of(&|c| c.timeout = Duration::from_secs(1)));
    let others: [&dyn Fn(&mut BackendConfig); 7] = [
        &|c| c.url = SecretUrl::new("http://api2/users/{key}".into()),
        &|c| c.url = SecretUrl::new("http://api/users/{key}?full=1".into()),
        &|c| c.absent_status = vec![404, 410],
        &|c| c.absent_header = Some("X-Row".parse().unwrap()),
        &|c| c.headers = Headers::new(vec![pair("X-Tenant", "a"), pair("Authorization", "old")]),
        &|c| c.headers = Headers::default(),
        &|c| c.secret_headers = Headers::default(),
    ];
    for (at, other) in others.iter().enumerate() {
        assert_ne!(same, of(*other), "{at}");
    }
}

#[tokio::test]
async fn only_the_configured_authority_is_trusted() {
    let certificates = Certificates::make();
    let nginx =
        Nginx::start("ssl", &format!("{} location /users/ {{ return 200 'hello'; }}", certificates.directives()));
    let at = |host: &str, ca: Option<Trust>| {
        let url = format!("https://{host}:{}/users/{{key}}", nginx.address().rsplit_once(':').unwrap().1);
        HttpBackend::new(&BackendConfig { ca, ..config(&url) }).unwrap()
    };
    let trust =
        |certificates: &Certificates| Some(Trust::from_pem(&std::fs::read(certificates.ca()).unwrap()).unwrap());
    assert_eq!(fetch(&at("localhost", trust(&certificates))).await.unwrap().unwrap().body, "hello");
    // Another authority; a host that the certificate does not name.
    for (host, ca) in [("localhost", trust(&Certificates::make())), ("127.0.0.1", trust(&certificates))] {
        let error = fetch(&at(host, ca)).await.unwrap_err();
        assert!(matches!(&error, BackendError::Unavailable(why) if why.contains("certificate")), "{host}: {error}");
    }
}

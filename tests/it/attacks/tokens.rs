//! Tokens that are taken for more than they allow, and tokens that were withdrawn.

use serde_json::json;
use tempfile::TempDir;

use crate::product::process::enforces;
use crate::product::users::{absent, config, site};
use crate::support::app::{Http, TestApp};
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::process::Process;
use toml::{Table, Value};

type Headers = &'static [(&'static str, &'static str)];

/// Every request of the data listener with the scope that it needs.
const REQUESTS: [(&str, &str, Headers, &str); 11] = [
    ("GET", "/v1/keys/users/1", &[], "read"),
    ("HEAD", "/v1/keys/users/1", &[], "read"),
    ("GET", "/v1/check/users/1", &[], "read"),
    ("POST", "/v1/check/users", &[], "read"),
    ("POST", "/v1/lookup/users", &[], "read"),
    ("GET", "/v1/keys/users/1", &[("bloomguard-bypass", "1")], "write"),
    ("POST", "/v1/lookup/users", &[("bloomguard-bypass", "1")], "write"),
    ("PUT", "/v1/keys/users/7000001", &[], "write"),
    ("POST", "/v1/keys/users", &[], "write"),
    ("DELETE", "/v1/keys/users/7000001", &[], "write"),
    ("POST", "/v1/invalidate/users", &[], "write"),
];

async fn served(dir: &TempDir, config: Config) -> Process {
    let mut process = Process::start(dir.path(), &["--config", &config.write(dir.path())]);
    let (_, telemetry) = process.addresses();
    enforces(&Http::default(), &telemetry).await;
    process
}

fn write(dir: &TempDir, name: &str, tokens: &str) {
    let new = dir.path().join("new");
    std::fs::write(&new, tokens).unwrap();
    std::fs::rename(new, dir.path().join(name)).unwrap();
}

/// An entry of `server.tokens`.
fn entry(dir: &TempDir, name: &str, tokens: &str, scopes: &[&str]) -> Value {
    write(dir, name, tokens);
    let scopes: Vec<Value> = scopes.iter().map(|scope| Value::from(*scope)).collect();
    let file = dir.path().join(name).to_str().unwrap().to_owned();
    Table::from_iter([("file".to_owned(), file.into()), ("scopes".to_owned(), scopes.into())]).into()
}

/// Invariant: scopes-limit-tokens
#[tokio::test(flavor = "multi_thread")]
async fn a_token_does_what_its_scopes_say_and_nothing_else() {
    let (dir, site) = (TempDir::new().unwrap(), site(Site::sqlite()).await);
    let tokens = vec![
        entry(&dir, "reader", "r3ad\n", &["read"]),
        entry(&dir, "writer", "wr1te", &["write"]),
        entry(&dir, "both", "b0th", &["read", "write"]),
        entry(&dir, "root", "r00t", &["admin"]),
    ];
    let mut process = served(&dir, config(&site.url()).server("tokens", tokens)).await;
    let ((data, _), admin, http) = (process.addresses(), process.admin(), Http::default());
    let ask = async |method: &str, url: String, token: Option<&str>, headers: &[(&str, &str)]| {
        let bearer = token.map(|token| format!("Bearer {token}")).unwrap_or_default();
        let mut all = [headers, &[("content-type", "application/json")]].concat();
        all.extend(token.map(|_| ("authorization", bearer.as_str())));
        http.send(method, &url, &all, if method == "POST" { "[1]" } else { "" }).await
    };
    for (method, path, headers, needs) in REQUESTS {
        for (token, has) in
            [("r3ad", vec!["read"]), ("wr1te", vec!["write"]), ("b0th", vec!["read", "write"]), ("r00t", vec![])]
        {
            let answer = ask(method, format!("http://{data}{path}"), Some(token), headers).await;
            // A bypass is a read as well.
            let allowed = has.contains(&needs) && (headers.is_empty() || has.contains(&"read"));
            assert_eq!(answer.status == 403, !allowed, "{method} {path} {headers:?} {token}: {answer:?}");
            if !allowed && method != "HEAD" {
                let lacks = if headers.is_empty() || has.contains(&"read") { needs } else { "read" };
                assert_eq!(
                    (&answer.json()["type"], &answer.json()["scope"]),
                    (&json!("/problems/insufficient-scope"), &json!(lacks))
                );
                assert!(answer.header("www-authenticate").contains("insufficient_scope"), "{answer:?}");
            }
        }
        for token in [None, Some("wrong"), Some("")] {
            assert_eq!(
                ask(method, format!("http://{data}{path}"), token, headers).await.status,
                401,
                "{method} {path} {token:?}"
            );
        }
    }
    // What the filter answers by itself, in front of the layers, demands the scope too.
    let far = format!("http://{data}/v1/keys/users/99999999");
    for (token, status) in [("r3ad", 404), ("wr1te", 403), ("r00t", 403), ("wrong", 401)] {
        assert_eq!(ask("GET", far.clone(), Some(token), &[]).await.status, status, "{token}");
    }
    let config = format!("http://{admin}/admin/config");
    for (token, status) in
        [(Some("r00t"), 200), (Some("b0th"), 403), (Some("r3ad"), 403), (Some("wrong"), 401), (None, 401)]
    {
        assert_eq!(ask("GET", config.clone(), token, &[]).await.status, status, "{token:?}");
    }
}

/// Invariant: scopes-limit-tokens
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_rotated_and_withdrawn_without_a_restart() {
    let (dir, site) = (TempDir::new().unwrap(), site(Site::sqlite()).await);
    write(&dir, "tokens", "old\n");
    let config_with_tokens = config(&site.url())
        .server("token_file", dir.path().join("tokens").to_str().unwrap())
        .server("tokens", vec![entry(&dir, "reader", "reader-1\n", &["read"])]);
    let mut process = served(&dir, config_with_tokens).await;
    let ((data, telemetry), http) = (process.addresses(), Http::default());
    let status = async |token: &str| {
        http.send(
            "GET",
            &format!("http://{data}/v1/keys/users/1"),
            &[("authorization", &format!("Bearer {token}"))],
            "",
        )
        .await
        .status
    };
    let until = async |token: &str, expected: u16| {
        assert_eventually!(status(token).await == expected, "{token} is not answered {expected}");
    };
    assert_eq!([status("old").await, status("new").await, status("reader-1").await], [200, 401, 200]);
    write(&dir, "tokens", "new\n\nold\n");
    until("new", 200).await;
    assert_eq!(status("old").await, 200, "both, while clients change over");
    write(&dir, "tokens", "new\n");
    until("old", 401).await;
    write(&dir, "reader", "reader-2\n");
    until("reader-2", 200).await;
    assert_eq!([status("reader-1").await, status("new").await], [401, 200]);
    // A file that can't be used changes nothing, and no file is no token.
    std::fs::remove_file(dir.path().join("tokens")).unwrap();
    let failed = "bloomguard_config_reloads_total{outcome=\"failed\"}";
    assert_eventually!(
        crate::support::metric(http.get(&format!("http://{telemetry}/metrics")).await.text(), failed) >= 1.0,
        "{}",
        process.log()
    );
    assert_eq!([status("new").await, status("").await], [200, 401]);
    // Nor does a configuration without tokens open the listener that runs.
    config(&site.url()).write(dir.path());
    process.logged("\"restart needed for changed settings\",\"settings\":\"server.token_file");
    assert_eq!([status("new").await, status("").await], [200, 401]);
}

/// Invariant: scopes-limit-tokens
#[tokio::test(flavor = "multi_thread")]
async fn a_bypass_is_refused_where_it_is_not_allowed() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url()).server("allow_bypass", false)).await;
    let bypass = [("bloomguard-bypass", "1")];
    let far = absent(&app);
    for path in ["/v1/keys/users/1".to_owned(), format!("/v1/keys/users/{far}")] {
        let refused = app.send("GET", &path, &bypass).await;
        assert_eq!((refused.status, &refused.json()["type"]), (403, &json!("/problems/bypass-not-allowed")));
        assert_ne!(app.send("GET", &path, &[("bloomguard-bypass", "0")]).await.status, 403);
    }
    let batch =
        app.http.send("POST", &app.url("/v1/lookup/users"), &[bypass[0], ("content-type", "text/plain")], "1").await;
    assert_eq!(batch.status, 403);
    let told = app.send("GET", &format!("/v1/keys/users/{far}"), &[("cache-control", "no-cache")]).await.told();
    assert_eq!(told, "404 filter", "it was never honoured here");
}

//! Secrets that a configuration holds, and everything that the process says while all of it is broken.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::app::{Answer, Http};
use crate::support::eventually_blocking;
use crate::support::http_server::{HttpServer, status};
use crate::support::postgres::Database;
use crate::support::process::Process;
use crate::support::redis::RedisServer;

/// A part of every secret.
const SECRET: &str = "hunter2";
/// What clients of the data and the telemetry listener may not read either: users, hosts, databases, statements.
const INTERNAL: [&str; 5] = ["login-", "127.0.0.1", "a_store", "a_table", "SELECT"];
const KEYSPACES: [&str; 7] = ["refused", "role", "statement", "mysql", "web", "variable", "file"];
const VARIABLE: (&str, &str) = (
    "BLOOMGUARD__KEYSPACES__VARIABLE__BACKEND__URL",
    "postgres://login-v:hunter2-v@127.0.0.1:1/a_store?passfile=hunter2-vv",
);

/// Everything that was said, with where.
struct Said(Vec<(String, String)>);

impl Said {
    fn note(&mut self, place: impl Into<String>, text: impl Into<String>) {
        self.0.push((place.into(), text.into()));
    }

    fn answer(&mut self, place: &str, answer: &Answer) {
        let body = String::from_utf8_lossy(&answer.body);
        self.note(format!("{place} {}", answer.status), format!("{:?}\n{body}", answer.headers));
    }

    fn holds_none_of(&self, words: &[&str], from: &str) {
        for (place, text) in self.0.iter().filter(|(place, _)| place.starts_with(from)) {
            for line in text.lines() {
                assert!(!words.iter().any(|word| line.contains(word)), "{place} says {line}");
            }
        }
    }
}

/// Distinctive secrets in every place that takes one, and nothing that works.
fn config(dir: &Path, redis: &RedisServer, database: &Database<'_>, web: &HttpServer) -> String {
    let file = |name: &str, text: &str| {
        let file = dir.join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let mut toml = format!(
        "[server]\ntoken_file = \"{}\"\nadmin_token_file = \"{}\"\n[[server.tokens]]\nfile = \"{}\"\nscopes = \
            [\"read\"]\n[log]\nlevel = \"trace\"\n[redis]\nurl = \"{}\"\n",
        file("data-token", "hunter2-data\n"),
        file("admin-token", "hunter2-admin\n"),
        file("reader-token", "hunter2-reader\n"),
        redis.url_with_password(Some("hunter2-redis")).replace("redis://:", "redis://login-r:"),
    );
    let port = database.address();
    let host = port.split('/').next().unwrap();
    let sql = |url: &str| {
        format!(
            "url = \"{url}\"\nquery = \"SELECT id FROM a_table WHERE id = {}\"",
            if url.starts_with("mysql") { "?" } else { "$1" }
        )
    };
    let backends = [
        sql(
            "postgres://login-a:hunter2-a@127.0.0.1:1/a_store?sslpassword=hunter2-b&unheard=hunter2-c&options=-c%20hunter2.x%3D1",
        ),
        sql(&format!("postgres://login-b:hunter2-d@{host}/a_store?sslpassword=hunter2-e")),
        sql(&format!("postgres://postgres:hunter2-f@{port}")),
        sql("mysql://login-c:hunter2-g@127.0.0.1:1/a_store?unheard=hunter2-h"),
        format!(
            "kind = \"http\"\nurl = \"{}\"\nheaders = {{ X-Key = \"hunter2-i\" }}\nheaders_file = \"{}\"",
            web.url("/{key}?key=hunter2-j").replace("http://", "http://login-d:hunter2-k@"),
            file("headers", "X-Other: hunter2-l\n"),
        ),
        "query = \"SELECT id FROM a_table WHERE id = $1\"".to_owned(),
        format!(
            "url_file = \"{}\"\nquery = \"SELECT id FROM a_table WHERE id = $1\"",
            file("url", "postgres://login-e:hunter2-m@127.0.0.1:1/a_store\n")
        ),
    ];
    for (name, backend) in KEYSPACES.iter().zip(backends) {
        let source = match *name {
            "web" => "kind = \"http\"\nurl = \"http://login-f:hunter2-n@127.0.0.1:1/keys?key=hunter2-o\"".to_owned(),
            "mysql" => "kind = \"redis\"\nurl = \"redis://login-g:hunter2-p@127.0.0.1:1/0\"\npattern = \"a_table:*\""
                .to_owned(),
            _ => "query = \"SELECT id FROM a_table\"".to_owned(),
        };
        toml += &format!(
            "[keyspaces.{name}]\nkey = \"integer\"\nfreshness = \"announced\"\nfilter.expected_keys = \
                10\n[keyspaces.{name}.backend]\n{backend}\n[keyspaces.{name}.source]\n{source}\n"
        );
    }
    toml
}

const DATA: (&str, &str) = ("authorization", "Bearer hunter2-data");
const ADMIN: (&str, &str) = ("authorization", "Bearer hunter2-admin");
const JSON: (&str, &str) = ("content-type", "application/json");

/// Asks every listener for everything.
async fn ask_everything(http: &Http, said: &mut Said, process: &mut Process, keyspaces: &[&str]) {
    let ((data, telemetry), admin) = (process.addresses(), process.admin());
    for keyspace in keyspaces {
        for (method, path, headers, body) in [
            ("GET", format!("/v1/keys/{keyspace}/7"), vec![DATA], ""),
            ("GET", format!("/v1/keys/{keyspace}/8"), vec![DATA, ("bloomguard-bypass", "1")], ""),
            ("GET", format!("/v1/keys/{keyspace}/7"), vec![("authorization", "Bearer hunter2-wrong")], ""),
            ("POST", format!("/v1/lookup/{keyspace}"), vec![DATA, JSON], "[7, 8, 9]"),
            ("POST", format!("/v1/check/{keyspace}"), vec![DATA, JSON], "[7]"),
            ("POST", format!("/v1/keys/{keyspace}"), vec![DATA, JSON], "[7]"),
            ("PUT", format!("/v1/keys/{keyspace}/7"), vec![DATA], ""),
            ("DELETE", format!("/v1/keys/{keyspace}/7"), vec![DATA], ""),
            ("POST", format!("/v1/invalidate/{keyspace}"), vec![DATA, JSON], "[7]"),
            ("PUT", format!("/v1/keys/{keyspace}/7"), vec![("authorization", "Bearer hunter2-reader")], ""),
        ] {
            let answer = http.send(method, &format!("http://{data}{path}"), &headers, body).await;
            assert_ne!(answer.status, 404, "{method} {path}");
            said.answer(&format!("data {method} {path}"), &answer);
        }
        for path in ["rebuild", "enforcement", "mismatches"] {
            let path = format!("/admin/keyspaces/{keyspace}/{path}");
            said.answer(
                &format!("admin {path}"),
                &http.send("GET", &format!("http://{admin}{path}"), &[ADMIN], "").await,
            );
        }
    }
    said.answer("admin config", &http.send("GET", &format!("http://{admin}/admin/config"), &[ADMIN], "").await);
    for path in ["/status", "/metrics", "/readyz", "/livez", "/startupz"] {
        said.answer(&format!("telemetry {path}"), &http.get(&format!("http://{telemetry}{path}")).await);
    }
}

fn run(arguments: &[&str], said: &mut Said) -> Option<i32> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_bloomguard")).args(arguments).env(VARIABLE.0, VARIABLE.1).output().unwrap();
    for text in [&output.stdout, &output.stderr] {
        said.note(format!("{arguments:?}"), String::from_utf8_lossy(text));
    }
    output.status.code()
}

/// Ways to break a configuration around its secrets.
fn broken(whole: &str) -> Vec<String> {
    vec![
        // The string does not end, the table does not, and half of a value is left.
        whole.replacen("hunter2-a@127.0.0.1:1/a_store", "hunter2-a\n", 1),
        format!("{whole}[keyspaces.refused.backend\nurl = \"postgres://u:hunter2-q@h/d\"\n"),
        format!("{whole}hunter2-r\n"),
        whole.replacen("url = \"postgres://login-a", "url = 5 # \"postgres://login-a", 1),
        whole.replacen("url = \"postgres://login-a:", "url = [\"postgres://login-a:", 1).replacen(
            "hunter2.x%3D1\"",
            "hunter2.x%3D1\"]",
            1,
        ),
        whole.replacen("{ X-Key = \"hunter2-i\" }", "\"X-Key: hunter2-i\"", 1),
        whole.replacen("{ X-Key = \"hunter2-i\" }", "{ \"X Key\" = \"hunter2-i\" }", 1),
        whole.replacen("query = \"SELECT id", "\"postgres://u:hunter2-s@h/d\" = \"SELECT id", 1),
        whole.replacen("[log]", "[log]\nformat = \"postgres://u:hunter2-t@h/d\"", 1),
        whole.replacen("[log]", "[log]\nlevel = \"password=hunter2-u\"", 1),
        whole.replacen("login-a:hunter2-a@", "login-a:hun@hunter2/w@", 1),
        whole.replacen("login-c:hunter2-g@", "login-c:hunter2/w@", 1),
        whole.replacen("redis://login-r:hunter2-redis@", "redis://login-r:12/hunter2@", 1),
        whole.replacen("redis://login-r:hunter2-redis@", "redis+sentinel://login-r:hun@hunter2@", 1),
        whole.replacen("redis://login-r:hunter2-redis@", "redis+cluster://login-r:hunter2,x/5?x=hunter2", 1),
        whole.replacen("http://login-d:hunter2-k@", "http://login-d:1/hunter2@", 1),
        whole.replacen("postgres://login-a:hunter2-a@", "hunter2 ", 1),
    ]
}

fn without_redis(whole: &str) -> String {
    let (before, section) = whole.split_once("[redis]\n").unwrap();
    format!("{before}{}", section.split_once('\n').unwrap().1)
}

fn until_logged(process: &Process, words: &[&str]) {
    eventually_blocking("all is logged", || words.iter().all(|word| process.log().contains(word)));
}

/// All that it logged, to its end.
fn end(process: &mut Process) -> String {
    process.signal("TERM");
    process.ended();
    assert!(process.log().contains("\"TRACE\""), "it logs all that it can");
    process.log()
}

/// Invariant: secrets-are-never-told
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_said_holds_a_secret_of_the_configuration() {
    let (dir, redis, database) =
        (TempDir::new().unwrap(), RedisServer::start_with(&["--requirepass", "another"]), Database::create());
    let web =
        HttpServer::start(|_| status("500 Internal Server Error", "", "SELECT from a_table as login-web at 127.0.0.1"))
            .await;
    let whole = config(dir.path(), &redis, &database, &web);
    let file = dir.path().join("bloomguard.toml");
    std::fs::write(&file, &whole).unwrap();
    let path = file.to_str().unwrap();
    let mut said = Said(vec![]);
    assert_eq!(run(&["check-config", path], &mut said), Some(0), "{:?}", said.0);
    for keyspace in KEYSPACES {
        assert_eq!(run(&["plan", "--config", path, "--keyspace", keyspace], &mut said), Some(1), "{:?}", said.0.last());
    }
    let mut process = Process::start_with(dir.path(), &["--config", path], &[VARIABLE]);
    ask_everything(&Http::default(), &mut said, &mut process, &KEYSPACES).await;
    ask_everything(&Http::h2c(), &mut said, &mut process, &KEYSPACES[..1]).await;
    let (http, url) = (Http::default(), format!("http://{}/admin/reload", process.admin()));
    for toml in broken(&whole) {
        assert_ne!(toml, whole);
        std::fs::write(&file, toml).unwrap();
        let reloaded = http.send("POST", &url, &[ADMIN, JSON], "").await;
        assert_eq!(reloaded.status, 422, "{}", reloaded.text());
        said.answer("admin reload", &reloaded);
        assert_eq!(run(&["check-config", path], &mut said), Some(78));
        assert_eq!(run(&["--config", path], &mut said), Some(78));
    }
    // Each failure is in the log: users and hosts may be there, and nowhere else.
    until_logged(&process, &["login-b", "a_table"]);
    ask_everything(&http, &mut said, &mut process, &KEYSPACES[..1]).await;
    said.note("log", end(&mut process));
    // Without Redis the sources are read, and fail.
    std::fs::write(&file, without_redis(&whole)).unwrap();
    let mut process = Process::start_with(dir.path(), &["--config", path], &[VARIABLE]);
    process.addresses();
    until_logged(&process, &["rebuild failed", "login-b"]);
    ask_everything(&http, &mut said, &mut process, &KEYSPACES).await;
    said.note("log", end(&mut process));
    said.holds_none_of(&[SECRET], "");
    said.holds_none_of(&INTERNAL, "data");
    said.holds_none_of(&INTERNAL, "telemetry");
}

/// Invariant: secrets-are-never-told
#[test]
fn a_url_whose_password_would_end_early_is_refused_unseen() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("bloomguard.toml");
    let sql = |url: &str| {
        format!(
            "[keyspaces.a]\nfreshness = \"static\"\nfilter.expected_keys = 10\n[keyspaces.a.backend]\nurl \
                = \"{url}\"\nquery = \"SELECT 1 WHERE 1 = {}\"\n",
            if url.starts_with("my") { "?" } else { "$1" }
        )
    };
    let with_source = |backend: &str, source: &str| format!("{backend}[keyspaces.a.source]\n{source}\n");
    let good = sql("postgres://u@h/d");
    let rows = "query = \"SELECT 1\"";
    let redis = |url: &str| format!("[redis]\nurl = \"{url}\"\n{}", with_source(&good, rows));
    let (at, slash) = ("percent-encode @ as %40", "percent-encode / as %2F");
    for (toml, key, rule) in [
        (with_source(&sql("postgres://u:xq7@zk9/2@h/d"), rows), "keyspaces.a.backend.url", at),
        (with_source(&sql("postgres://u:xq7/zk9@h/d"), rows), "keyspaces.a.backend.url", slash),
        (with_source(&sql("mysql://u:xq7@zk9@h/d"), rows), "keyspaces.a.backend.url", at),
        (with_source(&sql("mariadb://u:1/xq7@h/d"), rows), "keyspaces.a.backend.url", slash),
        (with_source(&good, &format!("{rows}\nurl = \"postgres://u:xq7@zk9/2@h/d\"")), "keyspaces.a.source.url", at),
        (
            with_source(&good, "kind = \"redis\"\npattern = \"x*\"\nurl = \"redis://:xq7/zk9@h\""),
            "keyspaces.a.source.url",
            slash,
        ),
        (with_source(&good, "kind = \"http\"\nurl = \"http://u:80/xq7@h/keys\""), "keyspaces.a.source.url", slash),
        (redis("redis://:xq7@zk9/2@h"), "redis.url", at),
        (redis("redis+sentinel://u:xq7/zk9@h/main"), "redis.url", slash),
        (redis("redis+cluster://u:xq7@zk9@h"), "redis.url", at),
    ] {
        std::fs::write(&file, &toml).unwrap();
        let checked = Command::new(env!("CARGO_BIN_EXE_bloomguard"))
            .args(["check-config", file.to_str().unwrap()])
            .output()
            .unwrap();
        let told = String::from_utf8(checked.stderr).unwrap();
        assert_eq!(checked.status.code(), Some(78), "{toml}");
        assert!(told.lines().any(|line| line.starts_with(key) && line.contains(rule)), "{toml}\n{told}");
        assert!(!["xq7", "zk9"].iter().any(|part| told.contains(part)), "{told}");
    }
}

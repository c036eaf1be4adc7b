//! Spellings that a database folds otherwise than Unicode does.

use std::time::{Duration, Instant};

use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;

/// Capitals whose canonical form some database does not take for them, and that form.
const NAMES: [(&str, &str); 4] = [("ÉVA", "éva"), ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"), ("İSTANBUL", "i̇stanbul"), ("ЖУК", "жук")];

/// A table of names, and how the database looks for one.
struct Table {
    site: Site,
    url: String,
    /// Its own server's database, where that folds otherwise.
    database: Option<String>,
    query: &'static str,
    source: &'static str,
}

impl Table {
    async fn run(&self, sql: &str) {
        match (&self.database, self.site.database()) {
            (Some(name), Some(database)) => drop(database.psql_in(name, sql)),
            _ => self.site.run(sql).await,
        }
    }
}

async fn tables() -> Vec<Table> {
    let sqlite = Site::sqlite();
    sqlite.run("CREATE TABLE users (name TEXT COLLATE NOCASE PRIMARY KEY, word TEXT)").await;
    let url = sqlite.url();
    let (query, source) = ("SELECT name, word FROM users WHERE name = $1", "SELECT name FROM users");
    let mut tables = vec![Table { site: sqlite, url, database: None, query, source }];
    // Whose database folds ASCII only, and one that folds each letter alone.
    for locale in ["C", "C.utf8"] {
        let site = Site::postgres();
        let url = site.url();
        let name = format!("{}_folds", url.rsplit('/').next().unwrap());
        site.run(&format!("CREATE DATABASE {name} LC_COLLATE '{locale}' LC_CTYPE '{locale}' TEMPLATE template0")).await;
        let url = format!("{}_folds", url);
        let query = "SELECT name, word FROM users WHERE name = $1::text::citext";
        let table = Table { site, url, database: Some(name), query, source: "SELECT name::text FROM users" };
        table.run("CREATE EXTENSION citext; CREATE TABLE users (name citext PRIMARY KEY, word text)").await;
        tables.push(table);
    }
    let mariadb = Site::mariadb();
    mariadb.run("CREATE TABLE users (name VARCHAR(50) COLLATE utf8mb4_nopad_bin PRIMARY KEY, word TEXT)").await;
    let url = mariadb.url();
    tables.push(Table {
        site: mariadb,
        url,
        database: None,
        query: "SELECT name, word FROM users WHERE name = ?",
        source,
    });
    tables
}

async fn start(table: &Table, deadline: u32) -> TestApp {
    table.run("INSERT INTO users VALUES ('bob', 'first')").await;
    enforcing(table, deadline).await
}

/// Absences are cached one deadline after the window.
async fn enforcing(table: &Table, deadline: u32) -> TestApp {
    let deadline = format!("{deadline}s");
    let config = Config::new().users(|k| {
        k.set("key", "text-ci")
            .set("freshness", "announced")
            .set("max_staleness", "1h")
            .set("cache.absent_ttl", "10m")
            .set("cache.hot_ttl", "10m")
            .backend(&table.url, table.query)
            .times(&deadline, "50ms", &deadline)
            .source_sql(table.source)
    });
    TestApp::enforcing(&config).await
}

fn path(of: &str, name: &str) -> String {
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("/v1/{of}/users/{encoded}")
}

/// Asks until the answer is this one; a lookup may take too long on a busy machine.
async fn told(app: &TestApp, name: &str, answer: &str) {
    let mut told;
    assert_eventually!(
        {
            told = app.get(&path("keys", name)).await.told();
            told == answer
        },
        "{name}: {told}, not {answer}; {}",
        app.status("users").await
    );
}

/// Never a 404, and a value five times; a lookup may take too long on a busy machine.
async fn never_absent(app: &TestApp, name: &str) {
    let (start, mut found) = (Instant::now(), 0);
    while found < 5 {
        let answer = app.get(&path("keys", name)).await;
        assert_ne!(answer.status, 404, "{name}: {}", answer.told());
        assert!(start.elapsed() < Duration::from_secs(60), "{name}: {}", answer.told());
        found += u32::from(answer.status == 200);
    }
    let body = serde_json::json!([name, "bob"]).to_string();
    let batch = app
        .http
        .send("POST", &app.url("/v1/lookup/users"), &[("content-type", "application/json")], &body)
        .await
        .json();
    assert_ne!(batch["results"][0]["status"], 404, "{name}: {batch}");
    let check = app.get(&path("check", name)).await;
    assert_eq!(check.status, 204, "{name}");
}

/// Invariant: spelling-is-kept
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_found_as_it_is_spelled_however_its_database_folds() {
    for table in tables().await {
        let app = start(&table, 2).await;
        for (name, canonical) in NAMES {
            assert_eq!(app.send("PUT", &path("keys", name), &[]).await.status, 204);
            // It is not committed yet: both spellings are absent at the backend, and one absence is cached as soon as
            // its window is over.
            told(&app, canonical, "404 hot").await;
            assert_ne!(app.get(&path("keys", name)).await.told(), "404 hot", "{name}: an absence of another spelling");
            table.run(&format!("INSERT INTO users VALUES ('{name}', 'new')")).await;
            never_absent(&app, name).await;
            // A build that finds such a row ends the rejecting, and with it the caching of absences.
            table.run(&format!("DELETE FROM users WHERE name = '{name}'")).await;
        }
        drop(app);
    }
}

/// Invariant: spelling-is-kept
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_two_spellings_are_never_mixed_up_by_the_caches() {
    // To this one É and é are two rows.
    let table = tables().await.swap_remove(0);
    let app = start(&table, 20).await;
    for name in ["ÉVA", "éva"] {
        assert_eq!(app.send("PUT", &path("keys", name), &[]).await.status, 204);
    }
    table.run("INSERT INTO users VALUES ('ÉVA', 'upper')").await;
    for _ in 0..3 {
        assert!(app.get(&path("keys", "ÉVA")).await.text().contains("upper"));
        assert_eq!(app.get(&path("keys", "éva")).await.status, 404, "the value of the other spelling was cached");
    }
    table.run("DELETE FROM users WHERE name = 'ÉVA'").await;
    assert_eq!(app.get(&path("keys", "ÉVA")).await.told(), "404 backend");
    // Asked together, each is answered as alone.
    table.run("INSERT INTO users VALUES ('ÉVA', 'again')").await;
    let body = serde_json::json!(["éva", "ÉVA", "éVA", "bob"]).to_string();
    let batch = app
        .http
        .send("POST", &app.url("/v1/lookup/users"), &[("content-type", "application/json")], &body)
        .await
        .json();
    let statuses: Vec<u64> =
        batch["results"].as_array().unwrap().iter().map(|one| one["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [404, 200, 404, 200], "{batch}");
}

/// Invariant: spelling-is-kept
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_odd_spellings_is_still_rejected_by_the_filter() {
    let table = tables().await.swap_remove(0);
    let app = start(&table, 20).await;
    for number in 0..200 {
        let answer = app.get(&path("keys", &format!("ÉTRANGER {number}"))).await;
        assert_eq!(answer.status, 404, "{}", answer.told());
    }
    let asked = app.metric("bloomguard_lookups_total{keyspace=\"users\",source=\"filter\",result=\"absent\"}").await;
    assert!(asked >= 190.0, "{asked} of 200 were rejected");
}

/// Invariant: spelling-is-kept
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_whose_lower_case_the_database_tells_is_found_as_it_is_spelled() {
    // Under LC_CTYPE=C its lower case is none to Unicode, which a build notices by itself.
    let mut table = tables().await.swap_remove(2);
    (table.source, table.query) = (
        "SELECT lower(name::text) FROM users",
        "SELECT name, word FROM users WHERE lower(name::text) = lower($1::text)",
    );
    for (name, _) in NAMES {
        table.run(&format!("INSERT INTO users VALUES ('{name}', 'old')")).await;
    }
    let app = enforcing(&table, 20).await;
    for (name, _) in NAMES {
        never_absent(&app, name).await;
    }
    let body = serde_json::json!(NAMES.map(|(name, _)| name)).to_string();
    let json = [("content-type", "application/json")];
    let check = app.http.send("POST", &app.url("/v1/check/users"), &json, &body).await.json();
    assert_eq!(check["absent"], serde_json::json!([]), "{check}");
    let strangers = serde_json::json!(["ÉTRANGER", "stranger"]).to_string();
    let check = app.http.send("POST", &app.url("/v1/check/users"), &json, &strangers).await.json();
    assert_eq!(check["absent"], serde_json::json!([0, 1]), "{check}");
    // What lookups have found is in the next filter too, as the source lists it.
    assert_eq!(app.rebuild("users").await, "swapped");
}

//! Several sources of one keyspace: their union is the key set, or there is none.

use std::sync::Arc;

use bloomguard::config::{SecretUrl, SourceConfig};
use bloomguard::key::KeyForm;
use bloomguard::source::{KeySource, Member, SourceError, SqlSource, Union};

use crate::support::app::TestApp;
use crate::support::config::{Config, Source};
use crate::support::database::Site;
use crate::support::scan::{distinct, scan};

async fn shard(site: Site, kind: &str, keys: &[&str]) -> Site {
    let rows: Vec<String> = keys.iter().map(|key| format!("('{key}')")).collect();
    site.run(&format!("CREATE TABLE t (id {kind})")).await;
    if !rows.is_empty() {
        site.run(&format!("INSERT INTO t VALUES {}", rows.join(", "))).await;
    }
    site
}

fn member(site: &Site, allow_empty: bool) -> Member {
    let config = SourceConfig { query: "SELECT id FROM t".to_owned(), ..SourceConfig::default() };
    Member { source: Arc::new(SqlSource::new(&config, &SecretUrl::new(site.url())).unwrap()), allow_empty }
}

fn union(sites: &[&Site]) -> Union {
    Union::new(sites.iter().map(|site| member(site, false)).collect())
}

#[tokio::test]
async fn the_union_of_all_is_the_key_set() {
    let one = shard(Site::sqlite(), "INTEGER", &["1", "2"]).await;
    let two = shard(Site::postgres(), "INTEGER", &["2", "3"]).await;
    let source = union(&[&one, &two]);
    assert_eq!(distinct(&source, KeyForm::Integer).await, ["1", "2", "3"]);
    assert_eq!(source.count().await.unwrap(), Some(4));
    assert_eq!(source.key_form().await.unwrap(), Some(KeyForm::Integer));
    assert_eq!(source.form_conflict(KeyForm::Integer).await.unwrap(), None);
}

#[tokio::test]
async fn one_that_fails_fails_the_scan_and_is_named() {
    let (one, two) = (shard(Site::sqlite(), "INTEGER", &["1"]).await, Site::sqlite());
    let source = union(&[&one, &two]);
    for error in [
        scan(&source, KeyForm::Integer).await.unwrap_err(),
        source.count().await.unwrap_err(),
        source.key_form().await.unwrap_err(),
    ] {
        assert!(matches!(error, SourceError::Member { index: 1, .. }), "{error:?}");
        assert!(
            error.to_string().starts_with("source[1]: ") && error.to_string().contains("no such table: t"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn one_without_keys_is_believed_only_where_that_is_allowed() {
    let one = shard(Site::sqlite(), "INTEGER", &["1"]).await;
    let two = shard(Site::sqlite(), "INTEGER", &[]).await;
    let error = scan(&union(&[&one, &two]), KeyForm::Integer).await.unwrap_err().to_string();
    assert!(error.starts_with("source[1]: ") && error.contains("it has no keys"), "{error}");
    let allowed = Union::new(vec![member(&one, false), member(&two, true)]);
    assert_eq!(distinct(&allowed, KeyForm::Integer).await, ["1"]);
}

#[tokio::test]
async fn forms_that_differ_are_refused_with_both_their_names() {
    let one = shard(Site::sqlite(), "INTEGER", &["1"]).await;
    let two = shard(Site::sqlite(), "TEXT", &["1"]).await;
    let error = union(&[&one, &one, &two]).key_form().await.unwrap_err().to_string();
    assert!(error.contains("source[0] has keys of form \"integer\" and source[2] of form \"text\""), "{error}");
    let conflict = union(&[&two, &one]).form_conflict(KeyForm::Text).await.unwrap().unwrap();
    assert!(conflict.starts_with("source[1]: the key column is of type INTEGER"), "{conflict}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_on_two_databases_guard_one_keyspace() {
    let main = shard(Site::postgres(), "BIGINT", &["1", "2"]).await;
    let archive = shard(Site::sqlite(), "BIGINT", &["3"]).await;
    main.run("CREATE VIEW everyone AS SELECT id FROM t UNION ALL SELECT 3").await;
    let rows = Source::sql("SELECT id FROM t");
    let config = Config::new().users(|k| {
        k.set("freshness", "static")
            .set("deadline", "2s")
            .backend(&main.url(), "SELECT id FROM everyone WHERE id = $1")
            .set("backend.timeout", "1s")
            .sources([rows.clone(), rows.set("url", archive.url())])
    });
    let app = TestApp::enforcing(&config).await;
    for id in 1..=3 {
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "200 backend", "{id}");
    }
    assert_eq!(app.get("/v1/keys/users/4").await.told(), "404 filter");

    archive.run("ALTER TABLE t RENAME TO gone").await;
    assert_eq!(app.rebuild("users").await, "source_failed");
    let progress = app.admin("GET", "/admin/keyspaces/users/rebuild", "").await.json();
    assert!(progress["last_error"].as_str().unwrap().starts_with("source[1]: "), "{progress}");
    assert_eq!(app.get("/v1/keys/users/3").await.status, 200, "the active filter stays");
    assert_eq!(app.status("users").await["state"], "enforcing");
}

//! What every SQL backend does.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bloomguard::backend::{Backend, BackendError, ContentType, FetchContext, SqlBackend, Value};
use bloomguard::config::{BackendConfig, SecretUrl};
use bloomguard::key::{Key, KeyForm};
use serde_json::json;

use crate::support::database::{Site, on_every_database};

pub(crate) const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

on_every_database!(
    integer_keys_bind_without_a_cast,
    text_keys_bind_without_a_cast,
    uuid_keys_bind_without_a_cast,
    bytes_keys_bind_without_a_cast,
    keys_of_an_integer_keyspace_bind_to_a_text_column,
    integer_beyond_every_column_is_absent,
    absent_row_is_none,
    columns_become_members_in_their_order,
    only_column_named_value_is_sent_as_it_is,
    first_of_several_rows_is_taken,
    wrong_table_is_invalid_and_says_why,
    two_columns_of_one_name_are_refused,
    query_without_exactly_one_parameter_is_refused,
    sql_in_a_key_is_only_a_key,
    trailing_semicolon_and_comments_do_no_harm,
    query_with_order_and_limit_and_with_is_taken,
    changed_table_is_noticed,
    unreachable_database_is_unavailable_and_not_an_absence,
    statement_cache_of_zero_works,
    fingerprint_tells_queries_apart,
    concurrent_lookups_share_few_connections,
);

pub(crate) fn config(url: &str, query: &str) -> BackendConfig {
    // Long, so that a busy machine fails no test that isn't about time.
    BackendConfig {
        url: SecretUrl::new(url.to_owned()),
        query: query.to_owned(),
        timeout: Duration::from_secs(60),
        ..Default::default()
    }
}

pub(crate) fn open(config: &BackendConfig, form: KeyForm) -> SqlBackend {
    SqlBackend::new(config, Arc::new(OnceLock::from(form))).unwrap()
}

pub(crate) fn backend(site: &Site, form: KeyForm, query: &str) -> SqlBackend {
    open(&config(&site.url(), &site.query(query)), form)
}

pub(crate) fn key(form: KeyForm, key: &str) -> Key {
    form.canonical(key.as_bytes()).unwrap()
}

pub(crate) async fn row(backend: &SqlBackend, form: KeyForm, raw: &str) -> serde_json::Value {
    let value = backend.fetch(&key(form, raw), &FetchContext::default()).await.unwrap().expect("a row");
    assert_eq!(value.content_type, ContentType::Json);
    serde_json::from_slice(&value.body).unwrap()
}

/// As sent: for what a JSON parser would hide.
pub(crate) async fn text(backend: &SqlBackend, form: KeyForm, raw: &str) -> String {
    let value = backend.fetch(&key(form, raw), &FetchContext::default()).await.unwrap().expect("a row");
    String::from_utf8(value.body.to_vec()).unwrap()
}

pub(crate) async fn fetch(backend: &SqlBackend, raw: &str) -> Result<Option<Value>, BackendError> {
    backend.fetch(&key(KeyForm::Text, raw), &FetchContext::default()).await
}

async fn integer_keys_bind_without_a_cast(site: Site) {
    for kind in ["SMALLINT", "INTEGER", "BIGINT", "NUMERIC"] {
        site.run(&format!(
            "CREATE TABLE t_{kind} (id {kind} PRIMARY KEY, name TEXT); INSERT INTO t_{kind} VALUES (42, \
            'Ada'), (-7, 'Bo')"
        ))
        .await;
        let backend = backend(&site, KeyForm::Integer, &format!("SELECT name FROM t_{kind} WHERE id = $1"));
        assert_eq!(row(&backend, KeyForm::Integer, "042").await, json!({"name": "Ada"}), "{kind}");
        assert_eq!(row(&backend, KeyForm::Integer, "-7").await, json!({"name": "Bo"}), "{kind}");
        // Beyond int2 and int4, where the column is one.
        assert_eq!(
            backend.fetch(&key(KeyForm::Integer, "5000000000"), &FetchContext::default()).await.unwrap(),
            None,
            "{kind}"
        );
    }
}

async fn text_keys_bind_without_a_cast(site: Site) {
    for kind in ["TEXT", "VARCHAR(40)"] {
        site.run(&format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (id {kind} PRIMARY KEY, n INTEGER); INSERT INTO t VALUES \
                ('straße/é', 1), ('042', 2)"
        ))
        .await;
        let backend = backend(&site, KeyForm::Text, "SELECT n FROM t WHERE id = $1");
        assert_eq!(row(&backend, KeyForm::Text, "straße/é").await, json!({"n": 1}));
        assert_eq!(row(&backend, KeyForm::Text, "042").await, json!({"n": 2}));
        assert_eq!(fetch(&backend, "42").await.unwrap(), None);
    }
}

async fn uuid_keys_bind_without_a_cast(site: Site) {
    site.run(&format!("CREATE TABLE t (id UUID PRIMARY KEY, n INTEGER); INSERT INTO t VALUES ('{UUID}', 1)")).await;
    let backend = backend(&site, KeyForm::Uuid, "SELECT id, n FROM t WHERE id = $1");
    assert_eq!(
        row(&backend, KeyForm::Uuid, &format!("{{{}}}", UUID.to_uppercase())).await,
        json!({"id": UUID, "n": 1})
    );
    assert_eq!(
        backend
            .fetch(&key(KeyForm::Uuid, "00000000-0000-0000-0000-000000000000"), &FetchContext::default())
            .await
            .unwrap(),
        None
    );
}

async fn bytes_keys_bind_without_a_cast(site: Site) {
    let (kind, literal) = if site.is_postgres() { ("BYTEA", r"'\x00ff'") } else { ("BLOB", "x'00ff'") };
    site.run(&format!("CREATE TABLE t (id {kind} PRIMARY KEY, n INTEGER); INSERT INTO t VALUES ({literal}, 1)")).await;
    let backend = backend(&site, KeyForm::Bytes, "SELECT id, n FROM t WHERE id = $1");
    let value = backend
        .fetch(&KeyForm::Bytes.canonical(b"\x00\xff").unwrap(), &FetchContext::default())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(value.body, r#"{"id":"AP8=","n":1}"#);
}

async fn keys_of_an_integer_keyspace_bind_to_a_text_column(site: Site) {
    site.run("CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER); INSERT INTO t VALUES ('42', 1)").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT n FROM t WHERE id = $1");
    assert_eq!(row(&backend, KeyForm::Integer, "42").await, json!({"n": 1}));
}

async fn integer_beyond_every_column_is_absent(site: Site) {
    site.run("CREATE TABLE t (id BIGINT PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (9223372036854775807, 1)").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT n FROM t WHERE id = $1");
    assert_eq!(row(&backend, KeyForm::Integer, "9223372036854775807").await, json!({"n": 1}));
    for beyond in ["9223372036854775808", "18446744073709551615"] {
        assert_eq!(backend.fetch(&key(KeyForm::Integer, beyond), &FetchContext::default()).await.unwrap(), None);
    }
}

async fn absent_row_is_none(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT n FROM t WHERE id = $1");
    assert_eq!(backend.fetch(&key(KeyForm::Integer, "1"), &FetchContext::default()).await.unwrap(), None);
}

async fn columns_become_members_in_their_order(site: Site) {
    site.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, \"z \"\"q\"\"\" TEXT, big BIGINT, yes BOOLEAN, no BOOLEAN, price \
            DECIMAL(10, 2), half DOUBLE PRECISION, nil TEXT, doc JSON);
         INSERT INTO t VALUES (1, 'a \"quoted\" \\ line\nélan', 9007199254740993, true, false, 12.5, 0.1, NULL, \
         '{\"a\": [1.50, null]}')",
    )
    .await;
    let backend = backend(&site, KeyForm::Integer, "SELECT * FROM t WHERE id = $1");
    let price = if matches!(site, Site::Sqlite(_)) { "12.5" } else { "12.50" };
    assert_eq!(
        text(&backend, KeyForm::Integer, "1").await,
        format!(
            r#"{{"id":1,"z \"q\"":"a \"quoted\" \\ line\nélan","big":9007199254740993,"yes":true,"no":false,"price":{price},"half":0.1,"nil":null,"doc":{{"a": [1.50, null]}}}}"#
        )
    );
}

async fn only_column_named_value_is_sent_as_it_is(site: Site) {
    let (kind, literal) = if site.is_postgres() { ("BYTEA", r"'\x00ff'") } else { ("BLOB", "x'00ff'") };
    site.run(&format!(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, t TEXT, n BIGINT, b {kind}, doc JSON);
         INSERT INTO t VALUES (1, 'plain \"text\"', 9007199254740993, {literal}, '{{\"a\": 1}}'), (2, NULL, NULL, \
         NULL, NULL), (3, '', 0, {literal}, '[]')"
    ))
    .await;
    let expected: [(&str, &[u8]); 4] =
        [("t", b"plain \"text\""), ("n", b"9007199254740993"), ("b", b"\x00\xff"), ("doc", b"{\"a\": 1}")];
    for (column, bytes) in expected {
        let backend = backend(&site, KeyForm::Integer, &format!("SELECT {column} AS value FROM t WHERE id = $1"));
        let fetched = |raw| {
            let key = key(KeyForm::Integer, raw);
            let backend = &backend;
            async move { backend.fetch(&key, &FetchContext::default()).await.unwrap() }
        };
        assert_eq!(
            fetched("1").await,
            Some(Value { body: bytes.to_vec().into(), content_type: ContentType::OctetStream }),
            "{column}"
        );
        // The row exists: an empty value is not an absence.
        assert_eq!(fetched("2").await.unwrap().body, "", "{column}");
        assert_eq!(fetched("4").await, None, "{column}");
    }
}

async fn first_of_several_rows_is_taken(site: Site) {
    site.run("CREATE TABLE t (id INTEGER, n INTEGER); INSERT INTO t VALUES (1, 10), (1, 30), (1, 20)").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT n FROM t WHERE id = $1 ORDER BY n DESC");
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"n": 30}));
}

async fn wrong_table_is_invalid_and_says_why(site: Site) {
    let backend = backend(&site, KeyForm::Text, "SELECT name FROM userz WHERE id = $1");
    let Err(BackendError::Invalid(message)) = fetch(&backend, "1").await else { panic!("not refused") };
    assert_eq!(message, site.no_table("userz"));
    // It is asked anew each time: a table made later is found.
    site.run("CREATE TABLE userz (id TEXT, name TEXT); INSERT INTO userz VALUES ('1', 'Ada')").await;
    assert_eq!(row(&backend, KeyForm::Text, "1").await, json!({"name": "Ada"}));
}

async fn two_columns_of_one_name_are_refused(site: Site) {
    site.run("CREATE TABLE t (id INTEGER, n INTEGER)").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT a.n, b.n FROM t a JOIN t b ON a.id = b.id WHERE a.id = $1");
    let Err(BackendError::Invalid(message)) =
        backend.fetch(&key(KeyForm::Integer, "1"), &FetchContext::default()).await
    else {
        panic!("not refused")
    };
    assert!(message.contains("two columns named \"n\""), "{message}");
}

async fn query_without_exactly_one_parameter_is_refused(site: Site) {
    site.run("CREATE TABLE t (id TEXT, n INTEGER)").await;
    for query in ["SELECT n FROM t", "SELECT n FROM t WHERE id = $1 AND n = $2", "SELECT n FROM t WHERE id = $2"] {
        let refused =
            match SqlBackend::new(&config(&site.url(), &site.query(query)), Arc::new(OnceLock::from(KeyForm::Text))) {
                Ok(backend) => fetch(&backend, "1").await.unwrap_err(),
                Err(error) => error,
            };
        let BackendError::Invalid(message) = refused else { panic!("{refused}") };
        assert!(
            message.starts_with("the query can't be used: ") || message.contains("could not determine data type"),
            "{message}"
        );
    }
}

async fn sql_in_a_key_is_only_a_key(site: Site) {
    let hostile = ["1; DROP TABLE t", "' OR '1'='1", "\"; --", "$1", "?", "%", "\\", "../../admin"];
    site.run("CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER); INSERT INTO t VALUES ('1', 1)").await;
    let backend = backend(&site, KeyForm::Text, "SELECT n FROM t WHERE id = $1");
    for key in hostile {
        assert_eq!(fetch(&backend, key).await.unwrap(), None, "{key}");
    }
    for key in hostile {
        site.run(&format!("INSERT INTO t VALUES ('{}', 2)", key.replace('\'', "''"))).await;
        assert_eq!(row(&backend, KeyForm::Text, key).await, json!({"n": 2}), "{key}");
    }
    assert_eq!(row(&backend, KeyForm::Text, "1").await, json!({"n": 1}));
}

async fn trailing_semicolon_and_comments_do_no_harm(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 1)").await;
    for tail in [";", " -- the row", "; -- the row\n;", " /* ; */"] {
        let backend = backend(&site, KeyForm::Integer, &format!("-- by id\nSELECT n FROM t WHERE id = $1{tail}"));
        assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"n": 1}), "{tail}");
    }
}

async fn query_with_order_and_limit_and_with_is_taken(site: Site) {
    site.run("CREATE TABLE t (id INTEGER, n INTEGER); INSERT INTO t VALUES (1, 1), (1, 2)").await;
    let query = "WITH latest AS (SELECT id, n FROM t) SELECT max(n) AS most, count(*) AS \"all\" FROM latest WHERE id \
        = $1 GROUP BY id ORDER BY 1 LIMIT 1";
    let backend = backend(&site, KeyForm::Integer, query);
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"most": 2, "all": 2}));
}

async fn changed_table_is_noticed(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'x')").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT * FROM t WHERE id = $1");
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1, "a": "x"}));
    site.run("ALTER TABLE t ADD COLUMN b TEXT DEFAULT 'y'").await;
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1, "a": "x", "b": "y"}));
    site.run("ALTER TABLE t DROP COLUMN a").await;
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1, "b": "y"}));
    site.run("DROP TABLE t; CREATE TABLE t (id TEXT PRIMARY KEY, c TEXT); INSERT INTO t VALUES ('1', 'z')").await;
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": "1", "c": "z"}));
}

/// Invariant: failure-is-no-absence
async fn unreachable_database_is_unavailable_and_not_an_absence(site: Site) {
    let started = Instant::now();
    let backend =
        open(&config(&site.unreachable_url(), &site.query("SELECT n FROM t WHERE id = $1")), KeyForm::Integer);
    for _ in 0..3 {
        let error = backend.fetch(&key(KeyForm::Integer, "1"), &FetchContext::default()).await.unwrap_err();
        assert!(matches!(error, BackendError::Unavailable(_)), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    assert!(started.elapsed() < Duration::from_secs(45), "a refusal is an answer at once");
    assert!(!site.unreachable_exists(), "nothing was created");
}

async fn statement_cache_of_zero_works(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 1)").await;
    let mut config = config(&site.url(), &site.query("SELECT n FROM t WHERE id = $1"));
    config.statement_cache = 0;
    let backend = open(&config, KeyForm::Integer);
    for _ in 0..3 {
        assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"n": 1}));
        assert_eq!(backend.fetch(&key(KeyForm::Integer, "2"), &FetchContext::default()).await.unwrap(), None);
    }
}

async fn fingerprint_tells_queries_apart(site: Site) {
    let fingerprint = |query: &str| backend(&site, KeyForm::Text, query).fingerprint();
    assert_eq!(fingerprint("SELECT a FROM t WHERE id = $1"), fingerprint("SELECT a FROM t WHERE id = $1"));
    assert_ne!(fingerprint("SELECT a FROM t WHERE id = $1"), fingerprint("SELECT b FROM t WHERE id = $1"));
}

async fn concurrent_lookups_share_few_connections(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 1)").await;
    let mut config = config(&site.url(), &site.query("SELECT n FROM t WHERE id = $1"));
    config.max_concurrency = 2;
    let backend = Arc::new(open(&config, KeyForm::Integer));
    let lookups: Vec<_> = (0..40)
        .map(|i| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move {
                backend
                    .fetch(&key(KeyForm::Integer, if i % 2 == 0 { "1" } else { "2" }), &FetchContext::default())
                    .await
                    .unwrap()
                    .is_some()
            })
        })
        .collect();
    for (i, lookup) in lookups.into_iter().enumerate() {
        assert_eq!(lookup.await.unwrap(), i % 2 == 0);
    }
    if let Some(database) = site.database() {
        let open: usize = database
            .psql(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = \
                'bloomguard'",
            )
            .parse()
            .unwrap();
        assert!((1..=2).contains(&open), "{open} connections");
    }
}

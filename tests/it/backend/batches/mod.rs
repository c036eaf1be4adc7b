//! Many keys at once: the same answers as for each alone, and where the database can, by one statement.

use bloomguard::backend::{Backend, BackendError, ContentType, FetchContext, SqlBackend, Value};
use bloomguard::key::{Key, KeyForm};

use crate::backend::contract::{UUID, backend, config, key, open};
use crate::support::database::{Site, on_every_database};

mod statements;
mod types;

on_every_database!(
    many_keys_are_answered_as_each_alone,
    keys_of_every_form_are_found_together,
    raw_values_are_the_same_together,
    first_of_several_rows_is_taken_for_each_key,
    a_key_that_fails_the_statement_fails_alone,
    a_changed_table_is_noticed_by_batches_as_well,
    batches_need_no_kept_statement,
    ended_sessions_cost_no_batch,
    more_keys_than_a_statement_takes_are_all_found,
    rows_without_room_are_neither_kept_nor_absent,
);

type Answer = Result<Option<Value>, BackendError>;

fn keys(form: KeyForm, raw: &[&str]) -> Vec<Key> {
    raw.iter().map(|raw| key(form, raw)).collect()
}

/// Errors by their words: they are no values to compare.
fn told(answer: &Answer) -> String {
    match answer {
        Ok(Some(value)) if value.content_type == ContentType::Json => {
            std::str::from_utf8(&value.body).unwrap().to_owned()
        }
        Ok(Some(value)) => format!("{:?} {:?}", value.content_type, value.body),
        Ok(None) => "absent".into(),
        Err(error) => format!("{error}"),
    }
}

/// What each key gets in a batch, after a check that it gets the same alone.
async fn together(backend: &SqlBackend, form: KeyForm, raw: &[&str]) -> Vec<String> {
    let keys = keys(form, raw);
    let many: Vec<String> = backend.fetch_many(&keys, &FetchContext::default()).await.iter().map(told).collect();
    for ((key, raw), many) in keys.iter().zip(raw).zip(&many) {
        assert_eq!(*many, told(&backend.fetch(key, &FetchContext::default()).await), "{raw}");
    }
    assert_eq!(many.len(), keys.len());
    many
}

/// Invariant: batch-equals-single
async fn many_keys_are_answered_as_each_alone(site: Site) {
    site.run(
        "CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER, nil TEXT); INSERT INTO t VALUES ('a', 1, NULL), \
        ('é/''\"', 2, NULL), ('{\"x\",NULL}', 3, '')",
    )
    .await;
    let backend = backend(&site, KeyForm::Text, "SELECT n, nil FROM t WHERE id = $1 -- by $1");
    let hostile = ["a", "b", "é/'\"", "{\"x\",NULL}", "a", "'); DROP TABLE t; --", "NULL", "$1", "?", "{}", "\\", ","];
    let told = together(&backend, KeyForm::Text, &hostile).await;
    let (one, two, three) = (r#"{"n":1,"nil":null}"#, r#"{"n":2,"nil":null}"#, r#"{"n":3,"nil":""}"#);
    assert_eq!(told[..5], [one, "absent", two, three, one]);
    assert!(told[5..].iter().all(|told| told == "absent"), "{told:?}");
    assert!(backend.fetch_many(&[], &FetchContext::default()).await.is_empty());
}

async fn keys_of_every_form_are_found_together(site: Site) {
    for (kind, form, present, absent) in [
        ("SMALLINT", KeyForm::Integer, ["7", "-7"], ["8", "5000000000", "18446744073709551615"]),
        ("BIGINT", KeyForm::Integer, ["9223372036854775807", "-1"], ["8", "9223372036854775808", "0"]),
        ("NUMERIC", KeyForm::Integer, ["7", "-7"], ["8", "5000000000", "18446744073709551615"]),
        ("VARCHAR(40)", KeyForm::Text, ["straße", "042"], ["42", "Straße", "042 "]),
        ("VARCHAR(40)", KeyForm::Integer, ["42", "7"], ["8", "420", "-42"]),
        (
            "UUID",
            KeyForm::Uuid,
            [UUID, "67e55044-10b1-426f-9247-000000000000"],
            [
                "00000000-0000-0000-0000-000000000000",
                "67e55044-10b1-426f-9247-000000000001",
                "67e55044-10b1-426f-9247-000000000002",
            ],
        ),
    ] {
        let [first, second] = present;
        site.run(&format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (id {kind} PRIMARY KEY, n INTEGER); INSERT INTO t \
            VALUES ('{first}', 1), ('{second}', 2)"
        ))
        .await;
        let backend = backend(&site, form, "SELECT n FROM t WHERE id = $1");
        let told = together(&backend, form, &[first, absent[0], second, absent[1], first, absent[2]]).await;
        let (one, two, none) = (r#"{"n":1}"#, r#"{"n":2}"#, "absent");
        assert_eq!(told, [one, none, two, none, one, none], "{kind} {form}");
    }
    let (kind, literal) = if site.is_postgres() { ("BYTEA", r"'\x00ff'") } else { ("BLOB", "x'00ff'") };
    site.run(&format!("CREATE TABLE b (id {kind} PRIMARY KEY, n INTEGER); INSERT INTO b VALUES ({literal}, 1)")).await;
    let backend = backend(&site, KeyForm::Bytes, "SELECT id, n FROM b WHERE id = $1");
    let keys = [&b"\x00\xff"[..], b"\x00", b"\x00\xff"].map(|raw| KeyForm::Bytes.canonical(raw).unwrap());
    let many: Vec<String> = backend.fetch_many(&keys, &FetchContext::default()).await.iter().map(told).collect();
    assert_eq!(many, [r#"{"id":"AP8=","n":1}"#, "absent", r#"{"id":"AP8=","n":1}"#]);
}

async fn raw_values_are_the_same_together(site: Site) {
    let (kind, literal) = if site.is_postgres() { ("BYTEA", r"'\x00ff'") } else { ("BLOB", "x'00ff'") };
    site.run(&format!(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, t TEXT, b {kind}); INSERT INTO t VALUES (1, 'plain', {literal}), (2, \
            NULL, NULL)"
    ))
    .await;
    for (column, body) in [("t", "b\"plain\""), ("b", "b\"\\0\\xff\"")] {
        let backend = backend(&site, KeyForm::Integer, &format!("SELECT {column} AS value FROM t WHERE id = $1"));
        let told = together(&backend, KeyForm::Integer, &["1", "2", "3", "1"]).await;
        let found = format!("OctetStream {body}");
        assert_eq!(told, [found.as_str(), "OctetStream b\"\"", "absent", found.as_str()]);
    }
}

async fn first_of_several_rows_is_taken_for_each_key(site: Site) {
    site.run("CREATE TABLE t (id INTEGER, n INTEGER); INSERT INTO t VALUES (1, 10), (1, 30), (1, 20), (2, 5), (2, 7)")
        .await;
    for (query, expected) in [
        ("SELECT n FROM t WHERE id = $1 ORDER BY n DESC", ["30", "7"]),
        ("SELECT n FROM t WHERE id = $1 ORDER BY n LIMIT 1", ["10", "5"]),
        (
            "WITH l AS (SELECT id, n FROM t) SELECT max(n) AS n FROM l WHERE id = $1 GROUP BY id ORDER BY 1 LIMIT 1",
            ["30", "7"],
        ),
    ] {
        let told = together(&backend(&site, KeyForm::Integer, query), KeyForm::Integer, &["2", "3", "1"]).await;
        let row = |n: &str| format!("{{\"n\":{n}}}");
        assert_eq!(told, [row(expected[1]), "absent".into(), row(expected[0])], "{query}");
    }
}

/// Invariant: batch-equals-single
async fn a_key_that_fails_the_statement_fails_alone(site: Site) {
    site.run("CREATE TABLE t (id TEXT PRIMARY KEY, n BIGINT); INSERT INTO t VALUES ('a', 1), ('b', 2), ('bad', 3)")
        .await;
    // A sum beyond 64 bits fails on each of them.
    let query = "SELECT n, 9223372036854775807 + (CASE WHEN id = 'bad' THEN 1 ELSE 0 END) AS sum FROM t WHERE id = $1";
    let query = if site.is_sqlite() {
        query.replace("9223372036854775807 +", "abs(-9223372036854775807 -").replace("END)", "END))")
    } else {
        query.into()
    };
    let backend = backend(&site, KeyForm::Text, &query);
    let told = together(&backend, KeyForm::Text, &["a", "bad", "none", "b", "bad", "a"]).await;
    for (index, row) in told.iter().enumerate() {
        let expected = match index {
            1 | 4 => row.starts_with("the backend's answer can't be used: SQL"),
            2 => row == "absent",
            _ => row.contains("9223372036854775807"),
        };
        assert!(expected, "{index}: {row}");
    }
}

async fn a_changed_table_is_noticed_by_batches_as_well(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y')").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT * FROM t WHERE id = $1");
    assert_eq!(together(&backend, KeyForm::Integer, &["1", "2"]).await[0], r#"{"id":1,"a":"x"}"#);
    site.run("ALTER TABLE t ADD COLUMN b TEXT DEFAULT 'z'").await;
    assert_eq!(together(&backend, KeyForm::Integer, &["1", "2"]).await[1], r#"{"id":2,"a":"y","b":"z"}"#);
    site.run("DROP TABLE t; CREATE TABLE t (id TEXT PRIMARY KEY, c TEXT); INSERT INTO t VALUES ('1', 'z')").await;
    let expected = [r#"{"id":"1","c":"z"}"#, "absent"];
    let many = backend.fetch_many(&keys(KeyForm::Integer, &["1", "2"]), &FetchContext::default()).await;
    assert_eq!(many.iter().map(told).collect::<Vec<_>>(), expected);
}

async fn batches_need_no_kept_statement(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 1), (2, 2)").await;
    let mut config = config(&site.url(), &site.query("SELECT n FROM t WHERE id = $1"));
    config.statement_cache = 0;
    let backend = open(&config, KeyForm::Integer);
    for _ in 0..3 {
        let told = together(&backend, KeyForm::Integer, &["1", "3", "2"]).await;
        assert_eq!(told, [r#"{"n":1}"#, "absent", r#"{"n":2}"#]);
    }
}

async fn ended_sessions_cost_no_batch(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 1), (2, 2)").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT n FROM t WHERE id = $1");
    for _ in 0..3 {
        let many = backend.fetch_many(&keys(KeyForm::Integer, &["1", "3", "2"]), &FetchContext::default()).await;
        let expected = [r#"{"n":1}"#, "absent", r#"{"n":2}"#];
        assert_eq!(many.iter().map(told).collect::<Vec<_>>(), expected);
        site.end_sessions();
    }
}

async fn more_keys_than_a_statement_takes_are_all_found(site: Site) {
    site.run(&format!("CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t {}", site.series(300))).await;
    let backend = backend(&site, KeyForm::Integer, "SELECT id FROM t WHERE id = $1");
    let many: Vec<Key> = (1..=250).map(|id| key(KeyForm::Integer, &id.to_string())).collect();
    for size in [1, 2, 3, 8, 9, 32, 33, 100, 101, 250] {
        let answers = backend.fetch_many(&many[..size], &FetchContext::default()).await;
        assert!(answers.len() == size && answers.iter().all(|row| matches!(row, Ok(Some(_)))), "{size}");
    }
}

/// Invariant: bounded-memory
async fn rows_without_room_are_neither_kept_nor_absent(site: Site) {
    let name = "n".repeat(1000);
    site.run(&format!(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO t SELECT i, '{name}' FROM ({}) AS n",
        site.series(20)
    ))
    .await;
    let many = keys(KeyForm::Integer, &["1", "99", "2", "3", "4", "5", "6", "98"]);
    // MySQL is asked the second for one key at a time, and the third fails for one of them.
    for query in [
        "SELECT id, name FROM t WHERE id = $1",
        "SELECT id, name FROM t WHERE id = $1 UNION SELECT id, name FROM t WHERE id < 0",
        "SELECT name, 9223372036854775807 + (CASE WHEN id = 6 THEN 1 ELSE 0 END) AS sum FROM t WHERE id = $1",
    ] {
        let backend = backend(&site, KeyForm::Integer, query);
        for (room, most) in [(2500, 3), (0, 1), (1_000_000, 6)] {
            let context = FetchContext { room: Some(room), ..FetchContext::default() };
            let answers = backend.fetch_many(&many, &context).await;
            let kept = answers.iter().filter(|row| matches!(row, Ok(Some(_)))).count();
            assert!((1..=most).contains(&kept), "{query}, {room}: {kept}");
            for (index, row) in answers.iter().enumerate() {
                let expected = match row {
                    Ok(None) => [1, 7].contains(&index),
                    Err(BackendError::NoRoom) => most < 6,
                    Err(BackendError::Invalid(_)) => index == 6,
                    other => matches!(other, Ok(Some(_))),
                };
                assert!(expected, "{query}, {room}, {index}: {row:?}");
            }
        }
    }
}

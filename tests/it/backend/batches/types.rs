//! Rows and keys of every type, many together.

use bloomguard::backend::Backend;
use bloomguard::key::KeyForm;

use super::together;
use crate::backend::contract::{UUID, config, open};
use crate::backend::mysql::EVERY_TYPE;
use crate::support::mariadb;
use crate::support::postgres::Database;

/// Invariant: batch-equals-single
#[tokio::test]
async fn every_type_of_postgresql_is_the_same_together() {
    let database = Database::create();
    database.psql(&format!(
        "CREATE TYPE mood AS ENUM ('happy', 'sad'); CREATE DOMAIN photo AS bytea; CREATE DOMAIN code AS varchar(10); \
            CREATE EXTENSION IF NOT EXISTS citext;
         CREATE TABLE t (id int PRIMARY KEY, amount numeric, at timestamptz, naive timestamp, day date, doc json, bin \
         jsonb, u uuid, b bytea, p photo,
                         tags text[], m mood, f real, d double precision, yes bool, i interval, ip inet, nul bytea, c \
                         code, pad char(8), n name, ci citext);
         INSERT INTO t VALUES (1, 123456789012345678901234567890.123456789, '2024-05-06 07:08:09.123+02', '2024-05-06 \
         07:08:09', '2024-05-06',
                         '{{\"a\": 1.50}}', '{{\"b\": [null, true]}}', '{UUID}', '\\x{}', '\\xff', '{{a,NULL,\"c \
                         d\"}}', 'happy', 1.5, 'NaN', true, '1 day', '10.0.0.1', NULL,
                         'x1', 'pad', 'nm', 'Ci')",
        "ab".repeat(100)
    ));
    let url = database.url();
    for (columns, condition, form, present, absent) in [
        ("*", "id = $1", KeyForm::Integer, "1", "2"),
        // Without bytes the row is rendered whole.
        ("amount, at, doc, tags, m, d, yes, i, nul IS NULL AS none", "id = $1", KeyForm::Integer, "1", "2"),
        ("*", "amount = $1", KeyForm::Text, "123456789012345678901234567890.123456789", "1"),
        ("id", "m = $1", KeyForm::Text, "happy", "sad"),
        ("id", "c = $1", KeyForm::Text, "x1", "x2"),
        ("id", "pad = $1", KeyForm::Text, "pad", "pud"),
        ("id", "n = $1", KeyForm::Text, "nm", "mn"),
        ("id", "ci = $1", KeyForm::TextCi, "ci", "ic"),
        ("amount AS value", "u = $1", KeyForm::Uuid, UUID, "00000000-0000-0000-0000-000000000000"),
        ("id", "b = $1", KeyForm::Bytes, "x", "y"),
    ] {
        let backend = open(&config(&url, &format!("SELECT {columns} FROM t WHERE {condition}")), form);
        let told = together(&backend, form, &[absent, present, absent, present]).await;
        assert_eq!(backend.batch_limit(), 100, "{condition}");
        assert_eq!((&told[0], &told[1]), (&told[2], &told[3]));
        assert_eq!(told[0], "absent", "{condition}");
        assert!(form == KeyForm::Bytes || told[1] != "absent", "{condition}");
    }
    // No label of the enum: the server refuses the whole array.
    let backend = open(&config(&url, "SELECT id FROM t WHERE m = $1"), KeyForm::Text);
    let told = together(&backend, KeyForm::Text, &["happy", "angry", "sad"]).await;
    assert_eq!((told[0].as_str(), told[2].as_str()), ("{\"id\":1}", "absent"));
    assert!(told[1].contains("22P02"), "{told:?}");
    // Nor can such a key be sent, or such a query be asked at all.
    let backend = open(&config(&url, "SELECT id FROM t WHERE id = $1"), KeyForm::Text);
    let told = together(&backend, KeyForm::Text, &["1", "042", "abc", "2"]).await;
    assert!(
        told[0].starts_with('{') && told[1].contains("INT4") && told[2].contains("INT4") && told[3] == "absent",
        "{told:?}"
    );
}

/// Invariant: batch-equals-single
#[tokio::test]
async fn every_type_of_mysql_is_the_same_together() {
    let database = mariadb::Database::create();
    database.sql(EVERY_TYPE);
    database.sql(
        "SET sql_mode = ''; INSERT INTO t (id, yes, seven, flag, f, e) VALUES (2, false, 0, b'0', 1e20, 'no \
        label'), (3, 1, 1, b'1', -0.0, 'happy')",
    );
    let columns = database
        .sql("SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 't'");
    let lists = [
        "*",
        "*, yes + 1 AS more, JSON_EXTRACT(doc, '$.a') AS a, COUNT(*) AS n, NULL AS nothing, CAST(u AS CHAR) AS txt, \
            IF(id = 1, yes, NULL) AS maybe",
    ];
    let raw: Vec<String> = columns.lines().map(|column| format!("{column} AS value")).collect();
    for list in lists.into_iter().chain(raw.iter().map(String::as_str)) {
        let group = if list.contains("COUNT") { " GROUP BY id" } else { "" };
        let backend =
            open(&config(&database.url(), &format!("SELECT {list} FROM t WHERE id = ?{group}")), KeyForm::Integer);
        let told = together(&backend, KeyForm::Integer, &["1", "4", "2", "3", "1"]).await;
        assert_eq!((told[1].as_str(), &told[4]), ("absent", &told[0]), "{list}");
        assert_eq!(backend.batch_limit(), 32, "{list}");
    }
}

#[tokio::test]
async fn every_key_of_mysql_is_the_same_together() {
    let database = mariadb::Database::create();
    database.sql(&format!(
        "CREATE TABLE t (id int PRIMARY KEY, raw binary(16) UNIQUE, u uuid, code varchar(20), digits varchar(20), d \
            decimal(10,2), ub bigint unsigned, general varchar(20) COLLATE utf8mb4_general_ci);
         INSERT INTO t VALUES (1, UNHEX(REPLACE('{UUID}', '-', '')), '{UUID}', 'c1', '42abc', 1.5, \
         18446744073709551615, 'Foo'), (2, UNHEX('01'), NULL, 'c2', '42', 2.5, 0, 'Bar')"
    ));
    let nil = "00000000-0000-0000-0000-000000000000";
    for (column, form, raw, expected) in [
        ("raw", KeyForm::Uuid, [UUID, nil, UUID], ["{\"id\":1}", "absent", "{\"id\":1}"]),
        ("u", KeyForm::Uuid, [nil, UUID, nil], ["absent", "{\"id\":1}", "absent"]),
        // To the server '42abc' = 42.
        ("digits", KeyForm::Integer, ["42", "43", "42"], ["{\"id\":2}", "absent", "{\"id\":2}"]),
        ("d", KeyForm::Text, ["2.5", "1.5", "3"], ["{\"id\":2}", "{\"id\":1}", "absent"]),
        ("ub", KeyForm::Integer, ["18446744073709551615", "-1", "0"], ["{\"id\":1}", "absent", "{\"id\":2}"]),
        ("general", KeyForm::Text, ["foo", "FOO", "f"], ["{\"id\":1}", "{\"id\":1}", "absent"]),
    ] {
        let backend = open(&config(&database.url(), &format!("SELECT id FROM t WHERE {column} = ?")), form);
        assert_eq!(together(&backend, form, &raw).await, expected, "{column}");
        assert_eq!(backend.batch_limit(), 32, "{column}");
    }
    let backend = open(&config(&database.url(), "SELECT id FROM t WHERE id = ?"), KeyForm::Text);
    let told = together(&backend, KeyForm::Text, &["1", "01", "2", "x"]).await;
    assert!(told[1].contains("can't be an integer") && told[3].contains("can't be an integer"), "{told:?}");
    for query in
        ["SELECT id, ? AS k FROM t WHERE id > 0", "SELECT id FROM t WHERE id = ? UNION SELECT 9 FROM t WHERE id = 0"]
    {
        let backend = open(&config(&database.url(), query), KeyForm::Integer);
        together(&backend, KeyForm::Integer, &["1", "3", "2"]).await;
        assert_eq!(backend.batch_limit(), 1, "{query}");
    }
}

#[tokio::test]
async fn a_column_of_another_type_is_read_as_what_it_is_now() {
    let database = mariadb::Database::create();
    database.sql("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 7), (2, 8)");
    let backend = open(&config(&database.url(), "SELECT n FROM t WHERE id = ?"), KeyForm::Integer);
    assert_eq!(together(&backend, KeyForm::Integer, &["1", "2"]).await, ["{\"n\":7}", "{\"n\":8}"]);
    for (kind, expected) in
        [("varchar(9)", ["{\"n\":\"7\"}", "{\"n\":\"8\"}"]), ("decimal(3,1)", ["{\"n\":7.0}", "{\"n\":8.0}"])]
    {
        database.sql(&format!("ALTER TABLE t MODIFY n {kind}"));
        assert_eq!(together(&backend, KeyForm::Integer, &["1", "2"]).await, expected, "{kind}");
    }
}

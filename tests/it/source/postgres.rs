//! Scans of PostgreSQL: by COPY, by SELECT where that is refused, and never a part of the keys for all of them.

use bloomguard::config::{SecretUrl, SourceConfig};
use bloomguard::key::KeyForm;
use bloomguard::source::{BATCH_KEYS, SourceError, SqlSource};

use crate::support::postgres::Database;
use crate::support::postgres_proxy::{COPY_DATA, Fate, Message, PostgresProxy, QUERY};
use crate::support::scan::{scan, sorted};

const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";
const COPIES: &str = "COPY (";
const SELECTS: &str = "SELECT keys.bloomguard_key";

fn source(url: &str, query: &str) -> SqlSource {
    let config = SourceConfig { query: query.to_owned(), ..Default::default() };
    SqlSource::new(&config, &SecretUrl::new(url.to_owned())).unwrap()
}

/// As a server does that has never heard of COPY.
fn refuse_copy(from_client: bool, message: &mut Message) -> Fate {
    if from_client && message.kind == QUERY && message.body.starts_with(b"COPY") {
        message.body[..4].copy_from_slice(b"KOPY");
    }
    Fate::Pass
}

/// Invariant: one-key-one-form
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_every_type_are_the_same_by_copy_and_by_select() {
    let database = Database::create();
    database.psql(&format!(
        "CREATE EXTENSION citext; CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN code AS varchar(9); CREATE \
            DOMAIN short AS smallint;
         CREATE TABLE t (i2 smallint, i4 int, i8 bigint, n numeric, scaled numeric(30, 10), x text, v varchar(9), \
         name name, padded char(8),
                         ci citext, u uuid, b bytea, mood mood, code code, short short);
         INSERT INTO t VALUES
           (-32768, 2147483647, -9223372036854775808, 120000.500, 0.0001, 'É Straße', 'a b', 'pg', 'ab', 'Foo', \
           '{UUID}', '\\x00ff', 'happy', 'c1', 7),
           (32767, 0, 9223372036854775807, -42.00, 12345678901234567890, ' 042 ', '042', 'n', 'x y', 'FOO', '{}', \
           '\\x0a', 'sad', 'c2', -7)",
        UUID.to_uppercase().replace('6', "7")
    ));
    database.psql("INSERT INTO t SELECT FROM generate_series(1, 3)");
    let (whole, refusing) = (
        PostgresProxy::start(&database.address(), |_, _| Fate::Pass).await,
        PostgresProxy::start(&database.address(), refuse_copy).await,
    );
    let columns = [
        ("i2", KeyForm::Integer, ["-32768", "32767"]),
        ("i4", KeyForm::Integer, ["0", "2147483647"]),
        ("i8", KeyForm::Integer, ["-9223372036854775808", "9223372036854775807"]),
        ("short", KeyForm::Integer, ["-7", "7"]),
        ("n", KeyForm::Text, ["-42", "120000.5"]),
        ("scaled", KeyForm::Text, ["0.0001", "12345678901234567890"]),
        ("x", KeyForm::Text, [" 042 ", r"\xc3\x89 Stra\xc3\x9fe"]),
        ("v", KeyForm::Text, ["042", "a b"]),
        ("name", KeyForm::Text, ["n", "pg"]),
        ("padded", KeyForm::Text, ["ab      ", "x y     "]),
        ("ci", KeyForm::TextCi, ["foo", "foo"]),
        ("ci", KeyForm::Text, ["FOO", "Foo"]),
        ("u", KeyForm::Uuid, [UUID, "77e55044-10b1-427f-9247-bb780e5fe0c8"]),
        ("b", KeyForm::Bytes, [r"\n", r"\x00\xff"]),
        ("mood", KeyForm::Text, ["happy", "sad"]),
        ("code", KeyForm::Text, ["c1", "c2"]),
    ];
    for (column, form, expected) in columns {
        let query = format!("SELECT {column}, n FROM t");
        assert_eq!(sorted(&source(&whole.url(&database.url()), &query), form).await, expected, "{column} by COPY");
        assert_eq!(sorted(&source(&refusing.url(&database.url()), &query), form).await, expected, "{column} by SELECT");
    }
    assert_eq!((whole.statements_with(COPIES), whole.statements_with(&format!("\0{SELECTS}"))), (columns.len(), 0));
    assert_eq!(
        (refusing.statements_with(COPIES), refusing.statements_with(&format!("\0{SELECTS}"))),
        (columns.len(), columns.len())
    );
}

/// Invariant: failure-is-no-absence
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_lacks_its_end_is_an_error_and_not_a_shorter_list() {
    let database = Database::create();
    let count = BATCH_KEYS + 10;
    let query = format!("SELECT i FROM generate_series(1, {count}) i");
    let trailer = |message: &Message| message.kind == COPY_DATA && message.body == [0xff, 0xff];
    for (what, broken) in [("swallowed", Fate::Swallow), ("cut", Fate::Cut)] {
        let proxy = PostgresProxy::start(
            &database.address(),
            move |_, message| if trailer(message) { broken } else { Fate::Pass },
        )
        .await;
        let ended = scan(&source(&proxy.url(&database.url()), &query), KeyForm::Integer).await;
        assert!(matches!(ended, Err(SourceError::Unavailable(_))), "{what}: {ended:?}");
        assert_eq!(proxy.statements_with(&format!("\0{SELECTS}")), 0, "{what}: keys were sent already");
    }
    let mut rows = 0;
    let cut_in_the_middle = move |_, message: &mut Message| {
        rows += usize::from(message.kind == COPY_DATA);
        if rows > count / 2 { Fate::Cut } else { Fate::Pass }
    };
    let proxy = PostgresProxy::start(&database.address(), cut_in_the_middle).await;
    let ended = scan(&source(&proxy.url(&database.url()), &query), KeyForm::Integer).await;
    assert!(matches!(ended, Err(SourceError::Unavailable(_))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_fails_among_its_rows_is_not_begun_anew_by_select() {
    let database = Database::create();
    let proxy = PostgresProxy::start(&database.address(), |_, _| Fate::Pass).await;
    let ended = scan(
        &source(&proxy.url(&database.url()), "SELECT 60 / (3 - i) FROM generate_series(1, 5) i"),
        KeyForm::Integer,
    )
    .await;
    assert!(matches!(&ended, Err(SourceError::Invalid(why)) if why.contains("22012")), "{ended:?}");
    assert_eq!((proxy.statements_with(COPIES), proxy.statements_with(&format!("\0{SELECTS}"))), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_none_fails_with_its_row() {
    let database = Database::create();
    let proxy = PostgresProxy::start(&database.address(), refuse_copy).await;
    for url in [database.url(), proxy.url(&database.url())] {
        let ended = scan(&source(&url, "VALUES (1::numeric), (NULL), ('NaN')"), KeyForm::Text).await;
        assert!(matches!(&ended, Err(SourceError::Invalid(why)) if why.starts_with("row 3: ")), "{ended:?}");
    }
}

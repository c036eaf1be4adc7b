//! A table of users, on any database, guarded.

use std::sync::LazyLock;

use chrono::Timelike;

use crate::support::app::TestApp;
use crate::support::config::{Config, Keyspace};
use crate::support::database::Site;

/// Users that exist: 1 to this number.
pub const USERS: u32 = 1000;

/// A database with a table `users` of [`USERS`] rows.
pub async fn site(site: Site) -> Site {
    let series = site.series(USERS as usize);
    let users = format!("SELECT i, 'User ' || i FROM ({series}) AS n");
    site.run(&format!("CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL); INSERT INTO users {users}"))
        .await;
    site
}

/// The keyspace of that table, without a canary.
pub fn config(url: &str) -> Config {
    Config::new().users(|keyspace| table(keyspace, url))
}

/// Makes this the keyspace of that table; any name will do.
pub fn table(keyspace: Keyspace, url: &str) -> Keyspace {
    let key = if url.starts_with("mysql:") { "?" } else { "$1" };
    // The default is two in the morning, which may lie within a test. All configurations of a run have the same
    // schedule: tests compare them.
    static FAR: LazyLock<u32> = LazyLock::new(|| (chrono::Utc::now().hour() + 12) % 24);
    keyspace
        .set("freshness", "announced")
        .times("10s", "5s", "5s")
        .set("rebuild.schedule", format!("0 {} * * *", *FAR))
        .backend(url, &format!("SELECT id, name FROM users WHERE id = {key}"))
        .source_sql("SELECT id FROM users")
        .set("canary.sample_rate", 0)
}

/// An id that does not exist and does not pass the active filter.
pub fn absent(app: &TestApp) -> u32 {
    use bloomguard::labels::Verdict;
    let keyspace = app.keyspace("users");
    (1_000_000..)
        .find(|id: &u32| keyspace.peek(&keyspace.key(id.to_string().as_bytes()).unwrap()).verdict == Verdict::Absent)
        .unwrap()
}

/// An id that does not exist but passes the active filter.
pub fn false_positive(app: &TestApp) -> u32 {
    use bloomguard::labels::Verdict;
    let keyspace = app.keyspace("users");
    (1_000_000..)
        .find(|id: &u32| keyspace.peek(&keyspace.key(id.to_string().as_bytes()).unwrap()).verdict == Verdict::Maybe)
        .unwrap()
}

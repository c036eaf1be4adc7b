//! A table of users, on any database, guarded.

use std::sync::LazyLock;

use chrono::Timelike;

use crate::support::app::TestApp;
use crate::support::database::Site;

/// Users that exist: 1 to so many.
pub const USERS: u32 = 1000;

/// A database with a table `users` of [`USERS`] rows.
pub async fn site(site: Site) -> Site {
    let series = site.series(USERS as usize);
    let users = format!("SELECT i, 'User ' || i FROM ({series}) AS n");
    site.run(&format!("CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL); INSERT INTO users {users}"))
        .await;
    site
}

/// Guards the table, without a canary; `redis` is a whole section or nothing, `more` are lines of the keyspace.
pub fn config(url: &str, redis: &str, more: &str) -> String {
    // Only tests of the lag have one that a busy machine could miss.
    let redis = if redis.contains("max_lag") {
        redis.to_owned()
    } else {
        redis.replace("[redis]", "[redis]\nmax_lag = \"1m\"")
    };
    let key = if url.starts_with("mysql:") { "?" } else { "$1" };
    // The default comes at two in the morning, also into the middle of a test. The same for all configurations of a run, which tests compare.
    static FAR: LazyLock<u32> = LazyLock::new(|| (chrono::Utc::now().hour() + 12) % 24);
    let schedule =
        if more.contains("rebuild") { String::new() } else { format!("rebuild.schedule = \"0 {} * * *\"", *FAR) };
    format!(
        r#"
{redis}
[keyspaces.users]
freshness = "announced"
deadline = "10s"
commit_window = "5s"
{schedule}
{more}
[keyspaces.users.backend]
url = "{url}"
query = "SELECT id, name FROM users WHERE id = {key}"
timeout = "5s"
[keyspaces.users.source]
query = "SELECT id FROM users"
[keyspaces.users.canary]
sample_rate = 0
proof = 0
"#
    )
}

/// An id that does not exist and does not pass the filter in force.
pub fn absent(app: &TestApp) -> u32 {
    use bloomguard::labels::Verdict;
    let keyspace = app.keyspace("users");
    (1_000_000..)
        .find(|id: &u32| keyspace.peek(&keyspace.key(id.to_string().as_bytes()).unwrap()).verdict == Verdict::Absent)
        .unwrap()
}

/// An id that does not exist but passes the filter in force.
pub fn false_positive(app: &TestApp) -> u32 {
    use bloomguard::labels::Verdict;
    let keyspace = app.keyspace("users");
    (1_000_000..)
        .find(|id: &u32| keyspace.peek(&keyspace.key(id.to_string().as_bytes()).unwrap()).verdict == Verdict::Maybe)
        .unwrap()
}

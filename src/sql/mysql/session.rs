//! Sessions whose answers do not depend on the server's configuration.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions};

use crate::sql::{Connector, Purpose};

/// The longest statement that both servers can express.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long the server waits, in seconds, for a scan's reader to take its rows. The server's default, a minute, ends a
/// scan behind a full queue.
const SCAN_WRITE_TIMEOUT: u32 = 900;

/// Opens connections and sets the variables that could otherwise change the answer.
#[derive(Clone)]
pub struct MySqlSession {
    options: MySqlConnectOptions,
    settings: [String; 2],
}

/// Without the options, which include the password.
impl fmt::Debug for MySqlSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MySqlSession")
    }
}

impl MySqlSession {
    /// The URL's options apply, except for character set and time zone, which change what is read.
    #[must_use]
    pub fn new(options: MySqlConnectOptions, purpose: Purpose) -> Self {
        let statement_cache = match purpose {
            Purpose::Lookups { statement_cache, .. } => statement_cache,
            Purpose::Scans => 0,
        };
        let options = options
            .statement_cache_capacity(statement_cache)
            .charset("utf8mb4")
            .timezone(Some("+00:00".to_owned()))
            // `||` and similar operators keep the meaning that the server's other clients see.
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .disable_statement_logging();
        Self { options, settings: settings(purpose) }
    }
}

#[async_trait]
impl Connector<MySqlConnection> for MySqlSession {
    async fn connect(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = ConnectOptions::connect(&self.options).await?;
        // One at a time: proxies that track variables understand only single statements.
        for statement in &self.settings {
            sqlx::raw_sql(AssertSqlSafe(statement.as_str())).execute(&mut connection).await?;
        }
        Ok(connection)
    }
}

/// - `autocommit`: without it the first lookup would open a transaction, and later ones read its old snapshot.
/// - The isolation level: a row that another transaction has removed but not committed is not absent.
/// - `sql_select_limit`: a limit set by the server would end a scan early without an error. A lookup needs one row.
/// - `PAD_CHAR_TO_FULL_LENGTH` would put keys with trailing spaces into the filter that no request has.
/// - The time limit has another name and unit in each product; each runs its own of the two comments and skips the other.
fn settings(purpose: Purpose) -> [String; 2] {
    let (limits, seconds, level) = match purpose {
        Purpose::Lookups { timeout, .. } => {
            let timeout = timeout.clamp(Duration::from_millis(1), LONGEST_TIMEOUT);
            // Locks on a table's definition are counted in whole seconds.
            let limits = format!("sql_select_limit = 1, lock_wait_timeout = {}", timeout.as_secs() + 1);
            (limits, timeout.as_secs_f64(), "READ COMMITTED")
        }
        Purpose::Scans => (
            format!("sql_select_limit = {}, net_write_timeout = {SCAN_WRITE_TIMEOUT}", u64::MAX),
            0.0,
            "REPEATABLE READ",
        ),
    };
    let milliseconds = (seconds * 1000.0).ceil();
    [
        format!(
            "SET autocommit = 1, sql_mode = REPLACE(@@sql_mode, 'PAD_CHAR_TO_FULL_LENGTH', ''), {limits} \
             /*M!100103 , max_statement_time = {seconds:.6} */ /*!50708 , max_execution_time = {milliseconds} */"
        ),
        format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}, READ ONLY"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_limit_is_written_for_either_server() {
        let [variables, _] = settings(Purpose::Lookups { timeout: Duration::from_millis(250), statement_cache: 1 });
        assert!(
            variables.contains("max_statement_time = 0.250000 ") && variables.contains("max_execution_time = 250 "),
            "{variables}"
        );
        let [variables, _] = settings(Purpose::Scans);
        assert!(
            variables.contains("max_statement_time = 0.000000 ") && variables.contains("max_execution_time = 0 "),
            "{variables}"
        );
        let [variables, _] = settings(Purpose::Lookups { timeout: Duration::MAX, statement_cache: 1 });
        assert!(variables.contains("max_execution_time = 2592000000 "), "{variables}");
    }
}

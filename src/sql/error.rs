//! What a driver's error means to the caller.

use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::postgres::PgDatabaseError;

/// Why a statement gave no answer. Callers act on the variant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// The database can't be reached or accepts no statements now. The connection can't be used again.
    #[error("{0}")]
    Unavailable(String),
    /// The database itself cancelled the statement: its statement timeout or a lock.
    #[error("{0}")]
    Timeout(String),
    /// The statement does not fit the database, or the key does not fit the statement.
    #[error("{message}")]
    Invalid {
        /// The database's message, with the SQL state.
        message: String,
        /// The statement may fit after a new description: tables change under a running process.
        stale: bool,
    },
}

impl SqlError {
    /// An error that a new description of the statement would not fix.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), stale: false }
    }

    /// Returns true if the connection is lost.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    /// Returns true if a new description of the statement may help.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        matches!(self, Self::Invalid { stale: true, .. })
    }

    /// An error while connecting: whatever its code, there is no database to ask.
    #[must_use]
    pub fn connecting(target: &str, error: &sqlx::Error) -> Self {
        let reason = match error {
            sqlx::Error::Database(error) => described(error.as_ref()),
            other => other.to_string(),
        };
        Self::Unavailable(format!("{target}: {reason}"))
    }
}

impl From<sqlx::Error> for SqlError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => from_database(error.as_ref()),
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed => Self::Unavailable(error.to_string()),
            other => Self::invalid(other.to_string()),
        }
    }
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::SqliteFailure(error, message) => {
                let message = message.unwrap_or_else(|| error.to_string());
                from_sqlite_code(error.extended_code, format!("SQLite error {}: {message}", error.extended_code))
            }
            other => Self::invalid(other.to_string()),
        }
    }
}

fn from_database(error: &dyn DatabaseError) -> SqlError {
    let message = described(error);
    if let Some(postgres) = error.try_downcast_ref::<PgDatabaseError>() {
        from_sql_state(postgres.code(), message)
    } else if let Some(mysql) = error.try_downcast_ref::<MySqlDatabaseError>() {
        super::mysql::error(mysql.number(), mysql.code().unwrap_or_default(), message)
    } else {
        from_sqlite_code(error.code().and_then(|code| code.parse().ok()).unwrap_or(1), message)
    }
}

/// The database's message with its code in front.
fn described(error: &dyn DatabaseError) -> String {
    let message = error.message();
    if let Some(postgres) = error.try_downcast_ref::<PgDatabaseError>() {
        return format!("SQL state {}: {message}", postgres.code());
    }
    if let Some(mysql) = error.try_downcast_ref::<MySqlDatabaseError>() {
        return format!("SQL state {}, error {}: {message}", mysql.code().unwrap_or("HY000"), mysql.number());
    }
    error.code().map_or_else(|| message.to_owned(), |code| format!("SQLite error {code}: {message}"))
}

fn from_sql_state(state: &str, message: String) -> SqlError {
    match state {
        // query_canceled (statement_timeout), lock_not_available
        "57014" | "55P03" => SqlError::Timeout(message),
        // A conflict with recovery or another transaction, or sessions ended by an operator or a crash.
        "40001" | "40P01" | "57P01" | "57P02" | "57P03" | "57P04" | "57P05" => SqlError::Unavailable(message),
        // A pooler that gives each transaction another server connection loses what an earlier one prepared.
        "26000" | "42P05" => SqlError::Invalid {
            message: format!("{message}; behind a transaction-mode pooler set statement_cache = 0"),
            stale: true,
        },
        // The plan or the description no longer fits: feature_not_supported stands for "cached plan must not change
        // result type".
        "0A000" | "42703" | "42P01" | "42P10" | "42883" | "42804" | "42725" | "42702" => {
            SqlError::Invalid { message, stale: true }
        }
        // Classes: connection exception, invalid authorization, insufficient resources, system error, no such database.
        _ if ["08", "28", "53", "58", "3D", "F0"].iter().any(|class| state.starts_with(class)) => {
            SqlError::Unavailable(message)
        }
        _ => SqlError::invalid(message),
    }
}

/// By primary result code, the low byte of an extended one.
fn from_sqlite_code(code: i32, message: String) -> SqlError {
    match code & 0xff {
        // SQLITE_ERROR: no such table or column; SQLITE_SCHEMA: it changed.
        1 | 17 => SqlError::Invalid { message, stale: true },
        // SQLITE_BUSY, SQLITE_LOCKED and SQLITE_INTERRUPT: a lock that was not released in time.
        5 | 6 | 9 => SqlError::Timeout(message),
        // SQLITE_PERM, NOMEM, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, AUTH, NOTADB
        3 | 7 | 8 | 10 | 11 | 13 | 14 | 23 | 26 => SqlError::Unavailable(message),
        _ => SqlError::invalid(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_states_tell_an_outage_from_a_query_that_does_not_fit() {
        for state in ["08006", "57P01", "57P03", "53300", "28P01", "3D000"] {
            assert!(from_sql_state(state, String::new()).is_unavailable(), "{state}");
        }
        for state in ["42P01", "42703", "0A000"] {
            assert!(from_sql_state(state, String::new()).is_stale(), "{state}");
        }
        assert_eq!(from_sql_state("22P02", "x".into()), SqlError::invalid("x"));
        assert_eq!(from_sql_state("57014", "x".into()), SqlError::Timeout("x".into()));
    }

    #[test]
    fn sqlite_codes_are_read_without_their_extension() {
        assert!(from_sqlite_code(14, String::new()).is_unavailable());
        assert!(from_sqlite_code(10 | (8 << 8), String::new()).is_unavailable());
        assert!(from_sqlite_code(1, String::new()).is_stale());
        assert_eq!(from_sqlite_code(5 | (2 << 8), "x".into()), SqlError::Timeout("x".into()));
    }
}

//! From a URL to the options of a driver.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use super::SqlError;
use super::mysql::MySqlSession;

/// Rows that SQLite's thread may read ahead of a poll. A lookup reads one row, and a scan does its own stepping.
const SQLITE_SCAN_ROWS: usize = 1024;
/// How long a scan waits for a lock on an SQLite file.
const SQLITE_SCAN_BUSY: Duration = Duration::from_secs(30);
/// SQLite takes its busy timeout as milliseconds in 32 bits.
const SQLITE_LONGEST_BUSY: Duration = Duration::from_secs(3600);
/// PostgreSQL takes a time limit as milliseconds in 31 bits.
const POSTGRES_LONGEST_TIMEOUT: u128 = 0x7fff_ffff;

/// A database of a supported kind. `Debug` shows no options: the drivers' would show the password.
#[derive(Clone)]
pub enum Database {
    /// `postgres://` or `postgresql://`
    Postgres(PgConnectOptions),
    /// `mysql://` or `mariadb://`
    MySql(MySqlSession),
    /// `sqlite:`
    Sqlite(SqliteConnectOptions),
}

/// Opens connections that can run statements at once.
#[async_trait]
pub trait Connector<C>: std::fmt::Debug + Send + Sync {
    /// # Errors
    /// The driver's own.
    async fn connect(&self) -> Result<C, sqlx::Error>;
}

#[async_trait]
impl<O: ConnectOptions> Connector<O::Connection> for O
where
    O::Connection: Sized,
{
    async fn connect(&self) -> Result<O::Connection, sqlx::Error> {
        ConnectOptions::connect(self).await
    }
}

/// What connections are opened for.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// Many short reads, each under a deadline.
    Lookups {
        /// No statement is worth more time than this.
        timeout: Duration,
        /// Prepared statements that a connection keeps. 0 leaves nothing behind in a session.
        statement_cache: usize,
    },
    /// A few long reads.
    Scans,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Postgres(_) => "Postgres",
            Self::MySql(_) => "MySql",
            Self::Sqlite(_) => "Sqlite",
        })
    }
}

impl Database {
    /// Reads a URL; connects to nothing.
    ///
    /// # Errors
    /// [`SqlError::Invalid`] for another kind of database or a URL that its driver can't read. The message contains
    /// nothing of the URL but its scheme.
    pub fn parse(url: &str, purpose: Purpose) -> Result<Self, SqlError> {
        let unreadable = |error: sqlx::Error| SqlError::invalid(format!("the url can't be read: {error}"));
        match url.split_once(':').map_or("", |(scheme, _)| scheme) {
            "postgres" | "postgresql" => Ok(Self::Postgres(postgres(url.parse().map_err(unreadable)?, purpose))),
            "mysql" | "mariadb" => Ok(Self::MySql(MySqlSession::new(url.parse().map_err(unreadable)?, purpose))),
            "sqlite" => Ok(Self::Sqlite(sqlite(url.parse().map_err(unreadable)?, purpose))),
            "" => Err(SqlError::invalid("the url names no database: use postgres://…, mysql://… or sqlite:…")),
            other => Err(SqlError::invalid(format!(
                "\"{other}\" is no supported database: use postgres://…, mysql://… or sqlite:…"
            ))),
        }
    }
}

/// The driver itself asks for UTC and UTF-8 at the start of each session.
fn postgres(mut options: PgConnectOptions, purpose: Purpose) -> PgConnectOptions {
    if options.get_application_name().is_none() {
        options = options.application_name("bloomguard");
    }
    options = options.disable_statement_logging();
    match purpose {
        // The cache keeps one statement: a description prepares it under a name and drops it within one transaction.
        // Poolers reject start-up parameters that they don't know, so this sends none of ours.
        Purpose::Lookups { statement_cache: 0, .. } => options.statement_cache_capacity(1).extra_float_digits(None),
        Purpose::Lookups { timeout, statement_cache } => {
            let own = options.get_options().is_some_and(|given| given.contains("statement_timeout"));
            let options = options.statement_cache_capacity(statement_cache);
            // A lookup that timed out here must not keep working there.
            if own {
                options
            } else {
                options.options([(
                    "statement_timeout",
                    timeout.as_millis().clamp(1, POSTGRES_LONGEST_TIMEOUT).to_string(),
                )])
            }
        }
        Purpose::Scans => options.statement_cache_capacity(1).extra_float_digits(None),
    }
}

fn sqlite(options: SqliteConnectOptions, purpose: Purpose) -> SqliteConnectOptions {
    // A missing file is an outage, not an empty database. Nothing here ever writes.
    let options = options.create_if_missing(false).pragma("query_only", "ON").disable_statement_logging();
    match purpose {
        Purpose::Lookups { timeout, statement_cache } => {
            options.busy_timeout(timeout.min(SQLITE_LONGEST_BUSY)).statement_cache_capacity(statement_cache)
        }
        Purpose::Scans => options.busy_timeout(SQLITE_SCAN_BUSY).row_buffer_size(SQLITE_SCAN_ROWS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Database, SqlError> {
        Database::parse(url, Purpose::Scans)
    }

    #[test]
    fn only_known_databases_are_taken() {
        assert!(matches!(parse("postgres://u@h/d"), Ok(Database::Postgres(_))));
        assert!(matches!(parse("postgresql://u@h/d"), Ok(Database::Postgres(_))));
        assert!(matches!(parse("sqlite:data/x.db?mode=rwc"), Ok(Database::Sqlite(_))));
        assert!(matches!(parse("mysql://u@h/d"), Ok(Database::MySql(_))));
        assert!(matches!(parse("mariadb://u@h/d?ssl-mode=REQUIRED"), Ok(Database::MySql(_))));
        assert!(parse("mysql://u@h/d?ssl-mode=SOMETIMES").is_err());
        assert!(parse("oracle://u@h/d").is_err());
        assert!(parse("users.db").is_err());
    }

    #[test]
    fn a_url_that_can_not_be_read_does_not_show_its_password() {
        let error = parse("postgres://user:hunter2@host:notaport/db").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
        for url in ["postgres://user:hunter2@host/db", "mysql://user:hunter2@host/db"] {
            let shown = format!("{:?}", parse(url).unwrap());
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}

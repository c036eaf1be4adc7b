//! A database of any kind, for contracts that hold on all.

use sqlx::mysql::MySqlConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;

use super::{mariadb, postgres};

/// Makes a test of each function for each kind of database.
macro_rules! on_every_database {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            use crate::support::database::Site;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name(Site::sqlite()).await; })+
        }
        mod postgres {
            use crate::support::database::Site;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name(Site::postgres()).await; })+
        }
        mod mariadb {
            use crate::support::database::Site;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name(Site::mariadb()).await; })+
        }
    };
}
pub(crate) use on_every_database;

/// An empty database; gone with the test.
pub enum Site {
    Sqlite(TempDir),
    Postgres(postgres::Database<'static>),
    Mariadb(mariadb::Database<'static>),
}

impl Site {
    pub fn sqlite() -> Self {
        let directory = tempfile::Builder::new().prefix("bloomguard-sqlite-").tempdir().unwrap();
        // To SQLite an empty file is an empty database.
        std::fs::write(directory.path().join("test.db"), b"").unwrap();
        Self::Sqlite(directory)
    }

    pub fn postgres() -> Self {
        Self::Postgres(postgres::Database::create())
    }

    pub fn mariadb() -> Self {
        Self::Mariadb(mariadb::Database::create())
    }

    pub fn url(&self) -> String {
        match self {
            Self::Sqlite(directory) => format!("sqlite:{}/test.db", directory.path().display()),
            Self::Postgres(database) => database.url(),
            Self::Mariadb(database) => database.url(),
        }
    }

    /// Where there is no database, with a password that must not be shown.
    pub fn unreachable_url(&self) -> String {
        match self {
            Self::Sqlite(directory) => format!("sqlite:{}/missing.db?mode=rwc", directory.path().display()),
            Self::Postgres(_) | Self::Mariadb(_) => {
                let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
                let scheme = if self.is_postgres() { "postgres" } else { "mariadb" };
                format!("{scheme}://user:hunter2@127.0.0.1:{free}/db")
            }
        }
    }

    pub fn unreachable_exists(&self) -> bool {
        matches!(self, Self::Sqlite(directory) if directory.path().join("missing.db").exists())
    }

    pub const fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    pub const fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Ends every session, as an administrator would; SQLite has none.
    pub fn end_sessions(&self) {
        match self {
            Self::Sqlite(_) => {}
            Self::Postgres(database) => assert!(database.terminate_sessions() > 0),
            Self::Mariadb(database) => assert!(database.kill_sessions() > 0),
        }
    }

    pub const fn database(&self) -> Option<&postgres::Database<'static>> {
        match self {
            Self::Sqlite(_) | Self::Mariadb(_) => None,
            Self::Postgres(database) => Some(database),
        }
    }

    /// A query in the database's own words, its parameter written `$1` here.
    pub fn query(&self, sql: &str) -> String {
        if matches!(self, Self::Mariadb(_)) { sql.replace("$1", "?") } else { sql.to_owned() }
    }

    /// Lists the numbers from 1, in a column `i`.
    pub fn series(&self, count: usize) -> String {
        match self {
            Self::Mariadb(_) => format!("SELECT seq AS i FROM seq_1_to_{count}"),
            _ => format!(
                "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < {count}) SELECT i FROM s"
            ),
        }
    }

    /// What the database says of a table that isn't there.
    pub fn no_table(&self, table: &str) -> String {
        match self {
            Self::Sqlite(_) => format!("SQLite error 1: no such table: {table}"),
            Self::Postgres(_) => format!("SQL state 42P01: relation \"{table}\" does not exist"),
            Self::Mariadb(database) => {
                format!("SQL state 42S02, error 1146: Table '{}.{table}' doesn't exist", database.name())
            }
        }
    }

    /// Runs statements, on a connection of their own.
    pub async fn run(&self, sql: &str) {
        match self {
            Self::Sqlite(directory) => {
                let options = SqliteConnectOptions::new().filename(directory.path().join("test.db"));
                let mut connection = options.connect().await.unwrap();
                sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
            Self::Postgres(database) => {
                database.psql(sql);
            }
            Self::Mariadb(database) => {
                let options: MySqlConnectOptions = database.url().parse().unwrap();
                let mut connection = options.connect().await.unwrap();
                // Strings, names and `||` as the standard has them; an index takes no text without a length.
                let sql = sql
                    .replace("TEXT PRIMARY KEY", "VARCHAR(255) PRIMARY KEY")
                    .replace("BLOB PRIMARY KEY", "VARBINARY(255) PRIMARY KEY");
                let sql = format!(
                    "SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'); {sql}"
                );
                sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }
}

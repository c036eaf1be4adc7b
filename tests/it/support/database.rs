//! A database of either kind, for contracts that hold on both.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;

use super::postgres::Database;

/// An empty database; gone with the test.
pub enum Site {
    Sqlite(TempDir),
    Postgres(Database<'static>),
}

impl Site {
    pub fn sqlite() -> Self {
        let directory = tempfile::Builder::new().prefix("bloomguard-sqlite-").tempdir().unwrap();
        // To SQLite an empty file is an empty database.
        std::fs::write(directory.path().join("test.db"), b"").unwrap();
        Self::Sqlite(directory)
    }

    pub fn postgres() -> Self {
        Self::Postgres(Database::create())
    }

    pub fn url(&self) -> String {
        match self {
            Self::Sqlite(directory) => format!("sqlite:{}/test.db", directory.path().display()),
            Self::Postgres(database) => database.url(),
        }
    }

    /// Where there is no database, with a password that must not be shown.
    pub fn unreachable_url(&self) -> String {
        match self {
            Self::Sqlite(directory) => format!("sqlite:{}/missing.db?mode=rwc", directory.path().display()),
            Self::Postgres(_) => {
                let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
                format!("postgres://user:hunter2@127.0.0.1:{free}/db")
            }
        }
    }

    pub fn unreachable_exists(&self) -> bool {
        matches!(self, Self::Sqlite(directory) if directory.path().join("missing.db").exists())
    }

    pub const fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    pub const fn database(&self) -> Option<&Database<'static>> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(database) => Some(database),
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
        }
    }
}

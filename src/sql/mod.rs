//! What backends and key sources share of SQL: connections, the meaning of errors, and how a key becomes a parameter.

mod connect;
mod error;
pub mod mysql;
mod pooled;
pub mod postgres;
mod spelling;
pub mod sqlite;
mod substitute;

pub use connect::{Connector, Database, Purpose};
pub use error::SqlError;
pub use pooled::{LookupConnections, SqlConnect};
pub use substitute::substitute;

/// Writes a name as a quoted identifier of PostgreSQL and SQLite.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

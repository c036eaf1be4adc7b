//! What backends and key sources share of SQL: connecting, pooling, what an error means, and how a key becomes a parameter.

mod connect;
mod error;
pub mod mysql;
mod pool;
pub mod postgres;
mod spelling;
pub mod sqlite;
mod substitute;

pub use connect::{Connector, Database, Purpose};
pub use error::SqlError;
pub use pool::{Lease, Pool, PoolSettings};
pub use substitute::substitute;

/// Writes a name as a quoted identifier of either dialect.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

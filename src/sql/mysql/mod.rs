//! MySQL and MariaDB: sessions, keys as parameters and as column values, and which keys a column treats as equal.

mod collation;
mod column;
mod compared;
mod error;
mod key;
mod parts;
mod session;

pub use collation::conflict;
pub use column::{ColumnInfo, TableColumn, collation, column_info, is_json_text, is_mariadb};
pub use compared::comparison;
pub(super) use error::from_number as error;
pub use key::{MySqlArgument, MySqlKeyType, MySqlParameter, write_key};
pub use parts::{QueryHalves, parts};
pub use session::MySqlSession;

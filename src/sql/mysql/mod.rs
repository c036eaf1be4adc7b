//! MySQL and MariaDB: sessions, keys as parameters and as column values, and what a column takes for equal.

mod collation;
mod column;
mod compared;
mod error;
mod key;
mod parts;
mod session;

pub use collation::conflict;
pub use column::{Facts, Origin, collation, facts, is_json_text, is_mariadb};
pub use compared::comparison;
pub(super) use error::from_number as error;
pub use key::{Argument, KeyType, Parameter, write_key};
pub use parts::{Parts, parts};
pub use session::MySqlSession;

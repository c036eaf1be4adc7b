//! Column types that hold keys: [`MySqlKeyType`].

use sqlx::mysql::MySqlTypeInfo;
use sqlx::{MySql, Type, TypeInfo};

/// How a column type holds keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MySqlKeyType {
    /// `TINYINT` to `BIGINT`, signed or not
    Integer,
    /// `DECIMAL`
    Decimal,
    /// `CHAR`, `VARCHAR`, `TEXT`, `ENUM`, `SET`, and what MariaDB sends as text
    Text,
    /// `BINARY`, `VARBINARY`, `BLOB`
    Binary,
}

impl MySqlKeyType {
    /// Returns `None` for a type that can't hold keys. `YEAR` can't: it treats 24 and 2024 as equal.
    #[must_use]
    pub fn of(info: &MySqlTypeInfo) -> Option<Self> {
        match info.name() {
            "BOOLEAN" => Some(Self::Integer),
            name if name.split(' ').next().is_some_and(|base| base.ends_with("INT")) => Some(Self::Integer),
            "DECIMAL" => Some(Self::Decimal),
            "ENUM" | "SET" => Some(Self::Text),
            // By collation and not by name: the driver calls text under a `_bin` collation binary.
            _ if <str as Type<MySql>>::compatible(info) => Some(Self::Text),
            _ if <[u8] as Type<MySql>>::compatible(info) => Some(Self::Binary),
            _ => None,
        }
    }
}

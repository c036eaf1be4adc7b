//! SQLite: keys as parameters and as column values, by storage class and declared type.

use std::str::Utf8Error;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::types::ValueRef;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::sqlite::{SqliteArgumentsBuffer, SqliteColumn, SqliteConnection, SqliteTypeInfo, SqliteValueRef};
use sqlx::{AssertSqlSafe, Column, ColumnOrigin, Decode, Encode, Row, Sqlite, Type, TypeInfo};

use super::SqlError;
use super::spelling::write_integer;
use crate::key::{Key, KeyForm};

/// A value as SQLite stores it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StoredValue<'r> {
    /// NULL
    Null,
    /// INTEGER
    Integer(i64),
    /// REAL
    Real(f64),
    /// TEXT
    Text(&'r str),
    /// BLOB
    Blob(&'r [u8]),
}

impl<'r> StoredValue<'r> {
    /// # Errors
    /// If the text is not valid UTF-8.
    pub fn read(value: SqliteValueRef<'r>) -> Result<Self, BoxDynError> {
        if sqlx::ValueRef::is_null(&value) {
            return Ok(Self::Null);
        }
        let class = sqlx::ValueRef::type_info(&value).name().to_owned();
        Ok(match class.as_str() {
            "INTEGER" => Self::Integer(Decode::<Sqlite>::decode(value)?),
            "REAL" => Self::Real(Decode::<Sqlite>::decode(value)?),
            "TEXT" => Self::Text(Decode::<Sqlite>::decode(value)?),
            _ => Self::Blob(Decode::<Sqlite>::decode(value)?),
        })
    }

    /// Writes the value as the bytes of a key, not yet in canonical form. Returns `false` for NULL.
    ///
    /// # Errors
    /// If it is a number with a fraction.
    pub fn write_key(self, out: &mut Vec<u8>) -> Result<bool, String> {
        use std::io::Write as _;
        out.clear();
        match self {
            Self::Null => return Ok(false),
            Self::Integer(value) => write_integer(value, out),
            // Whole numbers up to 2⁵³ are stored exactly, and SQLite compares them with integers as equal.
            Self::Real(value) if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 => {
                write!(out, "{value:.0}").map_err(|error| error.to_string())?;
            }
            Self::Real(value) => return Err(format!("the number {value} can't be a key")),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Blob(bytes) => out.extend_from_slice(bytes),
        }
        Ok(true)
    }
}

impl<'r> TryFrom<ValueRef<'r>> for StoredValue<'r> {
    type Error = Utf8Error;

    /// # Errors
    /// If the text is not valid UTF-8.
    fn try_from(value: ValueRef<'r>) -> Result<Self, Utf8Error> {
        Ok(match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(value) => Self::Integer(value),
            ValueRef::Real(value) => Self::Real(value),
            ValueRef::Text(text) => Self::Text(std::str::from_utf8(text)?),
            ValueRef::Blob(bytes) => Self::Blob(bytes),
        })
    }
}

/// A key as a parameter.
///
/// A parameter takes its affinity from the other side of a comparison: an integer matches `'42'` in a TEXT column, and
/// text matches 42 in an INTEGER column. A column without a type gives no affinity; there the key's form decides.
#[derive(Debug)]
pub enum SqliteArgument {
    /// Form `integer`, if the number fits.
    Integer(i64),
    /// Text forms, integers that fit no INTEGER, and integers that the source spells in another way.
    Text(String),
    /// Form `bytes`.
    Blob(Bytes),
}

impl SqliteArgument {
    /// # Errors
    /// If the key is not text although its form requires it.
    pub fn new(form: KeyForm, key: &Key) -> Result<Self, String> {
        let text = || key.as_str().ok_or_else(|| format!("the key is not UTF-8, as key form \"{form}\" demands"));
        Ok(match form {
            KeyForm::Bytes => Self::Blob(Bytes::copy_from_slice(key.as_bytes())),
            KeyForm::Integer => {
                let text = text()?;
                // A spelling that is not canonical is bound as text: as a number it would match another key.
                let number = text.parse().ok().filter(|number: &i64| number.to_string() == text);
                number.map_or_else(|| Self::Text(text.to_owned()), Self::Integer)
            }
            KeyForm::Text | KeyForm::TextCi | KeyForm::Uuid => Self::Text(text()?.to_owned()),
        })
    }
}

impl Type<Sqlite> for SqliteArgument {
    fn type_info() -> SqliteTypeInfo {
        <str as Type<Sqlite>>::type_info()
    }
}

impl Encode<'_, Sqlite> for SqliteArgument {
    fn encode_by_ref(&self, buf: &mut SqliteArgumentsBuffer) -> Result<IsNull, BoxDynError> {
        match self {
            Self::Integer(value) => Encode::<Sqlite>::encode_by_ref(value, buf),
            Self::Text(text) => Encode::<Sqlite>::encode_by_ref(text, buf),
            Self::Blob(bytes) => Encode::<Sqlite>::encode(&bytes[..], buf),
        }
    }
}

/// The type that a column was declared with, in capitals and without length: `DECIMAL` of `decimal(10, 2)`. Empty for
/// expressions.
///
/// The driver's own names cover only some types.
///
/// # Errors
/// [`SqlError`] if the schema can't be read.
pub async fn declared_type(connection: &mut SqliteConnection, column: &SqliteColumn) -> Result<Arc<str>, SqlError> {
    if let ColumnOrigin::Table(origin) = column.origin() {
        let row = sqlx::query("SELECT type FROM pragma_table_xinfo($1) WHERE name = $2")
            .bind(origin.table.to_string())
            .bind(origin.name.to_string())
            .fetch_optional(connection)
            .await?;
        if let Some(row) = row {
            let declared: String = row.try_get(0)?;
            let base = declared.split('(').next().unwrap_or_default().trim().to_ascii_uppercase();
            return Ok(base.into());
        }
    }
    // The row id has a type but no entry in the schema.
    let known = column.type_info().name();
    Ok(if known == "NULL" { "".into() } else { known.into() })
}

/// How a declared type converts the values compared with its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// Text that reads as an integer becomes one.
    Integer,
    /// Numbers become text.
    Text,
    /// Values stay as they are.
    Blob,
    /// REAL and NUMERIC: text that reads as a number becomes one.
    Number,
}

impl Affinity {
    /// By SQLite's own rules, in their order; `declared` in capitals.
    #[must_use]
    pub fn of(declared: &str) -> Self {
        let names = |parts: &[&str]| parts.iter().any(|part| declared.contains(part));
        if names(&["INT"]) {
            Self::Integer
        } else if names(&["CHAR", "CLOB", "TEXT"]) {
            Self::Text
        } else if names(&["BLOB"]) || declared.is_empty() {
            Self::Blob
        } else {
            Self::Number
        }
    }
}

/// The collation that compares column `c0` of the table expression `keys`; `None` for `BINARY`.
///
/// Reads the byte code of a comparison: every other interface covers only a table's own columns.
///
/// # Errors
/// [`SqlError`].
pub async fn first_column_collation(
    connection: &mut SqliteConnection,
    with_keys: &str,
) -> Result<Option<String>, SqlError> {
    let compared = collations(connection, format!("EXPLAIN {with_keys} SELECT c0 = 'x' FROM keys")).await?;
    // Comparisons of the query itself appear in both statements.
    let otherwise = collations(connection, format!("EXPLAIN {with_keys} SELECT c0 FROM keys")).await?;
    let known = |name: &str| otherwise.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count);
    Ok(compared.into_iter().find(|(name, count)| *count > known(name)).map(|(name, _)| name))
}

/// How often the comparisons in a statement's byte code name each collation other than `BINARY`.
async fn collations(connection: &mut SqliteConnection, explain: String) -> Result<Vec<(String, usize)>, SqlError> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for row in sqlx::query(AssertSqlSafe(explain)).persistent(false).fetch_all(connection).await? {
        let opcode: String = row.try_get("opcode")?;
        let operand: Option<String> = row.try_get_unchecked("p4")?;
        if !matches!(opcode.as_str(), "Eq" | "Ne") {
            continue;
        }
        // NOCASE-8: the collation, and the encoding it is for.
        let Some((name, _)) = operand.as_deref().and_then(|p4| p4.rsplit_once('-')) else { continue };
        if name == "BINARY" || name.is_empty() {
            continue;
        }
        match found.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => found.push((name.to_owned(), 1)),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(form: KeyForm, key: &str) -> SqliteArgument {
        SqliteArgument::new(form, &form.canonical(key.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn the_form_decides_how_a_key_is_bound() {
        assert!(matches!(argument(KeyForm::Integer, "42"), SqliteArgument::Integer(42)));
        assert!(matches!(argument(KeyForm::Integer, "18446744073709551615"), SqliteArgument::Text(_)));
        assert!(matches!(argument(KeyForm::Text, "42"), SqliteArgument::Text(_)));
        assert!(matches!(argument(KeyForm::Bytes, "42"), SqliteArgument::Blob(_)));
    }

    #[test]
    fn whole_numbers_are_keys_however_they_are_stored() {
        let key = |stored: StoredValue<'_>| {
            let mut out = Vec::new();
            stored.write_key(&mut out).map(|some| some.then(|| String::from_utf8(out).unwrap()))
        };
        assert_eq!(key(StoredValue::Real(42.0)), Ok(Some("42".into())));
        assert_eq!(key(StoredValue::Integer(-7)), Ok(Some("-7".into())));
        assert_eq!(key(StoredValue::Null), Ok(None));
        assert!(key(StoredValue::Real(0.5)).is_err());
        assert!(key(StoredValue::Real(f64::INFINITY)).is_err());
    }
}

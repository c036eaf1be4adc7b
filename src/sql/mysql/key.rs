//! Keys as parameters and as column values.

use bigdecimal::BigDecimal;
use bytes::Bytes;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::mysql::{MySqlTypeInfo, MySqlValueRef};
use sqlx::{Decode, Encode, MySql, Type, TypeInfo, ValueRef};
use uuid::Uuid;

use super::ColumnInfo;
use crate::key::{Key, KeyForm};
use crate::sql::spelling::{integer, numeric, shortest, uuid, write_integer};

/// Bytes of a UUID.
const UUID_BYTES: usize = 16;

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

/// A statement's only parameter, with the column that it is compared with, if that is known.
#[derive(Debug, Clone, Default)]
pub struct MySqlParameter(Option<(MySqlKeyType, ColumnInfo)>);

impl MySqlParameter {
    /// A parameter that is compared with a column.
    ///
    /// # Errors
    /// Names the type that can't hold keys.
    pub fn compared_with(info: &MySqlTypeInfo, column_info: ColumnInfo) -> Result<Self, String> {
        let kind = MySqlKeyType::of(info).ok_or_else(|| {
            format!(
                "its parameter is compared with a column of type {}, which can't take a key: compare CAST(… AS CHAR) of the column with it",
                info.name()
            )
        })?;
        Ok(Self(Some((kind, column_info))))
    }

    /// Why the column that the key is compared with treats keys as equal that `form` keeps apart.
    #[must_use]
    pub fn conflict(&self, form: KeyForm) -> Option<String> {
        let (kind, column_info) = self.0.as_ref()?;
        super::conflict(*kind, column_info, form)
    }

    /// The key as a value of the type that it is compared with: nothing is converted, and an index can be used.
    ///
    /// # Errors
    /// Why the key can't be written in that type. Another spelling of a value (`042` under key form `text`) is an error
    /// as well: the filter keeps such keys apart, so the database must not make them one.
    pub fn bind(&self, form: KeyForm, key: &Key) -> Result<MySqlArgument, String> {
        let text = || key.as_str().ok_or_else(|| "the key is not UTF-8, as the query's parameter demands".to_owned());
        let refused = |what: &str| format!("the key can't be {what}, which the query's parameter is compared with");
        let number = || whole(text()?).ok_or_else(|| refused("an integer"));
        let bytes = || Ok(MySqlArgument::Bytes(Bytes::copy_from_slice(key.as_bytes())));
        match (&self.0, form) {
            (Some((MySqlKeyType::Integer, _)), _) | (None, KeyForm::Integer) => number(),
            (Some((MySqlKeyType::Decimal, _)), _) => {
                numeric(text()?).map(MySqlArgument::Decimal).ok_or_else(|| refused("a decimal number"))
            }
            (Some((MySqlKeyType::Binary, column_info)), KeyForm::Uuid)
                if column_info.length == Some(UUID_BYTES as u64) =>
            {
                let value = uuid(text()?).ok_or_else(|| refused("a UUID"))?;
                Ok(MySqlArgument::Bytes(Bytes::copy_from_slice(value.as_bytes())))
            }
            (Some((MySqlKeyType::Binary, _)), _) | (None, KeyForm::Bytes) => bytes(),
            (Some((MySqlKeyType::Text, _)), _) | (None, KeyForm::Text | KeyForm::TextCi | KeyForm::Uuid) => {
                Ok(MySqlArgument::Text(text()?.to_owned()))
            }
        }
    }
}

fn whole(text: &str) -> Option<MySqlArgument> {
    let wide = integer(text)?;
    i64::try_from(wide).map(MySqlArgument::Signed).or_else(|_| u64::try_from(wide).map(MySqlArgument::Unsigned)).ok()
}

/// A key bound to a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum MySqlArgument {
    /// An integer.
    Signed(i64),
    /// An integer greater than `i64::MAX`.
    Unsigned(u64),
    /// A decimal number.
    Decimal(BigDecimal),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Bytes),
}

impl Type<MySql> for MySqlArgument {
    fn type_info() -> MySqlTypeInfo {
        <str as Type<MySql>>::type_info()
    }
}

impl Encode<'_, MySql> for MySqlArgument {
    fn encode_by_ref(&self, buf: &mut Vec<u8>) -> Result<IsNull, BoxDynError> {
        match self {
            Self::Signed(value) => Encode::<MySql>::encode_by_ref(value, buf),
            Self::Unsigned(value) => Encode::<MySql>::encode_by_ref(value, buf),
            Self::Decimal(value) => Encode::<MySql>::encode_by_ref(value, buf),
            Self::Text(text) => Encode::<MySql>::encode_by_ref(text, buf),
            Self::Bytes(bytes) => Encode::<MySql>::encode(&bytes[..], buf),
        }
    }

    fn produces(&self) -> Option<MySqlTypeInfo> {
        Some(match self {
            Self::Signed(_) => <i64 as Type<MySql>>::type_info(),
            Self::Unsigned(_) => <u64 as Type<MySql>>::type_info(),
            Self::Decimal(_) => <BigDecimal as Type<MySql>>::type_info(),
            Self::Text(_) => <str as Type<MySql>>::type_info(),
            Self::Bytes(_) => <[u8] as Type<MySql>>::type_info(),
        })
    }
}

/// Writes a column's value as the bytes of a key, not yet in canonical form.
///
/// # Errors
/// If the value is not of the described type.
pub fn write_key(
    kind: MySqlKeyType,
    form: KeyForm,
    value: MySqlValueRef<'_>,
    out: &mut Vec<u8>,
) -> Result<(), BoxDynError> {
    use std::io::Write as _;
    out.clear();
    match kind {
        MySqlKeyType::Integer if <u64 as Type<MySql>>::compatible(&value.type_info()) => {
            write!(out, "{}", <u64 as Decode<'_, MySql>>::decode(value)?)?;
        }
        MySqlKeyType::Integer => write_integer(<i64 as Decode<'_, MySql>>::decode(value)?, out),
        MySqlKeyType::Decimal => write!(out, "{}", shortest(&<BigDecimal as Decode<'_, MySql>>::decode(value)?))?,
        MySqlKeyType::Text | MySqlKeyType::Binary => {
            let bytes = <&[u8] as Decode<'_, MySql>>::decode(value)?;
            match Uuid::from_slice(bytes) {
                Ok(uuid) if kind == MySqlKeyType::Binary && form == KeyForm::Uuid => {
                    write!(out, "{}", uuid.hyphenated())?
                }
                _ => out.extend_from_slice(bytes),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column<T: Type<MySql> + ?Sized>() -> MySqlParameter {
        MySqlParameter::compared_with(&T::type_info(), ColumnInfo::default()).unwrap()
    }

    fn bind(parameter: &MySqlParameter, form: KeyForm, key: &str) -> Result<MySqlArgument, String> {
        parameter.bind(form, &form.canonical(key.as_bytes()).unwrap())
    }

    #[test]
    fn a_key_is_bound_as_what_it_is_compared_with() {
        assert_eq!(bind(&column::<i64>(), KeyForm::Integer, "42"), Ok(MySqlArgument::Signed(42)));
        assert_eq!(
            bind(&column::<i64>(), KeyForm::Integer, "18446744073709551615"),
            Ok(MySqlArgument::Unsigned(u64::MAX))
        );
        assert_eq!(bind(&column::<i64>(), KeyForm::Text, "42"), Ok(MySqlArgument::Signed(42)));
        // As an integer it would equal '42abc'.
        assert_eq!(bind(&column::<str>(), KeyForm::Integer, "42"), Ok(MySqlArgument::Text("42".into())));
        assert_eq!(bind(&column::<[u8]>(), KeyForm::Text, "é"), Ok(MySqlArgument::Bytes("é".into())));
        assert_eq!(
            bind(&column::<BigDecimal>(), KeyForm::Text, "1.5"),
            Ok(MySqlArgument::Decimal("1.5".parse().unwrap()))
        );
    }

    #[test]
    fn what_is_not_found_in_the_query_is_bound_by_the_form() {
        let unknown = MySqlParameter::default();
        assert_eq!(bind(&unknown, KeyForm::Integer, "42"), Ok(MySqlArgument::Signed(42)));
        assert_eq!(bind(&unknown, KeyForm::Text, "42"), Ok(MySqlArgument::Text("42".into())));
        assert_eq!(bind(&unknown, KeyForm::Bytes, "42"), Ok(MySqlArgument::Bytes("42".into())));
    }

    #[test]
    fn a_uuid_is_sixteen_bytes_where_the_column_is() {
        let key = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        let column_info = |length| ColumnInfo { length: Some(length), ..ColumnInfo::default() };
        let of =
            |length| MySqlParameter::compared_with(&<[u8] as Type<MySql>>::type_info(), column_info(length)).unwrap();
        let raw = Uuid::try_parse(key).unwrap();
        assert_eq!(bind(&of(16), KeyForm::Uuid, key), Ok(MySqlArgument::Bytes(Bytes::copy_from_slice(raw.as_bytes()))));
        assert_eq!(bind(&of(36), KeyForm::Uuid, key), Ok(MySqlArgument::Bytes(key.into())));
        assert_eq!(bind(&column::<str>(), KeyForm::Uuid, key), Ok(MySqlArgument::Text(key.into())));
    }

    #[test]
    fn another_spelling_of_a_value_is_no_key() {
        for key in ["042", "+1", "42abc", "1; DROP TABLE users", "1.0"] {
            assert!(bind(&column::<i64>(), KeyForm::Text, key).is_err(), "{key}");
        }
        for key in ["1.50", "1e3", ".5"] {
            assert!(bind(&column::<BigDecimal>(), KeyForm::Text, key).is_err(), "{key}");
        }
    }

    #[test]
    fn types_that_are_no_keys_are_refused_by_name() {
        let error =
            MySqlParameter::compared_with(&<f64 as Type<MySql>>::type_info(), ColumnInfo::default()).unwrap_err();
        assert!(error.contains("DOUBLE"), "{error}");
    }
}

//! Keys as parameters and as column values.

use bigdecimal::BigDecimal;
use bytes::Bytes;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::mysql::{MySqlTypeInfo, MySqlValueRef};
use sqlx::{Decode, Encode, MySql, Type, TypeInfo, ValueRef};
use uuid::Uuid;

use super::Facts;
use crate::key::{Key, KeyForm};
use crate::sql::spelling::{integer, numeric, shortest, uuid, write_integer};

/// Bytes of a UUID.
const UUID_BYTES: usize = 16;

/// What a type is to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// `TINYINT` to `BIGINT`, signed or not
    Integer,
    /// `DECIMAL`
    Decimal,
    /// `CHAR`, `VARCHAR`, `TEXT`, `ENUM`, `SET`, and what MariaDB sends as text
    Text,
    /// `BINARY`, `VARBINARY`, `BLOB`
    Binary,
}

impl KeyType {
    /// `None` for a type that can't be a key's. `YEAR` is none: 24 and 2024 are one to it.
    #[must_use]
    pub fn of(info: &MySqlTypeInfo) -> Option<Self> {
        match info.name() {
            "BOOLEAN" => Some(Self::Integer),
            name if name.split(' ').next().is_some_and(|base| base.ends_with("INT")) => Some(Self::Integer),
            "DECIMAL" => Some(Self::Decimal),
            "ENUM" | "SET" => Some(Self::Text),
            // Its name would not do: the driver calls text under a `_bin` collation binary.
            _ if <str as Type<MySql>>::compatible(info) => Some(Self::Text),
            _ if <[u8] as Type<MySql>>::compatible(info) => Some(Self::Binary),
            _ => None,
        }
    }
}

/// A statement's only parameter: what it is compared with, where that is known.
#[derive(Debug, Clone, Default)]
pub struct Parameter(Option<(KeyType, Facts)>);

impl Parameter {
    /// A parameter that is compared with a column.
    ///
    /// # Errors
    /// Says which type can't take a key.
    pub fn compared_with(info: &MySqlTypeInfo, facts: Facts) -> Result<Self, String> {
        let kind = KeyType::of(info).ok_or_else(|| {
            format!(
                "its parameter is compared with a column of type {}, which can't take a key: compare CAST(… AS CHAR) of the column with it",
                info.name()
            )
        })?;
        Ok(Self(Some((kind, facts))))
    }

    /// Why the column that the key is compared with takes keys for equal that `form` tells apart.
    #[must_use]
    pub fn conflict(&self, form: KeyForm) -> Option<String> {
        let (kind, facts) = self.0.as_ref()?;
        super::conflict(*kind, facts, form)
    }

    /// The key as a value of the type that it is compared with, so that nothing is converted and an index can be used.
    ///
    /// # Errors
    /// Says why the key can't be written in that type. Another spelling of a value (`042` under key form `text`) is refused as
    /// well: the filter tells such keys apart, so the database must not make them one.
    pub fn bind(&self, form: KeyForm, key: &Key) -> Result<Argument, String> {
        let text = || key.as_str().ok_or_else(|| "the key is not UTF-8, as the query's parameter demands".to_owned());
        let refused = |what: &str| format!("the key can't be {what}, which the query's parameter is compared with");
        let number = || whole(text()?).ok_or_else(|| refused("an integer"));
        let bytes = || Ok(Argument::Bytes(Bytes::copy_from_slice(key.as_bytes())));
        match (&self.0, form) {
            (Some((KeyType::Integer, _)), _) | (None, KeyForm::Integer) => number(),
            (Some((KeyType::Decimal, _)), _) => {
                numeric(text()?).map(Argument::Decimal).ok_or_else(|| refused("a decimal number"))
            }
            (Some((KeyType::Binary, facts)), KeyForm::Uuid) if facts.length == Some(UUID_BYTES as u64) => {
                let value = uuid(text()?).ok_or_else(|| refused("a UUID"))?;
                Ok(Argument::Bytes(Bytes::copy_from_slice(value.as_bytes())))
            }
            (Some((KeyType::Binary, _)), _) | (None, KeyForm::Bytes) => bytes(),
            (Some((KeyType::Text, _)), _) | (None, KeyForm::Text | KeyForm::TextCi | KeyForm::Uuid) => {
                Ok(Argument::Text(text()?.to_owned()))
            }
        }
    }
}

fn whole(text: &str) -> Option<Argument> {
    let wide = integer(text)?;
    i64::try_from(wide).map(Argument::Signed).or_else(|_| u64::try_from(wide).map(Argument::Unsigned)).ok()
}

/// A key bound to a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    /// An integer.
    Signed(i64),
    /// An integer beyond the signed ones.
    Unsigned(u64),
    /// A decimal number.
    Decimal(BigDecimal),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Bytes),
}

impl Type<MySql> for Argument {
    fn type_info() -> MySqlTypeInfo {
        <str as Type<MySql>>::type_info()
    }
}

impl Encode<'_, MySql> for Argument {
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

/// Writes a column's value as the bytes of a key that is still to be brought into its canonical form.
///
/// # Errors
/// Where the value is not of the type that was told.
pub fn write_key(kind: KeyType, form: KeyForm, value: MySqlValueRef<'_>, out: &mut Vec<u8>) -> Result<(), BoxDynError> {
    use std::io::Write as _;
    out.clear();
    match kind {
        KeyType::Integer if <u64 as Type<MySql>>::compatible(&value.type_info()) => {
            write!(out, "{}", <u64 as Decode<'_, MySql>>::decode(value)?)?;
        }
        KeyType::Integer => write_integer(<i64 as Decode<'_, MySql>>::decode(value)?, out),
        KeyType::Decimal => write!(out, "{}", shortest(&<BigDecimal as Decode<'_, MySql>>::decode(value)?))?,
        KeyType::Text | KeyType::Binary => {
            let bytes = <&[u8] as Decode<'_, MySql>>::decode(value)?;
            match Uuid::from_slice(bytes) {
                Ok(uuid) if kind == KeyType::Binary && form == KeyForm::Uuid => write!(out, "{}", uuid.hyphenated())?,
                _ => out.extend_from_slice(bytes),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column<T: Type<MySql> + ?Sized>() -> Parameter {
        Parameter::compared_with(&T::type_info(), Facts::default()).unwrap()
    }

    fn bind(parameter: &Parameter, form: KeyForm, key: &str) -> Result<Argument, String> {
        parameter.bind(form, &form.canonical(key.as_bytes()).unwrap())
    }

    #[test]
    fn a_key_is_bound_as_what_it_is_compared_with() {
        assert_eq!(bind(&column::<i64>(), KeyForm::Integer, "42"), Ok(Argument::Signed(42)));
        assert_eq!(bind(&column::<i64>(), KeyForm::Integer, "18446744073709551615"), Ok(Argument::Unsigned(u64::MAX)));
        assert_eq!(bind(&column::<i64>(), KeyForm::Text, "42"), Ok(Argument::Signed(42)));
        // Bound as an integer it would equal '42abc'.
        assert_eq!(bind(&column::<str>(), KeyForm::Integer, "42"), Ok(Argument::Text("42".into())));
        assert_eq!(bind(&column::<[u8]>(), KeyForm::Text, "é"), Ok(Argument::Bytes("é".into())));
        assert_eq!(bind(&column::<BigDecimal>(), KeyForm::Text, "1.5"), Ok(Argument::Decimal("1.5".parse().unwrap())));
    }

    #[test]
    fn what_is_not_found_in_the_query_is_bound_by_the_form() {
        let unknown = Parameter::default();
        assert_eq!(bind(&unknown, KeyForm::Integer, "42"), Ok(Argument::Signed(42)));
        assert_eq!(bind(&unknown, KeyForm::Text, "42"), Ok(Argument::Text("42".into())));
        assert_eq!(bind(&unknown, KeyForm::Bytes, "42"), Ok(Argument::Bytes("42".into())));
    }

    #[test]
    fn a_uuid_is_sixteen_bytes_where_the_column_is() {
        let key = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        let facts = |length| Facts { length: Some(length), ..Facts::default() };
        let of = |length| Parameter::compared_with(&<[u8] as Type<MySql>>::type_info(), facts(length)).unwrap();
        let raw = Uuid::try_parse(key).unwrap();
        assert_eq!(bind(&of(16), KeyForm::Uuid, key), Ok(Argument::Bytes(Bytes::copy_from_slice(raw.as_bytes()))));
        assert_eq!(bind(&of(36), KeyForm::Uuid, key), Ok(Argument::Bytes(key.into())));
        assert_eq!(bind(&column::<str>(), KeyForm::Uuid, key), Ok(Argument::Text(key.into())));
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
        let error = Parameter::compared_with(&<f64 as Type<MySql>>::type_info(), Facts::default()).unwrap_err();
        assert!(error.contains("DOUBLE"), "{error}");
    }
}

//! PostgreSQL: keys as parameters and as column values, by the types that the server describes.

mod numeric;

use bigdecimal::BigDecimal;
use bytes::Bytes;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgTypeKind};
use sqlx::{Encode, Postgres, Type, TypeInfo};
use uuid::Uuid;

use super::spelling::{integer, numeric as number, uuid, write_integer};
use crate::key::Key;

/// How a column type holds keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostgresKeyType {
    /// `smallint`, `integer`, `bigint`
    Integer,
    /// `numeric`
    Numeric,
    /// `text`, `varchar`, `name`, enums
    Text,
    /// `char(n)`: padded, and compared without its padding.
    Padded,
    /// `citext`
    TextCi,
    /// `uuid`
    Uuid,
    /// `bytea`
    Bytes,
}

impl PostgresKeyType {
    /// Returns `None` for a type that can't hold keys.
    #[must_use]
    pub fn of(info: &PgTypeInfo) -> Option<Self> {
        let name = info.name();
        match name.to_ascii_lowercase().as_str() {
            "int2" | "int4" | "int8" => Some(Self::Integer),
            "numeric" => Some(Self::Numeric),
            "text" | "varchar" | "name" => Some(Self::Text),
            // The driver's name of `character(n)`; the single-byte type "char" has quotes in it.
            "char" => Some(Self::Padded),
            "citext" => Some(Self::TextCi),
            "uuid" => Some(Self::Uuid),
            "bytea" => Some(Self::Bytes),
            // A type that the driver could not look up has neither a name nor a kind.
            "?" => None,
            _ => match info.kind() {
                PgTypeKind::Domain(base) => Self::of(base),
                PgTypeKind::Enum(_) => Some(Self::Text),
                _ => None,
            },
        }
    }
}

/// A statement's only parameter.
#[derive(Debug, Clone)]
pub struct PostgresParameter {
    info: PgTypeInfo,
    kind: PostgresKeyType,
}

impl PostgresParameter {
    /// # Errors
    /// Names the type that can't hold keys.
    pub fn new(info: PgTypeInfo) -> Result<Self, String> {
        let kind = PostgresKeyType::of(&info).ok_or_else(|| {
            format!(
                "its parameter is of type {}, which can't take a key: write $1::text and cast that further",
                info.name()
            )
        })?;
        Ok(Self { info, kind })
    }

    /// The key as a value of the parameter's own type, so that an index on the compared column can be used.
    ///
    /// `None` if no value of that type equals the key: an integer that fits no `bigint`. A wider comparison as
    /// `numeric` would give the same answer and read the whole table.
    ///
    /// # Errors
    /// Why the key can't be written in that type. Another spelling of a value (`042` under key form `text`) is an error
    /// as well: the filter keeps such keys apart, so the database must not make them one.
    pub fn bind(&self, key: &Key) -> Result<Option<PostgresArgument>, String> {
        let text = || key.as_str().filter(|text| !text.contains('\0')).ok_or_else(|| self.refused());
        let value = match self.kind {
            PostgresKeyType::Integer => match integer(text()?) {
                Some(wide) => match i64::try_from(wide) {
                    Ok(value) => ArgumentValue::Integer(value),
                    Err(_) => return Ok(None),
                },
                None => return Err(self.refused()),
            },
            PostgresKeyType::Numeric => ArgumentValue::Numeric(number(text()?).ok_or_else(|| self.refused())?),
            PostgresKeyType::Uuid => ArgumentValue::Uuid(uuid(text()?).ok_or_else(|| self.refused())?),
            PostgresKeyType::Text | PostgresKeyType::Padded | PostgresKeyType::TextCi => {
                ArgumentValue::Raw(Bytes::copy_from_slice(text()?.as_bytes()))
            }
            PostgresKeyType::Bytes => ArgumentValue::Raw(Bytes::copy_from_slice(key.as_bytes())),
        };
        Ok(Some(PostgresArgument { info: self.bound_as(), value }))
    }

    /// The type that keys are bound as.
    #[must_use]
    pub fn bound_as(&self) -> PgTypeInfo {
        match self.kind {
            // Of any size: an integer that exceeds a column's own type is absent from it, and no error.
            PostgresKeyType::Integer => <i64 as Type<Postgres>>::type_info(),
            _ => self.info.clone(),
        }
    }

    fn refused(&self) -> String {
        format!("the key can't be a value of type {}, which the query's parameter has", self.info.name())
    }
}

/// A key bound to a parameter.
#[derive(Debug)]
pub struct PostgresArgument {
    info: PgTypeInfo,
    value: ArgumentValue,
}

#[derive(Debug)]
enum ArgumentValue {
    Integer(i64),
    Numeric(BigDecimal),
    Uuid(Uuid),
    Raw(Bytes),
}

impl Type<Postgres> for PostgresArgument {
    fn type_info() -> PgTypeInfo {
        <str as Type<Postgres>>::type_info()
    }
}

impl Encode<'_, Postgres> for PostgresArgument {
    fn encode_by_ref(&self, buf: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        match &self.value {
            ArgumentValue::Integer(value) => Encode::<Postgres>::encode_by_ref(value, buf),
            ArgumentValue::Numeric(value) => Encode::<Postgres>::encode_by_ref(value, buf),
            ArgumentValue::Uuid(value) => Encode::<Postgres>::encode_by_ref(value, buf),
            ArgumentValue::Raw(bytes) => Encode::<Postgres>::encode(&bytes[..], buf),
        }
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(self.info.clone())
    }
}

/// Writes a column's value as the bytes of a key, not yet in canonical form. The value is in binary form, which all
/// ways of reading use.
///
/// # Errors
/// If the value is not of the described type.
pub fn write_key(kind: PostgresKeyType, value: &[u8], out: &mut Vec<u8>) -> Result<(), BoxDynError> {
    out.clear();
    match kind {
        PostgresKeyType::Integer => {
            let wide = match *value {
                [a, b] => i64::from(i16::from_be_bytes([a, b])),
                [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
                _ => i64::from_be_bytes(value.try_into()?),
            };
            write_integer(wide, out);
        }
        PostgresKeyType::Numeric => numeric::write(value, out)?,
        PostgresKeyType::Uuid => out.extend_from_slice(
            Uuid::from_slice(value)?.hyphenated().encode_lower(&mut Uuid::encode_buffer()).as_bytes(),
        ),
        PostgresKeyType::Text | PostgresKeyType::Padded | PostgresKeyType::TextCi | PostgresKeyType::Bytes => {
            out.extend_from_slice(value)
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyForm;

    fn bind<T: Type<Postgres> + ?Sized>(key: &str) -> Result<Option<PostgresArgument>, String> {
        PostgresParameter::new(T::type_info()).unwrap().bind(&KeyForm::Text.canonical(key.as_bytes()).unwrap())
    }

    #[test]
    fn an_integer_beyond_bigint_equals_no_row() {
        assert!(matches!(bind::<i64>("9223372036854775807"), Ok(Some(_))));
        assert!(matches!(bind::<i32>("18446744073709551615"), Ok(None)));
        assert!(matches!(bind::<BigDecimal>("18446744073709551615"), Ok(Some(_))));
    }

    #[test]
    fn another_spelling_of_a_value_is_no_key() {
        for key in ["042", "+1", "abc", "1; DROP TABLE users", "1.0"] {
            assert!(bind::<i64>(key).is_err(), "{key}");
        }
        for key in ["1.50", "1e3", "NaN", ".5", "-"] {
            assert!(bind::<BigDecimal>(key).is_err(), "{key}");
        }
        assert!(matches!(bind::<BigDecimal>("-1.5"), Ok(Some(_))));
        assert!(bind::<Uuid>("67E55044-10B1-426F-9247-BB680E5FE0C8").is_err());
        assert!(matches!(bind::<Uuid>("67e55044-10b1-426f-9247-bb680e5fe0c8"), Ok(Some(_))));
    }

    #[test]
    fn types_that_are_no_keys_are_refused_by_name() {
        let error = PostgresParameter::new(<bool as Type<Postgres>>::type_info()).unwrap_err();
        assert!(error.contains("BOOL"), "{error}");
    }
}

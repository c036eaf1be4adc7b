//! One row as JSON.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::value::RawValue;
use sqlx::mysql::{MySqlColumn, MySqlRow};
use sqlx::{Column, Decode, MySql, Row, Type, TypeInfo};

use crate::sql::SqlError;

/// A row's first `columns` as an object, each rendered by its kind. `json` says for each whether its text is JSON.
pub(super) fn object(row: &MySqlRow, columns: &[MySqlColumn], json: &[bool]) -> Result<Bytes, SqlError> {
    let mut body = String::from("{");
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        body.push_str(&quoted(column.name())?);
        body.push(':');
        let cell = Cell::read(row, index, column)?;
        match cell {
            Cell::Text(text) if json.get(index) == Some(&true) => body.push_str(&Cell::Json(text).json()?),
            cell => body.push_str(&cell.json()?),
        }
    }
    body.push('}');
    Ok(Bytes::from(body))
}

/// The bytes of the first column, rendered as `column`: NULL is an empty body.
pub(super) fn raw(row: &MySqlRow, column: &MySqlColumn) -> Result<Bytes, SqlError> {
    Ok(match Cell::read(row, 0, column)? {
        Cell::Text(text) | Cell::Json(text) => Bytes::copy_from_slice(text.as_bytes()),
        Cell::Binary(bytes) => Bytes::copy_from_slice(bytes),
        Cell::Null => Bytes::new(),
        Cell::Literal(text) | Cell::Quoted(text) => Bytes::from(text),
    })
}

/// Kind of a column's values, which decides how they are rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnKind {
    Boolean { unsigned: bool },
    Integer { unsigned: bool },
    Bits,
    Float,
    Double,
    Decimal,
    Date,
    DateTime,
    Timestamp,
    Time,
    Json,
    Text,
    Binary,
}

impl ColumnKind {
    pub(super) fn of(column: &MySqlColumn) -> Self {
        let info = column.type_info();
        let unsigned = <u64 as Type<MySql>>::compatible(info);
        match info.name() {
            "BOOLEAN" => Self::Boolean { unsigned },
            "YEAR" => Self::Integer { unsigned: true },
            name if name.split(' ').next().is_some_and(|base| base.ends_with("INT")) => Self::Integer { unsigned },
            "BIT" => Self::Bits,
            "FLOAT" => Self::Float,
            "DOUBLE" => Self::Double,
            "DECIMAL" => Self::Decimal,
            "DATE" => Self::Date,
            "DATETIME" => Self::DateTime,
            "TIMESTAMP" => Self::Timestamp,
            "TIME" => Self::Time,
            "JSON" => Self::Json,
            "GEOMETRY" => Self::Binary,
            // By collation and not by name: the driver calls text under a `_bin` collation binary.
            name if <str as Type<MySql>>::compatible(info) || matches!(name, "ENUM" | "SET") => Self::Text,
            _ => Self::Binary,
        }
    }

    /// Returns true if a value sent as `sent` is rendered as it would be under this kind. `TINYINT(1)` differs from
    /// other integers only by a width, which expressions lose.
    pub(super) fn can_come_as(self, sent: Self) -> bool {
        match (self, sent) {
            (Self::Boolean { unsigned }, Self::Integer { unsigned: sent }) => unsigned == sent,
            (kind, sent) => kind == sent,
        }
    }
}

/// A value before it becomes JSON.
#[derive(Debug, PartialEq)]
enum Cell<'r> {
    Null,
    /// Written as it is: numbers and booleans.
    Literal(String),
    /// Written in quotes: dates and times.
    Quoted(String),
    Text(&'r str),
    Json(&'r str),
    Binary(&'r [u8]),
}

impl<'r> Cell<'r> {
    fn read(row: &'r MySqlRow, index: usize, column: &MySqlColumn) -> Result<Self, SqlError> {
        let value = row.try_get_raw(index)?;
        // A value that is not NULL always has bytes. The driver's own test treats a zero date as NULL.
        let Ok(bytes) = <&[u8] as Decode<'_, MySql>>::decode(value) else { return Ok(Self::Null) };
        Self::of(ColumnKind::of(column), bytes).ok_or_else(|| {
            SqlError::invalid(format!(
                "column {} can't be read as a {}",
                quoted(column.name()).unwrap_or_default(),
                column.type_info().name()
            ))
        })
    }

    /// Of a value in the binary protocol.
    fn of(kind: ColumnKind, bytes: &'r [u8]) -> Option<Self> {
        Some(match kind {
            ColumnKind::Boolean { unsigned } => Self::Literal(match integer(bytes, unsigned)?.as_str() {
                "0" => "false".to_owned(),
                "1" => "true".to_owned(),
                other => other.to_owned(),
            }),
            ColumnKind::Integer { unsigned } => Self::Literal(integer(bytes, unsigned)?),
            ColumnKind::Bits => Self::Literal(bits(bytes)?),
            ColumnKind::Float => {
                Self::Literal(serde_json::to_string(&f32::from_le_bytes(bytes.try_into().ok()?)).ok()?)
            }
            ColumnKind::Double => {
                Self::Literal(serde_json::to_string(&f64::from_le_bytes(bytes.try_into().ok()?)).ok()?)
            }
            ColumnKind::Decimal => Self::Literal(decimal(std::str::from_utf8(bytes).ok()?)),
            ColumnKind::Date => Self::Quoted(date_time(bytes, "")?.get(..10)?.to_owned()),
            ColumnKind::DateTime => Self::Quoted(date_time(bytes, "")?),
            // The session's time zone is UTC.
            ColumnKind::Timestamp => Self::Quoted(date_time(bytes, "+00:00")?),
            ColumnKind::Time => Self::Quoted(time(bytes)?),
            ColumnKind::Json => Self::Json(std::str::from_utf8(bytes).ok()?),
            ColumnKind::Text => Self::Text(std::str::from_utf8(bytes).ok()?),
            ColumnKind::Binary => Self::Binary(bytes),
        })
    }

    fn json(self) -> Result<String, SqlError> {
        match self {
            Self::Null => Ok("null".to_owned()),
            Self::Literal(text) => Ok(text),
            Self::Quoted(text) => quoted(&text),
            Self::Json(text) if serde_json::from_str::<&RawValue>(text).is_ok() => Ok(text.to_owned()),
            Self::Text(text) | Self::Json(text) => quoted(text),
            Self::Binary(bytes) => quoted(&BASE64_STANDARD.encode(bytes)),
        }
    }
}

fn quoted(text: &str) -> Result<String, SqlError> {
    serde_json::to_string(text).map_err(|error| SqlError::invalid(error.to_string()))
}

/// Little-endian, of 1 to 8 bytes.
fn integer(bytes: &[u8], unsigned: bool) -> Option<String> {
    let negative = !unsigned && bytes.last()? & 0x80 != 0;
    let mut wide = if negative { [0xff; 8] } else { [0; 8] };
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(if negative { i64::from_le_bytes(wide).to_string() } else { u64::from_le_bytes(wide).to_string() })
}

/// Big-endian, of 1 to 8 bytes: `BIT(64)` as a number.
fn bits(bytes: &[u8]) -> Option<String> {
    let mut wide = [0; 8];
    wide.get_mut(8_usize.checked_sub(bytes.len())?..)?.copy_from_slice(bytes);
    Some(u64::from_be_bytes(wide).to_string())
}

/// `ZEROFILL` adds leading zeros, which JSON forbids.
fn decimal(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let digits = digits.trim_start_matches('0');
    let zero = if digits.is_empty() || digits.starts_with('.') { "0" } else { "" };
    format!("{sign}{zero}{digits}")
}

/// Length, year (2), month, day, hour, minute, second, microseconds (4); trailing zeros are left out. `0000-00-00` is a
/// date to MySQL and is rendered as it is.
fn date_time(bytes: &[u8], offset: &str) -> Option<String> {
    let value = after_length(bytes)?;
    let mut all = [0; 11];
    all.get_mut(..value.len())?.copy_from_slice(value);
    let [y0, y1, month, day, hour, minute, second, micros @ ..] = all;
    let year = u16::from_le_bytes([y0, y1]);
    let micros = fraction(u32::from_le_bytes(micros));
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{micros}{offset}"))
}

/// Length, sign, days (4), hour, minute, second, microseconds (4). A duration rather than a time of day: up to 838
/// hours, positive or negative.
fn time(bytes: &[u8]) -> Option<String> {
    let value = after_length(bytes)?;
    let mut all = [0; 12];
    all.get_mut(..value.len())?.copy_from_slice(value);
    let [negative, d0, d1, d2, d3, hour, minute, second, micros @ ..] = all;
    let hours = u32::from_le_bytes([d0, d1, d2, d3]) * 24 + u32::from(hour);
    let sign = if negative == 1 { "-" } else { "" };
    Some(format!("{sign}{hours:02}:{minute:02}:{second:02}{}", fraction(u32::from_le_bytes(micros))))
}

fn after_length(bytes: &[u8]) -> Option<&[u8]> {
    let (length, value) = bytes.split_first()?;
    (usize::from(*length) == value.len()).then_some(value)
}

fn fraction(micros: u32) -> String {
    if micros == 0 { String::new() } else { format!(".{micros:06}").trim_end_matches('0').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_at_both_ends() {
        assert_eq!(integer(&i64::MIN.to_le_bytes(), false).as_deref(), Some("-9223372036854775808"));
        assert_eq!(integer(&u64::MAX.to_le_bytes(), true).as_deref(), Some("18446744073709551615"));
        assert_eq!(integer(&[0x80], false).as_deref(), Some("-128"));
        assert_eq!(integer(&[0x80], true).as_deref(), Some("128"));
        assert_eq!(integer(&[0; 9], true), None);
        assert_eq!(bits(&[0x01, 0x02]).as_deref(), Some("258"));
        assert_eq!(bits(&[0; 9]), None);
        for (text, expected) in
            [("0012.50", "12.50"), ("-000.5", "-0.5"), ("0", "0"), ("000", "0"), ("-12", "-12"), ("100", "100")]
        {
            assert_eq!(decimal(text), expected);
        }
    }

    #[test]
    fn times_are_written_as_iso_8601() {
        let at = |bytes: &[u8]| date_time(bytes, "").unwrap();
        assert_eq!(at(&[0]), "0000-00-00T00:00:00");
        assert_eq!(at(&[4, 0xe8, 0x07, 5, 6]), "2024-05-06T00:00:00");
        assert_eq!(at(&[7, 0xe8, 0x07, 5, 6, 7, 8, 9]), "2024-05-06T07:08:09");
        assert_eq!(at(&[11, 0xe8, 0x07, 5, 6, 7, 8, 9, 0x78, 0xe0, 0x01, 0]), "2024-05-06T07:08:09.123");
        assert_eq!(time(&[0]).unwrap(), "00:00:00");
        assert_eq!(time(&[8, 1, 34, 0, 0, 0, 22, 59, 59]).unwrap(), "-838:59:59");
        assert_eq!(time(&[12, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0]).unwrap(), "01:02:03.000004");
        for broken in [&[][..], &[5], &[4, 1, 2], &[13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!((date_time(broken, ""), time(broken)), (None, None));
        }
    }
}

//! Values that have exactly one spelling as a key.
//!
//! A database reads `042` and `42` as one number. The filter keeps such keys apart, so they must not become one on
//! their way to the database either: a value in another spelling than this one is another key.

use bigdecimal::BigDecimal;
use uuid::Uuid;

/// Returns `None` for anything but a decimal integer in its canonical spelling.
pub(super) fn integer(text: &str) -> Option<i128> {
    let value: i128 = text.parse().ok()?;
    (value.to_string() == text).then_some(value)
}

/// Writes an integer. Scans call this for every row, where the cost of a formatter shows.
pub(super) fn write_integer(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Returns `None` for anything but a plain decimal number in its shortest spelling.
pub(super) fn numeric(text: &str) -> Option<BigDecimal> {
    if !text.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b'-') {
        return None;
    }
    let value: BigDecimal = text.parse().ok()?;
    (shortest(&value) == text).then_some(value)
}

/// Returns `None` for anything but a UUID in lower case with hyphens.
pub(super) fn uuid(text: &str) -> Option<Uuid> {
    let value = Uuid::try_parse(text).ok()?;
    (value.hyphenated().to_string() == text).then_some(value)
}

/// Without trailing zeros or exponent: equal numbers have one spelling.
pub(super) fn shortest(value: &BigDecimal) -> String {
    value.normalized().to_plain_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_written_as_everywhere() {
        let powers = (0..=18).map(|zeros| 10_i64.pow(zeros)).flat_map(|i| [i - 1, i, -i, 1 - i, i * 9]);
        for value in powers.chain([i64::MIN, i64::MAX]) {
            let mut out = Vec::new();
            write_integer(value, &mut out);
            assert_eq!(String::from_utf8(out), Ok(value.to_string()));
        }
    }
}

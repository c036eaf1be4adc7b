//! `numeric` in PostgreSQL's binary form, written as a key.

use sqlx::error::BoxDynError;

/// Possible signs of a number; the others are NaN and the infinities.
const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;

/// Decimal digits in one digit of the server's.
const GROUP: usize = 4;

/// Writes a number without trailing zeros or exponent: equal numbers have one spelling.
///
/// The server sends digits in base 10,000. The first one has the weight 10,000 to the power of `weight`. Zeros at
/// either end are left out.
///
/// # Errors
/// If it is not a number in that form.
pub(super) fn write(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), BoxDynError> {
    let (head, digits) = bytes.split_first_chunk::<8>().ok_or("a numeric is cut short")?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let (count, weight, sign) = (word(0), i32::from(word(2).cast_signed()), word(4));
    if !matches!(sign, POSITIVE | NEGATIVE) {
        return Err("NaN and infinity can't be keys".into());
    }
    let digits: Vec<u16> = digits.chunks(2).map(|pair| pair.try_into().map_or(u16::MAX, u16::from_be_bytes)).collect();
    if digits.len() != usize::from(count) || digits.iter().any(|digit| *digit >= 10_000) {
        return Err("a numeric is not in the form that PostgreSQL documents".into());
    }
    if digits.iter().all(|digit| *digit == 0) {
        out.push(b'0');
        return Ok(());
    }
    if sign == NEGATIVE {
        out.push(b'-');
    }
    // Digits of weight 0 and above, and those behind the point. Places that were left out are zeros.
    let digit = |place: i32| usize::try_from(weight - place).ok().and_then(|at| digits.get(at)).copied().unwrap_or(0);
    let whole: Vec<u8> = (0..=weight.max(0)).rev().flat_map(|place| decimal(digit(place))).collect();
    let leading = whole.iter().take(whole.len() - 1).take_while(|digit| **digit == b'0').count();
    out.extend_from_slice(&whole[leading..]);
    let last = weight - i32::from(count) + 1;
    if last < 0 {
        out.push(b'.');
        out.extend((last..0).rev().flat_map(|place| decimal(digit(place))));
        let kept = out.iter().rposition(|digit| !matches!(digit, b'0' | b'.')).map_or(0, |at| at + 1);
        // A whole number keeps its zeros before the point.
        let point = out.iter().rposition(|digit| *digit == b'.').unwrap_or(kept);
        out.truncate(kept.max(point));
    }
    Ok(())
}

fn decimal(digit: u16) -> [u8; GROUP] {
    // Each is below 10.
    [digit / 1000, digit / 100 % 10, digit / 10 % 10, digit % 10].map(|one| b'0' + one as u8)
}

#[cfg(test)]
mod tests {
    use bigdecimal::BigDecimal;
    use sqlx::Encode;
    use sqlx::postgres::PgArgumentBuffer;

    use super::*;
    use crate::sql::spelling::shortest;

    fn written(bytes: &[u8]) -> Result<String, String> {
        let mut out = Vec::new();
        write(bytes, &mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_number_is_written_as_its_shortest_spelling() {
        for text in [
            "0",
            "7",
            "-7",
            "42.00",
            "9999",
            "10000",
            "10001",
            "-120000",
            "100000000",
            "1.5",
            "-0.5",
            "0.00001",
            "0.12345678901",
            "123456789012345678901234567890.000100",
            "18446744073709551616",
            "1e20",
            "1e-9",
            "10.10",
            "0.1000",
        ] {
            let number: BigDecimal = text.parse().unwrap();
            let mut buffer = PgArgumentBuffer::default();
            let _ = Encode::<sqlx::Postgres>::encode_by_ref(&number, &mut buffer).unwrap();
            assert_eq!(written(&buffer), Ok(shortest(&number)), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for sign in [0xc000_u16, 0xd000, 0xf000, 1] {
            let [high, low] = sign.to_be_bytes();
            assert!(written(&[0, 0, 0, 0, high, low, 0, 0]).is_err(), "{sign:x}");
        }
        assert!(written(&[0, 1, 0, 0, 0, 0, 0, 0]).is_err(), "a digit is missing");
        assert!(written(&[0, 1, 0, 0, 0, 0, 0, 0, 1]).is_err(), "half of a digit");
        assert!(written(&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10]).is_err(), "10,000 is no digit");
        assert!(written(&[0, 0]).is_err());
    }

    #[test]
    fn zeros_that_a_server_might_leave_in_do_not_change_the_spelling() {
        // 0, 12, 0 from weight 1 on: 12. Then with the sign of a negative zero.
        assert_eq!(written(&[0, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0]).as_deref(), Ok("12"));
        assert_eq!(written(&[0, 1, 0, 0, 0x40, 0, 0, 0, 0, 0]).as_deref(), Ok("0"));
    }
}

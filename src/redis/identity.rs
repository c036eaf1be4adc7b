//! Which log a Redis server holds.

use std::fmt;
use std::str::FromStr;

/// Distinguishes the data of one Redis process from all others, also from that of the same server after a restart, a
/// failover or a wipe: marks and deltas may have been lost between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogIdentity(pub [u8; 16]);

impl fmt::Display for LogIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for LogIdentity {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let hex = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let bits = if hex { u128::from_str_radix(text, 16).map_err(|_| ())? } else { return Err(()) };
        Ok(Self(bits.to_be_bytes()))
    }
}

/// An identity as Redis stores it, with its time of creation: `{32 hex digits}:{seconds}.{micros}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBirth {
    /// Which log.
    pub identity: LogIdentity,
    /// Unix milliseconds of the server's clock.
    pub millis: u64,
}

impl LogBirth {
    /// The text of a new identity, created at this time of the server's clock.
    pub(super) fn text_of_new(seconds: u64, micros: u64) -> String {
        format!("{}:{seconds}.{micros:06}", LogIdentity(rand::random()))
    }
}

impl FromStr for LogBirth {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (identity, born) = text.split_once(':').ok_or(())?;
        let (seconds, micros) = born.split_once('.').ok_or(())?;
        let number = |digits: &str| {
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten().ok_or(())
        };
        let millis = number(seconds)?.checked_mul(1000).ok_or(())? + number(micros)? / 1000;
        Ok(Self { identity: identity.parse()?, millis })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn birth_is_read_only_from_its_own_format() {
        let identity = LogIdentity([0xab; 16]);
        assert_eq!(
            format!("{}:1700000000.123456", "ab".repeat(16)).parse(),
            Ok(LogBirth { identity, millis: 1_700_000_000_123 })
        );
        let hex = "ab".repeat(16);
        for strange in [
            "",
            &hex,
            &format!("{hex}:x.y"),
            &format!("{}:1.2", "zz".repeat(16)),
            &format!("{hex}:1"),
            &format!("{}:1.2", "é".repeat(16)),
        ] {
            assert_eq!(strange.parse::<LogBirth>(), Err(()), "{strange}");
        }
    }

    #[test]
    fn a_new_identity_can_be_read() {
        assert_eq!(LogBirth::text_of_new(12, 34_567).parse::<LogBirth>().unwrap().millis, 12_034);
    }
}

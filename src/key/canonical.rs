//! Defines the canonical form of a key. Requests, announces, polls, scans and batches all use it: with two definitions
//! a key could miss itself.

use std::io::Write;

use super::form::{KeyError, KeyForm};

/// Every number of at most this many digits fits the form `integer`.
const SAFE_DIGITS: usize = 18;

impl KeyForm {
    /// Writes the canonical form of `raw` into `scratch` if it differs. Returns false, and writes nothing, if `raw` is
    /// canonical.
    #[inline]
    pub(super) fn rewrite(self, raw: &[u8], scratch: &mut Vec<u8>) -> Result<bool, KeyError> {
        // Only the fast check is inlined.
        if self.is_plain(raw) { Ok(false) } else { self.rewrite_odd(raw, scratch) }
    }

    fn rewrite_odd(self, raw: &[u8], scratch: &mut Vec<u8>) -> Result<bool, KeyError> {
        if raw.is_empty() {
            return Err(KeyError::Empty);
        }
        scratch.clear();
        match self {
            Self::Bytes => {}
            Self::Text => _ = self.text(raw)?,
            Self::TextCi => self.lower_case(raw, scratch)?,
            Self::Integer => {
                let value = integer(raw).ok_or(KeyError::NotAnInteger)?;
                // Writing to a vector can't fail.
                let _ = write!(scratch, "{value}");
            }
            Self::Uuid => {
                let uuid = uuid::Uuid::try_parse_ascii(raw).map_err(|_| KeyError::NotAUuid)?;
                scratch.extend_from_slice(uuid.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()).as_bytes());
            }
        }
        Ok(!scratch.is_empty())
    }

    /// Whether `raw` is canonical for certain, as nearly all keys are. Returns false for some unusual canonical keys.
    #[inline]
    fn is_plain(self, raw: &[u8]) -> bool {
        match self {
            Self::Bytes => !raw.is_empty(),
            Self::Text => !raw.is_empty() && is_plain_text(raw),
            Self::TextCi => {
                !raw.is_empty()
                    && is_plain_text(raw)
                    && !raw.iter().fold(false, |upper, byte| upper | byte.is_ascii_uppercase())
            }
            Self::Integer => is_plain_integer(raw),
            Self::Uuid => is_plain_uuid(raw),
        }
    }

    fn lower_case(self, raw: &[u8], scratch: &mut Vec<u8>) -> Result<(), KeyError> {
        if is_plain_text(raw) {
            scratch.extend(raw.iter().map(u8::to_ascii_lowercase));
        } else {
            scratch.extend_from_slice(self.text(raw)?.to_lowercase().as_bytes());
        }
        Ok(())
    }

    fn text(self, raw: &[u8]) -> Result<&str, KeyError> {
        let text = std::str::from_utf8(raw).map_err(|_| KeyError::NotUtf8(self))?;
        if raw.contains(&0) {
            return Err(KeyError::ZeroByte(self));
        }
        Ok(text)
    }
}

/// One in each byte of a word.
const EACH: u64 = u64::from_ne_bytes([1; 8]);

/// Whether all bytes pass, where `fit` checks eight at a time. Some are checked twice, so that none is checked alone.
#[inline]
fn all_fit(raw: &[u8], fit: impl Fn(u64) -> bool) -> bool {
    if let Some(last) = raw.last_chunk() {
        let mut eights = raw.as_chunks().0.iter().chain([last]);
        return eights.all(|eight| fit(u64::from_ne_bytes(*eight)));
    }
    if let (Some(first), Some(last)) = (raw.first_chunk(), raw.last_chunk()) {
        let [first, last] = [first, last].map(|four| u64::from(u32::from_ne_bytes(*four)));
        return fit(first << 32 | last);
    }
    raw.iter().all(|byte| fit(EACH * u64::from(*byte)))
}

/// ASCII without zero bytes.
#[inline]
fn is_plain_text(raw: &[u8]) -> bool {
    // Subtracting 1 from a zero borrows into its highest bit, and no other byte below 0x80 has that bit before or
    // after.
    all_fit(raw, |eight| (eight | eight.wrapping_sub(EACH)) & (EACH << 7) == 0)
}

/// Digits without leading zeros, few enough to be within bounds. Not all canonical integers pass.
#[inline]
fn is_plain_integer(raw: &[u8]) -> bool {
    let digits = raw.strip_prefix(b"-").unwrap_or(raw);
    matches!(digits, [b'1'..=b'9', ..]) && digits.len() <= SAFE_DIGITS && all_fit(digits, are_digits)
}

/// Digits have an upper half of 3, also after adding 6.
#[inline]
const fn are_digits(eight: u64) -> bool {
    const UPPER: u64 = EACH * 0xf0;
    ((eight & UPPER) ^ (EACH * 0x30)) | ((eight.wrapping_add(EACH * 6) & UPPER) ^ (EACH * 0x30)) == 0
}

/// Parses the number; `None` if it is malformed or outside −2⁶³…2⁶⁴−1. Its canonical form has no leading zeros.
fn integer(raw: &[u8]) -> Option<i128> {
    let (negative, digits) = match raw {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, raw),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let start = digits.iter().position(|d| *d != b'0').unwrap_or(digits.len() - 1);
    let significant = std::str::from_utf8(&digits[start..]).ok()?;
    let magnitude: i128 = if significant.len() > 20 { return None } else { significant.parse().ok()? };
    let value = if negative { -magnitude } else { magnitude };
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(value)
}

/// Lower case and hyphenated.
#[inline]
fn is_plain_uuid(raw: &[u8]) -> bool {
    let Ok(uuid) = <&[u8; 36]>::try_from(raw) else { return false };
    // No branch per byte, so that the compiler vectorises it. Hyphens are checked at their places and counted as
    // digits.
    let hyphens = [8, 13, 18, 23];
    let mut digits = *uuid;
    hyphens.iter().for_each(|place| digits[*place] = b'0');
    hyphens.iter().all(|place| uuid[*place] == b'-')
        && digits.iter().fold(true, |fit, byte| fit & matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition of the canonical form, without optimisations.
    fn defined(form: KeyForm, raw: &[u8]) -> Option<Vec<u8>> {
        let text = || std::str::from_utf8(raw).ok().filter(|text| !text.is_empty() && !text.contains('\0'));
        match form {
            KeyForm::Bytes => Some(raw.to_vec()).filter(|raw| !raw.is_empty()),
            KeyForm::Text => Some(text()?.into()),
            KeyForm::TextCi => Some(text()?.to_lowercase().into()),
            // The standard library accepts the same signs and zeros.
            KeyForm::Integer => {
                let number: i128 = text()?.parse().ok()?;
                (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&number).then(|| number.to_string().into())
            }
            KeyForm::Uuid => Some(uuid::Uuid::try_parse_ascii(raw).ok()?.hyphenated().to_string().into()),
        }
    }

    /// Keys of every form, and almost such keys.
    fn raw_key() -> impl Strategy<Value = Vec<u8>> {
        let text = prop_oneof![
            "[-+]?[0-9]{0,22}",
            "[-+]?0{0,3}[0-9]{17,20}",
            "\\PC{0,20}",
            "[ -~]{0,40}",
            "[0-9a-fA-F]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "\\{?[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}\\}?",
        ];
        let spoilt =
            (text.prop_map(String::into_bytes), any::<prop::sample::Index>(), proptest::option::of(any::<u8>()));
        spoilt.prop_map(|(mut raw, place, byte)| {
            if let Some(byte) = byte.filter(|_| !raw.is_empty()) {
                let place = place.index(raw.len());
                raw[place] = byte;
            }
            raw
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn a_key_that_is_looked_at_is_spelled_as_one_that_is_kept(raw in raw_key(), left in "[a-z]{0,50}") {
            // Dirty, as the previous key leaves it.
            let mut scratch = left.into_bytes();
            for form in KeyForm::ALL {
                let defined = defined(form, &raw);
                prop_assert_eq!(form.canonical(&raw).ok().map(|key| key.as_bytes().to_vec()), defined.clone(), "{}", form);
                prop_assert_eq!(form.spell(&raw, &mut scratch).ok().map(|key| key.as_bytes().to_vec()), defined, "{}", form);
            }
        }
    }

    #[test]
    fn nothing_is_written_where_a_key_has_its_form_already() {
        for (form, raw) in [
            (KeyForm::Text, "user:1"),
            (KeyForm::TextCi, "user:1"),
            (KeyForm::Integer, "-123456789012345678"),
            (KeyForm::Uuid, "67e55044-10b1-426f-9247-bb680e5fe0c8"),
            (KeyForm::Bytes, "\0"),
        ] {
            let mut scratch = Vec::new();
            assert_eq!(form.spell(raw.as_bytes(), &mut scratch).unwrap().as_bytes(), raw.as_bytes());
            assert_eq!(scratch.capacity(), 0, "{form}");
        }
    }
}

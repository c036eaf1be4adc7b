//! The form of a keyspace's keys.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::canonical_key::{Key, KeyRef};
use super::spelling::folds_differently;

/// The prefix that editors of some systems write in front of a text.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The form of a keyspace's keys, so that equal keys have equal bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyForm {
    /// UTF-8 as it is, without Unicode normalisation.
    Text,
    /// A decimal integer from −2⁶³ to 2⁶⁴−1 without leading zeros or plus sign.
    Integer,
    /// A UUID: lower case, hyphenated, no braces.
    Uuid,
    /// UTF-8 in lower case, for case-insensitive columns.
    TextCi,
    /// Any bytes.
    Bytes,
}

/// A key that has no canonical form in its keyspace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No bytes at all.
    #[error("the key is empty")]
    Empty,
    /// Invalid UTF-8 where the form is text.
    #[error("the key is not valid UTF-8, which key form \"{0}\" requires; use key = \"bytes\" for such keys")]
    NotUtf8(KeyForm),
    /// A zero byte, which no SQL text type can hold.
    #[error("the key contains a zero byte, which key form \"{0}\" can't hold; use key = \"bytes\" for such keys")]
    ZeroByte(KeyForm),
    /// Not a decimal integer.
    #[error(
        "the key is not a decimal integer between -9223372036854775808 and 18446744073709551615, as key form \
         \"integer\" requires"
    )]
    NotAnInteger,
    /// Not a UUID.
    #[error("the key is not a UUID, as key form \"uuid\" requires")]
    NotAUuid,
    /// `.` or `..`, alone or as a path segment, for an HTTP backend.
    #[error(
        "the key is, or has a path segment, \".\" or \"..\", which HTTP servers resolve as folders: the HTTP backend \
         can't look it up"
    )]
    DotSegment,
}

impl KeyForm {
    /// Every form.
    pub const ALL: [Self; 5] = [Self::Text, Self::Integer, Self::Uuid, Self::TextCi, Self::Bytes];

    /// Brings raw bytes into this form.
    ///
    /// # Errors
    /// [`KeyError`] if the bytes have no such form: such a key can't exist in this keyspace.
    pub fn canonical(self, raw: &[u8]) -> Result<Key, KeyError> {
        let mut rewritten = Vec::new();
        if !self.rewrite(raw, &mut rewritten)? {
            return Ok(Key::from_canonical(Bytes::copy_from_slice(raw)));
        }
        let original = folds_differently(raw, &rewritten).then(|| Box::new(Bytes::copy_from_slice(raw)));
        Ok(Key { bytes: Bytes::from(rewritten), original })
    }

    /// Like [`KeyForm::canonical`], for a key that is not kept. It borrows from `raw`, or from `scratch`, which is
    /// reused for many keys.
    ///
    /// # Errors
    /// [`KeyError`].
    #[inline]
    pub fn spell<'a>(self, raw: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<KeyRef<'a>, KeyError> {
        Ok(KeyRef(if self.rewrite(raw, scratch)? { scratch } else { raw }))
    }

    /// Like [`KeyForm::canonical`], for a key of the source: remembers its spelling if it differs.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn scanned(self, raw: &[u8]) -> Result<Key, KeyError> {
        let mut key = self.canonical(raw)?;
        if key.as_bytes() != raw {
            key.original = Some(Box::new(Bytes::copy_from_slice(raw)));
        }
        Ok(key)
    }

    /// Removes a byte order mark from the start of a list of keys. Only keys of form `bytes` may begin with one.
    #[must_use]
    pub fn without_mark(self, list: &[u8]) -> &[u8] {
        match self {
            Self::Bytes => list,
            _ => list.strip_prefix(BYTE_ORDER_MARK).unwrap_or(list),
        }
    }

    /// The spelling used in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Uuid => "uuid",
            Self::TextCi => "text-ci",
            Self::Bytes => "bytes",
        }
    }
}

impl fmt::Display for KeyForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

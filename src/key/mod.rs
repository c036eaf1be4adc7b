//! Keys in their canonical form, and the hash that is taken of them once.
//!
//! Keys from requests, announces and scans pass the same [`KeyForm`] before they are hashed, cached or bound, so `042` and `42`
//! are one key of an integer column and can't miss each other in the filter.

mod batch;
mod canonical;
mod spelling;

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_secret};

pub use batch::KeyBatch;
use spelling::folds_differently;

/// A key in canonical form: never empty.
#[derive(Clone)]
pub struct Key {
    bytes: Bytes,
    /// How its source or its request spells it, see [`Key::original`] and [`Key::given`]. Says nothing of the key itself: two spellings are one key.
    original: Option<Box<Bytes>>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl Key {
    /// The canonical bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The key as text, where it is valid UTF-8. Always `Some` for every form but `bytes`.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// Takes bytes that have passed [`KeyForm::canonical`] before, as read back from a journal.
    #[must_use]
    pub fn from_canonical(bytes: Bytes) -> Self {
        Self { bytes, original: None }
    }

    /// The key as its source spells it, where that is not the canonical form: to be tried at the backend, never to be cached under.
    #[must_use]
    pub fn original(&self) -> Option<Self> {
        self.original.as_deref().cloned().map(Self::from_canonical)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&KeyRef::from(self), f)
    }
}

/// A key in canonical form, as it stands in memory of somebody else: enough to be hashed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyRef<'a>(&'a [u8]);

impl<'a> KeyRef<'a> {
    /// The canonical bytes.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// A copy that stays.
    #[must_use]
    pub fn to_key(self) -> Key {
        Key::from_canonical(Bytes::copy_from_slice(self.0))
    }
}

impl<'a> From<&'a Key> for KeyRef<'a> {
    fn from(key: &'a Key) -> Self {
        Self(&key.bytes)
    }
}

impl fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0.escape_ascii())
    }
}

/// XXH3-128 of a canonical key under the keyspace secret. Valid for every generation of a keyspace's filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(u128);

impl KeyHash {
    /// Takes the bits of a hash that was made elsewhere under the same secret.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The 128 bits, as filters take them.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }
}

/// The secret under which one keyspace's keys are hashed: fixed for all instances, never changed by a build.
#[derive(Clone)]
pub struct KeySecret([u8; KeySecret::LEN]);

impl KeySecret {
    /// Length in bytes: that of XXH3's own default secret.
    pub const LEN: usize = 192;

    /// Takes the bytes of an existing secret.
    #[must_use]
    pub const fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// A fresh one from the operating system's randomness.
    #[must_use]
    pub fn random() -> Self {
        Self(std::array::from_fn(|_| rand::random()))
    }

    /// The bytes, to be stored where only instances of the same keyspace read them.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Tells this secret from others without telling it.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        xxh3_64(&self.0)
    }

    /// Hashes a canonical key.
    #[must_use]
    pub fn hash(&self, key: &Key) -> KeyHash {
        self.hash_ref(key.into())
    }

    /// As [`hash`](Self::hash), of a key that nobody keeps.
    #[inline]
    #[must_use]
    pub fn hash_ref(&self, key: KeyRef<'_>) -> KeyHash {
        KeyHash(xxh3_128_with_secret(key.as_bytes(), &self.0))
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret(redacted)")
    }
}

/// What editors of some systems put in front of a text.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How the keys of a keyspace are written, so that equal keys have equal bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyForm {
    /// UTF-8, taken as it is; no Unicode normalisation.
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
    /// Not valid UTF-8 where the form is text.
    #[error("the key is not valid UTF-8, which key form \"{0}\" demands; use key = \"bytes\" for such keys")]
    NotUtf8(KeyForm),
    /// A zero byte, which no SQL text type can hold.
    #[error("the key contains a zero byte, which key form \"{0}\" can't hold; use key = \"bytes\" for such keys")]
    ZeroByte(KeyForm),
    /// Not a decimal integer.
    #[error(
        "the key is not a decimal integer between -9223372036854775808 and 18446744073709551615, as key form \"integer\" demands"
    )]
    NotAnInteger,
    /// Not a UUID.
    #[error("the key is not a UUID, as key form \"uuid\" demands")]
    NotAUuid,
    /// `.` or `..`, alone or as a segment, where the key is asked for by a URL.
    #[error(
        "the key is, or holds as a segment, \".\" or \"..\", which servers take for folders: the HTTP backend can't be asked for it"
    )]
    DotSegment,
}

impl KeyForm {
    /// Every form.
    pub const ALL: [Self; 5] = [Self::Text, Self::Integer, Self::Uuid, Self::TextCi, Self::Bytes];

    /// Brings raw bytes into this form.
    ///
    /// # Errors
    /// [`KeyError`] where the bytes have no such form: such a key can't exist in this keyspace.
    pub fn canonical(self, raw: &[u8]) -> Result<Key, KeyError> {
        let mut rewritten = Vec::new();
        if !self.rewrite(raw, &mut rewritten)? {
            return Ok(Key::from_canonical(Bytes::copy_from_slice(raw)));
        }
        let original = folds_differently(raw, &rewritten).then(|| Box::new(Bytes::copy_from_slice(raw)));
        Ok(Key { bytes: Bytes::from(rewritten), original })
    }

    /// As [`KeyForm::canonical`], for a key that is looked at and not kept: it stands in `raw`, or in `scratch`, whose memory serves for many keys.
    ///
    /// # Errors
    /// [`KeyError`].
    #[inline]
    pub fn spell<'a>(self, raw: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<KeyRef<'a>, KeyError> {
        Ok(KeyRef(if self.rewrite(raw, scratch)? { scratch } else { raw }))
    }

    /// As [`KeyForm::canonical`], for a key of the source: remembers its spelling where that is another.
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

    /// The beginning of a list of keys without a byte order mark. Only keys of form `bytes` may begin with one.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn form(form: KeyForm, raw: &str) -> Result<String, KeyError> {
        form.canonical(raw.as_bytes()).map(|k| k.as_str().unwrap().to_owned())
    }

    #[test]
    fn integers_have_one_spelling() {
        for (raw, canonical) in [("042", "42"), ("42", "42"), ("+42", "42"), ("-0", "0"), ("000", "0"), ("-007", "-7")]
        {
            assert_eq!(form(KeyForm::Integer, raw).as_deref(), Ok(canonical), "{raw}");
        }
        for i in (0..=19).map(|zeros| 10_i128.pow(zeros)).flat_map(|i| [i - 1, i, -i]) {
            assert_eq!(
                form(KeyForm::Integer, &i.to_string()),
                if i < i64::MIN.into() { Err(KeyError::NotAnInteger) } else { Ok(i.to_string()) }
            );
        }
        assert_eq!(form(KeyForm::Integer, "18446744073709551615").as_deref(), Ok("18446744073709551615"));
        assert_eq!(form(KeyForm::Integer, "-9223372036854775808").as_deref(), Ok("-9223372036854775808"));
    }

    #[test]
    fn what_is_no_integer_is_refused() {
        for raw in [
            "1; DROP TABLE users",
            "../../admin",
            "4 2",
            " 42",
            "0x2a",
            "1e3",
            "-",
            "+",
            "18446744073709551616",
            "-9223372036854775809",
            "٤٢",
        ] {
            assert_eq!(form(KeyForm::Integer, raw), Err(KeyError::NotAnInteger), "{raw}");
        }
    }

    #[test]
    fn uuids_lose_braces_and_case() {
        let canonical = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        for raw in [
            canonical,
            "67E55044-10B1-426F-9247-BB680E5FE0C8",
            "{67e55044-10b1-426f-9247-bb680e5fe0c8}",
            "67e5504410b1426f9247bb680e5fe0c8",
        ] {
            assert_eq!(form(KeyForm::Uuid, raw).as_deref(), Ok(canonical), "{raw}");
        }
        assert_eq!(form(KeyForm::Uuid, "67e55044"), Err(KeyError::NotAUuid));
    }

    #[test]
    fn text_is_left_alone_and_text_ci_is_lower_case() {
        assert_eq!(form(KeyForm::Text, "Straße É").as_deref(), Ok("Straße É"));
        assert_eq!(form(KeyForm::TextCi, "FOO É").as_deref(), Ok("foo é"));
        assert_eq!(KeyForm::Text.canonical(b"\xff"), Err(KeyError::NotUtf8(KeyForm::Text)));
        assert_eq!(KeyForm::Text.canonical(b"a\0b"), Err(KeyError::ZeroByte(KeyForm::Text)));
        assert!(KeyForm::Bytes.canonical(b"\xff\0").is_ok());
        assert_eq!(KeyForm::Bytes.canonical(b""), Err(KeyError::Empty));
    }

    #[test]
    fn a_hash_depends_on_the_secret() {
        let key = KeyForm::Text.canonical(b"user:1").unwrap();
        let secret = KeySecret::random();
        assert_eq!(secret.hash(&key), secret.clone().hash(&key));
        assert_ne!(secret.hash(&key), KeySecret::random().hash(&key));
    }
}

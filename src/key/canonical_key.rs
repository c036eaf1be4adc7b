//! A key in canonical form, owned or borrowed.

use std::fmt;

use bytes::Bytes;

/// A key in canonical form: never empty.
#[derive(Clone)]
pub struct Key {
    pub(super) bytes: Bytes,
    /// How the source or the request spells it, see [`Key::original`] and [`Key::given`]. Not part of the key: two
    /// spellings are one key.
    pub(super) original: Option<Box<Bytes>>,
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

    /// The key as text, if it is valid UTF-8. Always `Some` for every form but `bytes`.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// Wraps bytes that have passed [`KeyForm::canonical`](super::KeyForm::canonical) before, as in a journal.
    #[must_use]
    pub fn from_canonical(bytes: Bytes) -> Self {
        Self { bytes, original: None }
    }

    /// The key as its source spells it, if that differs from the canonical form. To be tried at the backend, never to
    /// be used as a cache key.
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

/// A borrowed key in canonical form: enough for hashing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyRef<'a>(pub(super) &'a [u8]);

impl<'a> KeyRef<'a> {
    /// The canonical bytes.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Copies the key.
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

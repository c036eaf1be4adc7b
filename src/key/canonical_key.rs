//! A key in canonical form.

use std::fmt;

use bytes::Bytes;

/// A key in canonical form: never empty.
#[derive(Clone)]
pub struct Key {
    pub(super) bytes: Bytes,
    /// How its source or its request spells it, see [`Key::original`] and [`Key::given`]. Says nothing of the key itself: two spellings are one key.
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
pub struct KeyRef<'a>(pub(super) &'a [u8]);

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

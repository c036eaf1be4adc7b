//! The hash of a key, and the secret under which a keyspace hashes.

use std::fmt;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_secret};

use super::canonical_key::{Key, KeyRef};

/// XXH3-128 of a canonical key under the keyspace secret. Valid for every generation of a keyspace's filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(u128);

impl KeyHash {
    /// Wraps the bits of a hash that was made elsewhere under the same secret.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The 128 bits for the filter.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }
}

/// The secret under which a keyspace's keys are hashed: the same for all instances, never changed by a build.
#[derive(Clone)]
pub struct KeySecret([u8; KeySecret::LEN]);

impl KeySecret {
    /// Length in bytes, as of XXH3's default secret.
    pub const LEN: usize = 192;

    /// Wraps the bytes of an existing secret.
    #[must_use]
    pub const fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// A new secret from the operating system's randomness.
    #[must_use]
    pub fn random() -> Self {
        Self(std::array::from_fn(|_| rand::random()))
    }

    /// The bytes, to be stored where only instances of the same keyspace read them.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Identifies the secret without revealing it.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        xxh3_64(&self.0)
    }

    /// Hashes a canonical key.
    #[must_use]
    pub fn hash(&self, key: &Key) -> KeyHash {
        self.hash_ref(key.into())
    }

    /// Like [`hash`](Self::hash), for a borrowed key.
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

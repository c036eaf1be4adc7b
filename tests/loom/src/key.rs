//! Keys that are their own hashes.

#[derive(Debug, Clone)]
pub struct Key([u8; 1]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(u128);

pub fn key(number: u8) -> (KeyHash, Key) {
    (KeyHash(number.into()), Key([number]))
}

impl Key {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl KeyHash {
    pub fn get(self) -> u128 {
        self.0
    }
}

//! Many keys in one allocation: [`KeyBatch`].

use bytes::Bytes;

use super::canonical_key::{Key, KeyRef};
use super::form::{KeyError, KeyForm};

/// Keys of a scan on the way to a filter, in canonical form. A scan reads millions, so none has an allocation of its
/// own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyBatch {
    bytes: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
    /// Keys that the source spells differently: index and spelling, in the order of the keys.
    respelled: Vec<(usize, Bytes)>,
}

impl KeyBatch {
    /// An empty batch with capacity for this many keys of common length.
    #[must_use]
    pub fn with_capacity(keys: usize) -> Self {
        const COMMON: usize = 16;
        Self { bytes: Vec::with_capacity(keys * COMMON), ends: Vec::with_capacity(keys), respelled: Vec::new() }
    }

    /// Brings a key of a source into `form` and adds it. Remembers the source's spelling if it differs.
    ///
    /// # Errors
    /// [`KeyError`] if it has no such form; nothing is added then.
    pub fn push(&mut self, form: KeyForm, raw: &[u8]) -> Result<(), KeyError> {
        // Allocates only if the source spells the key differently.
        let mut rewritten = Vec::new();
        if form.rewrite(raw, &mut rewritten)? && rewritten != raw {
            self.bytes.extend_from_slice(&rewritten);
            self.respelled.push((self.ends.len(), Bytes::copy_from_slice(raw)));
        } else {
            self.bytes.extend_from_slice(raw);
        }
        self.ends.push(self.bytes.len());
        Ok(())
    }

    /// Number of keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all keys.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Iterates over the keys without copying them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = KeyRef<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |end| KeyRef(&self.bytes[std::mem::replace(&mut start, *end)..*end]))
    }

    /// Copies one key.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Key> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        let original = self
            .respelled
            .binary_search_by_key(&index, |(key, _)| *key)
            .ok()
            .map(|at| Box::new(self.respelled[at].1.clone()));
        Some(Key { bytes: Bytes::copy_from_slice(&self.bytes[start..end]), original })
    }

    /// Keys that the source spells differently: index and spelling.
    pub fn respelled(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.respelled.iter().map(|(index, original)| (*index, &original[..]))
    }
}

impl FromIterator<Key> for KeyBatch {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Self {
        let mut batch = Self::default();
        for key in keys {
            if let Some(original) = key.original {
                batch.respelled.push((batch.ends.len(), *original));
            }
            batch.bytes.extend_from_slice(&key.bytes);
            batch.ends.push(batch.bytes.len());
        }
        batch
    }
}

impl IntoIterator for KeyBatch {
    type Item = Key;
    type IntoIter = std::vec::IntoIter<Key>;

    fn into_iter(self) -> Self::IntoIter {
        (0..self.len()).filter_map(|index| self.get(index)).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_batch_are_those_that_were_pushed_with_their_spellings() {
        let mut batch = KeyBatch::with_capacity(2);
        for raw in ["7", "042", "+8", "-1"] {
            batch.push(KeyForm::Integer, raw.as_bytes()).unwrap();
            assert!(batch.push(KeyForm::Integer, b"12x").is_err());
        }
        assert!(batch.iter().map(KeyRef::as_bytes).eq([&b"7"[..], b"42", b"8", b"-1"]));
        assert_eq!((batch.len(), batch.bytes()), (4, 6));
        assert!(batch.respelled().eq([(1, &b"042"[..]), (2, &b"+8"[..])]));
        let keys: Vec<Key> = batch.clone().into_iter().collect();
        let originals: Vec<_> = keys.iter().map(|key| key.original().map(|key| key.as_bytes().to_vec())).collect();
        assert_eq!(originals, [None, Some(b"042".to_vec()), Some(b"+8".to_vec()), None]);
        assert_eq!(keys.into_iter().collect::<KeyBatch>(), batch);
        assert_eq!(batch.get(4), None);
    }
}

//! The keys of one scan, exactly and compactly: sorted arrays with binary search.

use uuid::Uuid;

use super::arena::Arena;
use super::{SetError, grown, make_room};
use crate::key::{Key, KeyBatch, KeyForm};

/// The keys of one scan. Never changes.
#[derive(Debug)]
pub struct KeySet(KeyArrays);

/// Keys of a scan under way, in order of arrival, with duplicates.
#[derive(Debug)]
pub struct KeySetBuilder(KeyArrays);

#[derive(Debug)]
enum KeyArrays {
    /// 8 bytes a key. The range of the form exceeds each type of that size.
    Integers { negative: Vec<i64>, natural: Vec<u64> },
    /// 16 bytes a key.
    Uuids(Vec<u128>),
    /// Of every other form.
    Bytes(Arena),
}

/// A key as the arrays store it.
enum Packed<'k> {
    Negative(i64),
    Natural(u64),
    Uuid(u128),
    Bytes(&'k [u8]),
}

impl KeySetBuilder {
    /// For keys of this form.
    #[must_use]
    pub fn new(form: KeyForm) -> Self {
        Self(match form {
            KeyForm::Integer => KeyArrays::Integers { negative: Vec::new(), natural: Vec::new() },
            KeyForm::Uuid => KeyArrays::Uuids(Vec::new()),
            KeyForm::Text | KeyForm::TextCi | KeyForm::Bytes => KeyArrays::Bytes(Arena::default()),
        })
    }

    /// The minimum of bytes for this many keys of this form.
    #[must_use]
    pub const fn least_bytes(form: KeyForm, keys: u64) -> u64 {
        let each = match form {
            KeyForm::Integer => size_of::<u64>(),
            KeyForm::Uuid => size_of::<u128>(),
            KeyForm::Text | KeyForm::TextCi | KeyForm::Bytes => Arena::cost(1),
        };
        keys.saturating_mul(each as u64)
    }

    /// Bytes used once these keys are in, so that they can be reserved before.
    #[must_use]
    pub fn bytes_with(&self, batch: &KeyBatch) -> u64 {
        match &self.0 {
            KeyArrays::Integers { negative, natural } => {
                let below_zero = count_negative(batch);
                ((grown(negative, below_zero) + grown(natural, batch.len() - below_zero)) * size_of::<u64>()) as u64
            }
            KeyArrays::Uuids(uuids) => (grown(uuids, batch.len()) * size_of::<u128>()) as u64,
            KeyArrays::Bytes(arena) => arena.bytes_with(batch.len(), record_bytes(batch)),
        }
    }

    /// Adds keys.
    ///
    /// # Errors
    /// [`SetError`]; the keys added so far are no key set.
    pub fn extend(&mut self, batch: &KeyBatch) -> Result<(), SetError> {
        match &mut self.0 {
            KeyArrays::Integers { negative, natural } => {
                let below_zero = count_negative(batch);
                make_room(negative, below_zero);
                make_room(natural, batch.len() - below_zero);
            }
            KeyArrays::Uuids(uuids) => make_room(uuids, batch.len()),
            KeyArrays::Bytes(arena) => arena.make_room(batch.len(), record_bytes(batch)),
        }
        batch.iter().try_for_each(|key| self.0.push(key.as_bytes()))
    }

    /// Sorts, which takes long: not for a thread that others wait for.
    #[must_use]
    pub fn finish(mut self) -> KeySet {
        match &mut self.0 {
            KeyArrays::Integers { negative, natural } => {
                sort(negative);
                sort(natural);
            }
            KeyArrays::Uuids(uuids) => sort(uuids),
            KeyArrays::Bytes(arena) => arena.sort(),
        }
        KeySet(self.0)
    }
}

impl KeySet {
    /// Returns true if the scan found this key.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        match (&self.0, self.0.pack(key.as_bytes())) {
            (KeyArrays::Integers { negative, .. }, Some(Packed::Negative(n))) => negative.binary_search(&n).is_ok(),
            (KeyArrays::Integers { natural, .. }, Some(Packed::Natural(n))) => natural.binary_search(&n).is_ok(),
            (KeyArrays::Uuids(uuids), Some(Packed::Uuid(uuid))) => uuids.binary_search(&uuid).is_ok(),
            (KeyArrays::Bytes(arena), Some(Packed::Bytes(bytes))) => arena.contains(bytes),
            // Every key of the set has its form.
            _ => false,
        }
    }

    /// How many keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        match &self.0 {
            KeyArrays::Integers { negative, natural } => negative.len() + natural.len(),
            KeyArrays::Uuids(uuids) => uuids.len(),
            KeyArrays::Bytes(arena) => arena.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes used.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            KeyArrays::Integers { negative, natural } => {
                ((negative.capacity() + natural.capacity()) * size_of::<u64>()) as u64
            }
            KeyArrays::Uuids(uuids) => (uuids.capacity() * size_of::<u128>()) as u64,
            KeyArrays::Bytes(arena) => arena.bytes_with(0, 0),
        }
    }
}

impl KeyArrays {
    /// `None`: the key has another form.
    fn pack<'k>(&self, key: &'k [u8]) -> Option<Packed<'k>> {
        match self {
            Self::Integers { .. } => {
                let text = std::str::from_utf8(key).ok()?;
                text.parse().map(Packed::Natural).or_else(|_| text.parse().map(Packed::Negative)).ok()
            }
            Self::Uuids(_) => Uuid::try_parse_ascii(key).ok().map(|uuid| Packed::Uuid(uuid.as_u128())),
            Self::Bytes(_) => Some(Packed::Bytes(key)),
        }
    }

    fn push(&mut self, key: &[u8]) -> Result<(), SetError> {
        let packed = self.pack(key).ok_or(SetError::Form)?;
        match (self, packed) {
            (Self::Integers { negative, .. }, Packed::Negative(n)) => negative.push(n),
            (Self::Integers { natural, .. }, Packed::Natural(n)) => natural.push(n),
            (Self::Uuids(uuids), Packed::Uuid(uuid)) => uuids.push(uuid),
            (Self::Bytes(arena), Packed::Bytes(bytes)) => return arena.push(bytes),
            // A key that is left out silently would be called absent.
            _ => return Err(SetError::Form),
        }
        Ok(())
    }
}

fn sort<T: Ord>(keys: &mut Vec<T>) {
    keys.sort_unstable();
    keys.dedup();
    keys.shrink_to_fit();
}

fn count_negative(batch: &KeyBatch) -> usize {
    batch.iter().filter(|key| key.as_bytes().starts_with(b"-")).count()
}

fn record_bytes(batch: &KeyBatch) -> usize {
    batch.iter().map(|key| Arena::record_bytes(key.as_bytes().len())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(form: KeyForm, raw: &[u8]) -> Key {
        form.canonical(raw).unwrap()
    }

    fn set_of(form: KeyForm, keys: &[Key]) -> KeySet {
        let mut builder = KeySetBuilder::new(form);
        for batch in keys.chunks(4096) {
            let batch: KeyBatch = batch.iter().cloned().collect();
            let reckoned = builder.bytes_with(&batch);
            builder.extend(&batch).unwrap();
            assert_eq!(builder.bytes_with(&KeyBatch::default()), reckoned, "no more was taken than was told before");
        }
        builder.finish()
    }

    /// Keys in no order, every third of them twice.
    fn shuffled(form: KeyForm, raw: impl Fn(u64) -> String) -> Vec<Key> {
        let order = (0..50_000_u64).map(|i| i * 7_919 % 50_000);
        order.flat_map(|i| vec![key(form, raw(i).as_bytes()); if i % 3 == 0 { 2 } else { 1 }]).collect()
    }

    #[test]
    fn every_key_of_the_scan_is_held_and_no_other() {
        let uuid = |i: u64| Uuid::from_u128(u128::from(i) << 77 | u128::from(i)).to_string();
        let text = |i: u64| format!("user:{}", "x".repeat(i as usize % 300)) + &i.to_string();
        let forms: [(KeyForm, &dyn Fn(u64) -> String); 3] =
            [(KeyForm::Integer, &|i| (i as i64 - 25_000).to_string()), (KeyForm::Uuid, &uuid), (KeyForm::Text, &text)];
        for (form, raw) in forms {
            let keys = shuffled(form, |i| raw(i * 2));
            let set = set_of(form, &keys);
            assert_eq!(set.len(), 50_000, "{form}");
            for i in 0..50_000 {
                assert!(set.contains(&key(form, raw(i * 2).as_bytes())), "{form} {i}");
                assert!(!set.contains(&key(form, raw(i * 2 + 1).as_bytes())), "{form} {i}");
            }
        }
    }

    #[test]
    fn integers_at_the_ends_of_their_range_are_told_apart() {
        let all = [
            "-9223372036854775808",
            "-1",
            "0",
            "1",
            "9223372036854775807",
            "9223372036854775808",
            "18446744073709551615",
        ];
        for left_out in 0..all.len() {
            let mut keys: Vec<Key> = all.iter().map(|n| key(KeyForm::Integer, n.as_bytes())).collect();
            let absent = keys.remove(left_out);
            let set = set_of(KeyForm::Integer, &keys);
            assert!(keys.iter().all(|key| set.contains(key)));
            assert!(!set.contains(&absent), "{absent:?}");
        }
    }

    #[test]
    fn a_key_costs_8_bytes_as_integer_16_as_uuid_and_length_plus_6_as_text() {
        let per_key = |set: &KeySet| set.bytes() as f64 / set.len() as f64;
        let integers = shuffled(KeyForm::Integer, |i| i.to_string());
        assert_eq!(per_key(&set_of(KeyForm::Integer, &integers)), 8.0);
        let uuids = shuffled(KeyForm::Uuid, |i| Uuid::from_u128(u128::from(i)).to_string());
        assert_eq!(per_key(&set_of(KeyForm::Uuid, &uuids)), 16.0);
        // No duplicates: their bytes would stay.
        let text: Vec<Key> = (0..50_000).map(|i| key(KeyForm::Text, format!("{i:020}").as_bytes())).collect();
        assert_eq!(per_key(&set_of(KeyForm::Text, &text)), 26.0);
    }

    #[test]
    fn a_key_of_another_form_is_an_error_and_not_left_out() {
        let stray = KeyBatch::from_iter([key(KeyForm::Text, b"abc")]);
        for form in [KeyForm::Integer, KeyForm::Uuid] {
            assert_eq!(KeySetBuilder::new(form).extend(&stray), Err(SetError::Form));
        }
    }
}

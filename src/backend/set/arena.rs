//! Byte strings without a header each: all in one buffer, with their starts.

use super::SetError;

/// Where a record starts, little-endian. Five bytes reach 1 TiB.
#[derive(Debug, Clone, Copy)]
struct RecordStart([u8; 5]);

/// Byte strings, each behind its length. After sorting, the starts are in the order of their strings.
#[derive(Debug, Default)]
pub(super) struct Arena {
    /// Records `length: LEB128 · bytes`, in order of arrival.
    records: Vec<u8>,
    starts: Vec<RecordStart>,
}

impl Arena {
    /// Bytes for a string of this length.
    pub(super) const fn cost(length: usize) -> usize {
        length + prefix_bytes(length) + size_of::<RecordStart>()
    }

    pub(super) const fn len(&self) -> usize {
        self.starts.len()
    }

    /// Bytes held, including unused room, once there is room for `count` further strings of `length` bytes together
    /// with their prefixes.
    pub(super) fn bytes_with(&self, count: usize, length: usize) -> u64 {
        let starts = super::grown(&self.starts, count) * size_of::<RecordStart>();
        (super::grown(&self.records, length) + starts) as u64
    }

    pub(super) fn make_room(&mut self, count: usize, length: usize) {
        super::make_room(&mut self.starts, count);
        super::make_room(&mut self.records, length);
    }

    /// Bytes of the record of a string.
    pub(super) const fn record_bytes(length: usize) -> usize {
        length + prefix_bytes(length)
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), SetError> {
        self.starts.push(RecordStart::new(self.records.len()).ok_or(SetError::TooLarge)?);
        let mut length = bytes.len();
        while length >= 0x80 {
            self.records.push(length as u8 | 0x80);
            length >>= 7;
        }
        self.records.push(length as u8);
        self.records.extend_from_slice(bytes);
        Ok(())
    }

    /// Sorts the strings and drops duplicates. The bytes of duplicates remain, because sources list few keys twice.
    pub(super) fn sort(&mut self) {
        let Self { records, starts } = self;
        starts.sort_unstable_by(|a, b| at(records, *a).cmp(at(records, *b)));
        starts.dedup_by(|a, b| at(records, *a) == at(records, *b));
        starts.shrink_to_fit();
        records.shrink_to_fit();
    }

    /// Whether the sorted strings hold this one.
    pub(super) fn contains(&self, bytes: &[u8]) -> bool {
        self.starts.binary_search_by(|start| at(&self.records, *start).cmp(bytes)).is_ok()
    }
}

impl RecordStart {
    fn new(at: usize) -> Option<Self> {
        match (at as u64).to_le_bytes() {
            [a, b, c, d, e, 0, 0, 0] => Some(Self([a, b, c, d, e])),
            _ => None,
        }
    }

    const fn get(self) -> usize {
        let [a, b, c, d, e] = self.0;
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]) as usize
    }
}

/// The string whose record starts there.
fn at(records: &[u8], start: RecordStart) -> &[u8] {
    let record = &records[start.get()..];
    let (mut length, mut prefix) = (0, 0);
    loop {
        let byte = record[prefix];
        length |= usize::from(byte & 0x7f) << (7 * prefix);
        prefix += 1;
        if byte < 0x80 {
            return &record[prefix..prefix + length];
        }
    }
}

const fn prefix_bytes(length: usize) -> usize {
    // LEB128: seven bits a byte.
    let bits = usize::BITS - length.leading_zeros();
    if bits == 0 { 1 } else { bits.div_ceil(7) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_any_length_are_found_and_no_others() {
        let lengths = [0, 1, 127, 128, 129, 16_383, 16_384, 70_000];
        let mut arena = Arena::default();
        for length in lengths.iter().rev().chain(&lengths) {
            arena.push(&vec![b'x'; *length]).unwrap();
        }
        arena.sort();
        assert_eq!(arena.len(), lengths.len());
        for length in lengths {
            assert!(arena.contains(&vec![b'x'; length]), "{length}");
            assert!(!arena.contains(&vec![b'x'; length + 2]) || lengths.contains(&(length + 2)), "{length}");
            assert!(!arena.contains(&vec![b'y'; length]) || length == 0, "{length}");
        }
    }

    #[test]
    fn a_string_costs_what_is_reckoned() {
        for length in [0, 1, 127, 128, 16_383, 16_384] {
            let mut arena = Arena::default();
            arena.push(&vec![b'x'; length]).unwrap();
            assert_eq!(arena.records.len(), Arena::record_bytes(length), "{length}");
            arena.sort();
            assert_eq!(arena.bytes_with(0, 0), Arena::cost(length) as u64, "{length}");
        }
    }

    #[test]
    fn what_five_bytes_can_not_reach_is_an_error_and_no_other_place() {
        assert_eq!(RecordStart::new((1 << 40) - 1).map(RecordStart::get), Some((1 << 40) - 1));
        assert!(RecordStart::new(1 << 40).is_none());
    }
}

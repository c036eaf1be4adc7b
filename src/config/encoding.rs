//! Bytes that stand for settings, to be hashed.

use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

/// A sequence of named fields. Two sequences have the same bytes only if they have the same fields in the same order.
///
/// A field is the length of its name, its name, the length of its value, its value; lengths are 32 bits, little-endian.
/// A field that has no value is left out, which is another thing than an empty one. Numbers are little-endian and as wide
/// as their type. What has a word in the configuration is written by that word, so a rename of a type changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Encoding(Vec<u8>);

impl Encoding {
    /// Begins with a name of what is encoded, so that two kinds of fingerprints never agree.
    pub(super) fn new(what: &str) -> Self {
        Self(Vec::new()).text("fingerprint", what)
    }

    /// The value of a field that holds fields.
    pub(super) const fn group() -> Self {
        Self(Vec::new())
    }

    pub(super) fn bytes(mut self, name: &str, value: &[u8]) -> Self {
        for part in [name.as_bytes(), value] {
            // No setting is as long as 4 GiB.
            self.0.extend_from_slice(&(part.len() as u32).to_le_bytes());
            self.0.extend_from_slice(part);
        }
        self
    }

    pub(super) fn text(self, name: &str, value: &str) -> Self {
        self.bytes(name, value.as_bytes())
    }

    pub(super) fn optional_text(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(name, value),
            None => self,
        }
    }

    pub(super) fn number(self, name: &str, value: u64) -> Self {
        self.bytes(name, &value.to_le_bytes())
    }

    /// In nanoseconds.
    pub(super) fn duration(self, name: &str, value: Duration) -> Self {
        self.bytes(name, &value.as_nanos().to_le_bytes())
    }

    pub(super) fn fields(self, name: &str, value: &Self) -> Self {
        self.bytes(name, &value.0)
    }

    pub(super) fn hash(&self) -> u64 {
        xxh3_64(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_as_they_always_were() {
        let inner = Encoding::group().bytes("i", &[1]);
        let encoding = Encoding::new("x").optional_text("none", None).text("empty", "").fields("group", &inner);
        let expected = b"\x0b\0\0\0fingerprint\x01\0\0\0x\
            \x05\0\0\0empty\0\0\0\0\
            \x05\0\0\0group\x0a\0\0\0\x01\0\0\0i\x01\0\0\0\x01";
        assert_eq!(encoding.0, expected);
        assert_eq!(Encoding::group().number("n", 258).0, b"\x01\0\0\0n\x08\0\0\0\x02\x01\0\0\0\0\0\0");
        let nanoseconds = Encoding::group().duration("d", Duration::from_nanos(3));
        assert_eq!(nanoseconds.0[..10], *b"\x01\0\0\0d\x10\0\0\0\x03");
    }

    #[test]
    fn fields_do_not_run_into_one_another() {
        let of = |fields: &[(&str, &str)]| {
            fields.iter().fold(Encoding::group(), |encoding, (name, value)| encoding.text(name, value))
        };
        let all = [
            of(&[]),
            of(&[("a", "")]),
            of(&[("", "a")]),
            of(&[("a", "b")]),
            of(&[("ab", "")]),
            of(&[("a", "b"), ("c", "d")]),
            of(&[("a", "bc"), ("", "d")]),
            of(&[("a", "b\u{1}\0\0\0c\u{1}\0\0\0d")]),
            of(&[("c", "d"), ("a", "b")]),
            Encoding::group().fields("a", &of(&[("b", "")])),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{one:?}");
        }
    }
}

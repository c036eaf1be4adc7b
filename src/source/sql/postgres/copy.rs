//! The binary form of `COPY … TO STDOUT`, one column wide.
//!
//! A signature, flags and an extension; a tuple for each row, which is a number of fields and for each of them its
//! length, −1 for NULL, and its bytes; a trailer. The server sends each in a message of its own, but the protocol does
//! not promise that: it is one stream of bytes.

use bytes::{Buf as _, Bytes};

const SIGNATURE: [u8; 11] = *b"PGCOPY\n\xff\r\n\0";
/// Signature, flags, length of the extension.
const HEAD: usize = SIGNATURE.len() + 4 + 4;
/// The upper half of the flags: a reader must stop at an unknown one. The only one that ever existed puts an OID before
/// each tuple.
const CRITICAL: u32 = 0xffff_0000;
/// In place of the number of fields.
const TRAILER: i16 = -1;
/// In place of a length.
const NULL: i32 = -1;
/// Bytes of a tuple of one field beside its value.
const TUPLE: usize = 2 + 4;

/// Bytes of a copy that have arrived and were not read yet.
#[derive(Debug, Default)]
pub(super) struct Copied {
    message: Bytes,
    /// How much of it was read.
    read: usize,
}

/// The next item.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'c> {
    /// The value of a row's only field.
    Field(&'c [u8]),
    /// A row whose field is NULL.
    Null,
    /// All rows were read.
    End,
    /// Nothing complete: another message is needed.
    Nothing,
}

impl Copied {
    /// Adds a message behind the unread rest.
    pub(super) fn add(&mut self, message: Bytes) {
        let rest = &self.message[self.read..];
        self.message = if rest.is_empty() { message } else { Bytes::from([rest, &message].concat()) };
        self.read = 0;
    }

    /// Reads the head before the first tuple. Returns `false` if it has not arrived completely.
    ///
    /// # Errors
    /// If it is another format.
    pub(super) fn head(&mut self) -> Result<bool, &'static str> {
        let head = &self.message[self.read..];
        let known = head.len().min(SIGNATURE.len());
        if head[..known] != SIGNATURE[..known] {
            return Err("a copy does not begin with its signature");
        }
        let Some(mut numbers) = head.get(SIGNATURE.len()..HEAD) else { return Ok(false) };
        if numbers.get_u32() & CRITICAL != 0 {
            return Err("a copy is of a form that is not known");
        }
        let extension = usize::try_from(numbers.get_i32()).map_err(|_| MALFORMED)?;
        let whole = head.len() >= HEAD + extension;
        self.read += if whole { HEAD + extension } else { 0 };
        Ok(whole)
    }

    /// Reads the next item behind the head.
    ///
    /// # Errors
    /// If it is neither a tuple of one field nor the trailer.
    pub(super) fn next(&mut self) -> Result<Next<'_>, &'static str> {
        let Some((fields, rest)) = self.message[self.read..].split_first_chunk() else { return Ok(Next::Nothing) };
        match i16::from_be_bytes(*fields) {
            1 => {}
            TRAILER if rest.is_empty() => return Ok(Next::End),
            TRAILER => return Err("a copy goes on behind its trailer"),
            _ => return Err("a row of a copy does not have one field"),
        }
        let Some((length, rest)) = rest.split_first_chunk() else { return Ok(Next::Nothing) };
        let length = i32::from_be_bytes(*length);
        if length == NULL {
            self.read += TUPLE;
            return Ok(Next::Null);
        }
        let Some(value) = rest.get(..usize::try_from(length).map_err(|_| MALFORMED)?) else { return Ok(Next::Nothing) };
        self.read += TUPLE + value.len();
        Ok(Next::Field(value))
    }
}

const MALFORMED: &str = "a copy is not in the form that PostgreSQL documents";

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Vec<u8> {
        [&SIGNATURE[..], &[0; 8]].concat()
    }

    fn field(value: &[u8]) -> Vec<u8> {
        [&[0, 1][..], &u32::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
    }

    const NOTHING: [u8; 6] = [0, 1, 0xff, 0xff, 0xff, 0xff];
    const LAST: [u8; 2] = [0xff, 0xff];

    type Value = Option<Vec<u8>>;

    /// Every value and NULL of a copy in parts of this size, and whether its trailer arrived.
    fn read(copy: &[u8], piece: usize) -> Result<(Vec<Value>, bool), &'static str> {
        let (mut copied, mut begun, mut found) = (Copied::default(), false, Vec::new());
        for piece in copy.chunks(piece) {
            copied.add(Bytes::copy_from_slice(piece));
            begun = begun || copied.head()?;
            if !begun {
                continue;
            }
            loop {
                match copied.next()? {
                    Next::Field(value) => found.push(Some(value.to_vec())),
                    Next::Null => found.push(None),
                    Next::End => return Ok((found, true)),
                    Next::Nothing => break,
                }
            }
        }
        Ok((found, false))
    }

    #[test]
    fn rows_are_read_however_they_are_cut_into_messages() {
        let copy =
            [head(), field(b"42"), NOTHING.into(), field(b""), field(b"\xff\xff"), field(&[7; 300]), LAST.into()]
                .concat();
        let expected = [Some(b"42".to_vec()), None, Some(vec![]), Some(b"\xff\xff".to_vec()), Some(vec![7; 300])];
        for piece in 1..=copy.len() {
            assert_eq!(read(&copy, piece), Ok((expected.to_vec(), true)), "in pieces of {piece}");
        }
    }

    #[test]
    fn a_copy_that_is_cut_short_never_ends() {
        let copy = [head(), field(b"42"), NOTHING.into(), field(b"43"), LAST.into()].concat();
        for kept in 1..copy.len() {
            assert!(matches!(read(&copy[..kept], copy.len()), Ok((_, false))), "{kept} bytes");
        }
    }

    #[test]
    fn extensions_and_flags_that_may_be_ignored_are() {
        let head = [&SIGNATURE[..], &[0, 0, 0x80, 1], &[0, 0, 0, 3], b"ext"].concat();
        assert_eq!(read(&[head, field(b"1"), LAST.into()].concat(), 5), Ok((vec![Some(b"1".to_vec())], true)));
    }

    #[test]
    fn what_is_no_copy_of_one_column_is_refused() {
        let of = |tuples: &[u8]| [head(), tuples.to_vec()].concat();
        for (copy, refused) in [
            (b"1\n2\n".to_vec(), "signature"),
            ([&SIGNATURE[..], &[0, 1, 0, 0], &[0; 4]].concat(), "form that is not known"),
            ([&SIGNATURE[..], &[0; 4], &[0xff; 4]].concat(), "documents"),
            (of(&[0, 2, 0, 0, 0, 0, 0, 0, 0, 0]), "one field"),
            (of(&[0, 0]), "one field"),
            (of(&[0, 1, 0xff, 0xff, 0xff, 0xfe]), "documents"),
            (of(&[&LAST[..], &field(b"1")].concat()), "behind its trailer"),
        ] {
            assert!(matches!(read(&copy, copy.len()), Err(why) if why.contains(refused)), "{refused}");
        }
    }
}

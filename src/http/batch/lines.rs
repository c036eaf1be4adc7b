//! Splits text and bodies that arrive in pieces into lines.

use crate::key::KeyForm;

/// Splits a body that arrives in pieces. Keeps the unfinished line.
pub(super) struct LineSplitter {
    /// Decides whether a byte order mark belongs to the first line.
    form: KeyForm,
    /// Lines that have ended.
    ended: usize,
    unfinished: Vec<u8>,
}

impl LineSplitter {
    /// For keys of this form.
    pub(super) const fn new(form: KeyForm) -> Self {
        Self { form, ended: 0, unfinished: Vec::new() }
    }

    /// Passes on the lines that end in this piece, as [`each_line`] does.
    pub(super) fn piece<E>(
        &mut self,
        mut piece: &[u8],
        mut take: impl FnMut(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.ended == 0 || !self.unfinished.is_empty() {
            let end = piece.iter().position(|byte| *byte == b'\n');
            self.unfinished.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
            let Some(end) = end else { return Ok(()) };
            self.end_line(&mut take)?;
            piece = &piece[end + 1..];
        }
        let whole = piece.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let (whole, unfinished) = piece.split_at(whole);
        let before = self.ended;
        // `each_line` counts the rest after the last newline as one line.
        self.ended += each_line(whole, |number, line| take(before + number, line))? - 1;
        self.unfinished.extend_from_slice(unfinished);
        Ok(())
    }

    /// Ends the unfinished line; at the end of the body this is the last one.
    pub(super) fn end_line<E>(&mut self, mut take: impl FnMut(usize, &[u8]) -> Result<(), E>) -> Result<(), E> {
        self.ended += 1;
        let mut line = &self.unfinished[..];
        if self.ended == 1 {
            line = self.form.without_mark(line);
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let taken = if line.is_empty() { Ok(()) } else { take(self.ended, line) };
        self.unfinished.clear();
        taken
    }
}

/// Bytes scanned together: one per bit of a word.
const BLOCK: usize = 64;

/// Passes on each non-empty line with its number until `take` fails. Returns the number of lines.
///
/// Keys are short, so one scan of every byte is faster than a search for each line end.
#[inline]
fn each_line<E>(body: &[u8], mut take: impl FnMut(usize, &[u8]) -> Result<(), E>) -> Result<usize, E> {
    let (blocks, rest) = body.as_chunks();
    // The last line ends with the body, which is never the end of a block here.
    let mut last = [0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = b'\n';
    let (mut number, mut start) = (0, 0);
    for (block, begin) in blocks.iter().chain([&last]).zip((0..).step_by(BLOCK)) {
        let mut ends = newlines(block);
        while ends != 0 {
            let end = begin + ends.trailing_zeros() as usize;
            ends &= ends - 1;
            let line = &body[start..end];
            (number, start) = (number + 1, end + 1);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() {
                take(number, line)?;
            }
        }
    }
    Ok(number)
}

/// One bit per byte: whether it is a newline. Eight bytes at a time.
#[inline]
fn newlines(block: &[u8; BLOCK]) -> u64 {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    const ALL_BUT_HIGHEST: u64 = EACH * 0x7f;
    /// Gathers the lowest bits of all bytes in the highest byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let of_eight = |eight: &[u8; 8]| {
        let word = u64::from_le_bytes(*eight) ^ (EACH * b'\n' as u64);
        // Adds within each byte: the highest bit stays 0 only if the byte is 0.
        let zeros = (!(((word & ALL_BUT_HIGHEST) + ALL_BUT_HIGHEST) | word) >> 7) & EACH;
        zeros.wrapping_mul(GATHER) >> 56
    };
    block.as_chunks().0.iter().rev().fold(0, |bits, eight| bits << 8 | of_eight(eight))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(body: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let mut lines = vec![];
        let Ok(_) = each_line(body, |number, line| {
            lines.push((number, line.to_vec()));
            Ok::<_, std::convert::Infallible>(())
        });
        lines
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_048))]

        #[test]
        fn lines_are_what_stands_between_newlines(body in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(0x8a), any::<u8>()], 0..300)) {
            let expected = body.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
            let expected = (1..).zip(expected).filter(|(_, line)| !line.is_empty());
            let expected: Vec<_> = expected.map(|(number, line)| (number, line.to_vec())).collect();
            prop_assert_eq!(lines(&body), expected);
        }
    }

    proptest! {
        #[test]
        fn in_whatever_pieces_a_body_comes_its_lines_are_the_same(
            pieces in prop::collection::vec(prop::collection::vec(prop_oneof![4 => Just(b'\n'), 2 => Just(b'\r'), 9 => any::<u8>()], 0..90), 0..6),
        ) {
            let (mut found, mut reading) = (vec![], LineSplitter::new(KeyForm::Bytes));
            let mut take = |number: usize, line: &[u8]| {
                found.push((number, line.to_vec()));
                Ok::<_, std::convert::Infallible>(())
            };
            for piece in &pieces {
                let Ok(()) = reading.piece(piece, &mut take);
            }
            let Ok(()) = reading.end_line(&mut take);
            prop_assert_eq!(found, lines(&pieces.concat()));
        }
    }

    #[test]
    fn the_last_line_ends_with_the_body_wherever_that_is() {
        for length in 1..3 * BLOCK {
            let body = vec![b'x'; length];
            assert_eq!(lines(&body), [(1, body.clone())]);
            assert_eq!(lines(&[&body[..], b"\r\n"].concat()), [(1, body)]);
        }
        assert_eq!(lines(b""), []);
    }
}

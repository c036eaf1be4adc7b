//! Bodies of one key a line.

use super::format::Counted;
use crate::http::problem::Problem;

pub(super) fn keys<F: FnMut(&[u8])>(body: &[u8], mut keys: Counted<F>) -> Result<(), Problem> {
    Ok(each_line(body, |_, line| keys.push(line))?)
}

/// Bytes that are looked at together: as many as a word has bits.
const BLOCK: usize = 64;

/// Hands over the lines with their numbers, without those that are empty, until `take` fails.
///
/// Keys are short: to begin a search for the end of each would take longer than to look at every byte for all of them.
#[inline]
pub(super) fn each_line<E>(body: &[u8], mut take: impl FnMut(usize, &[u8]) -> Result<(), E>) -> Result<(), E> {
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
    Ok(())
}

/// A bit for each byte, which says whether it is a newline; eight bytes at a time.
#[inline]
fn newlines(block: &[u8; BLOCK]) -> u64 {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    const ALL_BUT_HIGHEST: u64 = EACH * 0x7f;
    /// Brings the lowest bits of all bytes together in the highest byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let of_eight = |eight: &[u8; 8]| {
        let word = u64::from_le_bytes(*eight) ^ (EACH * b'\n' as u64);
        // Adds up within each byte: the highest bit stays 0 where the byte is 0.
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
        let Ok(()) = each_line(body, |number, line| {
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

//! The fast case of JSON keys: strings without escapes, and integers that are within bounds whatever their digits.
//! Nearly all keys are of this kind, and only their ends must be found. Everything else, valid or not, is left to
//! `serde_json`, which alone reports errors.

use super::sink::{KeySink, TooMany};

/// How far an array was read.
pub(super) enum ArrayRead {
    /// To its end, which is the end of the body.
    All,
    /// To a key beyond the limit.
    TooMany(TooMany),
    /// This many elements; what follows needs `serde_json`.
    UpTo(usize),
}

/// Every number of at most this many digits fits 64 bits.
const SAFE_DIGITS: usize = 18;

/// Reads the keys of an array as long as they are plain.
pub(super) fn array<F: FnMut(&[u8])>(body: &[u8], keys: &mut KeySink<F>) -> ArrayRead {
    match elements(body, keys) {
        Ok(Some(())) => ArrayRead::All,
        Ok(None) => ArrayRead::UpTo(keys.count()),
        Err(too_many) => ArrayRead::TooMany(too_many),
    }
}

/// `None` if something is not plain.
fn elements<F: FnMut(&[u8])>(body: &[u8], keys: &mut KeySink<F>) -> Result<Option<()>, TooMany> {
    let Some(mut rest) = after(b'[', body) else { return Ok(None) };
    if let Some(rest) = after(b']', rest) {
        return Ok(blank(rest));
    }
    while let Some((key, behind)) = key(trimmed(rest)) {
        let behind = trimmed(behind);
        // Only the next byte shows that the key is complete: digits may continue as a fraction.
        match behind.first() {
            Some(b',') => keys.push(key)?,
            Some(b']') => {
                keys.push(key)?;
                return Ok(blank(&behind[1..]));
            }
            _ => break,
        }
        rest = &behind[1..];
    }
    Ok(None)
}

/// The key of an NDJSON line, if it is plain.
pub(super) fn line(line: &[u8]) -> Option<&[u8]> {
    let line = trimmed(line);
    let (key, rest) = match after(b'{', line) {
        None => key(line)?,
        Some(object) => {
            let (key, rest) = key(trimmed(after(b':', trimmed(object).strip_prefix(b"\"key\"")?)?))?;
            (key, after(b'}', rest)?)
        }
    };
    blank(rest).map(|()| key)
}

/// The text behind `byte`, if that comes first.
fn after(byte: u8, text: &[u8]) -> Option<&[u8]> {
    trimmed(text).strip_prefix(&[byte])
}

#[inline]
fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = text {
        text = rest;
    }
    text
}

fn blank(text: &[u8]) -> Option<()> {
    trimmed(text).is_empty().then_some(())
}

/// The first key and the text behind it.
#[inline]
fn key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    match text.split_first()? {
        (b'"', text) => string(text),
        _ => integer(text),
    }
}

#[inline]
fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = end_of_string(text)?;
    let (key, rest) = (&text[..end], text[end..].strip_prefix(b"\"")?);
    (key.is_ascii() || std::str::from_utf8(key).is_ok()).then_some((key, rest))
}

/// Position of the first quote, backslash or control character; eight bytes at a time.
#[inline]
fn end_of_string(text: &[u8]) -> Option<usize> {
    let (eights, rest) = text.as_chunks();
    let in_eights = eights.iter().zip((0..).step_by(8)).find_map(|(eight, start)| Some(start + end_in(*eight)?));
    in_eights.or_else(|| {
        Some(text.len() - rest.len() + rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?)
    })
}

#[inline]
fn end_in(eight: [u8; 8]) -> Option<usize> {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    let word = u64::from_le_bytes(eight);
    // Sets the highest bit of each byte below the limit, and perhaps of later bytes. So the lowest bit that is set is
    // right.
    let below = |word: u64, limit: u64| word.wrapping_sub(EACH * limit) & !word;
    let quote = below(word ^ (EACH * b'"' as u64), 1);
    let backslash = below(word ^ (EACH * b'\\' as u64), 1);
    let ends = (quote | backslash | below(word, 0x20)) & (EACH << 7);
    (ends != 0).then_some(ends.trailing_zeros() as usize / 8)
}

#[inline]
fn integer(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let sign = usize::from(text.first() == Some(&b'-'));
    let digits = text[sign..].iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len() - sign);
    let plain = match text.get(sign)? {
        // A lone 0 without sign: JSON has a negative zero, which is not an integer.
        b'0' => sign + digits == 1,
        _ => (1..=SAFE_DIGITS).contains(&digits),
    };
    plain.then(|| text.split_at(sign + digits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sink::KeySink;
    use super::super::{json, ndjson};
    use super::*;

    fn taken(
        read: impl FnOnce(KeySink<&mut dyn FnMut(&[u8])>) -> Result<(), String>,
    ) -> (Vec<Vec<u8>>, Result<(), String>) {
        let mut keys = vec![];
        let mut take = |key: &[u8]| keys.push(key.to_vec());
        let read = read(KeySink::new(&mut take, 4));
        (keys, read)
    }

    /// JSON, and almost JSON.
    fn document() -> impl Strategy<Value = Vec<u8>> {
        let element = prop_oneof![
            4 => "-?[0-9]{1,21}",
            4 => "\"[ !#-\\[\\]-~]{0,20}\"",
            2 => "\"\\PC{0,9}\"",
            1 => Just(r#""\u00e9\/\n""#.to_owned()),
            1 => "-?[0-9]{1,3}(\\.[0-9])?(e[0-9])?",
            1 => Just("null".to_owned()),
        ];
        let space = "[ \t\r]{0,2}";
        let elements = prop::collection::vec((space, element, space), 0..7);
        let array = elements
            .prop_map(|elements| elements.into_iter().map(|(a, b, c)| a + &b + &c).collect::<Vec<_>>().join(","));
        let spoilt = (array, any::<prop::sample::Index>(), prop::option::weighted(0.3, any::<u8>()));
        spoilt.prop_map(|(array, place, byte)| {
            let mut body = format!("[{array}]").into_bytes();
            if let Some(byte) = byte {
                let place = place.index(body.len());
                body[place] = byte;
            }
            body
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn what_is_plain_is_read_as_serde_json_reads_it(body in document()) {
            let told = |read: Result<(), crate::http::problem::Problem>| read.map_err(|problem| format!("{problem:?}"));
            let here = taken(|mut keys| told(json::keys(&body, &mut keys)));
            prop_assert_eq!(here, taken(|mut keys| told(json::rest(&body, 0, &mut keys))));
        }

        #[test]
        fn a_plain_line_is_read_as_serde_json_reads_it(body in document(), wrapped in any::<bool>()) {
            let element = body[1..].split(|byte| *byte == b',').next().unwrap_or_default();
            let element = element.strip_suffix(b"]").unwrap_or(element);
            let line = if wrapped { [b"{ \"key\" :", element, b"} "].concat() } else { element.to_vec() };
            if let Some(key) = super::line(&line) {
                prop_assert_eq!(ndjson::parse_line(&line).ok(), Some(key.to_vec()));
            }
        }
    }

    #[test]
    fn common_keys_are_plain_in_every_format() {
        for element in [
            "0",
            "42",
            "-7",
            "123456789012345678",
            "\"\"",
            "\"user:1\"",
            "\"67e55044-10b1-426f-9247-bb680e5fe0c8\"",
            "\"é\"",
        ] {
            let mut count = 0;
            let body = format!("[ {element} ,{element},\n{element}]\n");
            let mut keys = KeySink::new(|_: &[u8]| count += 1, 3);
            assert!(matches!(array(body.as_bytes(), &mut keys), ArrayRead::All), "{element}");
            for spelled in
                [format!(" {element}\t"), format!("{{\"key\":{element}}}"), format!("{{ \"key\" : {element} }}")]
            {
                assert!(line(spelled.as_bytes()).is_some(), "{spelled}");
            }
        }
        assert!(json::keys(b"[1, \"\\u0032\", 3]", &mut KeySink::new(|_: &[u8]| (), 3)).is_ok());
    }
}

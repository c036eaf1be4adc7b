//! Reads batch bodies without a server, for fuzzing.

use super::reader::{Format, KeyReader};
use super::sink::KeySink;
use crate::key::KeyForm;

/// More than fuzzed bodies hold.
const MAX_KEYS: usize = 1 << 20;

/// The keys of a body that arrives in these pieces; `None` if it is not a batch of this format.
#[doc(hidden)]
#[must_use]
pub fn try_batch(format: Format, form: KeyForm, pieces: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
    let mut found = vec![];
    let mut keys = KeySink::new(|key: &[u8]| found.push(key.to_vec()), MAX_KEYS);
    let mut reading = KeyReader::new(format, form, 0);
    for piece in pieces {
        reading.piece(piece, &mut keys).ok()?;
    }
    reading.end(&mut keys).ok()?;
    Some(found)
}

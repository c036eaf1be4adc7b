//! A batch body has the same keys, or the same error, however it is split into pieces.

use bloomguard::http::{BatchFormat, try_batch};
use bloomguard::key::KeyForm;

/// The first byte chooses where the body is split.
pub fn run(data: &[u8]) {
    let Some((cut, body)) = data.split_first() else { return };
    let pieces = usize::from(*cut) % 7 + 1;
    for format in [BatchFormat::Json, BatchFormat::Ndjson, BatchFormat::Text] {
        for form in [KeyForm::Text, KeyForm::Bytes] {
            let whole = try_batch(format, form, &[body]);
            let cut: Vec<&[u8]> = body.chunks(pieces).collect();
            assert_eq!(whole, try_batch(format, form, &cut), "{format:?} {form:?} in pieces of {pieces}");
            let bytes: usize = whole.iter().flatten().map(Vec::len).sum();
            assert!(bytes <= body.len(), "{format:?} {form:?}: more bytes of keys than were sent");
        }
    }
}

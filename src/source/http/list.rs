//! Keys from the parts of a body.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::config::KeyListFormat;
use crate::key::{BYTE_ORDER_MARK, KeyForm};
use crate::source::SourceError;
use crate::source::batch::Batcher;

/// Longest line of NDJSON: room for members that are not the key.
const LONGEST_OBJECT: usize = 1 << 20;

/// Lines that arrive in parts.
#[derive(Debug)]
pub(super) struct KeyList {
    format: KeyListFormat,
    max_key_bytes: usize,
    /// The beginning of an unfinished line.
    partial: Vec<u8>,
    keys: u64,
}

impl KeyList {
    pub(super) const fn new(format: KeyListFormat, max_key_bytes: usize) -> Self {
        Self { format, max_key_bytes, partial: Vec::new(), keys: 0 }
    }

    /// Adds the next part of the body.
    pub(super) async fn take(&mut self, chunk: &[u8], batcher: &mut Batcher) -> Result<(), SourceError> {
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let (line, tail) = rest.split_at(end);
            rest = &tail[1..];
            if self.partial.is_empty() {
                self.line(line, batcher).await?;
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.line(&whole, batcher).await?;
                whole.clear();
                self.partial = whole;
            }
        }
        self.partial.extend_from_slice(rest);
        // Room for a carriage return and a mark: a longer line is too long in any case.
        if self.partial.len() > self.longest() + BYTE_ORDER_MARK.len() + 1 {
            Err(self.too_long(batcher.row() + 1))
        } else {
            Ok(())
        }
    }

    /// The body has ended, and the last line with it. Returns how many keys there were.
    pub(super) async fn end(mut self, batcher: &mut Batcher) -> Result<u64, SourceError> {
        let last = std::mem::take(&mut self.partial);
        if !last.is_empty() {
            self.line(&last, batcher).await?;
        }
        Ok(self.keys)
    }

    async fn line(&mut self, line: &[u8], batcher: &mut Batcher) -> Result<(), SourceError> {
        batcher.begin_row();
        let mut line = line.strip_suffix(b"\r").unwrap_or(line);
        if batcher.row() == 1 {
            line = match self.format {
                KeyListFormat::Lines => batcher.form().without_mark(line),
                // JSON is text, whatever form the keys have.
                KeyListFormat::Ndjson => KeyForm::Text.without_mark(line),
            };
        }
        if line.is_empty() {
            return Ok(());
        }
        if line.len() > self.longest() {
            return Err(self.too_long(batcher.row()));
        }
        self.keys += 1;
        match self.format {
            KeyListFormat::Lines => batcher.push(line).await,
            KeyListFormat::Ndjson => {
                let key = key_of(line).map_err(|why| batcher.unreadable(why))?;
                batcher.push(key.as_bytes()).await
            }
        }
    }

    const fn longest(&self) -> usize {
        match self.format {
            KeyListFormat::Lines => self.max_key_bytes,
            KeyListFormat::Ndjson => LONGEST_OBJECT,
        }
    }

    fn too_long(&self, row: u64) -> SourceError {
        let limit = match self.format {
            KeyListFormat::Lines => format!("server.max_key_bytes = {}", self.max_key_bytes),
            KeyListFormat::Ndjson => format!("{LONGEST_OBJECT} bytes"),
        };
        SourceError::Invalid(format!("row {row} is longer than {limit}"))
    }
}

/// The key of a line of NDJSON: a string, an integer, or an object with one of them as its member `key`.
fn key_of(line: &[u8]) -> Result<String, String> {
    #[derive(Deserialize)]
    struct ListedKey<'a> {
        #[serde(borrow)]
        key: &'a RawValue,
    }
    let value: &RawValue = serde_json::from_slice(line).map_err(|error| format!("not JSON: {error}"))?;
    if !value.get().starts_with('{') {
        return scalar(value.get());
    }
    let row: ListedKey<'_> =
        serde_json::from_str(value.get()).map_err(|error| format!("an object without a key: {error}"))?;
    scalar(row.key.get())
}

/// Digits are used as they are written: a parsed number could be another one.
fn scalar(json: &str) -> Result<String, String> {
    let digits = json.strip_prefix('-').unwrap_or(json);
    if json.starts_with('"') {
        serde_json::from_str(json).map_err(|error| format!("no text: {error}"))
    } else if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        Ok(json.to_owned())
    } else {
        Err("a key must be a JSON string or integer, or an object with such a member \"key\"".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::sync::mpsc;

    use super::*;

    async fn read(format: KeyListFormat, pieces: &[&[u8]]) -> Result<Vec<String>, SourceError> {
        let (sender, mut receiver) = mpsc::channel(16);
        let mut batcher = Batcher::new(KeyForm::Text, sender);
        let mut list = KeyList::new(format, 64);
        for piece in pieces {
            list.take(piece, &mut batcher).await?;
        }
        let keys = list.end(&mut batcher).await?;
        assert_eq!(batcher.finish().await?, keys);
        let mut read = Vec::new();
        while let Some(batch) = receiver.recv().await {
            read.extend(batch.iter().map(|key| String::from_utf8(key.as_bytes().to_vec()).unwrap()));
        }
        Ok(read)
    }

    #[tokio::test]
    async fn lines_end_in_every_way_and_in_every_piece() {
        let text = "\u{feff}a\r\nb c\n\n\r\n  d\nlast".as_bytes();
        for at in 0..text.len() {
            let (one, other) = text.split_at(at);
            assert_eq!(read(KeyListFormat::Lines, &[one, other]).await.unwrap(), ["a", "b c", "  d", "last"], "{at}");
        }
        assert!(read(KeyListFormat::Lines, &[b""]).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn ndjson_is_strings_integers_and_objects() {
        let text = b"\"a\\u00e9/\"\n42\r\n-7\n\n{\"key\": \"x\", \"n\": [1]}\n{\"n\":{\"key\":1},\"key\":18446744073709551615}\n";
        assert_eq!(
            read(KeyListFormat::Ndjson, &[text]).await.unwrap(),
            ["aé/", "42", "-7", "x", "18446744073709551615"]
        );
        for line in [
            "1.5",
            "1e3",
            "true",
            "null",
            "[1]",
            "{}",
            "{\"key\":null}",
            "{\"key\":{}}",
            "{\"key\":1,\"key\":2}",
            "a",
            "\"a\" \"b\"",
            "{",
        ] {
            let error = read(KeyListFormat::Ndjson, &[b"1\n", line.as_bytes()]).await.unwrap_err();
            assert!(matches!(&error, SourceError::Invalid(why) if why.starts_with("row 2: ")), "{line}: {error}");
        }
    }

    #[tokio::test]
    async fn lines_without_end_are_given_up_before_they_fill_the_memory() {
        let error = read(KeyListFormat::Lines, &[&[b'x'; 30], &[b'x'; 30], &[b'x'; 30]]).await.unwrap_err();
        assert!(error.to_string().contains("row 1 is longer than server.max_key_bytes = 64"), "{error}");
        assert!(read(KeyListFormat::Lines, &[&[b'x'; 65], b"\n"]).await.is_err());
        assert_eq!(read(KeyListFormat::Lines, &[&[b'x'; 64], b"\r\n"]).await.unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn keys_are_the_same_however_they_are_cut(keys in prop::collection::vec("[a-z ]{1,20}", 1..20), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
            let text = keys.join("\n");
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            at.extend([0, text.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|w| &text.as_bytes()[w[0]..w[1]]).collect();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            prop_assert_eq!(runtime.block_on(read(KeyListFormat::Lines, &pieces)).unwrap(), keys);
        }
    }
}

//! The bytes of a journal's files, and what two of them are together.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::Replayed;
use crate::key::Key;

/// Bytes of a record's length.
const LENGTH: usize = size_of::<u32>();
/// Bytes of its checksum.
const SUM: usize = size_of::<u64>();
/// First bytes of a file: no record is as long as they would say.
pub(super) const MAGIC: [u8; 4] = *b"BGJ1";
/// Bytes of a head: magic, which journal, number of the first record, XXH3-64 of these.
const HEAD: usize = 4 + 16 + 8 + SUM;

/// In the place of a record's length, right behind the head: for how long the records that follow matter. No key is as long as it would say.
const WINDOWS: u32 = u32::MAX;
/// Bytes of that note: mark, `commit_window` and `deadline` in milliseconds, checksum.
const WINDOWS_LEN: usize = LENGTH + 8 + 8 + SUM;

/// Which records a journal holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Which journal.
    pub id: [u8; 16],
    /// Number of the first record.
    pub first: u64,
    /// Number after the last.
    pub next: u64,
}

pub(super) fn encode(key: &Key) -> Vec<u8> {
    let bytes = key.as_bytes();
    // The configuration allows keys of at most 65,536 bytes, and no key form makes them four times as long.
    let mut record = Vec::with_capacity(bytes.len() + LENGTH + SUM);
    record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    record.extend_from_slice(bytes);
    record.extend_from_slice(&xxh3_64(&record).to_le_bytes());
    record
}

/// What a file holds.
#[derive(Debug)]
pub(super) struct Contents {
    keys: Vec<Key>,
    damaged: bool,
    extent: Extent,
    windows: Option<(Duration, Duration)>,
}

/// The note of `commit_window` and `deadline`.
pub(super) fn encode_windows((window, deadline): (Duration, Duration)) -> Vec<u8> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).to_le_bytes();
    let mut note = [WINDOWS.to_le_bytes().as_slice(), &millis(window), &millis(deadline)].concat();
    note.extend_from_slice(&xxh3_64(&note).to_le_bytes());
    note
}

/// The note of windows at the beginning of `records`, where there is one, and what follows it.
fn split_windows(records: &[u8]) -> (Option<(Duration, Duration)>, &[u8]) {
    let Some((note, rest)) = records.split_at_checked(WINDOWS_LEN).filter(|(note, _)| note.starts_with(&WINDOWS.to_le_bytes())) else {
        return (None, records);
    };
    let (body, sum) = note.split_at(WINDOWS_LEN - SUM);
    let millis = |at: usize| body[at..].first_chunk().map(|bytes| Duration::from_millis(u64::from_le_bytes(*bytes)));
    match (millis(LENGTH), millis(LENGTH + 8)) {
        (Some(window), Some(deadline)) if xxh3_64(body).to_le_bytes() == *sum => (Some((window, deadline)), rest),
        // Read as a record, it is damage.
        _ => (None, records),
    }
}

impl Replayed {
    /// Of both files, each of which may be missing.
    pub(super) fn of(old: Option<Contents>, young: Option<Contents>) -> Self {
        let windows =
            [&old, &young].into_iter().flatten().filter(|file| !file.keys.is_empty()).filter_map(|file| file.windows).reduce(longer);
        let (keys, damaged, extent) = match (old, young) {
            // The process died before it had removed the elder, which the younger had been made of.
            (Some(old), Some(young)) if old.extent.id == young.extent.id && young.extent.first <= old.extent.first && !young.damaged => {
                (young.keys, false, Some(young.extent))
            }
            (Some(old), Some(young)) => {
                let follows = old.extent.id == young.extent.id && old.extent.next == young.extent.first;
                let extent = follows.then_some(Extent { next: young.extent.next, ..old.extent });
                ([old.keys, young.keys].concat(), old.damaged || young.damaged, extent)
            }
            (Some(one), None) | (None, Some(one)) => (one.keys, one.damaged, Some(one.extent)),
            (None, None) => return Self::default(),
        };
        Self { keys, damaged, extent: extent.filter(|_| !damaged), windows }
    }
}

/// Of two configurations' windows the longer ones.
pub(super) fn longer(one: (Duration, Duration), other: (Duration, Duration)) -> (Duration, Duration) {
    (one.0.max(other.0), one.1.max(other.1))
}

impl Extent {
    pub(super) const fn held(&self) -> u64 {
        self.next - self.first
    }

    /// The head of a file whose first record is the one after these.
    pub(super) fn head(&self, first: u64) -> Vec<u8> {
        let mut head = [MAGIC.as_slice(), &self.id, &first.to_le_bytes()].concat();
        head.extend_from_slice(&xxh3_64(&head).to_le_bytes());
        head
    }
}

/// The head of a file, without which it is of an earlier version, and what follows.
fn split_head(bytes: &[u8]) -> (Option<([u8; 16], u64)>, &[u8]) {
    let Some((head, records)) = bytes.split_at_checked(HEAD).filter(|(head, _)| head.starts_with(&MAGIC)) else { return (None, bytes) };
    let (body, sum) = head.split_at(HEAD - SUM);
    let number = |at: usize| body[at..].first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
    match (body[MAGIC.len()..].first_chunk::<16>(), number(HEAD - SUM - 8)) {
        (Some(id), Some(first)) if xxh3_64(body).to_le_bytes() == *sum => (Some((*id, first)), records),
        // Read as records, it is damage.
        _ => (None, bytes),
    }
}

impl Contents {
    /// Reads a file to its end, or to the first record that does not add up. What follows that can't be told from a record that was torn by the crash and
    /// never acknowledged, so it counts as damage: one window without rejecting costs less than one false 404. `None`: there is no file.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        match File::open(path) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let (head, rest) = split_head(&bytes);
        let (windows, mut rest) = split_windows(rest);
        let (mut keys, mut damaged) = (Vec::new(), false);
        while !rest.is_empty() {
            let Some((key, after)) = first_record(rest) else {
                damaged = true;
                break;
            };
            keys.push(Key::from_canonical(Bytes::copy_from_slice(key)));
            rest = after;
        }
        // Without a head it can't be told what came before: the numbers are those of a journal that nobody knows.
        let (id, first) = head.unwrap_or_else(|| (rand::random(), 0));
        let extent = Extent { id, first, next: first + keys.len() as u64 };
        Ok(Some(Self { keys, damaged, extent, windows }))
    }
}

/// The key of the first record, and what follows it.
fn first_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<LENGTH>()?) as usize;
    let (record, after) = bytes.split_at_checked(length.checked_add(LENGTH + SUM)?)?;
    let (body, sum) = record.split_at(LENGTH + length);
    (length > 0 && xxh3_64(body).to_le_bytes() == *sum).then_some((&body[LENGTH..], after))
}

//! The bytes of a journal's files, and what two of them are together.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
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
/// First bytes of a file: no record is as long as they would say if read as a length.
pub(super) const MAGIC: [u8; 4] = *b"BGJ2";
/// First bytes of the previous version, whose head ends with its checksum; the records follow at once.
const MAGIC_1: [u8; 4] = *b"BGJ1";
/// Bytes of a head before its checksum: magic, journal id, number of the first record, length of the optional fields.
const FIXED: usize = 4 + 16 + 8 + 4;
const FIXED_1: usize = 4 + 16 + 8;
/// Optional fields are `tag: u8 · length: u8 · value`; readers skip unknown ones. This one is the number of the first
/// record of the older file beside it, 8 bytes. A file created at the start of the process has no older file.
const OLDER: u8 = 1;
/// How long the records of the file matter: `commit_window` and `deadline` in milliseconds, 8 bytes each.
const WINDOWS: u8 = 2;
/// What the keys of the file mean: a fingerprint of key form, source and backend, 8 bytes.
const MEANING: u8 = 3;
/// Unknown meaning: compatible with every other.
pub(super) const ANY: u64 = 0;
/// Keys of several meanings.
pub(super) const MIXED: u64 = 1;
/// Bytes of a claim: number after the last acknowledged record, XXH3-64 of it, of the journal's id and of the claim's
/// place.
const CLAIM: usize = 8 + SUM;
/// Two claims follow the head. Writes alternate between them, so a torn claim leaves the previous one intact.
const CLAIMS: usize = 2;

/// `commit_window` and `deadline` of the records that follow.
pub(super) type JournalWindows = (Duration, Duration);

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
pub(crate) struct Contents {
    keys: Vec<Key>,
    damaged: bool,
    extent: Extent,
    /// First record of the older file beside it.
    older: Option<u64>,
    windows: Option<JournalWindows>,
    meaning: u64,
}

impl Replayed {
    /// Combines both files, each of which may be missing. `has_fresh`: a next young file exists that has not been
    /// renamed yet.
    pub(super) fn of(old: Option<Contents>, young: Option<Contents>, has_fresh: bool, meaning: u64) -> Self {
        let with_keys = || [&old, &young].into_iter().flatten().filter(|file| !file.keys.is_empty());
        let windows = with_keys().filter_map(|file| file.windows).reduce(longer);
        let foreign = meaning != ANY && with_keys().any(|file| file.meaning != ANY && file.meaning != meaning);
        let (keys, damaged, extent) = match (old, young) {
            // The process died before it removed the older file, from which the younger was made.
            (Some(old), Some(young))
                if old.extent.id == young.extent.id && young.extent.first <= old.extent.first && !young.damaged =>
            {
                (young.keys, false, Some(young.extent))
            }
            (Some(old), Some(young)) => {
                let follows = old.extent.id == young.extent.id && old.extent.next == young.extent.first;
                let extent = follows.then_some(Extent { next: young.extent.next, ..old.extent });
                ([old.keys, young.keys].concat(), old.damaged || young.damaged || !follows, extent)
            }
            // A rotation renames the young file last. Without the next one beside it, the young file was deleted.
            (Some(old), None) => (old.keys, old.damaged || !has_fresh, Some(old.extent)),
            (None, Some(young)) => (young.keys, young.damaged || young.older.is_some(), Some(young.extent)),
            (None, None) => return Self::default(),
        };
        Self { keys, damaged, extent: extent.filter(|_| !damaged), windows, foreign }
    }
}

/// The longer window and the longer deadline of two configurations.
pub(super) fn longer(one: JournalWindows, other: JournalWindows) -> JournalWindows {
    (one.0.max(other.0), one.1.max(other.1))
}

impl Extent {
    pub(super) const fn held(&self) -> u64 {
        self.next - self.first
    }

    fn head(&self, first: u64, older: Option<u64>, windows: JournalWindows, meaning: u64) -> Vec<u8> {
        let mut fields = older.map_or_else(Vec::new, |older| [&[OLDER, 8][..], &older.to_le_bytes()].concat());
        fields.extend_from_slice(&[WINDOWS, 16]);
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).to_le_bytes();
        fields.extend([windows.0, windows.1].into_iter().flat_map(millis));
        fields.extend_from_slice(&[MEANING, 8]);
        fields.extend_from_slice(&meaning.to_le_bytes());
        let mut head =
            [MAGIC.as_slice(), &self.id, &first.to_le_bytes(), &(fields.len() as u32).to_le_bytes(), &fields].concat();
        head.extend_from_slice(&xxh3_64(&head).to_le_bytes());
        head
    }

    /// The bytes of a file that holds `records`, numbered from `first`, with both claims on them; and the offset of the
    /// claims.
    pub(super) fn file(
        &self,
        first: u64,
        older: Option<u64>,
        windows: JournalWindows,
        meaning: u64,
        records: &[u8],
    ) -> (Vec<u8>, u64) {
        let mut bytes = self.head(first, older, windows, meaning);
        let claims = bytes.len();
        (0..CLAIMS).for_each(|place| bytes.extend_from_slice(&claim(&self.id, place, self.next)));
        bytes.extend_from_slice(records);
        (bytes, claims as u64)
    }
}

/// A claim that the file holds every record before this number.
fn claim(id: &[u8; 16], place: usize, next: u64) -> Vec<u8> {
    let mut claim = next.to_le_bytes().to_vec();
    // The place is part of the checksum, so that a claim copied to the other place is not valid.
    let sum = xxh3_64(&[&id[..], &claim, &[place as u8]].concat());
    claim.extend_from_slice(&sum.to_le_bytes());
    claim
}

/// Writes the claims of one file, in turn.
#[derive(Debug)]
pub(crate) struct Claims {
    /// Where they begin.
    at: u64,
    place: usize,
}

impl Claims {
    pub(super) const fn new(at: u64) -> Self {
        Self { at, place: 0 }
    }

    /// Call it once the records are on disk. The claim itself is not synced: after a crash of the process it is there,
    /// and after one of the machine this claim or an earlier one is. Both are true.
    pub(super) fn write(&mut self, file: &File, extent: &Extent) -> io::Result<()> {
        file.write_all_at(&claim(&extent.id, self.place, extent.next), self.at + (self.place * CLAIM) as u64)?;
        self.place = (self.place + 1) % CLAIMS;
        Ok(())
    }
}

/// The bytes before the records.
struct Head {
    id: [u8; 16],
    first: u64,
    /// The number after the last acknowledged record, by the claims; `None`: both claims are damaged.
    claimed: Option<u64>,
    /// Number of the first record of the older file beside it.
    older: Option<u64>,
    /// `None`: written by an earlier release, which did not store them.
    windows: Option<JournalWindows>,
    meaning: u64,
}

/// Splits off the head of a file. A file without a valid head yields none, and all its bytes as records.
fn split_head(bytes: &[u8]) -> (Option<Head>, &[u8]) {
    // Read as records, a damaged head counts as damage.
    read_head(bytes).map_or((None, bytes), |(head, records)| (Some(head), records))
}

fn read_head(bytes: &[u8]) -> Option<(Head, &[u8])> {
    let number = |at: usize| bytes.get(at..)?.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
    let (id, first) = (*bytes.get(MAGIC.len()..)?.first_chunk::<16>()?, number(FIXED_1 - 8)?);
    let checked = |length: usize| {
        let (body, rest) = bytes.split_at_checked(length)?;
        let (sum, rest) = rest.split_at_checked(SUM)?;
        (xxh3_64(body).to_le_bytes() == *sum).then_some(rest)
    };
    if bytes.starts_with(&MAGIC_1) {
        // This version has no claims.
        return Some((
            Head { id, first, claimed: Some(first), older: None, windows: None, meaning: ANY },
            checked(FIXED_1)?,
        ));
    }
    if !bytes.starts_with(&MAGIC) {
        return None;
    }
    let further = u32::from_le_bytes(*bytes.get(FIXED - 4..)?.first_chunk()?) as usize;
    let (claims, records) = checked(FIXED.checked_add(further)?)?.split_at_checked(CLAIMS * CLAIM)?;
    let valid = claims.chunks(CLAIM).enumerate().filter_map(|(place, bytes)| {
        let next = u64::from_le_bytes(*bytes.first_chunk()?);
        (claim(&id, place, next) == bytes).then_some(next)
    });
    let fields = &bytes[FIXED..FIXED + further];
    let older = field(fields, OLDER).and_then(|value| value.try_into().ok()).map(u64::from_le_bytes);
    let windows = field(fields, WINDOWS).and_then(|value| {
        let millis =
            |at: usize| value.get(at..)?.first_chunk().map(|bytes| Duration::from_millis(u64::from_le_bytes(*bytes)));
        Some((millis(0)?, millis(8)?))
    });
    let meaning = field(fields, MEANING).and_then(|value| value.try_into().ok()).map_or(ANY, u64::from_le_bytes);
    Some((Head { id, first, claimed: valid.max(), older, windows, meaning }, records))
}

/// The value of the field with this tag.
fn field(mut fields: &[u8], tag: u8) -> Option<&[u8]> {
    while let [found, length, rest @ ..] = fields {
        let (value, others) = rest.split_at_checked(usize::from(*length))?;
        if *found == tag {
            return Some(value);
        }
        fields = others;
    }
    None
}

impl Contents {
    /// Reads a file to its end, or to the first record with a wrong checksum. Such a record, and what follows, counts
    /// as damage: it can't be told from an unacknowledged record that a crash tore, and one window without 404s costs
    /// less than one false 404. The file is also damaged if it ends before the last record that it claims, or is empty:
    /// no empty file is ever left under its name. Returns `None` if there is no file.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        match File::open(path) {
            Ok(mut file) => file.read_to_end(&mut bytes)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let (head, mut rest) = split_head(&bytes);
        let (mut keys, mut damaged) = (Vec::new(), bytes.is_empty());
        while !rest.is_empty() {
            let Some((key, after)) = first_record(rest) else {
                damaged = true;
                break;
            };
            keys.push(Key::from_canonical(Bytes::copy_from_slice(key)));
            rest = after;
        }
        // Without a head the journal is unknown: a random id, which matches no snapshot.
        let unknown =
            || Head { id: rand::random(), first: 0, claimed: Some(0), older: None, windows: None, meaning: ANY };
        let Head { id, first, claimed, older, windows, meaning } = head.unwrap_or_else(unknown);
        let extent = Extent { id, first, next: first.saturating_add(keys.len() as u64) };
        damaged |= claimed.is_none_or(|claimed| extent.next < claimed);
        Ok(Some(Self { keys, damaged, extent, older, windows, meaning }))
    }
}

/// The key of the first record, and what follows it.
fn first_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<LENGTH>()?) as usize;
    let (record, after) = bytes.split_at_checked(length.checked_add(LENGTH + SUM)?)?;
    let (body, sum) = record.split_at(LENGTH + length);
    (length > 0 && xxh3_64(body).to_le_bytes() == *sum).then_some((&body[LENGTH..], after))
}

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
/// First bytes of a file: no record is as long as they would say.
pub(super) const MAGIC: [u8; 4] = *b"BGJ2";
/// Of the version before, whose head ends with its sum and is followed by records at once.
const MAGIC_1: [u8; 4] = *b"BGJ1";
/// Bytes of a head before its sum: magic, which journal, number of the first record, length of the further fields that follow.
const FIXED: usize = 4 + 16 + 8 + 4;
const FIXED_1: usize = 4 + 16 + 8;
/// A further field is `tag: u8 · length: u8 · value`; unknown ones are skipped. This one is the number of the first record of the elder file beside it, in
/// 8 bytes; a file that was made when the process started has none beside it.
const ELDER: u8 = 1;
/// For how long the records of the file matter: `commit_window` and `deadline` in milliseconds, 8 bytes each.
const WINDOWS: u8 = 2;
/// What the keys of the file mean: a fingerprint of key form, source and backend, in 8 bytes.
const MEANING: u8 = 3;
/// A meaning that is not known, and fits every other.
pub(super) const ANY: u64 = 0;
/// Keys of several meanings.
pub(super) const MIXED: u64 = 1;
/// Bytes of a claim: number after the last record that was acknowledged, XXH3-64 of it, the journal and the claim's place.
const CLAIM: usize = 8 + SUM;
/// Two places for claims stand behind the head. The younger claim is in one of them and the one before in the other, so one that was torn hides no other.
const CLAIMS: usize = 2;

/// `commit_window` and `deadline` of the records that follow.
pub(super) type Windows = (Duration, Duration);

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
    /// An elder file stood beside it.
    elder: Option<u64>,
    windows: Option<Windows>,
    meaning: u64,
}

impl Replayed {
    /// Of both files, each of which may be missing. `between`: a younger file has been made that has not its name yet.
    pub(super) fn of(old: Option<Contents>, young: Option<Contents>, between: bool, meaning: u64) -> Self {
        let with_keys = || [&old, &young].into_iter().flatten().filter(|file| !file.keys.is_empty());
        let windows = with_keys().filter_map(|file| file.windows).reduce(longer);
        let foreign = meaning != ANY && with_keys().any(|file| file.meaning != ANY && file.meaning != meaning);
        let (keys, damaged, extent) = match (old, young) {
            // The process died before it had removed the elder, which the younger had been made of.
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
            // In a rotation the young file has its name last. Without the next one beside it, it was taken away.
            (Some(old), None) => (old.keys, old.damaged || !between, Some(old.extent)),
            (None, Some(young)) => (young.keys, young.damaged || young.elder.is_some(), Some(young.extent)),
            (None, None) => return Self::default(),
        };
        Self { keys, damaged, extent: extent.filter(|_| !damaged), windows, foreign }
    }
}

/// Of two configurations' windows the longer ones.
pub(super) fn longer(one: Windows, other: Windows) -> Windows {
    (one.0.max(other.0), one.1.max(other.1))
}

impl Extent {
    pub(super) const fn held(&self) -> u64 {
        self.next - self.first
    }

    fn head(&self, first: u64, elder: Option<u64>, windows: Windows, meaning: u64) -> Vec<u8> {
        let mut further = elder.map_or_else(Vec::new, |elder| [&[ELDER, 8][..], &elder.to_le_bytes()].concat());
        further.extend_from_slice(&[WINDOWS, 16]);
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).to_le_bytes();
        further.extend([windows.0, windows.1].into_iter().flat_map(millis));
        further.extend_from_slice(&[MEANING, 8]);
        further.extend_from_slice(&meaning.to_le_bytes());
        let mut head =
            [MAGIC.as_slice(), &self.id, &first.to_le_bytes(), &(further.len() as u32).to_le_bytes(), &further]
                .concat();
        head.extend_from_slice(&xxh3_64(&head).to_le_bytes());
        head
    }

    /// A file that holds `records`, of which the first has this number, with both claims on them; and where the claims begin.
    pub(super) fn file(
        &self,
        first: u64,
        elder: Option<u64>,
        windows: Windows,
        meaning: u64,
        records: &[u8],
    ) -> (Vec<u8>, u64) {
        let mut bytes = self.head(first, elder, windows, meaning);
        let claims = bytes.len();
        (0..CLAIMS).for_each(|place| bytes.extend_from_slice(&claim(&self.id, place, self.next)));
        bytes.extend_from_slice(records);
        (bytes, claims as u64)
    }
}

/// Says that a file holds every record before this number.
fn claim(id: &[u8; 16], place: usize, next: u64) -> Vec<u8> {
    let mut claim = next.to_le_bytes().to_vec();
    // The place keeps a claim that was copied to the other one from being believed.
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

    /// To be called once the records are on disk. It is not synced: a crash of the process leaves it, and one of the machine an earlier claim or this one,
    /// of which each is true.
    pub(super) fn write(&mut self, file: &File, extent: &Extent) -> io::Result<()> {
        file.write_all_at(&claim(&extent.id, self.place, extent.next), self.at + (self.place * CLAIM) as u64)?;
        self.place = (self.place + 1) % CLAIMS;
        Ok(())
    }
}

/// What stands before the records.
struct Head {
    id: [u8; 16],
    first: u64,
    /// The number after the last record that was acknowledged, as far as the file says; `None`: both claims are damaged.
    claimed: Option<u64>,
    /// An elder file stood beside it: the number of its first record.
    elder: Option<u64>,
    /// `None`: a release of before does not tell.
    windows: Option<Windows>,
    meaning: u64,
}

/// The head of a file, without which it is of an earlier version, and what follows.
fn split_head(bytes: &[u8]) -> (Option<Head>, &[u8]) {
    // Read as records, a head that does not add up is damage.
    read_head(bytes).map_or((None, bytes), |(head, records)| (Some(head), records))
}

fn read_head(bytes: &[u8]) -> Option<(Head, &[u8])> {
    let number = |at: usize| bytes.get(at..)?.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
    let (id, first) = (*bytes.get(MAGIC.len()..)?.first_chunk::<16>()?, number(FIXED_1 - 8)?);
    let whole = |length: usize| {
        let (body, rest) = bytes.split_at_checked(length)?;
        let (sum, rest) = rest.split_at_checked(SUM)?;
        (xxh3_64(body).to_le_bytes() == *sum).then_some(rest)
    };
    if bytes.starts_with(&MAGIC_1) {
        // It claims nothing.
        return Some((
            Head { id, first, claimed: Some(first), elder: None, windows: None, meaning: ANY },
            whole(FIXED_1)?,
        ));
    }
    if !bytes.starts_with(&MAGIC) {
        return None;
    }
    let further = u32::from_le_bytes(*bytes.get(FIXED - 4..)?.first_chunk()?) as usize;
    let (claims, records) = whole(FIXED.checked_add(further)?)?.split_at_checked(CLAIMS * CLAIM)?;
    let valid = claims.chunks(CLAIM).enumerate().filter_map(|(place, bytes)| {
        let next = u64::from_le_bytes(*bytes.first_chunk()?);
        (claim(&id, place, next) == bytes).then_some(next)
    });
    let fields = &bytes[FIXED..FIXED + further];
    let elder = field(fields, ELDER).and_then(|value| value.try_into().ok()).map(u64::from_le_bytes);
    let windows = field(fields, WINDOWS).and_then(|value| {
        let millis =
            |at: usize| value.get(at..)?.first_chunk().map(|bytes| Duration::from_millis(u64::from_le_bytes(*bytes)));
        Some((millis(0)?, millis(8)?))
    });
    let meaning = field(fields, MEANING).and_then(|value| value.try_into().ok()).map_or(ANY, u64::from_le_bytes);
    Some((Head { id, first, claimed: valid.max(), elder, windows, meaning }, records))
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
    /// Reads a file to its end, or to the first record that does not add up. What follows that can't be told from a record that was torn by the crash and
    /// never acknowledged, so it counts as damage: one window without rejecting costs less than one false 404. So does an end before the last record that the
    /// file claims, and a file without anything, as none is ever left under its name. `None`: there is no file.
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
        // Without a head it can't be told what came before: the numbers are those of a journal that nobody knows.
        let unknown =
            || Head { id: rand::random(), first: 0, claimed: Some(0), elder: None, windows: None, meaning: ANY };
        let Head { id, first, claimed, elder, windows, meaning } = head.unwrap_or_else(unknown);
        let extent = Extent { id, first, next: first.saturating_add(keys.len() as u64) };
        damaged |= claimed.is_none_or(|claimed| extent.next < claimed);
        Ok(Some(Self { keys, damaged, extent, elder, windows, meaning }))
    }
}

/// The key of the first record, and what follows it.
fn first_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<LENGTH>()?) as usize;
    let (record, after) = bytes.split_at_checked(length.checked_add(LENGTH + SUM)?)?;
    let (body, sum) = record.split_at(LENGTH + length);
    (length > 0 && xxh3_64(body).to_le_bytes() == *sum).then_some((&body[LENGTH..], after))
}

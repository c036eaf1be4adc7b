//! The bytes of one entry of the log.
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0 | 1 | version, 2 |
//! | 1 | 1 | kind: `A` announce, `D` drop, `G` gap |
//! | 2 | 8 | writer, random each time a process starts |
//! | 10 | 16 | id of this writer's previous entry that was acknowledged; 0-0: none |
//! | 26 | 8 | fingerprint of the secret under which the keys were hashed |
//! | 34 | 4 | fingerprint of the key form |
//! | 38 | 8 | fingerprint of what backend and source call a key |
//! | 46 | 4 | `commit_window` of the writer, milliseconds |
//! | 50 | 4 | its `deadline`, milliseconds |
//! | 54 | 16·n | key hashes |
//!
//! Version 1, of earlier builds, has its hashes at 34: it does not name the terms that they were written under.
//!
//! Integers in network order. The previous id chains each writer's entries: an entry lost by a failover or a trim
//! leaves a hole that the next entry shows.

use std::fmt;
use std::str::FromStr;

use super::terms::Terms;
use crate::key::KeyHash;

/// Without terms.
const FORMAT_1: u8 = 1;
const FORMAT: u8 = 2;
const HEADER: usize = 34;
const TERMS: usize = 20;

/// Place of an entry in its log, as Redis numbers them: milliseconds of the server's clock, then a sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId {
    /// Unix time at the server, milliseconds.
    pub millis: u64,
    /// Number among the entries of one millisecond.
    pub sequence: u64,
}

impl EntryId {
    /// Before every entry.
    pub const ZERO: Self = Self { millis: 0, sequence: 0 };

    /// Before every entry of this millisecond.
    #[must_use]
    pub const fn at(millis: u64) -> Self {
        Self { millis, sequence: 0 }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.millis, self.sequence)
    }
}

impl FromStr for EntryId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number =
            |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten().ok_or(());
        let (millis, sequence) = text.split_once('-').ok_or(())?;
        Ok(Self { millis: number(millis)?, sequence: number(sequence)? })
    }
}

/// One process, from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WriterId(pub(super) u64);

impl WriterId {
    /// A fresh one.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }
}

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEntryKind {
    /// Rows of these keys may become visible at any moment.
    Announce,
    /// Rows of these keys were changed or removed.
    Drop,
    /// The writer lost announces: only a scan finds their rows.
    Gap,
}

impl LogEntryKind {
    const fn byte(self) -> u8 {
        match self {
            Self::Announce => b'A',
            Self::Drop => b'D',
            Self::Gap => b'G',
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'A' => Some(Self::Announce),
            b'D' => Some(Self::Drop),
            b'G' => Some(Self::Gap),
            _ => None,
        }
    }
}

/// What a writer appends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// Its kind.
    pub kind: LogEntryKind,
    /// Fingerprint of the secret that the keys were hashed under.
    pub secret: u64,
    /// The terms that they were written under; `None` in entries that do not name them.
    pub terms: Option<Terms>,
    /// Hashes of its keys; none for a gap.
    pub hashes: Vec<KeyHash>,
}

/// A delta at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its place.
    pub id: EntryId,
    /// Who wrote it.
    pub writer: WriterId,
    /// That writer's previous entry, if it was acknowledged.
    pub previous: EntryId,
    /// Its content.
    pub delta: Delta,
}

/// The bytes of an entry. The log decides its place.
#[must_use]
pub(super) fn encode(writer: WriterId, previous: EntryId, delta: &Delta) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + TERMS + delta.hashes.len() * 16);
    bytes.extend([if delta.terms.is_some() { FORMAT } else { FORMAT_1 }, delta.kind.byte()]);
    bytes.extend(writer.0.to_be_bytes());
    bytes.extend(previous.millis.to_be_bytes());
    bytes.extend(previous.sequence.to_be_bytes());
    bytes.extend(delta.secret.to_be_bytes());
    if let Some(Terms { form, data, window, deadline }) = delta.terms {
        bytes.extend(form.to_be_bytes());
        bytes.extend(data.to_be_bytes());
        bytes.extend(window.to_be_bytes());
        bytes.extend(deadline.to_be_bytes());
    }
    bytes.extend(delta.hashes.iter().flat_map(|hash| hash.get().to_be_bytes()));
    bytes
}

/// `None` for an entry that is damaged or of a later version, whose content is unknown.
#[must_use]
pub(super) fn decode(id: EntryId, bytes: &[u8]) -> Option<LogEntry> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let [format, kind, ..] = *header;
    let (terms, rest) = match format {
        FORMAT_1 => (None, rest),
        FORMAT => {
            let (terms, rest) = rest.split_first_chunk::<TERMS>()?;
            (Some(decode_terms(terms)?), rest)
        }
        _ => return None,
    };
    let kind = LogEntryKind::from_byte(kind)?;
    let number = |at: usize| header[at..].first_chunk().copied().map(u64::from_be_bytes);
    let (hashes, []) = rest.as_chunks::<16>() else { return None };
    Some(LogEntry {
        id,
        writer: WriterId(number(2)?),
        previous: EntryId { millis: number(10)?, sequence: number(18)? },
        delta: Delta {
            kind,
            secret: number(26)?,
            terms,
            hashes: hashes.iter().map(|hash| KeyHash::from_bits(u128::from_be_bytes(*hash))).collect(),
        },
    })
}

/// Decodes these bytes and encodes them again; `None` if they can't be read. For tests with odd bytes.
#[doc(hidden)]
#[must_use]
pub fn try_entry(bytes: &[u8]) -> Option<Vec<u8>> {
    decode(EntryId::ZERO, bytes).map(|entry| encode(entry.writer, entry.previous, &entry.delta))
}

fn decode_terms(bytes: &[u8; TERMS]) -> Option<Terms> {
    let number = |at: usize| bytes[at..].first_chunk().copied().map(u32::from_be_bytes);
    let data = bytes[4..].first_chunk().copied().map(u64::from_be_bytes)?;
    Some(Terms { form: number(0)?, data, window: number(12)?, deadline: number(16)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Terms = Terms { form: 0x0102, data: 0x0304, window: 0x0506, deadline: 0x0708 };

    fn delta(kind: LogEntryKind, hashes: &[u128]) -> Delta {
        Delta { kind, secret: 0x77, terms: Some(OURS), hashes: hashes.iter().map(|h| KeyHash::from_bits(*h)).collect() }
    }

    /// Other instances read these bytes: this test changes only together with the version.
    #[test]
    fn bytes_are_as_documented() {
        let previous = EntryId { millis: 0x0102, sequence: 3 };
        let bytes = encode(WriterId(0x0a0b), previous, &delta(LogEntryKind::Announce, &[5, u128::MAX]));
        let expected = [
            &[2, b'A'][..],
            &[0, 0, 0, 0, 0, 0, 0x0a, 0x0b],
            &[0, 0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 0, 0, 0, 0, 0, 3],
            &[0, 0, 0, 0, 0, 0, 0, 0x77],
            &[0, 0, 1, 2],
            &[0, 0, 0, 0, 0, 0, 3, 4],
            &[0, 0, 5, 6],
            &[0, 0, 7, 8],
            &5u128.to_be_bytes(),
            &[255; 16],
        ]
        .concat();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn an_entry_of_the_release_before_is_read_and_tells_no_terms() {
        let delta = Delta { terms: None, ..delta(LogEntryKind::Announce, &[5]) };
        let bytes = encode(WriterId(4), EntryId::ZERO, &delta);
        assert_eq!((bytes[0], bytes.len()), (1, HEADER + 16));
        assert_eq!(decode(EntryId::ZERO, &bytes).map(|entry| entry.delta), Some(delta));
    }

    #[test]
    fn entries_come_back_as_they_were() {
        let (id, previous) = (EntryId { millis: 7, sequence: 8 }, EntryId { millis: 6, sequence: u64::MAX });
        for delta in
            [delta(LogEntryKind::Announce, &[1, 2, 3]), delta(LogEntryKind::Drop, &[9]), delta(LogEntryKind::Gap, &[])]
        {
            let bytes = encode(WriterId(4), previous, &delta);
            assert_eq!(decode(id, &bytes), Some(LogEntry { id, writer: WriterId(4), previous, delta }));
        }
    }

    #[test]
    fn what_can_not_be_read_is_told_apart() {
        let bytes = encode(WriterId(4), EntryId::ZERO, &delta(LogEntryKind::Announce, &[1]));
        for end in (0..bytes.len()).filter(|end| *end != HEADER + TERMS) {
            assert_eq!(decode(EntryId::ZERO, &bytes[..end]), None, "{end}");
        }
        for (at, byte) in [(0, 3), (0, 0), (1, b'X')] {
            let mut other = bytes.clone();
            other[at] = byte;
            assert_eq!(decode(EntryId::ZERO, &other), None);
        }
    }

    #[test]
    fn ids_are_read_only_as_redis_writes_them() {
        let id = EntryId { millis: 1_700_000_000_000, sequence: 12 };
        assert_eq!(id.to_string().parse(), Ok(id));
        for strange in ["", "1", "1-", "-1", "+1-0", "1-0-0", "1 -0", "18446744073709551616-0"] {
            assert_eq!(strange.parse::<EntryId>(), Err(()), "{strange}");
        }
    }
}

//! The header of a snapshot.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The header of a snapshot. An unknown field makes a file unreadable, because a reader might have to obey it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The keyspace.
    pub keyspace: String,
    /// The version of the program that wrote it.
    pub written_by: String,
    /// How keys are hashed: [`super::HASH`].
    pub hash: String,
    /// The secret for hashing. It allows choosing keys that collide, so only the owner may read the file.
    pub secret: Hex<192>,
    /// Canonical form of the keys.
    pub key_form: String,
    /// Fingerprint of what freshness depends on: source, form, times. With another one the filter proves nothing.
    pub basis: Hex<8>,
    /// Kind of the filter; its layers may be of other kinds.
    pub kind: String,
    /// Keys it was made for.
    pub capacity: u64,
    /// The rate it was made for.
    pub rate: f64,
    /// Number of the generation.
    pub generation: u64,
    /// Keys, estimated from the fill.
    pub items: u64,
    /// Keys that the scan read from each source.
    pub counted: Vec<u64>,
    /// When the copy began.
    pub taken: Taken,
    /// Nanoseconds between the start of the scan and the start of the copy.
    pub scan_age: u64,
    /// Position up to which the delta log was applied, if there is one.
    pub log: Option<LogMark>,
    /// Where polling resumes for each source, if polls complete the filter's scan.
    pub polls: Option<Vec<PollMark>>,
    /// Which announces of the journal are in the filter for certain.
    pub journal: JournalMark,
    /// The filters were compared with the backend before one answered. Omitted if false, as programs without this proof
    /// do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proven: bool,
    /// The layers, in the order of their words in the file.
    pub layers: Vec<LayerEntry>,
}

/// A time by two clocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    /// Wall clock: nanoseconds since 1970.
    pub unix_nanos: u64,
    /// Identifies the boot of a machine; empty if unknown.
    pub boot_id: String,
    /// `CLOCK_BOOTTIME` of that boot, nanoseconds.
    pub boot_nanos: u64,
}

/// A position in a delta log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogMark {
    /// Identity of the log.
    pub identity: Hex<16>,
    /// Milliseconds of the last applied entry.
    pub millis: u64,
    /// Its sequence number within that millisecond.
    pub sequence: u64,
    /// Number of entries that had ever been appended.
    pub made: u64,
}

/// Where polling a source resumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PollMark {
    /// The watermark.
    pub watermark: WatermarkText,
    /// Nanoseconds between the start of the last complete poll and the start of the copy.
    pub age: u64,
    /// Nanoseconds for which the oldest transaction had been open at that poll.
    pub open_for: u64,
}

/// A watermark of any type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatermarkText {
    /// Decimal digits, because JSON readers don't accept integers of this size.
    Integer(String),
    /// Microseconds since 1970.
    Timestamp(i64),
    /// Text.
    Text(String),
}

/// A position in the announce journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalMark {
    /// Identity of the journal.
    pub id: Hex<16>,
    /// Records before this number are in the filter.
    pub next: u64,
}

/// One layer, without its words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerEntry {
    /// How its words are probed.
    pub kind: String,
    /// Keys it was sized for.
    pub capacity: u64,
    /// The rate it was made for.
    pub rate: f64,
    /// The salt, as numbers with the highest digit first.
    pub salt: [Hex<8>; 4],
    /// Bits per key.
    pub hashes: u32,
    /// Number of bits, or counters.
    pub bits: u64,
    /// Number of 64-bit words.
    pub words: u64,
    /// XXH3-128 of its words and their padding.
    pub checksum: Hex<16>,
}

impl LayerEntry {
    /// Bytes of its words in the file, padding included; `None` if that overflows.
    pub(super) fn padded(&self) -> Option<u64> {
        self.words.checked_mul(8)?.checked_next_multiple_of(super::PAGE)
    }
}

/// Bytes in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hex<const N: usize>(pub [u8; N]);

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the secret has this size.
        if N == 192 { f.write_str("Hex(redacted)") } else { write!(f, "Hex({self})") }
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let expected = || serde::de::Error::custom(format_args!("not {} lower-case hex digits", 2 * N));
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(expected()),
        };
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(expected()) };
        let mut bytes = [0; N];
        if pairs.len() != N {
            return Err(expected());
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Ok(Self(bytes))
    }
}

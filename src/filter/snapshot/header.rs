//! What a snapshot says of its filter.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The header of a snapshot. A field that is not known makes a file unreadable: it may be one that a reader must heed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Whose filter it is.
    pub keyspace: String,
    /// The program that wrote it.
    pub written_by: String,
    /// How keys are hashed: [`super::HASH`].
    pub hash: String,
    /// Under which secret. Whoever has it can choose keys that collide, so the file is its owner's alone.
    pub secret: Hex<192>,
    /// Canonical form of the keys.
    pub key_form: String,
    /// Fingerprint of what the keyspace's promise rests on: source, form, times. Under another one the filter shows nothing.
    pub basis: Hex<8>,
    /// Kind of the filter, whose layers may be of other kinds.
    pub kind: String,
    /// Keys it was made for.
    pub capacity: u64,
    /// At which rate.
    pub rate: f64,
    /// Number of the filter.
    pub generation: u64,
    /// Keys in it, estimated from its fill.
    pub items: u64,
    /// Keys that its scan brought, of each source.
    pub counted: Vec<u64>,
    /// When its copy began.
    pub taken: Taken,
    /// How long before that its scan had begun, nanoseconds.
    pub scan_age: u64,
    /// Up to where the delta log had been applied, where there is one.
    pub log: Option<LogMark>,
    /// From where on each source has to be polled, where they are and the polls complete the filter's scan.
    pub polls: Option<Vec<PollMark>>,
    /// Which announces of the journal are in it for certain.
    pub journal: JournalMark,
    /// The keyspace's filters were compared with its backend before one answered anybody. Not written where it is false, as by programs that make no such proof.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proven: bool,
    /// Its parts, in the order of their words in the file.
    pub layers: Vec<LayerEntry>,
}

/// A moment by two clocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    /// Wall clock: nanoseconds since 1970.
    pub unix_nanos: u64,
    /// Which boot of which machine; empty where that is not known.
    pub boot_id: String,
    /// `CLOCK_BOOTTIME` of that boot, nanoseconds.
    pub boot_nanos: u64,
}

/// A place in a delta log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogMark {
    /// Which log.
    pub identity: Hex<16>,
    /// Milliseconds of the last entry that had been applied.
    pub millis: u64,
    /// Its number among those of one millisecond.
    pub sequence: u64,
    /// How many entries had ever been made then.
    pub made: u64,
}

/// From where on a source has to be polled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PollMark {
    /// The watermark.
    pub watermark: WatermarkText,
    /// How long before the copy the last complete poll had begun, nanoseconds.
    pub age: u64,
    /// How long the oldest transaction had been open then, nanoseconds.
    pub open_for: u64,
}

/// A watermark of any type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatermarkText {
    /// Decimal digits: there are larger ones than JSON's readers take for whole numbers.
    Integer(String),
    /// Microseconds since 1970.
    Timestamp(i64),
    /// A text.
    Text(String),
}

/// A place in the announce journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalMark {
    /// Which journal.
    pub id: Hex<16>,
    /// Records before the one with this number are in the filter.
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
    /// At which rate.
    pub rate: f64,
    /// Its own random numbers, mixed with each hash, the highest digit first.
    pub salt: [Hex<8>; 4],
    /// Bits a key sets.
    pub hashes: u32,
    /// Bits, or counters, that probes choose from.
    pub bits: u64,
    /// Number of its words of 64 bits.
    pub words: u64,
    /// XXH3-128 of its words and their padding.
    pub checksum: Hex<16>,
}

impl LayerEntry {
    /// Bytes of its words in the file, padding included; `None`: more than there can be.
    pub(super) fn padded(&self) -> Option<u64> {
        self.words.checked_mul(8)?.checked_next_multiple_of(super::PAGE)
    }
}

/// So many bytes, written as hex digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hex<const N: usize>(pub [u8; N]);

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The only thing of this size is the secret.
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

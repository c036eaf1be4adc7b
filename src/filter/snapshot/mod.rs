//! A filter in a file: what a process starts from before it has scanned anything.
//!
//! ```text
//! 0      magic "BGSNAP\x1a\n" · version u32 · length of the header in bytes u32 · XXH3-128 of the header
//! 32     JSON, padded with spaces to a multiple of 4096: parameters, and where the filter stood when its copy began
//! …      for each layer its words, padded with zeros to a multiple of 4096, so that they can be mapped
//! ```
//!
//! Integers are little-endian; checksums are written as xxHash does, the highest byte first. Every byte of the file is
//! under a checksum: the header's covers the header except its own sixteen bytes, and each layer's, which is in the
//! header, covers words and padding. `docs/formats.md` describes the format for other readers.
//!
//! **A copy is of one moment or later.** Inserts continue while words are copied. Bits only go from 0 to 1, so a copy
//! contains at least what was in the filter when it began. So the filter's position (log, polls, journal) must be noted
//! *before* that.
//!
//! **Files are read into memory and not mapped.** A mapping follows its file: copying a backup over it in place would
//! change the bits after they were verified, or end the process with SIGBUS. Verifying reads the file anyway.

mod header;
mod layers;
mod read;
mod write;

pub use self::header::{Header, Hex, JournalMark, LayerEntry, LogMark, PollMark, Taken, WatermarkText};
pub use self::layers::{RestoreError, views};
pub use self::read::{LayerWords, OpenedSnapshot, ReadError, Snapshot, decode, open};
pub use self::write::{LayerView, StagedSnapshot, WriteError, stage_snapshot, sync_dir};

/// First bytes of a snapshot. Like PNG's, they don't survive a transfer in text mode.
const MAGIC: [u8; 8] = *b"BGSNAP\x1a\n";
/// Version of the layout, the header's fields, and how each kind probes its words.
pub const VERSION: u32 = 1;
/// Start of the header's JSON, after magic, version, length and checksum.
const PREAMBLE: usize = 32;
/// Alignment of all parts.
const PAGE: u64 = 4096;
/// Longest header: far more than a scalable filter's layers and all watermarks need.
const HEADER_LIMIT: u32 = 1 << 20;
/// Bytes that are copied and hashed at a time: they stay in the processor's cache in between.
const CHUNK: usize = 256 << 10;
/// The hash of keys.
pub const HASH: &str = "xxh3-128";

/// Wraps these bytes as a header with magic, version, length and checksum, for fuzzing the reader behind them. If they
/// parse, appends zeroed words with their checksums, unless the header asks for many.
#[doc(hidden)]
#[must_use]
pub fn seal(header: &[u8]) -> Vec<u8> {
    const MAX_WORD_BYTES: u64 = 1 << 20;
    let Ok(mut parsed) = serde_json::from_slice::<Header>(header) else { return seal_header(header) };
    let mut words = Vec::new();
    for layer in &mut parsed.layers {
        let Some(bytes) = layer.padded().filter(|bytes| words.len() as u64 + bytes <= MAX_WORD_BYTES) else { break };
        let zeros = vec![0; bytes as usize];
        layer.checksum = Hex(xxhash_rust::xxh3::xxh3_128(&zeros).to_be_bytes());
        words.extend(zeros);
    }
    let text = serde_json::to_vec(&parsed).unwrap_or_else(|_| header.to_vec());
    [seal_header(&text), words].concat()
}

fn seal_header(header: &[u8]) -> Vec<u8> {
    let length = (PREAMBLE + header.len()).next_multiple_of(PAGE as usize);
    let mut bytes =
        [&MAGIC, VERSION.to_le_bytes().as_slice(), &(length as u32).to_le_bytes(), &[0; 16], header].concat();
    bytes.resize(length, b' ');
    let sum = header_sum(&bytes);
    bytes[PREAMBLE - 16..PREAMBLE].copy_from_slice(&sum);
    bytes
}

/// The checksum of the header, without its own bytes.
fn header_sum(header: &[u8]) -> [u8; 16] {
    let mut sum = xxhash_rust::xxh3::Xxh3::new();
    sum.update(&header[..PREAMBLE - 16]);
    sum.update(&header[PREAMBLE..]);
    sum.digest128().to_be_bytes()
}

#[cfg(test)]
mod tests;

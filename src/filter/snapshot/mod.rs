//! A filter in a file: what a process starts from before it has scanned anything.
//!
//! ```text
//! 0      magic "BGSNAP\x1a\n" · version u32 · length of the header in bytes u32 · XXH3-128 of the header
//! 32     JSON, padded with spaces to a multiple of 4096: parameters, and where the filter stood when its copy began
//! …      for each layer its words, padded with zeros to a multiple of 4096, so that they can be mapped
//! ```
//!
//! Integers are little-endian, checksums as xxHash writes them: the highest byte first. Every byte of the file is under a checksum: the header's covers
//! itself (its own sixteen bytes left out), and each layer's, which stands in the header, covers words and padding. `docs/formats.md` describes all of it for other readers.
//!
//! **A copy is of one moment or later.** Inserts go on while words are copied; bits only ever go from 0 to 1, so a copy holds at least what was in
//! the filter when it began. What says where the filter stood (log, polls, journal) must therefore be noted *before* that.
//!
//! **Files are read into memory and not mapped.** A mapping follows its file: who copies a backup over it in place changes the bits after they were
//! verified, or ends the process with SIGBUS. Reading costs a copy that reading to verify would nearly cost anyway.

mod header;
mod layers;
mod read;
mod write;

pub use self::header::{Header, Hex, JournalMark, LayerEntry, LogMark, PollMark, Taken, WatermarkText};
pub use self::layers::{RestoreError, views};
pub use self::read::{LayerWords, Opened, ReadError, Snapshot, decode, open};
pub use self::write::{Aside, LayerView, WriteError, sync_dir, write_aside};

/// First bytes of a snapshot: as PNG's, they don't survive a transfer that takes the file for text.
const MAGIC: [u8; 8] = *b"BGSNAP\x1a\n";
/// Of the layout, the header's fields, and how a kind probes its words.
pub const VERSION: u32 = 1;
/// Where the header's JSON begins: behind magic, version, length, checksum.
const PREAMBLE: usize = 32;
/// Everything begins at a multiple of this.
const PAGE: u64 = 4096;
/// Longest header: a scalable filter's layers and all watermarks fit many times over.
const HEADER_LIMIT: u32 = 1 << 20;
/// Bytes that are copied or read, and hashed, at a time: they stay in the cache between the two.
const CHUNK: usize = 256 << 10;
/// How keys are hashed.
pub const HASH: &str = "xxh3-128";

/// These bytes as a header with its own magic, version, length and checksum, for whoever tries the reader behind them. Where they are one, empty words with
/// their checksums follow, as far as it does not ask for many.
#[doc(hidden)]
#[must_use]
pub fn seal(header: &[u8]) -> Vec<u8> {
    const MOST: u64 = 1 << 20;
    let Ok(mut parsed) = serde_json::from_slice::<Header>(header) else { return seal_header(header) };
    let mut words = Vec::new();
    for layer in &mut parsed.layers {
        let Some(bytes) = layer.padded().filter(|bytes| words.len() as u64 + bytes <= MOST) else { break };
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

/// The header's checksum, which leaves its own place out.
fn header_sum(header: &[u8]) -> [u8; 16] {
    let mut sum = xxhash_rust::xxh3::Xxh3::new();
    sum.update(&header[..PREAMBLE - 16]);
    sum.update(&header[PREAMBLE..]);
    sum.digest128().to_be_bytes()
}

#[cfg(test)]
mod tests;

//! Reads a snapshot. Nothing of it is believed before its checksums are.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::super::{AllocError, Memory};
use super::{CHUNK, HEADER_LIMIT, Header, LayerEntry, MAGIC, PAGE, PREAMBLE, VERSION, header_sum};

/// A snapshot, verified to its last byte.
#[derive(Debug)]
pub struct Snapshot {
    /// What it says of itself.
    pub header: Header,
    /// Its layers' words.
    pub layers: Vec<LayerWords>,
}

/// One layer.
#[derive(Debug)]
pub struct LayerWords {
    /// What it is.
    pub header: LayerEntry,
    /// Its words.
    pub memory: Memory,
}

/// A file that is no snapshot that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It can't be read.
    #[error("it can't be read: {0}")]
    Io(#[from] io::Error),
    /// Something else.
    #[error("it is not a snapshot")]
    Foreign,
    /// Written by a later version.
    #[error("its format version is {0}, and this program reads version {VERSION}")]
    Version(u32),
    /// Cut off, or too long.
    #[error("it has {found} bytes instead of {expected}")]
    Length {
        /// Bytes there are.
        found: u64,
        /// Bytes it says there are.
        expected: u64,
    },
    /// The header's checksum is not its own.
    #[error("its header is damaged")]
    Header,
    /// The header is as it was written and can't be understood.
    #[error("its header can't be decoded: {0}")]
    Meaning(String),
    /// The checksum of a layer is not its own.
    #[error("its layer {0} is damaged")]
    Layer(usize),
    /// There is no memory.
    #[error(transparent)]
    Memory(#[from] AllocError),
}

/// A snapshot whose header is verified, and its words not yet.
#[derive(Debug)]
pub struct OpenedSnapshot<R> {
    /// What it says of itself.
    pub header: Header,
    from: R,
}

/// Opens the file at `path`.
///
/// # Errors
/// [`ReadError`].
pub fn open(path: &Path) -> Result<OpenedSnapshot<File>, ReadError> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    decode(file, length)
}

/// Begins to read a snapshot of `length` bytes.
///
/// # Errors
/// [`ReadError`].
pub fn decode<R: Read>(mut from: R, length: u64) -> Result<OpenedSnapshot<R>, ReadError> {
    let header = decode_header(&mut from, length)?;
    Ok(OpenedSnapshot { header, from })
}

impl<R: Read> OpenedSnapshot<R> {
    /// Bytes that each layer takes in memory; the file holds as many.
    #[must_use]
    pub fn sizes(&self) -> Vec<u64> {
        self.header.layers.iter().map(|layer| layer.words * 8).collect()
    }

    /// Reads the words and verifies them.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn load(mut self) -> Result<Snapshot, ReadError> {
        let mut layers = Vec::with_capacity(self.header.layers.len());
        for (number, layer) in self.header.layers.iter().enumerate() {
            let memory = read_words(&mut self.from, layer)?.ok_or(ReadError::Layer(number))?;
            layers.push(LayerWords { header: layer.clone(), memory });
        }
        Ok(Snapshot { header: self.header, layers })
    }
}

/// The header, once it is certain that the file is as long as it says: nothing is asked of the allocator that the file does not hold.
fn decode_header(from: &mut impl Read, length: u64) -> Result<Header, ReadError> {
    let mut bytes = vec![0; PREAMBLE];
    if length < PREAMBLE as u64 {
        return Err(ReadError::Foreign);
    }
    from.read_exact(&mut bytes)?;
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (version, header_length) = (number(8), number(12));
    if bytes[..8] != MAGIC {
        return Err(ReadError::Foreign);
    }
    // Before the checksum, which another version may have elsewhere.
    if version != VERSION {
        return Err(ReadError::Version(version));
    }
    let sound = (PAGE..=u64::from(HEADER_LIMIT)).contains(&u64::from(header_length))
        && u64::from(header_length).is_multiple_of(PAGE);
    if !sound {
        return Err(ReadError::Header);
    }
    if length < u64::from(header_length) {
        return Err(ReadError::Length { found: length, expected: u64::from(header_length) });
    }
    bytes.resize(header_length as usize, 0);
    from.read_exact(&mut bytes[PREAMBLE..])?;
    if bytes[PREAMBLE - 16..PREAMBLE] != header_sum(&bytes) {
        return Err(ReadError::Header);
    }
    let header: Header = serde_json::from_slice(&bytes[PREAMBLE..]).map_err(|e| ReadError::Meaning(e.to_string()))?;
    let mut sizes = header.layers.iter().map(LayerEntry::padded);
    let sum = sizes.try_fold(u64::from(header_length), |sum, layer| sum.checked_add(layer?));
    let expected = sum.ok_or_else(|| ReadError::Meaning("its layers are larger than any file".into()))?;
    if expected != length {
        return Err(ReadError::Length { found: length, expected });
    }
    Ok(header)
}

/// `None`: they are not those that were written. Read to where they stay: a start waits for it.
fn read_words(from: &mut impl Read, layer: &LayerEntry) -> Result<Option<Memory>, ReadError> {
    let mut memory = Memory::zeroed(layer.words)?;
    let mut sum = Xxh3::new();
    for chunk in memory.bytes_mut().chunks_mut(CHUNK) {
        from.read_exact(chunk)?;
        sum.update(chunk);
    }
    let (bytes, mut page) = (layer.words * 8, [0; PAGE as usize]);
    let padding = &mut page[..(bytes.next_multiple_of(PAGE) - bytes) as usize];
    from.read_exact(padding)?;
    sum.update(padding);
    if cfg!(target_endian = "big") {
        memory.words_mut().iter_mut().for_each(|word| *word = word.swap_bytes());
    }
    Ok((sum.digest128().to_be_bytes() == layer.checksum.0).then_some(memory))
}

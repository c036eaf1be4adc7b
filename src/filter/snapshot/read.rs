//! Reads a snapshot. Trusts nothing before its checksum is verified.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::super::{AllocError, Memory};
use super::{CHUNK, HEADER_LIMIT, Header, LayerEntry, MAGIC, PAGE, PREAMBLE, VERSION, header_sum};

/// A completely verified snapshot.
#[derive(Debug)]
pub struct Snapshot {
    /// The header.
    pub header: Header,
    /// The words of the layers.
    pub layers: Vec<LayerWords>,
}

/// One layer.
#[derive(Debug)]
pub struct LayerWords {
    /// Its parameters.
    pub header: LayerEntry,
    /// Its words.
    pub memory: Memory,
}

/// A file that is not a usable snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file can't be read.
    #[error("it can't be read: {0}")]
    Io(#[from] io::Error),
    /// Another kind of file.
    #[error("it is not a snapshot")]
    Foreign,
    /// Written by a later version.
    #[error("its format version is {0}, and this program reads version {VERSION}")]
    Version(u32),
    /// Truncated, or too long.
    #[error("it has {found} bytes instead of {expected}")]
    Length {
        /// Bytes in the file.
        found: u64,
        /// Bytes according to the header.
        expected: u64,
    },
    /// The header's checksum does not match.
    #[error("its header is damaged")]
    Header,
    /// The header is intact and can't be decoded.
    #[error("its header can't be decoded: {0}")]
    Meaning(String),
    /// A layer's checksum does not match.
    #[error("its layer {0} is damaged")]
    Layer(usize),
    /// There is no memory.
    #[error(transparent)]
    Memory(#[from] AllocError),
}

/// A snapshot with a verified header; its words are not read yet.
#[derive(Debug)]
pub struct OpenedSnapshot<R> {
    /// The header.
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

/// Starts reading a snapshot of `length` bytes.
///
/// # Errors
/// [`ReadError`].
pub fn decode<R: Read>(mut from: R, length: u64) -> Result<OpenedSnapshot<R>, ReadError> {
    let header = decode_header(&mut from, length)?;
    Ok(OpenedSnapshot { header, from })
}

impl<R: Read> OpenedSnapshot<R> {
    /// Bytes of each layer in memory; the file contains as many.
    #[must_use]
    pub fn sizes(&self) -> Vec<u64> {
        self.header.layers.iter().map(|layer| layer.words * 8).collect()
    }

    /// Reads and verifies the words.
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

/// Reads the header and checks the file's length against it, so that nothing is allocated that the file does not
/// contain.
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
    // Before the checksum, whose position may differ in another version.
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

/// Reads a layer's words into their final memory, because a start waits for it. `None` if the checksum does not match.
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

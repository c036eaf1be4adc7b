//! Writes a snapshot beside its place, and publishes it atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::Xxh3;

use super::{CHUNK, HEADER_LIMIT, Header, Hex, LayerEntry, MAGIC, PAGE, PREAMBLE, VERSION, header_sum};

/// A layer to be written.
#[derive(Debug, Clone)]
pub struct LayerView<'a> {
    /// Its parameters; words and checksum are filled in.
    pub header: LayerEntry,
    /// Its words, which may receive inserts meanwhile.
    pub words: &'a [AtomicU64],
}

/// A snapshot that was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The caller gave up.
    #[error("there was no time left to write it")]
    Abandoned,
    /// The header would be too large for any reader.
    #[error("the header would be larger than {HEADER_LIMIT} bytes")]
    Header,
}

/// A snapshot on disk that is not published yet; removed when dropped.
#[derive(Debug)]
pub struct StagedSnapshot {
    written: PathBuf,
    place: PathBuf,
    bytes: u64,
}

impl StagedSnapshot {
    /// Its size.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Replaces the published snapshot. After a crash of the machine either may be there, until [`sync_dir`].
    ///
    /// # Errors
    /// Disk errors; the old snapshot is there then.
    pub fn publish(self) -> io::Result<()> {
        fs::rename(&self.written, &self.place)
    }
}

impl Drop for StagedSnapshot {
    fn drop(&mut self) {
        // After `publish` there is nothing to remove.
        let _ = fs::remove_file(&self.written);
    }
}

/// Copies a filter into a new file beside `place`, readable only by its owner, and syncs it. Polls `abandoned` between
/// chunks.
///
/// # Errors
/// [`WriteError`]; the file at `place` stays.
pub fn stage_snapshot(
    place: &Path,
    header: Header,
    layers: &[LayerView<'_>],
    abandoned: impl Fn() -> bool,
) -> Result<StagedSnapshot, WriteError> {
    let mut written = place.as_os_str().to_owned();
    written.push(".new");
    let written = PathBuf::from(written);
    // Left by a killed process. `create_new` ensures our mode, whatever was there.
    let _ = fs::remove_file(&written);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&written)?;
    let mut staged = StagedSnapshot { written, place: place.to_owned(), bytes: 0 };
    staged.bytes = write(&mut file, header, layers, &abandoned)?;
    if abandoned() {
        return Err(WriteError::Abandoned);
    }
    file.sync_all()?;
    Ok(staged)
}

fn write(
    file: &mut File,
    mut header: Header,
    layers: &[LayerView<'_>],
    abandoned: &impl Fn() -> bool,
) -> Result<u64, WriteError> {
    header.layers =
        layers.iter().map(|layer| LayerEntry { words: layer.words.len() as u64, ..layer.header.clone() }).collect();
    // Checksums have a fixed length, so the header's length is known before they are.
    let length = encode(&header)?.len() as u64;
    file.seek(io::SeekFrom::Start(length))?;
    let mut bytes = length;
    for (layer, header) in layers.iter().zip(&mut header.layers) {
        let (sum, padded) = copy(file, layer.words, abandoned)?;
        header.checksum = Hex(sum);
        bytes += padded;
    }
    file.seek(io::SeekFrom::Start(0))?;
    file.write_all(&encode(&header)?)?;
    Ok(bytes)
}

/// Copies each word once, as it is at some moment from now on.
fn copy(file: &mut File, words: &[AtomicU64], abandoned: &impl Fn() -> bool) -> Result<([u8; 16], u64), WriteError> {
    let (mut sum, mut buffer, mut bytes) = (Xxh3::new(), Vec::with_capacity(CHUNK), 0);
    let mut put = |buffer: &[u8]| -> Result<(), WriteError> {
        if abandoned() {
            return Err(WriteError::Abandoned);
        }
        sum.update(buffer);
        bytes += buffer.len() as u64;
        Ok(file.write_all(buffer)?)
    };
    for words in words.chunks(CHUNK / 8) {
        buffer.clear();
        // Relaxed: a bit that is set meanwhile may be in the copy or not. Bits that were set before the caller noted
        // the filter's position are visible to the caller, and so here.
        buffer.extend(words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()));
        let padding = buffer.len().next_multiple_of(PAGE as usize) - buffer.len();
        buffer.extend(std::iter::repeat_n(0, padding));
        put(&buffer)?;
    }
    Ok((sum.digest128().to_be_bytes(), bytes))
}

fn encode(header: &Header) -> Result<Vec<u8>, WriteError> {
    let json = serde_json::to_vec(header).map_err(io::Error::other)?;
    let length = (PREAMBLE + json.len()).next_multiple_of(PAGE as usize);
    let field = u32::try_from(length).ok().filter(|length| *length <= HEADER_LIMIT).ok_or(WriteError::Header)?;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&field.to_le_bytes());
    bytes.resize(PREAMBLE, 0);
    bytes.extend_from_slice(&json);
    bytes.resize(length, b' ');
    let sum = header_sum(&bytes);
    bytes[PREAMBLE - 16..PREAMBLE].copy_from_slice(&sum);
    Ok(bytes)
}

/// Syncs the folder, so that a rename or removal survives a crash.
///
/// # Errors
/// Disk errors.
pub fn sync_dir(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

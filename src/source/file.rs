//! Keys listed in a file, one a line: [`FileSource`].

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use flate2::read::MultiGzDecoder;
use tokio_util::sync::CancellationToken;

use super::batch::Batcher;
use super::{KeyBatches, KeySource, SourceError};
use crate::background;
use crate::config::SourceConfig;
use crate::key::{BYTE_ORDER_MARK, KeyForm};

/// Bytes read at a time.
const CHUNK: usize = 128 * 1024;
/// Lines between two checks whether the reader still wants them. Lines without a key are not sent, and so would not
/// show it.
const LOOK_EVERY: u64 = 4096;

/// Reads keys from a file: one a line, ended by `\n` or `\r\n`. The last line's end is optional, and empty lines are
/// skipped.
///
/// Files named `.gz` and `.zst` are decompressed, also with several members or frames. A file is opened once and read
/// to its end: if another one is renamed over it, the old one is read. A file that is written to meanwhile, or whose
/// compressed stream ends early, is a failed scan. A thread of its own reads, at a lower priority than lookups.
#[derive(Debug)]
pub struct FileSource {
    file: Target,
}

#[derive(Debug, Clone)]
struct Target {
    path: PathBuf,
    packing: Packing,
    /// Longer lines can't be a key that a request may have.
    max_line: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl FileSource {
    /// Reads the configuration and opens nothing. `max_key_bytes`: the longest key that requests may have.
    #[must_use]
    pub fn new(config: &SourceConfig, max_key_bytes: usize) -> Self {
        let packing = Packing::of(&config.path);
        Self { file: Target { path: config.path.clone(), packing, max_line: max_key_bytes } }
    }

    /// Runs `read` [behind lookups](background), which can check whether the caller still wants its result.
    async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(Target, CancellationToken) -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        let (file, abandoned) = (self.file.clone(), CancellationToken::new());
        let _on_drop = abandoned.clone().drop_guard();
        background::start("read-keys", move || read(file, abandoned)).await.map_err(|_| SourceError::Cancelled)?
    }
}

#[async_trait]
impl KeySource for FileSource {
    async fn key_form(&self) -> Result<Option<KeyForm>, SourceError> {
        Ok(None)
    }

    /// Lines of a plain file. A compressed one would have to be decompressed completely.
    async fn count(&self) -> Result<Option<u64>, SourceError> {
        match self.file.packing {
            Packing::Plain => self.blocking(|file, abandoned| file.count_lines(&abandoned).map(Some)).await,
            Packing::Gzip | Packing::Zstd => Ok(None),
        }
    }

    async fn scan(&self, form: KeyForm, batches: KeyBatches) -> Result<u64, SourceError> {
        let batcher = Batcher::new(form, batches);
        self.blocking(move |file, abandoned| file.scan(batcher, &abandoned)).await
    }
}

impl Packing {
    fn of(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(extension) if extension.eq_ignore_ascii_case("gz") => Self::Gzip,
            Some(extension) if extension.eq_ignore_ascii_case("zst") => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

impl Target {
    fn count_lines(&self, abandoned: &CancellationToken) -> Result<u64, SourceError> {
        let file = self.open()?;
        let mut chunk = vec![0; CHUNK];
        let (mut lines, mut last) = (0, b'\n');
        loop {
            let read = (&file).read(&mut chunk).map_err(|error| self.failed(&error))?;
            let Some(end) = chunk[..read].last() else { break };
            last = *end;
            lines += chunk[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
            if abandoned.is_cancelled() {
                return Err(SourceError::Cancelled);
            }
        }
        Ok(lines + u64::from(last != b'\n'))
    }

    fn scan(&self, batcher: Batcher, abandoned: &CancellationToken) -> Result<u64, SourceError> {
        let file = self.open()?;
        let before = self.metadata(&file)?;
        let batcher = self.read_lines(self.unpacked(&file)?, batcher, abandoned)?;
        let after = self.metadata(&file)?;
        let position = (&file).stream_position().map_err(|error| self.failed(&error))?;
        if version(&before) != version(&after) || position != before.len() {
            return Err(
                self.invalid("was written to while it was read; write another file and rename it over this one")
            );
        }
        batcher.finish_blocking()
    }

    fn open(&self) -> Result<File, SourceError> {
        // Opening a pipe would wait for its writer.
        let metadata = std::fs::metadata(&self.path).map_err(|error| self.failed(&error))?;
        if !metadata.is_file() {
            return Err(self.invalid("is not a regular file"));
        }
        File::open(&self.path).map_err(|error| self.failed(&error))
    }

    fn metadata(&self, file: &File) -> Result<Metadata, SourceError> {
        file.metadata().map_err(|error| self.failed(&error))
    }

    fn unpacked<'f>(&self, file: &'f File) -> Result<Box<dyn Read + 'f>, SourceError> {
        let chunks = || BufReader::with_capacity(CHUNK, file);
        Ok(match self.packing {
            Packing::Plain => Box::new(file),
            Packing::Gzip => Box::new(MultiGzDecoder::new(chunks())),
            Packing::Zstd => Box::new(zstd::Decoder::with_buffer(chunks()).map_err(|error| self.failed(&error))?),
        })
    }

    fn read_lines(
        &self,
        text: impl Read,
        mut batcher: Batcher,
        abandoned: &CancellationToken,
    ) -> Result<Batcher, SourceError> {
        let mut text = BufReader::with_capacity(CHUNK, text);
        // Room for the longest key and what may surround it. No more of a line is held, and a line that fills it is too
        // long.
        let most = (BYTE_ORDER_MARK.len() + self.max_line + b"\r\n".len()) as u64;
        let mut line = Vec::new();
        loop {
            line.clear();
            if (&mut text).take(most).read_until(b'\n', &mut line).map_err(|error| self.failed(&error))? == 0 {
                return Ok(batcher);
            }
            batcher.begin_row();
            let mut key = without_end(&line);
            if batcher.row() == 1 {
                key = batcher.form().without_mark(key);
            }
            if key.len() > self.max_line {
                let (row, most) = (batcher.row(), self.max_line);
                return Err(self
                    .invalid(&format!("has a line, number {row}, that is longer than server.max_key_bytes = {most}")));
            }
            if !key.is_empty() {
                batcher.push_blocking(key)?;
            }
            if batcher.row().is_multiple_of(LOOK_EVERY) && (abandoned.is_cancelled() || batcher.is_closed()) {
                return Err(SourceError::Cancelled);
            }
        }
    }

    /// Errors of the system are temporary; those of a decompressor are in the file.
    fn failed(&self, error: &io::Error) -> SourceError {
        if error.raw_os_error().is_some() {
            return SourceError::Unavailable(format!("{}: {error}", self.path.display()));
        }
        self.invalid(&format!("can't be decompressed to its end: {error}"))
    }

    fn invalid(&self, what: &str) -> SourceError {
        SourceError::Invalid(format!("{} {what}", self.path.display()))
    }
}

/// What changes when a file is written to.
fn version(metadata: &Metadata) -> (u64, Option<std::time::SystemTime>) {
    (metadata.len(), metadata.modified().ok())
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

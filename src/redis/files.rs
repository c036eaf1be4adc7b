//! Reads the files of `[redis]` for a new connection.
//!
//! A read on a hung file system never returns, and occupies its thread. So at most one thread reads a file: further
//! attempts, also those of other connections, wait for the read that is under way, without a thread of their own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;

use super::error::ConnectError;
use super::tls::Tls;
use crate::config::{RedisConfig, RedisFiles};

/// Stands for the files of the system's certificate authorities.
const SYSTEM_AUTHORITIES: &str = "";
/// A reading thread panicked.
const FAILED: ConnectError = ConnectError::Nowhere("its files could not be read");

/// Of the whole process, because links and sources may name the same files.
static READS: LazyLock<FileReads> = LazyLock::new(FileReads::default);

/// Reads all files, each within `limit`. With `host`, also prepares TLS to it.
pub(super) async fn read(
    config: &Arc<RedisConfig>,
    host: Option<String>,
    limit: Duration,
) -> Result<(RedisFiles, Option<Tls>), ConnectError> {
    let late = |what: &str| ConnectError::File(format!("{what} can't be read within {limit:?}"));
    let read_one = async |(key, file): (&'static str, &Path)| {
        let path = file.to_owned();
        let read = READS.run(file, move || RedisConfig::read_file(key, &path));
        let text = tokio::time::timeout(limit, read).await.map_err(|_| late(key))?;
        Ok((key, text.ok_or(FAILED)?))
    };
    let reads = config.named_files().map(|named| read_one(named));
    let texts = join_all(reads).await.into_iter().collect::<Result<Vec<_>, ConnectError>>()?;
    let files = config.parse_files(texts).map_err(|wrong| ConnectError::of_files(&wrong))?;
    let Some(host) = host else { return Ok((files, None)) };
    let name = config.server_name.clone().unwrap_or(host);
    if files.trust.is_some() {
        let tls = Tls::new(&files, &name)?;
        return Ok((files, Some(tls)));
    }
    let read = READS.run(Path::new(SYSTEM_AUTHORITIES), move || Tls::new(&files, &name).map(|tls| (files, Some(tls))));
    let read = tokio::time::timeout(limit, read).await.map_err(|_| late("the system's certificate authorities"))?;
    read.unwrap_or(Err(FAILED))
}

/// The files that are being read, each by one thread.
#[derive(Debug, Default)]
struct FileReads(Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>);

impl FileReads {
    /// Runs `read` on a blocking thread once the read of this file before it has returned; `None` if it panicked. A
    /// cancelled caller leaves its read running, if that has begun.
    async fn run<T: Send + 'static>(&self, file: &Path, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let lock = self.lock_of(file).lock_owned().await;
        let reading = tokio::task::spawn_blocking(move || {
            let _lock = lock;
            read()
        });
        reading.await.ok()
    }

    fn lock_of(&self, file: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock();
        // Of files that no attempt reads or waits for.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(file.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn attempts_at_a_file_that_hangs_take_one_thread_between_them() {
        let (reads, begun) = (FileReads::default(), Arc::new(AtomicUsize::new(0)));
        let (hung, file, other) = (mpsc::channel::<()>(), Path::new("/hung"), Path::new("/other"));
        let mut until = Some(hung.1);
        for _ in 0..50 {
            let (begun, until) = (Arc::clone(&begun), until.take());
            let read = reads.run(file, move || {
                begun.fetch_add(1, Ordering::Relaxed);
                until.map(|until| until.recv())
            });
            assert!(tokio::time::timeout(Duration::from_millis(5), read).await.is_err(), "it does not hang");
            assert_eq!(reads.run(other, || "read").await, Some("read"), "another file");
        }
        assert!(begun.load(Ordering::Relaxed) <= 1, "{begun:?} reads of a file at once");
        assert_eq!(reads.0.lock().len(), 2, "the other's lock is kept until the next read");
        drop(hung.0);
        assert_eq!(reads.run(file, || "read").await, Some("read"), "it is read again once it hangs no longer");
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }
}

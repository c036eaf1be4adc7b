//! The snapshot file of a keyspace: what is on disk, and whether a process may start from it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

use crate::filter::Generation;
use crate::filter::snapshot::{StagedSnapshot, WriteError, sync_dir};
use crate::labels::SnapshotOutcome;

/// The snapshots of one keyspace, of which the last is on disk.
#[derive(Debug)]
pub struct SnapshotFile {
    path: PathBuf,
    basis: u64,
    inner: Mutex<FileState>,
    /// Epoch of the file on disk; `None`: there is none. Locked by threads that may wait for the disk, while they
    /// rename or remove the file.
    on_disk: Mutex<Option<u64>>,
    /// True if the thread that voids a file also removes it.
    removes_in_place: bool,
    /// Held while a snapshot is written: never two at once.
    pub(crate) writing: Mutex<()>,
    requested: Notify,
    /// The process stops: a snapshot in progress is abandoned for the last one.
    pub(crate) stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct FileState {
    /// Counts how often the promise was broken: a copy from before is not published after.
    epoch: u64,
    /// Number of the first journal record that the snapshot on disk needs; `None`: it needs none.
    needed_from: Option<u64>,
    /// The process found a file from which it could not start.
    was_refused: bool,
    status: SnapshotStatus,
}

/// Snapshots, as `/status` shows them.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SnapshotStatus {
    /// Whether the process started from one, and if not, why.
    pub at_start: String,
    /// Unix time of the last one written, seconds.
    pub written_unix: Option<u64>,
    /// Its size.
    pub bytes: Option<u64>,
    /// Number of its filter.
    pub generation: Option<u64>,
    /// Why the last one was not written.
    pub trouble: Option<String>,
}

impl SnapshotFile {
    /// The file of the keyspace `name` in `dir`; `basis` is the fingerprint of what its promise depends on.
    #[must_use]
    pub fn new(dir: &Path, name: &str, basis: u64) -> Self {
        Self {
            path: dir.join(format!("{name}.snapshot")),
            basis,
            inner: Mutex::default(),
            on_disk: Mutex::new(Some(0)),
            removes_in_place: false,
            writing: Mutex::default(),
            requested: Notify::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Removes files in the calling thread. For simulations: their crash might come before another thread has begun.
    #[must_use]
    pub const fn removing_in_place(mut self) -> Self {
        self.removes_in_place = true;
        self
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn basis(&self) -> u64 {
        self.basis
    }

    /// Records how the process started.
    pub fn started(&self, how: String, needed_from: Option<u64>) {
        let mut inner = self.inner.lock();
        inner.status.at_start = how;
        inner.needed_from = needed_from;
    }

    /// The process did not start from the file. `is_final`: no later process may start from it either, so it is
    /// removed.
    pub fn refused(self: &Arc<Self>, why: &dyn std::fmt::Display, is_final: bool) {
        if is_final {
            self.discard();
        }
        self.started(format!("the snapshot was not used: {why}"), None);
        self.inner.lock().was_refused = true;
    }

    /// Returns true if the process found a file from which it could not start.
    pub(crate) fn was_refused(&self) -> bool {
        self.inner.lock().was_refused
    }

    pub(crate) fn want(&self) {
        self.requested.notify_one();
    }

    pub(crate) async fn wanted(&self) {
        self.requested.notified().await;
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.inner.lock().epoch
    }

    pub(crate) fn needed_from(&self) -> Option<u64> {
        self.inner.lock().needed_from
    }

    /// For `/status`.
    pub(crate) fn status(&self) -> SnapshotStatus {
        self.inner.lock().status.clone()
    }

    /// The promise is broken: the file on disk and a snapshot in progress are void. Call it after the state has
    /// changed.
    pub(crate) fn discard(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        inner.epoch += 1;
        inner.needed_from = None;
        drop(inner);
        if self.removes_in_place {
            return self.remove_void();
        }
        // On another thread, because the caller must not wait for a disk. A crash of the machine before it is done
        // undoes the removal, and loses the knowledge that the file is void.
        let snapshots = Arc::clone(self);
        let spawned =
            std::thread::Builder::new().name("snapshot-discard".into()).spawn(move || snapshots.remove_void());
        if spawned.is_err() {
            self.want();
        }
    }

    /// Returns true if a file is on disk that no process may start from.
    pub(crate) fn has_void_file(&self) -> bool {
        let on_disk = *self.on_disk.lock();
        on_disk.is_some_and(|epoch| epoch != self.epoch())
    }

    /// Removes a file from before the promise was broken. If that fails, the snapshot keeper tries again. Waits for the
    /// disk.
    pub(crate) fn remove_void(&self) {
        let mut on_disk = self.on_disk.lock();
        if on_disk.is_none_or(|epoch| epoch == self.epoch()) {
            return;
        }
        match remove(&self.path) {
            Ok(()) => *on_disk = None,
            Err(error) => {
                tracing::error!(%error, file = %self.path.display(), "void snapshot not removed: will retry");
                self.want();
            }
        }
    }

    /// Publishes a written snapshot, if the promise has held since `epoch`.
    pub(crate) fn publish(
        &self,
        epoch: u64,
        written: Result<StagedSnapshot, WriteError>,
        generation: &Generation,
        needed_from: Option<u64>,
    ) -> SnapshotOutcome {
        let published = match written {
            Ok(staged) => {
                let mut on_disk = self.on_disk.lock();
                if self.epoch() != epoch {
                    return SnapshotOutcome::Abandoned;
                }
                let bytes = staged.bytes();
                // From here on a discard sees the file and removes it; for an earlier one see below.
                staged.publish().map_err(WriteError::from).map(|()| {
                    *on_disk = Some(epoch);
                    bytes
                })
            }
            Err(error) => Err(error),
        };
        if self.epoch() != epoch {
            // Not left to the discard's thread, which may not have begun.
            self.remove_void();
            return SnapshotOutcome::Abandoned;
        }
        let synced = published.and_then(|bytes| Ok(sync_dir(&self.path).map(|()| bytes)?));
        let mut inner = self.inner.lock();
        match synced {
            Ok(bytes) => {
                if inner.epoch == epoch {
                    inner.needed_from = needed_from;
                }
                let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                let at_start = std::mem::take(&mut inner.status.at_start);
                inner.status = SnapshotStatus {
                    at_start,
                    written_unix: Some(unix),
                    bytes: Some(bytes),
                    generation: Some(generation.number),
                    trouble: None,
                };
                tracing::debug!(file = %self.path.display(), bytes, generation = generation.number, "snapshot written");
                SnapshotOutcome::Written
            }
            Err(WriteError::Abandoned) => SnapshotOutcome::Abandoned,
            Err(error) => {
                tracing::warn!(%error, file = %self.path.display(), "snapshot not written");
                inner.status.trouble = Some(error.to_string());
                SnapshotOutcome::Failed
            }
        }
    }
}

/// Removes the file, or truncates it if the directory does not permit removal. No process starts from an empty file.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => sync_dir(path),
        // An earlier attempt removed it, or it never existed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => sync_dir(path),
        Err(error) => {
            File::options().write(true).truncate(true).open(path).and_then(|file| file.sync_all()).map_err(|_| error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eventually(what: impl Fn() -> bool) {
        while !what() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn removal_of_a_void_snapshot_is_retried() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Arc::new(SnapshotFile::new(dir.path(), "users", 0).removing_in_place());
        // Neither removed nor truncated, even as root.
        fs::create_dir(snapshots.path()).unwrap();
        snapshots.discard();
        assert!(snapshots.has_void_file());
        fs::remove_dir(snapshots.path()).unwrap();
        fs::write(snapshots.path(), "void").unwrap();
        snapshots.remove_void();
        assert!(!snapshots.has_void_file() && !snapshots.path().exists());
    }

    #[test]
    fn a_discarded_snapshot_is_gone_soon() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Arc::new(SnapshotFile::new(dir.path(), "users", 0));
        fs::write(snapshots.path(), "void").unwrap();
        snapshots.discard();
        eventually(|| !snapshots.has_void_file());
        assert!(!snapshots.path().exists());
    }
}

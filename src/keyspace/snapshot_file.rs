//! The one file of a keyspace: what stands in its place, and whether it may.

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
use crate::filter::snapshot::{Aside, WriteError, sync_dir};
use crate::labels::SnapshotOutcome;

/// The snapshots of one keyspace, of which the last stands on disk.
#[derive(Debug)]
pub struct SnapshotFile {
    place: PathBuf,
    basis: u64,
    inner: Mutex<Inner>,
    /// Of which epoch the file in place is; `None`: there is none. Held by threads that may wait for the disk, while they rename or remove it.
    stands: Mutex<Option<u64>>,
    /// Void files are removed by who finds out, and by no thread.
    in_place: bool,
    /// Held while one is written: never two at once.
    pub(crate) writing: Mutex<()>,
    wanted: Notify,
    /// The process stops: what is being written is given up for the last one.
    pub(crate) stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    /// Counts how often the promise was broken: a copy of before is not put in place after.
    epoch: u64,
    /// Number of the first journal record that the snapshot on disk needs; `None`: there is none that needs any.
    needed_from: Option<u64>,
    status: SnapshotStatus,
}

/// What `/status` says of snapshots.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SnapshotStatus {
    /// Whether the process started from one, and if not, why.
    pub at_start: String,
    /// Unix time of the last one that was written, seconds.
    pub written_unix: Option<u64>,
    /// Its size.
    pub bytes: Option<u64>,
    /// Number of its filter.
    pub generation: Option<u64>,
    /// Why the last one was not written.
    pub trouble: Option<String>,
}

impl SnapshotFile {
    /// Of the keyspace `name` in `dir`; `basis` is the fingerprint of what its promise rests on.
    #[must_use]
    pub fn new(dir: &Path, name: &str, basis: u64) -> Self {
        Self {
            place: dir.join(format!("{name}.snapshot")),
            basis,
            inner: Mutex::default(),
            stands: Mutex::new(Some(0)),
            in_place: false,
            writing: Mutex::default(),
            wanted: Notify::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Waits where a file is removed: for a simulation, whose crash might come before a thread has begun.
    #[must_use]
    pub const fn removing_in_place(mut self) -> Self {
        self.in_place = true;
        self
    }

    /// Where the last one stands.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    pub(crate) const fn basis(&self) -> u64 {
        self.basis
    }

    /// How the process started.
    pub fn started(&self, how: String, needed_from: Option<u64>) {
        let mut inner = self.inner.lock();
        inner.status.at_start = how;
        inner.needed_from = needed_from;
    }

    /// The process did not start from the file. `is_final`: no later process may start from it either, so it is removed.
    pub fn refused(self: &Arc<Self>, why: &dyn std::fmt::Display, is_final: bool) {
        if is_final {
            self.discard();
        }
        self.started(format!("the snapshot was not used: {why}"), None);
    }

    pub(crate) fn want(&self) {
        self.wanted.notify_one();
    }

    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
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

    /// The promise is broken: what is on disk is worth nothing any more, nor what is being written. To be called after the standing has changed.
    pub(crate) fn discard(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        inner.epoch += 1;
        inner.needed_from = None;
        drop(inner);
        if self.in_place {
            return self.remove_void();
        }
        // Beside the caller, who may not wait for a disk. A crash of the machine before it is done undoes the removal, and with it what was known.
        let snapshots = Arc::clone(self);
        let spawned =
            std::thread::Builder::new().name("snapshot-discard".into()).spawn(move || snapshots.remove_void());
        if spawned.is_err() {
            self.want();
        }
    }

    /// Whether a file stands there that no process may start from.
    pub(crate) fn void_stands(&self) -> bool {
        let stands = *self.stands.lock();
        stands.is_some_and(|epoch| epoch != self.epoch())
    }

    /// Removes the file of before the promise was broken. Who keeps snapshots tries again where it can't be removed. Waits for the disk.
    pub(crate) fn remove_void(&self) {
        let mut stands = self.stands.lock();
        if stands.is_none_or(|epoch| epoch == self.epoch()) {
            return;
        }
        match remove(&self.place) {
            Ok(()) => *stands = None,
            Err(error) => {
                tracing::error!(%error, file = %self.place.display(), "a snapshot that is worth nothing any more could not be removed");
                self.want();
            }
        }
    }

    /// Puts what was written in its place, if the promise has held since `epoch`.
    pub(crate) fn put(
        &self,
        epoch: u64,
        written: Result<Aside, WriteError>,
        generation: &Generation,
        needed_from: Option<u64>,
    ) -> SnapshotOutcome {
        let put = match written {
            Ok(aside) => {
                let mut stands = self.stands.lock();
                if self.epoch() != epoch {
                    return SnapshotOutcome::Abandoned;
                }
                let bytes = aside.bytes();
                // A discard from here on finds that it stands, and removes it; but see below.
                aside.put().map_err(WriteError::from).map(|()| {
                    *stands = Some(epoch);
                    bytes
                })
            }
            Err(error) => Err(error),
        };
        if self.epoch() != epoch {
            // Not left to the thread of the discard, which may not have begun.
            self.remove_void();
            return SnapshotOutcome::Abandoned;
        }
        let synced = put.and_then(|bytes| Ok(sync_dir(&self.place).map(|()| bytes)?));
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
                tracing::debug!(file = %self.place.display(), bytes, generation = generation.number, "wrote a snapshot of the filter");
                SnapshotOutcome::Written
            }
            Err(WriteError::Abandoned) => SnapshotOutcome::Abandoned,
            Err(error) => {
                tracing::warn!(%error, file = %self.place.display(), "the snapshot of the filter was not written");
                inner.status.trouble = Some(error.to_string());
                SnapshotOutcome::Failed
            }
        }
    }
}

/// Removes the file; or what is in it, where its folder does not let it go. No process starts from an empty one.
fn remove(place: &Path) -> io::Result<()> {
    match fs::remove_file(place) {
        Ok(()) => sync_dir(place),
        // Of a try before this one, or it never was.
        Err(error) if error.kind() == io::ErrorKind::NotFound => sync_dir(place),
        Err(error) => {
            File::options().write(true).truncate(true).open(place).and_then(|file| file.sync_all()).map_err(|_| error)
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
    fn a_void_snapshot_that_can_not_be_removed_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Arc::new(SnapshotFile::new(dir.path(), "users", 0).removing_in_place());
        // Neither removed nor truncated, whoever runs this.
        fs::create_dir(snapshots.place()).unwrap();
        snapshots.discard();
        assert!(snapshots.void_stands());
        fs::remove_dir(snapshots.place()).unwrap();
        fs::write(snapshots.place(), "void").unwrap();
        snapshots.remove_void();
        assert!(!snapshots.void_stands() && !snapshots.place().exists());
    }

    #[test]
    fn what_is_discarded_is_gone_soon() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Arc::new(SnapshotFile::new(dir.path(), "users", 0));
        fs::write(snapshots.place(), "void").unwrap();
        snapshots.discard();
        eventually(|| !snapshots.void_stands());
        assert!(!snapshots.place().exists());
    }
}

//! The one file of a keyspace: what stands in its place, and whether it may.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

use super::Refused;
use crate::filter::Generation;
use crate::filter::snapshot::{Aside, WriteError, sync_dir};
use crate::words::SnapshotOutcome;

/// The snapshots of one keyspace, of which the last stands on disk.
#[derive(Debug)]
pub struct Snapshots {
    place: PathBuf,
    basis: u64,
    inner: Mutex<Inner>,
    /// Held while one is written: never two at once.
    pub(super) writing: Mutex<()>,
    wanted: Notify,
    /// The process stops: what is being written is given up for the last one.
    pub(super) stopping: AtomicBool,
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

impl Snapshots {
    /// Of the keyspace `name` in `dir`; `basis` is the fingerprint of what its promise rests on.
    #[must_use]
    pub fn new(dir: &Path, name: &str, basis: u64) -> Self {
        Self {
            place: dir.join(format!("{name}.snapshot")),
            basis,
            inner: Mutex::default(),
            writing: Mutex::default(),
            wanted: Notify::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Where the last one stands.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    pub(super) const fn basis(&self) -> u64 {
        self.basis
    }

    /// How the process started.
    pub fn started(&self, how: String, needed_from: Option<u64>) {
        let mut inner = self.inner.lock();
        inner.status.at_start = how;
        inner.needed_from = needed_from;
    }

    /// The process did not start from what is on disk. What a later one could take for its own although much may have happened in between goes.
    pub fn refused(&self, why: &Refused) {
        if why.is_final() {
            self.discard();
        }
        self.started(format!("the snapshot was not used: {why}"), None);
    }

    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    pub(super) fn epoch(&self) -> u64 {
        self.inner.lock().epoch
    }

    pub(super) fn needed_from(&self) -> Option<u64> {
        self.inner.lock().needed_from
    }

    /// For `/status`.
    pub(in crate::guard) fn status(&self) -> SnapshotStatus {
        self.inner.lock().status.clone()
    }

    /// The promise is broken: what is on disk is worth nothing any more, nor what is being written. To be called after the standing has changed.
    pub(in crate::guard) fn discard(&self) {
        let mut inner = self.inner.lock();
        inner.epoch += 1;
        inner.needed_from = None;
        let removed = fs::remove_file(&self.place);
        drop(inner);
        match removed {
            Ok(()) => {
                let place = self.place.clone();
                // Beside the caller, who may not wait for a disk. A crash of the machine before it is done undoes the removal, and with it what was known.
                let synced = std::thread::Builder::new().name("snapshot-discard".into()).spawn(move || sync_dir(&place));
                drop(synced);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::error!(%error, file = %self.place.display(), "a snapshot that is worth nothing any more could not be removed")
            }
        }
    }

    /// Puts what was written in its place, if the promise has held since `epoch`.
    pub(super) fn put(
        &self,
        epoch: u64,
        written: Result<Aside, WriteError>,
        generation: &Generation,
        needed_from: Option<u64>,
    ) -> SnapshotOutcome {
        let inner = self.inner.lock();
        let put = match written {
            Ok(_) if inner.epoch != epoch => return SnapshotOutcome::Abandoned,
            Ok(aside) => {
                let bytes = aside.bytes();
                // Under the lock: a discard comes before it, and is seen above, or after it, and removes this one.
                aside.put().map(|()| bytes).map_err(WriteError::from)
            }
            Err(error) => Err(error),
        };
        // The disk is waited for without it.
        drop(inner);
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

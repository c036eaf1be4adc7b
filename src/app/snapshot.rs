//! Finds the snapshot of the filter that a keyspace starts from.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{BackendKind, Config, KeyspaceConfig};
use crate::key::KeySecret;
use crate::keyspace::{Expected, Refused, Replayed, Restored, SnapshotFile, SnapshotParts, restore};
use crate::labels::SnapshotOutcome;
use crate::metrics::KeyspaceMetrics;
use crate::rebuild::{MemoryBudget, MemoryReservation};

/// Limit for reading all snapshots before anything listens, because probes wait meanwhile.
pub(super) const MAX_READ_TIME: Duration = Duration::from_secs(20);

/// What identifies the snapshot of a keyspace.
pub(super) struct SnapshotFinder<'a> {
    pub(super) name: &'a str,
    pub(super) keyspace: &'a KeyspaceConfig,
    pub(super) config: &'a Config,
    pub(super) has_redis: bool,
    pub(super) replayed: &'a Replayed,
}

/// What was found in `data_dir`.
pub(super) struct FoundSnapshot {
    /// `None` if the keyspace keeps no snapshots.
    snapshots: Option<Arc<SnapshotFile>>,
    restored: Result<Option<(Restored, MemoryReservation)>, Refused>,
}

impl SnapshotFinder<'_> {
    /// Reads the snapshot on a blocking thread, until the deadline.
    pub(super) async fn find(&self, memory: &Arc<MemoryBudget>, until: Instant) -> FoundSnapshot {
        // A filter alone is of no use here: the key set answers, and it is not in the snapshot.
        if self.keyspace.backend.kind == BackendKind::Set {
            return FoundSnapshot { snapshots: None, restored: Ok(None) };
        }
        let has_log = self.keyspace.shares_announces(self.has_redis);
        let basis = self.keyspace.basis(self.config.redis.as_ref().map(|redis| &redis.url), has_log);
        let snapshots = Arc::new(SnapshotFile::new(&self.config.server.data_dir, self.name, basis));
        let expected = Expected {
            keyspace: self.name.to_owned(),
            basis,
            form: self.keyspace.key,
            freshness: self.keyspace.freshness,
            max_staleness: self.keyspace.max_staleness,
            announces: self.keyspace.takes_announces(),
            has_log,
            polled_sources: self.keyspace.source.iter().filter(|source| source.incremental.is_some()).count(),
            journal: self.replayed.extent,
        };
        if self.replayed.damaged && self.keyspace.takes_announces() {
            return FoundSnapshot { snapshots: Some(snapshots), restored: Err(Refused::DamagedJournal) };
        }
        let (place, memory) = (snapshots.path().to_owned(), Arc::clone(memory));
        let reading = tokio::task::spawn_blocking(move || read(&place, &expected, &memory));
        // A read past the deadline ends by itself and frees its reservation.
        let read = tokio::time::timeout_at(until.into(), reading).await;
        let restored = read.map_or(Err(Refused::Late), |read| read.unwrap_or(Err(Refused::Panicked)));
        FoundSnapshot { snapshots: Some(snapshots), restored }
    }
}

/// Reads and validates the snapshot, and reserves the filter's memory.
fn read(
    place: &Path,
    expected: &Expected,
    memory: &Arc<MemoryBudget>,
) -> Result<Option<(Restored, MemoryReservation)>, Refused> {
    let mut set_aside = None;
    let restored = restore(place, expected, |sizes| {
        let reservation = memory.reserve(&expected.keyspace, sizes.iter().sum()).map_err(|e| e.to_string())?;
        // Later layers reserve their memory themselves, as they do when a filter grows.
        reservation.resize(sizes.first().copied().unwrap_or_default()).map_err(|e| e.to_string())?;
        set_aside = Some(reservation);
        Ok(memory.room())
    })?;
    Ok(restored.zip(set_aside))
}

impl FoundSnapshot {
    /// Whether the snapshot has announces that the journal lacks.
    pub(super) const fn shows_lost_announces(&self) -> bool {
        matches!(self.restored, Err(Refused::JournalLost))
    }

    /// The secret under which the snapshot's keys are hashed.
    pub(super) fn secret(&self) -> Option<KeySecret> {
        self.restored.as_ref().ok()?.as_ref().map(|(restored, _)| restored.secret().clone())
    }

    /// The filter to start from, if its keys are hashed under `secret`. Logs and counts why not otherwise.
    pub(super) fn restored_under(self, secret: Option<&KeySecret>, metrics: &KeyspaceMetrics) -> Option<SnapshotParts> {
        let snapshots = self.snapshots?;
        let agreed = self.restored.and_then(|found| match (found, secret) {
            (Some(_), None) => Err(Refused::NoSecret),
            (Some((restored, _)), Some(secret)) if restored.secret().fingerprint() != secret.fingerprint() => {
                Err(Refused::Secret)
            }
            (found, _) => Ok(found),
        });
        let restored = match agreed {
            Ok(Some((restored, reservation))) => {
                reservation.keep();
                Some(restored)
            }
            Ok(None) => {
                snapshots.started("there was no snapshot".into(), None);
                None
            }
            Err(refused) => {
                let file = snapshots.path().display();
                tracing::warn!(%file, reason = %refused, "snapshot rejected: building from the source");
                metrics.snapshots.ended(SnapshotOutcome::Refused);
                snapshots.refused(&refused, refused.is_final());
                None
            }
        };
        Some(SnapshotParts { file: snapshots, restored })
    }
}

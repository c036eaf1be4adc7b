//! What a keyspace starts from: the snapshot of its filter, where there is one that may be believed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::has_log;
use crate::config::{BackendKind, Config, KeyspaceConfig};
use crate::key::KeySecret;
use crate::keyspace::{Expected, Refused, Replayed, Restored, SnapshotFile, SnapshotParts, restore};
use crate::labels::SnapshotOutcome;
use crate::metrics::KeyspaceMetrics;
use crate::rebuild::{MemoryBudget, Reservation};

/// How long all snapshots together may be read before anything listens: probes wait no longer than they have to.
pub(super) const LONGEST_READS: Duration = Duration::from_secs(20);

/// A keyspace about to start.
pub(super) struct Start<'a> {
    pub(super) name: &'a str,
    pub(super) keyspace: &'a KeyspaceConfig,
    pub(super) config: &'a Config,
    pub(super) has_redis: bool,
    pub(super) replayed: &'a Replayed,
}

/// What was found in `data_dir`.
pub(super) struct Found {
    /// `None`: none are kept.
    snapshots: Option<Arc<SnapshotFile>>,
    restored: Result<Option<(Restored, Reservation)>, Refused>,
}

impl Start<'_> {
    /// Reads the snapshot, off the async threads, and until then at the latest.
    pub(super) async fn find(&self, memory: &Arc<MemoryBudget>, until: Instant) -> Found {
        // The filter alone would be of no use: what is absent the set of keys says, and that is not in a snapshot.
        if self.keyspace.backend.kind == BackendKind::Set {
            return Found { snapshots: None, restored: Ok(None) };
        }
        let has_log = has_log(self.keyspace, self.has_redis);
        let basis = self.keyspace.basis(self.config.redis.as_ref().map(|redis| &redis.url), has_log);
        let snapshots = Arc::new(SnapshotFile::new(&self.config.server.data_dir, self.name, basis));
        let expected = Expected {
            keyspace: self.name.to_owned(),
            basis,
            form: self.keyspace.key,
            freshness: self.keyspace.freshness,
            max_staleness: self.keyspace.max_staleness,
            has_log,
            polled_sources: self.keyspace.source.iter().filter(|source| source.incremental.is_some()).count(),
            journal: self.replayed.extent,
        };
        if self.replayed.damaged {
            return Found { snapshots: Some(snapshots), restored: Err(Refused::DamagedJournal) };
        }
        let (place, memory) = (snapshots.place().to_owned(), Arc::clone(memory));
        let reading = tokio::task::spawn_blocking(move || read(&place, &expected, &memory));
        // One that is given up ends by itself, and with it what it has set aside.
        let read = tokio::time::timeout_at(until.into(), reading).await;
        let restored = read.map_or(Err(Refused::Late), |read| read.unwrap_or(Err(Refused::Panicked)));
        Found { snapshots: Some(snapshots), restored }
    }
}

/// Reads and judges, and sets the memory of the filter aside.
fn read(
    place: &Path,
    expected: &Expected,
    memory: &Arc<MemoryBudget>,
) -> Result<Option<(Restored, Reservation)>, Refused> {
    let mut set_aside = None;
    let restored = restore(place, expected, |sizes| {
        let reservation = memory.reserve(&expected.keyspace, sizes.iter().sum()).map_err(|e| e.to_string())?;
        // Further layers ask for theirs by themselves, as they do when a filter grows.
        reservation.resize(sizes.first().copied().unwrap_or_default()).map_err(|e| e.to_string())?;
        set_aside = Some(reservation);
        Ok(memory.room())
    })?;
    Ok(restored.zip(set_aside))
}

impl Found {
    /// The snapshot knows of announces that the journal lacks.
    pub(super) const fn shows_lost_announces(&self) -> bool {
        matches!(self.restored, Err(Refused::JournalLost))
    }

    /// Under which the snapshot's keys are hashed.
    pub(super) fn secret(&self) -> Option<KeySecret> {
        self.restored.as_ref().ok()?.as_ref().map(|(restored, _)| restored.secret().clone())
    }

    /// The filter to start from, if `secret` is the one that its keys are hashed under; why not, where there is one.
    pub(super) fn under(self, secret: Option<&KeySecret>, metrics: &KeyspaceMetrics) -> Option<SnapshotParts> {
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
                tracing::warn!(file = %snapshots.place().display(), reason = %refused, "the snapshot is not used: the filter is built from the source");
                metrics.snapshots.ended(SnapshotOutcome::Refused);
                snapshots.refused(&refused, refused.is_final());
                None
            }
        };
        Some(SnapshotParts { file: snapshots, restored })
    }
}

//! Announces and drops, in the order that their promises need.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::{AnnounceError, DropError, Guard, Replayed};
use crate::cache::{CacheError, Mark};
use crate::clock::Moment;
use crate::key::{Key, KeyHash};
use crate::words::AnnounceOutcome;

/// Marks that are set at a time after a reconnect.
const REMARK_CONCURRENCY: usize = 64;
/// Pause before marks that could not be set are tried again.
const REMARK_PAUSE: Duration = Duration::from_millis(200);

impl Guard {
    /// Takes note of keys before their rows are committed, of all or of none; returns once they can't be lost. Lasts no longer than the
    /// keyspace's deadline.
    ///
    /// # Errors
    /// [`AnnounceError`]: not durable, so the rows must not be committed.
    pub async fn announce(&self, keys: &[Key]) -> Result<(), AnnounceError> {
        let announced =
            tokio::time::timeout(self.deadline, self.announce_in_order(keys)).await.unwrap_or(Err(AnnounceError::Deadline(self.deadline)));
        let outcome = match &announced {
            Ok(()) => AnnounceOutcome::Accepted,
            Err(AnnounceError::Full(_)) => AnnounceOutcome::Full,
            Err(_) => AnnounceOutcome::NotDurable,
        };
        self.metrics.announces(outcome, keys.len() as u64);
        announced
    }

    async fn announce_in_order(&self, keys: &[Key]) -> Result<(), AnnounceError> {
        let hashes: Vec<KeyHash> = keys.iter().map(|key| self.secret.hash(key)).collect();
        // Remembered first, before the filter pair is loaded: a build that begins now finds the keys here or gets their bits below.
        self.recent.remember_all(&hashes, keys, Moment::now()).map_err(|full| AnnounceError::Full(full.0))?;
        for (hash, key) in hashes.iter().zip(keys) {
            // Detached first: a flight that is still attached would store an absence behind the drop.
            self.flights.detach(key);
            self.hot.drop_absence(*hash);
            self.active.insert(hash.get());
        }
        self.note_announced(&hashes);
        let (journalled, marked) =
            tokio::join!(self.journal.append(keys), self.shared.put_marks(keys, Mark::Announced, self.recent.life()));
        journalled?;
        marked?;
        Ok(())
    }

    /// Drops a removed row's key from every cache. The filter keeps its bits until the next build.
    ///
    /// # Errors
    /// [`DropError`]: the shared cache may still hold the old row.
    pub async fn delete(&self, key: &Key) -> Result<(), DropError> {
        self.drop_cached(std::slice::from_ref(key)).await?;
        let hash = self.secret.hash(key);
        self.proven.gone(hash);
        if let Some(members) = self.members() {
            members.remove(hash, key, Moment::now());
        }
        if self.active.probe(hash.get()).is_some_and(|(maybe, _)| maybe) {
            self.deleted.insert(hash);
        }
        self.metrics.delete();
        let many = |items: u64| self.deleted.count() as f64 > self.max_deleted_ratio * items as f64;
        if self.active.current().is_some_and(|generation| many(generation.filter.items())) {
            self.rebuild_wanted.notify_one();
        }
        Ok(())
    }

    /// Drops the values and absences of changed rows from every cache; a fill that was under way can't bring the old ones back.
    ///
    /// # Errors
    /// [`DropError`]: the shared cache may still hold old values.
    pub async fn invalidate(&self, keys: &[Key]) -> Result<(), DropError> {
        self.drop_cached(keys).await?;
        self.metrics.invalidated(keys.len() as u64);
        Ok(())
    }

    async fn drop_cached(&self, keys: &[Key]) -> Result<(), DropError> {
        // The tombstones first: a fill that comes after the local drop must find them.
        let marked = tokio::time::timeout(self.deadline, self.shared.put_marks(keys, Mark::Dropped, self.recent.life())).await;
        for key in keys {
            // Detached first: a flight that is still attached would store the old value behind the drop.
            self.flights.detach(key);
            self.hot.drop_entry(self.secret.hash(key));
        }
        Ok(marked.unwrap_or(Err(CacheError::Timeout(self.deadline)))?)
    }

    /// Takes back what the journal held: those announces were acknowledged, and their rows may still be on their way.
    pub(super) fn remember_replayed(&self, replayed: &Replayed, commit_window: Duration) {
        let now = Moment::now();
        let mut forgotten = false;
        for key in &replayed.keys {
            let hash = self.secret.hash(key);
            forgotten |= self.recent.remember(hash, key, now).is_err();
            self.note_announced(&[hash]);
        }
        if replayed.damaged || forgotten {
            // Announces were lost: only a scan that begins after their windows have closed finds all their rows.
            tracing::error!(keyspace = %self.name, "the announce journal is damaged: the keyspace does not reject before a scan that begins after the commit window");
            self.standing.broken(
                now.plus(commit_window),
                "the announce journal was damaged at start; a scan after the commit window mends it".into(),
            );
        }
    }

    /// Sets the marks of every announce within its window again each time the shared cache was connected anew, for the new server may not have
    /// them. Runs until dropped.
    pub async fn keep_marks(self: Arc<Self>) {
        let mut epochs = self.shared.epochs();
        // Once at the start too, for what the journal held: the connection may be older than this task.
        loop {
            epochs.mark_unchanged();
            while !self.set_marks_again().await {
                tokio::time::sleep(REMARK_PAUSE).await;
            }
            if epochs.changed().await.is_err() {
                return;
            }
        }
    }

    /// Whether every mark is set.
    async fn set_marks_again(&self) -> bool {
        let recent = self.recent.snapshot(Moment::now());
        let count = recent.len();
        let failed = stream::iter(recent)
            .map(|(_, key, rest)| {
                let shared = &self.shared;
                async move { shared.put_mark(&key, Mark::Announced, rest).await.is_ok() }
            })
            .buffer_unordered(REMARK_CONCURRENCY)
            .filter(|ok| std::future::ready(!ok))
            .count()
            .await;
        if count > 0 {
            tracing::info!(keyspace = %self.name, count, failed, "set the marks of recent announces again");
        }
        failed == 0
    }
}

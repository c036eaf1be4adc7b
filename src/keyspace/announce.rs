//! Announces and drops, in the order that their promises need.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::error::TellError;
use super::peers::Windows;
use super::recent::{ChunkPlace, keys_of};
use super::{AnnounceError, DropError, Keyspace, Replayed};
use crate::cache::{CacheError, Mark};
use crate::clock::Moment;
use crate::fleet::{Delta, LogEntryKind as Kind, LogError, Version};
use crate::key::{Key, KeyHash};
use crate::labels::AnnounceOutcome;

/// Marks that are set at a time after a reconnect.
const REMARK_CONCURRENCY: usize = 64;
/// Keys of the journal that are remembered at a time: where not all have room, as many as have.
const REPLAYED_TOGETHER: usize = 1024;
/// How far this instance's announces are in the log again, of one connection and one secret: each try appends those that the last one has not.
#[derive(Debug)]
struct Again {
    over: Option<(Option<u64>, u64)>,
    began: Moment,
    place: Option<ChunkPlace>,
}

impl Default for Again {
    fn default() -> Self {
        Self { over: None, began: Moment::NEVER, place: None }
    }
}

/// Pause before marks that could not be set are tried again.
const REMARK_PAUSE: Duration = Duration::from_millis(200);

impl Keyspace {
    /// Takes note of keys before their rows are committed, of all or of none; returns once they can't be lost, with the version from which on any
    /// instance knows of them, where there are several. Lasts no longer than the keyspace's deadline.
    ///
    /// # Errors
    /// [`AnnounceError`]: not durable, so the rows must not be committed.
    pub async fn announce(&self, keys: &[Key]) -> Result<Option<Version>, AnnounceError> {
        let announced = match self.admit(keys) {
            Ok(()) => tokio::time::timeout(self.deadline, self.announce_in_order(keys))
                .await
                .unwrap_or(Err(AnnounceError::Deadline(self.deadline))),
            Err(refused) => Err(refused),
        };
        let outcome = match &announced {
            Ok(_) => AnnounceOutcome::Accepted,
            Err(AnnounceError::Full(_)) => AnnounceOutcome::Full,
            Err(AnnounceError::TooFast { .. }) => AnnounceOutcome::Limited,
            Err(_) => AnnounceOutcome::NotDurable,
        };
        self.metrics.announces(outcome, keys.len() as u64);
        announced.inspect_err(|error| self.write_trouble.write_failed(&self.name, error))
    }

    /// Before anything is done for the keys: what is refused here has changed nothing.
    fn admit(&self, keys: &[Key]) -> Result<(), AnnounceError> {
        let limit = self.announce_limits.per_second;
        self.announce_rate
            .admit(keys.len(), Moment::now())
            .map_err(|retry_in| AnnounceError::TooFast { limit, retry_in })
    }

    async fn announce_in_order(&self, keys: &[Key]) -> Result<Option<Version>, AnnounceError> {
        let secret = self.secret.agreed().ok_or(AnnounceError::NoSecret)?;
        let hashes: Vec<KeyHash> = keys.iter().map(|key| secret.hash(key)).collect();
        // Remembered first, before the filter pair is loaded: a build that begins now finds the keys here or gets their bits below.
        // Where there is no room, nothing has changed either, and the writer is told not to commit. The others need not know: a gap in the log would
        // let a flood of announces end the rejecting of the whole fleet.
        self.recent.remember_all(&hashes, keys, Moment::now()).map_err(|full| AnnounceError::Full(full.0))?;
        self.expect_rows(&hashes);
        let (journalled, told) = tokio::join!(
            self.journal.append(keys),
            self.mark_and_tell(Mark::Announced, keys, hashes, secret.fingerprint)
        );
        journalled?;
        let version = told.map_err(AnnounceError::from)?;
        // Whoever changes the secret looks at the memory after that: where it is still the same now, the key is hashed again there.
        if self.secret.fingerprint() == secret.fingerprint { Ok(version) } else { Err(AnnounceError::NoSecret) }
    }

    /// What an announce does in this process, wherever it was made, once it is remembered: rows of these keys may be visible at any moment.
    pub(super) fn expect_rows(&self, hashes: &[KeyHash]) {
        for hash in hashes {
            // Detached first: a flight that is still attached would store an absence behind the drop.
            self.flights.detach(*hash);
            self.hot.drop_absence(*hash);
            self.active.insert(hash.get());
        }
        self.growth.inserted(hashes);
        self.note_announced(hashes);
    }

    /// What a drop does in this process, wherever it was made, once its tombstone is set.
    pub(super) fn forget_rows(&self, hashes: &[KeyHash]) {
        for hash in hashes {
            // Detached first: a flight that is still attached would store the old value behind the drop.
            self.flights.detach(*hash);
            self.hot.drop_entry(*hash);
        }
    }

    /// Sets the marks and then appends to the log, over the same connection: an entry in a log whose server has no such marks would let an absence
    /// be stored there that its readers believe.
    async fn mark_and_tell(
        &self,
        mark: Mark,
        keys: &[Key],
        hashes: Vec<KeyHash>,
        secret: u64,
    ) -> Result<Option<Version>, TellError> {
        // Read before: where the connection changes after this, the append is refused.
        let epoch = self.shared.epoch();
        self.shared.put_marks(keys, mark, self.recent.life()).await?;
        let Some(fleet) = &self.fleet else { return Ok(None) };
        let kind = match mark {
            Mark::Announced => Kind::Announce,
            Mark::Dropped => Kind::Drop,
        };
        let (identity, position) =
            fleet.committer.append(Delta { kind, secret, terms: Some(self.terms()), hashes }, epoch).await?;
        Ok(Some(Version { identity, keyspace: self.name.clone(), position }))
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
        let ratio = self.settings.load().max_deleted_ratio;
        let many = |items: u64| self.deleted.count() as f64 > ratio * items as f64;
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
        self.drop_in_order(keys).await.inspect_err(|error| self.write_trouble.write_failed(&self.name, error))
    }

    async fn drop_in_order(&self, keys: &[Key]) -> Result<(), DropError> {
        let secret = self.secret.agreed().ok_or(DropError::NoSecret)?;
        // The tombstones first, then the log: a fill that comes after a drop, here or elsewhere, must find them.
        let hashes: Vec<KeyHash> = keys.iter().map(|key| secret.hash(key)).collect();
        let telling = self.mark_and_tell(Mark::Dropped, keys, hashes.clone(), secret.fingerprint);
        let told = tokio::time::timeout(self.deadline, telling).await;
        self.forget_rows(&hashes);
        told.unwrap_or(Err(TellError::Mark(CacheError::Timeout(self.deadline))))?;
        if self.secret.fingerprint() == secret.fingerprint { Ok(()) } else { Err(DropError::NoSecret) }
    }

    /// Takes back what the journal held: those announces were acknowledged, and their rows may still be on their way.
    pub(super) fn remember_replayed(&self, replayed: &Replayed) {
        let now = Moment::now();
        if let Some((window, deadline)) = replayed.windows {
            self.peers.before_restart(Windows { window, deadline }, now);
            self.settle_windows();
        }
        let hashes: Vec<KeyHash> = replayed.keys.iter().map(|key| self.secret.hash(key)).collect();
        let mut forgotten = false;
        for (hashes, keys) in hashes.chunks(REPLAYED_TOGETHER).zip(replayed.keys.chunks(REPLAYED_TOGETHER)) {
            forgotten |= self.recent.remember_all(hashes, keys, now).is_err();
        }
        hashes.iter().for_each(|hash| self.active.insert(hash.get()));
        self.note_announced(&hashes);
        let lost = match replayed {
            Replayed { damaged: true, .. } => "the announce journal was damaged at start",
            Replayed { foreign: true, .. } => "the announce journal is of another key form, source or backend",
            _ if forgotten => "the announce journal held more announces than server.max_announce_bytes has room for",
            _ => return,
        };
        // Only a scan that begins after their windows have closed finds all their rows.
        tracing::error!(keyspace = %self.name, reason = lost, "announces lost at start");
        self.standing
            .broken(now.plus(self.windows().window), format!("{lost}; a scan after the commit window mends it"));
    }

    /// Sets the marks of every announce within its window again each time the shared cache was connected anew, for the new server may not have
    /// them. Runs until dropped.
    pub async fn keep_marks(self: Arc<Self>) {
        let mut epochs = self.shared.epochs();
        // Once at the start too, for what the journal held: the connection may be older than this task.
        loop {
            epochs.mark_unchanged();
            let mut again = Again::default();
            while !self.announce_again(&mut again).await {
                tokio::time::sleep(REMARK_PAUSE).await;
            }
            if epochs.changed().await.is_err() {
                return;
            }
        }
    }

    /// Sets the marks of this instance's announces within their window and appends them to the log once more; says whether that is done.
    ///
    /// They live as long as new ones, and not for what is left of this instance's window: another's mark or tombstone may be younger, and would end sooner.
    async fn announce_again(&self, again: &mut Again) -> bool {
        let (epoch, secret) = (self.shared.epoch(), self.secret.fingerprint());
        if again.over != Some((epoch, secret)) {
            *again = Again { over: Some((epoch, secret)), began: Moment::now(), place: None };
        }
        let began = again.began;
        let (mut count, mut failed, mut told) = (0, 0, true);
        while told && let Some((next, chunk)) = self.recent.own_keys(again.place, began) {
            let keys: Vec<Key> = keys_of(&chunk).map(|key| Key::from_canonical(Bytes::copy_from_slice(key))).collect();
            count += keys.len();
            failed = stream::iter(keys.clone())
                .map(|key| async move { self.shared.put_mark(&key, Mark::Announced, self.recent.life()).await.is_ok() })
                .buffer_unordered(REMARK_CONCURRENCY)
                .filter(|ok| std::future::ready(!ok))
                .count()
                .await;
            told = failed == 0 && self.tell_again(&keys, epoch).await;
            if told {
                again.place = Some(next);
            }
        }
        if count > 0 {
            tracing::info!(keyspace = %self.name, count, failed, told, "set the marks of recent announces again");
        }
        // Another secret has given all of them another place.
        told && self.secret.fingerprint() == secret
    }

    async fn tell_again(&self, keys: &[Key], epoch: Option<u64>) -> bool {
        let Some(fleet) = &self.fleet else { return true };
        let Some(secret) = self.secret.agreed().filter(|_| !keys.is_empty()) else { return true };
        let hashes = keys.iter().map(|key| secret.hash(key)).collect();
        let delta = Delta { kind: Kind::Announce, secret: secret.fingerprint, terms: Some(self.terms()), hashes };
        match fleet.committer.append(delta, epoch).await {
            // They are in the log, and each further try would append them once more.
            Ok(_) | Err(LogError::Unreplicated(_)) => true,
            Err(error) => {
                tracing::debug!(keyspace = %self.name, %error, "recent announces were not appended again");
                false
            }
        }
    }
}

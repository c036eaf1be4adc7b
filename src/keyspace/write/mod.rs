//! Announces and drops: how writers report changed rows, in the order that the promises need.

mod effects;
mod limits;
mod peers;
mod polled_rows;
mod rate;
mod recent;
mod resend;
mod windows;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::effects::LocalEffects;

pub use self::limits::AnnounceLimits;
pub(crate) use self::peers::{Peers, REGISTER_EVERY};
pub(crate) use self::polled_rows::RowStatus;
pub(crate) use self::rate::AnnounceRate;
pub(crate) use self::recent::Recent;
pub(crate) use self::windows::{CommitWindows, Polled};
use super::backend::FailureLog;
use super::build_state::BuildState;
use super::error::{AnnounceError, DropError, PublishError};
use super::identity::Identity;
use super::journal::Journal;
use super::membership::Membership;
use super::rebuild_signal::RebuildSignal;
use crate::cache::{CacheError, Mark, SharedCache};
use crate::clock::Moment;
use crate::fleet::{Committer, Delta, LogEntryKind, LogError, Version};
use crate::key::{Key, KeyHash};
use crate::labels::AnnounceOutcome;
use crate::metrics::KeyspaceMetrics;

/// Takes announces and drops.
///
/// Knows neither lookups nor the right to reject: it changes caches and filters through [`LocalEffects`] only.
pub(crate) struct Writer {
    pub(crate) identity: Arc<Identity>,
    pub(crate) deadline: Duration,
    /// False: announces are refused.
    pub(crate) takes_announces: bool,
    pub(crate) limits: AnnounceLimits,
    pub(crate) rate: AnnounceRate,
    pub(crate) windows: Arc<CommitWindows>,
    pub(crate) effects: Arc<LocalEffects>,
    pub(crate) shared: Arc<dyn SharedCache>,
    pub(crate) journal: Arc<Journal>,
    /// Appends to the delta log; `None`: there is none.
    pub(crate) committer: Option<Committer>,
    /// `None`: announces need no place in a roster.
    pub(crate) membership: Option<Arc<Membership>>,
    pub(crate) builds: Arc<BuildState>,
    pub(crate) rebuild: Arc<RebuildSignal>,
    pub(crate) failures: FailureLog,
    pub(crate) metrics: Arc<KeyspaceMetrics>,
}

impl Writer {
    /// Announces keys before their rows are committed, all or none. Returns once they can't be lost, with the version
    /// from which any instance knows them. Lasts no longer than the keyspace's deadline.
    ///
    /// # Errors
    /// [`AnnounceError`]: not durable, so the rows must not be committed.
    pub(crate) async fn announce(&self, keys: &[Key]) -> Result<Option<Version>, AnnounceError> {
        let announced = match self.admit(keys) {
            Ok(()) => self.announce_in_time(keys).await,
            Err(refused) => Err(refused),
        };
        let outcome = match &announced {
            Ok(_) => AnnounceOutcome::Accepted,
            Err(AnnounceError::Full(_)) => AnnounceOutcome::Full,
            Err(AnnounceError::TooFast { .. }) => AnnounceOutcome::Limited,
            Err(AnnounceError::Enrolling(_) | AnnounceError::Log(LogError::NotAdmitted)) => AnnounceOutcome::Enrolling,
            Err(AnnounceError::Off(_)) => AnnounceOutcome::Off,
            Err(_) => AnnounceOutcome::NotDurable,
        };
        self.metrics.announces(outcome, keys.len() as u64);
        announced.inspect_err(|error| self.failures.write_failed(&self.identity.name, error))
    }

    /// Before any change: a refused announce leaves nothing behind.
    fn admit(&self, keys: &[Key]) -> Result<(), AnnounceError> {
        if !self.takes_announces {
            return Err(AnnounceError::Off(self.identity.name.clone()));
        }
        if let Some(enrolling) = self.membership.as_ref().and_then(|membership| membership.enrolling()) {
            return Err(AnnounceError::Enrolling(enrolling));
        }
        let limit = self.limits.per_second;
        self.rate.admit(keys.len(), Moment::now()).map_err(|retry_in| AnnounceError::TooFast { limit, retry_in })
    }

    /// The time is looked at once more at the end: a process that was stopped wakes up with its answer, and by then
    /// nobody may remember the announce any more.
    async fn announce_in_time(&self, keys: &[Key]) -> Result<Option<Version>, AnnounceError> {
        let late = || Err(AnnounceError::Deadline(self.deadline));
        let began = Moment::now();
        let announced =
            tokio::time::timeout(self.deadline, self.announce_in_order(keys)).await.unwrap_or_else(|_| late());
        if Moment::now().since(began) > self.deadline { announced.and_then(|_| late()) } else { announced }
    }

    async fn announce_in_order(&self, keys: &[Key]) -> Result<Option<Version>, AnnounceError> {
        let secret = self.identity.secret.agreed().ok_or(AnnounceError::NoSecret)?;
        let hashes: Vec<KeyHash> = keys.iter().map(|key| secret.hash(key)).collect();
        // Remembered before the filter pair is loaded: a build that begins now finds the keys here or gets their bits
        // below. If there is no room, nothing has changed and the writer does not commit. The fleet gets no entry: a
        // gap in the log would let a flood of announces take the right to reject from all instances.
        self.windows.recent.remember_all(&hashes, keys, Moment::now()).map_err(|full| AnnounceError::Full(full.0))?;
        self.effects.apply_announce(&hashes);
        let (journalled, published) =
            tokio::join!(self.journal.append(keys), self.publish(Mark::Announced, keys, hashes, secret.fingerprint));
        journalled?;
        let version = published.map_err(AnnounceError::from)?;
        // A change of the secret rehashes what is remembered. If the secret is the same now, this announce was
        // remembered before that.
        if self.identity.secret.fingerprint() == secret.fingerprint {
            Ok(version)
        } else {
            Err(AnnounceError::NoSecret)
        }
    }

    /// Sets the marks and then appends to the log, over the same connection: an entry in the log of a server without
    /// these marks would let an absence be stored there that the log's readers believe.
    async fn publish(
        &self,
        mark: Mark,
        keys: &[Key],
        hashes: Vec<KeyHash>,
        secret: u64,
    ) -> Result<Option<Version>, PublishError> {
        // Read before: if the connection changes after this, the append is refused.
        let epoch = self.shared.epoch();
        self.shared.put_marks(keys, mark, self.windows.recent.life()).await?;
        let Some(committer) = &self.committer else { return Ok(None) };
        let kind = match mark {
            Mark::Announced => LogEntryKind::Announce,
            Mark::Dropped => LogEntryKind::Drop,
        };
        let delta = Delta { kind, secret, terms: Some(self.windows.terms()), hashes };
        let (identity, position) = committer.append(delta, epoch).await?;
        Ok(Some(Version { identity, keyspace: self.identity.name.clone(), position }))
    }

    /// Drops a removed row's key from every cache. The filter keeps its bits until the next build.
    ///
    /// # Errors
    /// [`DropError`]: the shared cache may still hold the old row.
    pub(crate) async fn delete(&self, key: &Key) -> Result<(), DropError> {
        self.drop_cached(std::slice::from_ref(key)).await?;
        // The next secret first: it may become the present one in between.
        let next = self.identity.secret.next().map(|next| next.hash(key));
        let hash = self.identity.hash(key);
        self.builds.confirmed.gone(hash);
        if let Some(members) = self.effects.backend.members() {
            for hash in next.into_iter().chain([hash]) {
                members.remove(hash, key, Moment::now());
            }
        }
        let current = self.effects.prober.current();
        if current.is_some() && self.effects.prober.holds(hash) {
            self.builds.deletes.insert(hash);
        }
        self.metrics.delete();
        if current.is_some_and(|generation| self.builds.has_many_deletes(generation.filter.items())) {
            self.rebuild.request();
        }
        Ok(())
    }

    /// Drops the values and absences of changed rows from every cache; a fill in progress can't bring them back.
    ///
    /// # Errors
    /// [`DropError`]: the shared cache may still hold old values.
    pub(crate) async fn invalidate(&self, keys: &[Key]) -> Result<(), DropError> {
        self.drop_cached(keys).await?;
        self.metrics.invalidated(keys.len() as u64);
        Ok(())
    }

    async fn drop_cached(&self, keys: &[Key]) -> Result<(), DropError> {
        self.drop_in_order(keys).await.inspect_err(|error| self.failures.write_failed(&self.identity.name, error))
    }

    async fn drop_in_order(&self, keys: &[Key]) -> Result<(), DropError> {
        let known = &self.identity.secret;
        let secret = known.agreed().ok_or(DropError::NoSecret)?;
        // The tombstones first, then the log: a fill that follows a drop, here or elsewhere, must find them.
        let hashes: Vec<KeyHash> = keys.iter().map(|key| secret.hash(key)).collect();
        // Under the fleet's secret, also while it is not adopted here: others find their entries by it.
        let (told, fingerprint) = match known.next() {
            Some(next) => (keys.iter().map(|key| next.hash(key)).collect(), next.fingerprint),
            None => (hashes.clone(), secret.fingerprint),
        };
        let publishing = self.publish(Mark::Dropped, keys, told, fingerprint);
        let published = tokio::time::timeout(self.deadline, publishing).await;
        self.effects.apply_drop(&hashes);
        published.unwrap_or(Err(PublishError::Mark(CacheError::Timeout(self.deadline))))?;
        if known.fingerprint() == secret.fingerprint {
            return Ok(());
        }
        if self.takes_announces {
            return Err(DropError::NoSecret);
        }
        // It was changed in between, which dropped the whole hot tier: only what came since is left.
        self.effects.drop_everything();
        Ok(())
    }
}

//! Announces that come back: after a reconnect to the shared cache, from the journal, and under another secret.

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::Writer;
use super::peers::Windows;
use super::recent::{ChunkPlace, Full, keys_of};
use crate::cache::Mark;
use crate::clock::Moment;
use crate::fleet::{Delta, LogEntryKind, LogError};
use crate::key::{Key, KeyHash};
use crate::keyspace::journal::Replayed;
use crate::keyspace::secret::CurrentSecret;

/// Marks that are set at a time after a reconnect.
const MARKS_AT_A_TIME: usize = 64;
/// Pause before marks that could not be set are tried again.
const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
/// Time between two log lines about re-sends.
const LINE_EVERY: std::time::Duration = std::time::Duration::from_secs(10);
/// Keys of the journal that are remembered at a time: if not all have room, as many as have.
const REPLAY_CHUNK: usize = 1024;

/// How far a re-send has come over one connection and under one secret: each try appends what the last one has not.
#[derive(Debug)]
struct Resend {
    over: Option<(Option<u64>, u64)>,
    began: Moment,
    place: Option<ChunkPlace>,
    lines: LineLimit,
}

/// The log lines about re-sends: a connection may flap.
#[derive(Debug, Default)]
struct LineLimit {
    last: Option<Moment>,
    suppressed: u64,
}

impl LineLimit {
    /// Returns how many lines were left out before this one, or `None` if this one is left out too.
    fn admit(&mut self, now: Moment) -> Option<u64> {
        if self.last.is_some_and(|last| now.since(last) < LINE_EVERY) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl Default for Resend {
    fn default() -> Self {
        Self { over: None, began: Moment::NEVER, place: None, lines: LineLimit::default() }
    }
}

impl Writer {
    /// Re-sends every announce within its window each time the shared cache was connected again: the new server may not
    /// have the marks. Runs until dropped.
    pub(crate) async fn resend_after_reconnects(&self) {
        let mut epochs = self.shared.epochs();
        let mut resend = Resend::default();
        // Once at the start too, for what the journal held: the connection may be older than this task.
        loop {
            epochs.mark_unchanged();
            resend.over = None;
            while !self.resend(&mut resend).await {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            if epochs.changed().await.is_err() {
                return;
            }
        }
    }

    /// Sets the marks of this instance's announces within their window and appends them to the log again. Returns true
    /// once that is done.
    ///
    /// The marks live as long as new ones, and not for the rest of this instance's window: a mark or tombstone of
    /// another instance may be younger, and would end sooner.
    async fn resend(&self, resend: &mut Resend) -> bool {
        // Not before the new log takes them.
        if self.membership.as_ref().is_some_and(|membership| membership.enrolling().is_some()) {
            return false;
        }
        let (epoch, secret) = (self.shared.epoch(), self.identity.secret.fingerprint());
        if resend.over != Some((epoch, secret)) {
            (resend.over, resend.began, resend.place) = (Some((epoch, secret)), Moment::now(), None);
        }
        let recent = &self.windows.recent;
        let (mut count, mut failed, mut sent) = (0, 0, true);
        while sent && let Some((next, chunk)) = recent.own_keys(resend.place, resend.began) {
            let keys: Vec<Key> = keys_of(&chunk).map(|key| Key::from_canonical(Bytes::copy_from_slice(key))).collect();
            count += keys.len();
            failed = stream::iter(keys.clone())
                .map(|key| async move { self.shared.put_mark(&key, Mark::Announced, recent.life()).await.is_ok() })
                .buffer_unordered(MARKS_AT_A_TIME)
                .filter(|ok| std::future::ready(!ok))
                .count()
                .await;
            sent = failed == 0 && self.append_again(&keys, epoch).await;
            if sent {
                resend.place = Some(next);
            }
        }
        let keyspace = &self.identity.name;
        if count > 0 && sent {
            if let Some(suppressed) = resend.lines.admit(Moment::now()) {
                let suppressed = (suppressed > 0).then_some(suppressed);
                tracing::info!(%keyspace, count, suppressed, "re-sent recent announces after reconnect");
            }
        } else if count > 0 {
            tracing::debug!(%keyspace, count, failed, "recent announces not re-sent yet");
        }
        // Another secret has given all of them another place.
        sent && self.identity.secret.fingerprint() == secret && self.report(epoch).await
    }

    /// Reports that all of them are in the log.
    async fn report(&self, epoch: Option<u64>) -> bool {
        match &self.membership {
            Some(membership) => membership.report(epoch).await,
            None => true,
        }
    }

    /// Returns true if nothing is left to append.
    async fn append_again(&self, keys: &[Key], epoch: Option<u64>) -> bool {
        let Some(committer) = self.committer.as_ref().filter(|_| !keys.is_empty()) else { return true };
        // None yet: under another secret they name no key.
        let Some(secret) = self.identity.secret.agreed() else { return false };
        let hashes = keys.iter().map(|key| secret.hash(key)).collect();
        let terms = Some(self.windows.terms());
        let delta = Delta { kind: LogEntryKind::Announce, secret: secret.fingerprint, terms, hashes };
        match committer.append(delta, epoch).await {
            // They are in the log, and each further try would append them once more.
            Ok(_) | Err(LogError::Unreplicated(_)) => true,
            Err(error) => {
                tracing::debug!(keyspace = %self.identity.name, %error, "recent announces not appended again");
                false
            }
        }
    }

    /// Restores what the journal held: those announces were acknowledged, and their rows may still come. Returns why
    /// announces may be lost; a scan that begins after their windows have closed finds their rows.
    pub(crate) fn restore(&self, replayed: &Replayed) -> Result<(), &'static str> {
        let now = Moment::now();
        if let Some((window, deadline)) = replayed.windows {
            self.windows.peers.before_restart(Windows { window, deadline }, now);
            self.windows.apply_longest();
        }
        let hashes = self.identity.hash_all(&replayed.keys);
        let mut forgotten = false;
        for (hashes, keys) in hashes.chunks(REPLAY_CHUNK).zip(replayed.keys.chunks(REPLAY_CHUNK)) {
            forgotten |= self.windows.recent.remember_all(hashes, keys, now).is_err();
        }
        self.effects.restore_announces(&hashes);
        match replayed {
            Replayed { damaged: true, .. } => Err("the announce journal was damaged at start"),
            Replayed { foreign: true, .. } => Err("the announce journal is of another key form, source or backend"),
            _ if forgotten => {
                Err("the announce journal held more announces than server.max_announce_bytes has room for")
            }
            _ => Ok(()),
        }
    }

    /// Hashes this instance's announces within their window under this secret too.
    ///
    /// # Errors
    /// [`Full`]: some have no room.
    pub(crate) fn rehash(&self, secret: &CurrentSecret, now: Moment) -> Result<(), Full> {
        let hash = |key: &[u8]| -> KeyHash { secret.hash(&Key::from_canonical(Bytes::copy_from_slice(key))) };
        let (hashes, remembered) = self.windows.recent.rehash_own(now, hash);
        self.effects.restore_announces(&hashes);
        if let (Err(_), Some(membership)) = (&remembered, &self.membership) {
            membership.forgot_until(now.plus(self.windows.recent.life()));
        }
        remembered
    }
}

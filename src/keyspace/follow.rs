//! The reading end of the delta log: what other instances announce and drop takes effect here, and what can't be read ends the rejecting.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Keyspace;
use super::peers::REGISTER_EVERY;
use crate::cache::Stamp;
use crate::clock::Moment;
use crate::config::EnforcementSetting;
use crate::fleet::{
    Committer, DeltaLog, EntryId, Follower, LogEntry as Entry, LogEntryKind as Kind, LogError, LogPlace, Loss, Switch,
    Terms, Version, WriterId,
};
use crate::labels::ResyncReason;
use crate::redis::LogIdentity;

/// How often the log is read. Each pause is spread, so that a fleet does not read in step.
const POLL: Duration = Duration::from_millis(100);

/// What a keyspace needs of the log.
pub struct LogParts {
    /// The log.
    pub log: Arc<dyn DeltaLog>,
    /// Who this process is in it.
    pub writer: WriterId,
    /// The log not read to its end for so long: other instances' announces may be missing here.
    pub max_lag: Duration,
}

/// The keyspace's ends of the log.
pub(super) struct Fleet {
    log: Arc<dyn DeltaLog>,
    writer: WriterId,
    pub(super) committer: Committer,
    /// Which log is followed, and up to where it has taken effect.
    applied: Mutex<Option<(LogIdentity, EntryId)>>,
    /// From where a later process may go on: everything up to there has taken effect.
    resumable: Mutex<Option<LogPlace>>,
    /// From where on a snapshot tells this one to go on.
    resume: Mutex<Option<LogPlace>>,
    /// In which log this instance has registered, under which terms, and when.
    registered: Mutex<Option<(Option<LogIdentity>, Terms, Moment)>>,
}

impl Fleet {
    /// Must be called within a Tokio runtime.
    pub(super) fn new(parts: LogParts) -> Self {
        Self {
            committer: Committer::new(Arc::clone(&parts.log)),
            log: parts.log,
            writer: parts.writer,
            applied: Mutex::default(),
            resumable: Mutex::default(),
            resume: Mutex::default(),
            registered: Mutex::default(),
        }
    }

    /// The log is read from there on.
    pub(super) fn resume(&self, place: Option<LogPlace>) {
        *self.resume.lock() = place;
    }

    /// From where a later process may go on.
    pub(super) fn resumable(&self) -> Option<LogPlace> {
        *self.resumable.lock()
    }

    /// Who announces rows of the same backend elsewhere.
    pub(super) fn other_namespaces(&self) -> Vec<String> {
        self.log.other_namespaces()
    }

    /// Registers this instance's terms now and then, and in each log anew.
    async fn register(&self, terms: Terms) {
        let (log, now) = (self.applied.lock().map(|(log, _)| log), Moment::now());
        let is_known = |(known, as_written, at): (Option<LogIdentity>, Terms, Moment)| {
            known == log && as_written == terms && now.since(at) < REGISTER_EVERY
        };
        if self.registered.lock().is_some_and(is_known) {
            return;
        }
        // Also where it fails, as in a full Redis: appends are refused then.
        *self.registered.lock() = Some((log, terms, now));
        if let Err(error) = self.log.register(&terms).await {
            tracing::debug!(%error, "instance not registered");
        }
    }

    /// Tells every instance what to enforce.
    pub(super) async fn switch(&self, setting: Option<EnforcementSetting>, known: u64) -> Result<Switch, LogError> {
        self.log.switch(setting, known).await
    }

    /// Redis has lost what the fleet was told. Where this fails, the next read says so again.
    async fn restore(&self, switch: Switch) {
        match self.log.restore_switch(switch).await {
            Ok(()) => tracing::info!(%switch, "Redis had lost what the fleet was told to enforce: put it back"),
            Err(error) => tracing::debug!(%error, "Redis has lost what the fleet was told to enforce"),
        }
    }
}

impl Keyspace {
    /// Reads the log for as long as the process lives, where there is one.
    pub async fn follow_log(self: Arc<Self>) {
        let Some(fleet) = &self.fleet else { return };
        let windows = self.windows();
        let mut follower = Follower::new(windows.life(), windows.window)
            .in_log_of(fleet.log.retention())
            .resuming(fleet.resume.lock().take());
        loop {
            fleet.register(self.terms()).await;
            // Before it is sent: what was appended later may not be in the answer.
            let sent = Moment::now();
            match fleet.log.read(follower.after()).await {
                Ok(mut page) => {
                    // Before the log counts as read: who does not know what the fleet was told does not enforce.
                    let better = self.heed(page.switch.take());
                    self.heed_peers(fleet.writer, &page);
                    let windows = self.windows();
                    follower.set_windows(windows.life(), windows.window);
                    let step = follower.evaluate(page);
                    if let Some(loss) = step.loss {
                        self.log_was_lost(loss);
                    }
                    self.apply(fleet, &step.entries);
                    // Only now: who reads the place may rely on what stands before it.
                    follower.applied(&step);
                    *fleet.applied.lock() = follower.place();
                    // While it catches up, an earlier place is as right.
                    if let Some(place) = follower.resumable() {
                        *fleet.resumable.lock() = Some(place);
                    }
                    if !step.complete {
                        continue;
                    }
                    self.log_is_read(sent);
                    if let Some(switch) = better {
                        fleet.restore(switch).await;
                    }
                }
                Err(error) => {
                    tracing::debug!(keyspace = %self.name, %error, "the delta log was not read");
                    self.standing.log_failed(error.to_string());
                }
            }
            tokio::time::sleep(POLL.mul_f64(rand::random_range(0.8..1.2))).await;
        }
    }

    /// Whether everything up to `version` has taken effect here, which says something of probes that come after this question and of no earlier ones. `false` too of what is no version of this keyspace's present log.
    #[must_use]
    pub fn has_applied(&self, version: &Version) -> bool {
        let Some(fleet) = &self.fleet else { return false };
        let applied = *fleet.applied.lock();
        version.keyspace == self.name
            && applied.is_some_and(|(identity, upto)| identity == version.identity && version.position <= upto)
    }

    /// Waits until everything that others had announced by `moment` has taken effect here, as long as the log may lag; says whether it has.
    pub(super) async fn catch_up(&self, moment: Moment) -> bool {
        let Some(max_lag) = self.standing.max_lag() else { return true };
        let read = async {
            while !self.standing.log_was_read_after(moment) {
                tokio::time::sleep(POLL / 4).await;
            }
        };
        tokio::time::timeout(max_lag, read).await.is_ok()
    }

    /// Waits for the log's first page, as long as the log may lag; says whether it has been read.
    ///
    /// No build may begin sooner. That page tells from where on the log is read, which is a window ago by then: of a row whose announce is older than that,
    /// and younger than the moment at which the scan passed it, neither would tell.
    pub(crate) async fn log_has_begun(&self) -> bool {
        let (Some(fleet), Some(max_lag)) = (&self.fleet, self.standing.max_lag()) else { return true };
        let begun = async {
            while fleet.applied.lock().is_none() {
                tokio::time::sleep(POLL / 4).await;
            }
        };
        tokio::time::timeout(max_lag, begun).await.is_ok()
    }

    /// Whether what was seen in the shared cache stands in the log that is followed here, or there is none to follow. In another one the marks of
    /// announces may be missing that only the old one told of, or will tell.
    ///
    /// To be asked **before** the right to reject: who has taken in another log has lost that right first.
    pub(super) fn follows(&self, seen: &Stamp) -> bool {
        let (Some(fleet), Some(log)) = (&self.fleet, seen.log) else { return true };
        fleet.applied.lock().is_some_and(|(followed, _)| followed == log)
    }

    fn log_is_read(&self, sent: Moment) {
        self.void_untrusted_absences();
        self.standing.log_read(sent);
    }

    /// Own entries took effect before they were appended.
    fn apply(&self, fleet: &Fleet, entries: &[Entry]) {
        let secret = self.secret.fingerprint();
        self.judge_terms(fleet.writer, entries);
        let is_foreign = |entry: &Entry| entry.delta.secret != secret && entry.delta.kind != Kind::Gap;
        if entries.iter().any(is_foreign) {
            self.log_was_lost(Loss::Foreign);
        }
        for entry in entries.iter().filter(|entry| entry.writer != fleet.writer && !is_foreign(entry)) {
            let hashes = &entry.delta.hashes;
            match entry.delta.kind {
                Kind::Announce => {
                    // Where there is no room the filter in force has them all the same; only a build would lack them.
                    if !self.recent.remember_others(hashes, Moment::now()) {
                        tracing::warn!(keyspace = %self.name, "more announces of other instances than are held: no filter is built before their windows close");
                    }
                    self.expect_rows(hashes);
                }
                Kind::Drop => self.forget_rows(hashes),
                Kind::Gap => {}
            }
        }
    }

    /// Announces may be missing: only a scan that begins after their windows have closed finds all their rows.
    fn log_was_lost(&self, loss: Loss) {
        let in_time = loss.mended_by_scan_in(self.windows().window);
        let reason = match loss {
            Loss::Young { .. } => ResyncReason::Young,
            Loss::Replaced | Loss::Shrunk => ResyncReason::Replaced,
            Loss::Trimmed => ResyncReason::Trimmed,
            Loss::Unresumable => ResyncReason::Snapshot,
            Loss::Hole | Loss::Unreadable | Loss::Foreign | Loss::Gap => ResyncReason::Gap,
        };
        self.log_lost(reason, in_time, &loss.to_string());
    }

    /// As [`Keyspace::log_was_lost`]: a scan that begins `in_time` from now finds everything.
    pub(super) fn log_lost(&self, reason: ResyncReason, in_time: Duration, loss: &str) {
        tracing::warn!(keyspace = %self.name, loss, "announces of other instances may have been lost: the keyspace does not reject before a scan that begins in {in_time:?} or later");
        self.metrics.resync(reason);
        let when = if in_time.is_zero() { "" } else { " after the commit window" };
        self.standing.broken(Moment::now().plus(in_time), format!("{loss}; a scan{when} mends it"));
        self.hot.drop_all_absences();
        self.rebuild_wanted.notify_one();
    }
}

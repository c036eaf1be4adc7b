//! Follows the delta log: other instances' announces and drops take effect here, and what can't be read takes the right
//! to reject away.

mod roll_call;
mod young_log;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::roll_call::{Reports, RosterRead};
use self::young_log::RegisteredFound;
pub(crate) use self::young_log::{JournalFound, SnapshotFound, StartEvidence};
use super::freshness::{EnforcementStatus, FreshnessTracker, SwitchError};
use super::identity::Identity;
use super::membership::Membership;
use super::rebuild_signal::RebuildSignal;
use super::write::{CommitWindows, LocalEffects, REGISTER_EVERY};
use crate::cache::Stamp;
use crate::clock::Moment;
use crate::config::EnforcementSetting;
use crate::fleet::{
    DeltaLog, EntryId, Follower, LogEntry, LogEntryKind, LogPage, LogPlace, Loss, PageOutcome, RollCallTerms, Switch,
    Terms, Version, WriterId,
};
use crate::labels::{ResyncReason, UnprotectedReason};
use crate::metrics::KeyspaceMetrics;
use crate::redis::LogIdentity;

/// Pause between two reads. Each is spread, so that a fleet does not read in step.
const POLL: Duration = Duration::from_millis(100);
/// Warnings about other instances that are shown at a time.
const WARNINGS: usize = 8;

/// What a keyspace needs of the log.
pub struct LogParts {
    /// The log.
    pub log: Arc<dyn DeltaLog>,
    /// This process's name in it.
    pub writer: WriterId,
    /// Longest time without reading the log to its end: after that, other instances' announces may be missing here.
    pub max_lag: Duration,
    /// How this instance takes part in the roll call; `None`: not at all.
    pub roll_call: Option<RollCallTerms>,
    /// The operator's word that nobody announced before (`redis.first_start`).
    pub is_first_start: bool,
}

/// The reading end of the delta log.
pub(crate) struct LogFollower {
    log: Arc<dyn DeltaLog>,
    writer: WriterId,
    max_lag: Duration,
    /// The operator's word that nobody announced before, and what was found at the start.
    is_first_start: bool,
    evidence: StartEvidence,
    word_refused: Mutex<Option<String>>,
    /// When the log was made that is followed, as far as the boot reaches back.
    log_made: Mutex<Option<Moment>>,
    parts: FollowerParts,
    /// The log that is followed, and the last entry that has taken effect.
    applied: Mutex<Option<(LogIdentity, EntryId)>>,
    /// A later process may continue here: everything before has taken effect.
    resumable: Mutex<Option<LogPlace>>,
    /// Where this process continues after its snapshot.
    resume: Mutex<Option<LogPlace>>,
    registered: Mutex<Option<Registered>>,
    /// Instances that have not announced again in the log that is followed.
    missing: Mutex<Vec<WriterId>>,
}

/// The last registration of this instance.
struct Registered {
    log: Option<LogIdentity>,
    terms: Terms,
    at: Moment,
    succeeded: bool,
}

/// What entries of the log change.
pub(crate) struct FollowerParts {
    pub(crate) identity: Arc<Identity>,
    pub(crate) freshness: Arc<FreshnessTracker>,
    pub(crate) windows: Arc<CommitWindows>,
    pub(crate) effects: Arc<LocalEffects>,
    pub(crate) membership: Option<Arc<Membership>>,
    pub(crate) rebuild: Arc<RebuildSignal>,
    pub(crate) metrics: Arc<KeyspaceMetrics>,
}

impl LogFollower {
    pub(crate) fn new(log: LogParts, evidence: StartEvidence, parts: FollowerParts) -> Self {
        let LogParts { log, writer, max_lag, is_first_start, .. } = log;
        Self {
            log,
            writer,
            max_lag,
            is_first_start,
            evidence,
            word_refused: Mutex::default(),
            log_made: Mutex::default(),
            parts,
            applied: Mutex::default(),
            resumable: Mutex::default(),
            resume: Mutex::default(),
            registered: Mutex::default(),
            missing: Mutex::default(),
        }
    }

    fn name(&self) -> &str {
        &self.parts.identity.name
    }

    /// Continues at the place of a snapshot.
    pub(crate) fn resume(&self, place: Option<LogPlace>) {
        *self.resume.lock() = place;
    }

    /// The place where a later process may continue.
    pub(crate) fn resumable(&self) -> Option<LogPlace> {
        *self.resumable.lock()
    }

    /// Reads the log for as long as the process lives.
    pub(crate) async fn run(&self) {
        let windows = self.parts.windows.longest();
        let mut follower = Follower::new(windows.life(), windows.window)
            .in_log_of(self.log.retention())
            .resuming(self.resume.lock().take());
        let mut reports = Reports::new(self.parts.membership.clone(), self.writer);
        loop {
            // After the first page, which shows who was there before.
            if follower.place().is_some() {
                self.register().await;
            }
            reports.enrol(follower.place().map(|(log, _)| log)).await;
            // Before it is sent: the answer may lack what was appended later.
            let sent = Moment::now();
            match self.log.read(follower.after(), reports.known()).await {
                Ok(mut page) => {
                    let read = RosterRead::of(&mut page, sent);
                    if let Some(roster) = read.roster().filter(|_| follower.place().is_none()) {
                        self.parts.windows.record_members(roster);
                    }
                    let (complete, lost_switch) = self.apply_page(&mut follower, page, &mut reports);
                    if !complete {
                        continue;
                    }
                    self.parts.freshness.log_read(sent);
                    self.restore_switch(lost_switch).await;
                    self.apply_roll_call(reports.applied(read, self.max_lag).await);
                }
                Err(error) => {
                    tracing::debug!(keyspace = self.name(), %error, "delta log not read");
                    self.parts.freshness.log_failed(error.to_string());
                }
            }
            self.scan_without_reports();
            tokio::time::sleep(POLL.mul_f64(rand::random_range(0.8..1.2))).await;
        }
    }

    /// Returns whether the log was read to its end, and the fleet's setting if Redis has lost it.
    fn apply_page(&self, follower: &mut Follower, mut page: LogPage, reports: &mut Reports) -> (bool, Option<Switch>) {
        // Before the log counts as read: without the fleet's setting an instance does not enforce.
        let lost_switch = self.parts.freshness.apply_switch(page.switch.take());
        if !page.is_registered {
            // The register was lost: one that begins now does not know this instance's window. A refusal stays one.
            self.registered.lock().take_if(|registered| registered.succeeded);
        }
        self.parts.windows.record_page(self.writer, &page);
        let windows = self.parts.windows.longest();
        follower.set_windows(windows.life(), windows.window);
        let (is_first, registered) = (follower.place().is_none(), RegisteredFound::on(&page));
        let age = Duration::from_millis(page.now.saturating_sub(page.born));
        *self.log_made.lock() = Some(Moment::now().minus(age).unwrap_or(Moment::NEVER));
        let before = follower.place().map(|(log, _)| log);
        let step = follower.evaluate(page);
        match (step.loss, before) {
            (Some(Loss::Replaced), Some(before))
                if reports.log_replaced(before, !self.parts.freshness.is_revoked()) =>
            {
                self.await_reports();
            }
            (Some(loss @ (Loss::Young { .. } | Loss::Evictable)), _) if is_first && age < windows.window => {
                self.begin_in_young_log(loss, registered);
            }
            (Some(loss), _) => self.revoke_after(loss),
            (None, _) => {}
        }
        self.apply(&step);
        // Only now: a reader of the place relies on the entries before it.
        follower.applied(&step);
        *self.applied.lock() = follower.place();
        // While it catches up, an earlier place is as right.
        if let Some(place) = follower.resumable() {
            *self.resumable.lock() = Some(place);
        }
        (step.complete, lost_switch)
    }

    /// Own entries took effect before they were appended.
    fn apply(&self, step: &PageOutcome) {
        let (entries, windows) = (&step.entries, &self.parts.windows);
        if let Some(why) = windows.peers.objection_to(self.writer, entries, self.parts.identity.form()) {
            self.revoke(ResyncReason::Configuration, windows.longest().window, &why);
        }
        let secret = self.parts.identity.secret.fingerprint();
        let is_foreign = |entry: &LogEntry| entry.delta.secret != secret && entry.delta.kind != LogEntryKind::Gap;
        // A drop needs no loss: see below.
        if entries.iter().any(|entry| is_foreign(entry) && entry.delta.kind == LogEntryKind::Announce) {
            self.revoke_after(Loss::Foreign);
        }
        let mut drops_unknown = false;
        for entry in entries.iter().filter(|entry| entry.writer != self.writer) {
            let hashes = &entry.delta.hashes;
            match entry.delta.kind {
                LogEntryKind::Drop if is_foreign(entry) || self.is_objected(entry) => drops_unknown = true,
                _ if is_foreign(entry) => {}
                LogEntryKind::Announce => {
                    // Without room for them the active filter has them all the same; only a build would lack them.
                    if !windows.recent.remember_others(hashes, Moment::now()) {
                        tracing::warn!(
                            keyspace = self.name(),
                            "too many announces of other instances: no build until their windows close"
                        );
                    }
                    self.parts.effects.apply_announce(hashes);
                }
                LogEntryKind::Drop => self.parts.effects.apply_drop(hashes),
                LogEntryKind::Gap => {}
            }
        }
        if drops_unknown {
            self.parts.effects.drop_everything();
        }
    }

    /// Its hashes mean other keys than ours.
    fn is_objected(&self, entry: &LogEntry) -> bool {
        let (peers, form) = (&self.parts.windows.peers, self.parts.identity.form());
        peers.objection_to(self.writer, std::slice::from_ref(entry), form).is_some()
    }

    /// The key form is known from now on: entries that were read before may be of another one.
    pub(crate) fn recheck_terms(&self) {
        let windows = &self.parts.windows;
        if let Some(why) = windows.peers.objections(self.parts.identity.form(), true).pop() {
            self.revoke(ResyncReason::Configuration, windows.longest().window, &why);
        }
    }

    fn revoke_after(&self, loss: Loss) {
        let in_time = loss.mended_by_scan_in(self.parts.windows.longest().window);
        self.revoke(resync_reason(loss), in_time, &loss.to_string());
    }

    /// Announces may be missing: a scan that begins `in_time` from now finds all their rows.
    fn revoke(&self, reason: ResyncReason, in_time: Duration, loss: &str) {
        let (now, freshness) = (Moment::now(), &self.parts.freshness);
        let when = if in_time.is_zero() { "" } else { " after the commit window" };
        let why = match reason {
            ResyncReason::Configuration => UnprotectedReason::Configuration,
            _ => UnprotectedReason::LogLost,
        };
        if freshness.log_lost(now.plus(in_time), why, format!("{loss}; a scan{when} restores it")) {
            tracing::warn!(keyspace = self.name(), loss, rescan_in = ?in_time, "announces of other instances may have been lost");
            self.parts.metrics.log.resync(reason);
            self.parts.rebuild.request();
        } else {
            // A row that becomes visible now is visible everywhere by then.
            freshness.marks_lost(now.plus(self.parts.windows.longest().life()));
            tracing::info!(keyspace = self.name(), loss, "drops of other instances may have been lost");
        }
    }

    /// Registers this instance's terms now and then, again in each new log, and where that was lost.
    async fn register(&self) {
        let (terms, now) = (self.parts.windows.terms(), Moment::now());
        let log = self.applied.lock().map(|(log, _)| log);
        let is_known =
            |known: &Registered| known.log == log && known.terms == terms && now.since(known.at) < REGISTER_EVERY;
        if self.registered.lock().as_ref().is_some_and(is_known) {
            return;
        }
        let registered = self.log.register(&terms).await;
        // Also if it fails, as in a full Redis: appends are refused then.
        *self.registered.lock() = Some(Registered { log, terms, at: now, succeeded: registered.is_ok() });
        if let Err(error) = registered {
            tracing::debug!(%error, "instance not registered");
        }
    }

    /// Switches the enforcement of every instance.
    pub(crate) async fn switch_fleet(
        &self,
        setting: Option<EnforcementSetting>,
    ) -> Result<EnforcementStatus, SwitchError> {
        let freshness = &self.parts.freshness;
        let switch = self.log.switch(setting, freshness.enforcement().fleet_serial()).await?;
        // Here at once; the others read it within a tenth of a second.
        Ok(freshness.switch_here_and_fleet(switch))
    }

    /// Puts a setting back that Redis has lost. If this fails, the next read says again that it has.
    async fn restore_switch(&self, lost: Option<Switch>) {
        if let Some(switch) = lost {
            match self.log.restore_switch(switch).await {
                Ok(()) => tracing::info!(%switch, "restored the fleet's enforcement setting in Redis"),
                Err(error) => tracing::debug!(%error, "fleet's enforcement setting not restored in Redis"),
            }
            return;
        }
        if let (Some(membership), Some((log, _))) = (&self.parts.membership, *self.applied.lock()) {
            membership.switch_is_in(log);
        }
    }

    /// Returns true if everything up to `version` has taken effect here. Says something of probes that come after this
    /// call only. Returns false for a version of another log or keyspace.
    pub(crate) fn has_applied(&self, version: &Version) -> bool {
        let applied = *self.applied.lock();
        version.keyspace == self.parts.identity.name
            && applied.is_some_and(|(identity, upto)| identity == version.identity && version.position <= upto)
    }

    /// Waits until everything that others had announced by `moment` has taken effect here, for `max_lag` at most;
    /// returns true if it has.
    pub(crate) async fn catch_up(&self, moment: Moment) -> bool {
        self.wait_for(|| self.parts.freshness.log_was_read_after(moment)).await
    }

    /// Waits for the log's first page, for `max_lag` at most; returns true if it has been read.
    ///
    /// No build may begin sooner. The first page shows from where the log is read, which is a window ago by then: a
    /// build would miss announces from before.
    pub(crate) async fn has_begun(&self) -> bool {
        self.wait_for(|| self.applied.lock().is_some()).await
    }

    async fn wait_for(&self, condition: impl Fn() -> bool) -> bool {
        let waiting = async {
            while !condition() {
                tokio::time::sleep(POLL / 4).await;
            }
        };
        tokio::time::timeout(self.max_lag, waiting).await.is_ok()
    }

    /// Returns true if the shared cache's entry stands in the log that is followed here. In another one, marks may be
    /// missing of announces that only the old log told of, or will tell.
    ///
    /// Ask it **before** the right to reject: an instance that takes another log in loses the right first.
    pub(crate) fn follows(&self, seen: &Stamp) -> bool {
        let Some(log) = seen.log else { return true };
        self.applied.lock().is_some_and(|(followed, _)| followed == log)
    }

    /// For an operator: instances that are configured otherwise.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.parts.windows.peers.warnings(self.parts.identity.form());
        warnings.extend(self.log.other_namespaces().into_iter().map(|other| {
            format!(
                "another namespace announces rows of the same backend: its delta log is {other:?} in Redis; what is \
                 announced there is not known here, so every writer must announce to both"
            )
        }));
        warnings.extend(self.first_start_warning());
        warnings.sort_unstable();
        warnings.truncate(WARNINGS);
        warnings
    }
}

const fn resync_reason(loss: Loss) -> ResyncReason {
    match loss {
        Loss::Young { .. } => ResyncReason::Young,
        Loss::Replaced | Loss::Shrunk => ResyncReason::Replaced,
        Loss::Trimmed | Loss::Evictable => ResyncReason::Trimmed,
        Loss::Unresumable => ResyncReason::Snapshot,
        Loss::Hole | Loss::Unreadable | Loss::Foreign | Loss::Gap => ResyncReason::Gap,
    }
}

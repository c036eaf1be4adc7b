//! What a keyspace may do at this moment: its state, and why.
//!
//! Judged at each lookup from one atomic and the clock, not by a timer: a filter that has aged stops rejecting by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::PollCoverage;
use super::enforcement::{Enforcing, InForce};
use super::freshness::Polls;
use super::hold::Hold;
use super::snapshot::Snapshots;
use crate::clock::Moment;
use crate::config::{Enforcement, EnforcementSetting, Freshness};
use crate::labels::{FoundBy, State};

/// The standing of one keyspace.
#[derive(Debug)]
pub(super) struct Standing {
    /// Whose absences the filter answers while it may decide.
    pub(super) enforcing: Enforcing,
    freshness: Freshness,
    max_staleness: Duration,
    /// How long ago the delta log may have been read to its end; `None` where there is no log.
    max_lag: Option<Duration>,
    /// Until when the filter may decide, in nanoseconds since boot; 0 = not at all. Derived from `facts`, which alone is the truth.
    trusted_until: AtomicU64,
    facts: Mutex<Facts>,
    /// The snapshot on disk, which is worth nothing once the promise is broken.
    snapshots: Option<Arc<Snapshots>>,
}

/// A filter against which nothing is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole {
    /// Start of its scan.
    pub(super) scan_started: Moment,
    /// Polls that are complete complete it too.
    pub(super) polled: bool,
}

/// What the standing follows from.
#[derive(Debug, Default)]
struct Facts {
    /// Start of the scan behind the filter in force, once there is one.
    scan_started: Option<Moment>,
    /// Why there is no filter yet.
    cold_because: Option<String>,
    /// Something happened that only a filter scanned later can mend.
    broken: Option<(Moment, String)>,
    /// A row was found lately that the filter had called absent.
    hold: Hold,
    /// The key form can't tell keys apart as the database does.
    conflict: Option<String>,
    /// When the last read of the delta log that left nothing unread was sent.
    log_read: Option<Moment>,
    /// Why the last one failed.
    log_trouble: Option<String>,
    /// What polls have shown.
    polls: Polls,
    /// The state that was last told.
    told: Option<State>,
}

impl Standing {
    pub(super) fn new(
        enforcement: impl Into<EnforcementSetting>,
        freshness: Freshness,
        max_staleness: Duration,
        max_lag: Option<Duration>,
    ) -> Self {
        let enforcing = Enforcing::new(enforcement.into(), 0);
        Self {
            enforcing,
            freshness,
            max_staleness,
            max_lag,
            trusted_until: AtomicU64::new(0),
            facts: Mutex::default(),
            snapshots: None,
        }
    }

    /// With the snapshot that a broken promise makes void.
    pub(super) fn with_snapshots(self, snapshots: Option<Arc<Snapshots>>) -> Self {
        Self { snapshots, ..self }
    }

    /// With a hold of this length after the first row that the filter had called absent.
    pub(super) fn with_hold(self, first: Duration) -> Self {
        self.facts.lock().hold = Hold::new(first);
        self
    }

    /// With so many comparisons before the filter answers anybody.
    pub(super) fn with_proof(self, needed: u32) -> Self {
        self.enforcing.proof.require(needed);
        self.enforcing.proof_changed();
        self
    }

    pub(super) fn set_first_hold(&self, first: Duration) {
        self.facts.lock().hold.set_first(first);
    }

    /// Until when the filter may decide. Read it **before** the filter: then a swap between the two reads can only make the answer stricter.
    pub(super) fn trusted_until(&self) -> Moment {
        // Acquire: pairs with the release in `settle`, which follows the swap; who reads the new limit also reads the new filter.
        Moment::from_nanos(self.trusted_until.load(Ordering::Acquire))
    }

    /// The state that follows from what is enforced, whether there is a filter, and whether it may decide.
    pub(super) fn state(in_force: InForce, has_filter: bool, trusted: bool) -> State {
        match (has_filter, in_force.mode(), trusted) {
            (false, ..) => State::Cold,
            (true, Enforcement::Shadow, _) => State::Shadow,
            (true, Enforcement::Enforce, true) if in_force.is_proving() => State::Shadow,
            (true, Enforcement::Enforce, true) => State::Enforcing,
            (true, Enforcement::Enforce, false) => State::Degraded,
        }
    }

    /// A filter whose scan began at `scan_started` is in force.
    pub(super) fn swapped(&self, scan_started: Moment) {
        self.change(|facts| {
            facts.scan_started = Some(scan_started);
            facts.cold_because = None;
            if facts.broken.as_ref().is_some_and(|(at, _)| *at < scan_started) {
                facts.broken = None;
            }
        });
    }

    /// There is still no filter, because …
    pub(super) fn still_cold(&self, reason: String) {
        self.facts.lock().cold_because = Some(reason);
    }

    /// The promise was broken at `at`; only a filter whose scan began later mends it.
    pub(super) fn broken(&self, at: Moment, reason: String) {
        self.change(|facts| facts.break_promise(at, reason));
        self.void_snapshot();
    }

    /// After the change, so that who writes a snapshot meanwhile sees the one or the other.
    fn void_snapshot(&self) {
        if let Some(snapshots) = &self.snapshots {
            snapshots.discard();
        }
    }

    /// Since when the filter in force is complete, and whether polls complete it, where nothing is known against it; whatever its age.
    pub(super) fn whole(&self) -> Option<Whole> {
        let facts = self.facts.lock();
        let sound = facts.broken.is_none() && facts.conflict.is_none() && facts.hold.length().is_none();
        let scan_started = facts.scan_started.filter(|_| sound)?;
        Some(Whole { scan_started, polled: !facts.polls.begin_after(scan_started) && facts.polls.is_begun() })
    }

    /// A row was found that the filter had called absent.
    pub(super) fn missed_row(&self, now: Moment, why: &str) {
        self.change(|facts| {
            // What is found while the keyspace rejects nobody anyway is of the same fault, and no recurrence.
            if facts.broken.is_none() && facts.hold.length().is_none() {
                facts.hold.begin(now);
            }
            facts.break_promise(now, why.into());
        });
        self.void_snapshot();
    }

    /// Whether a hold has to be lifted, which nothing else does.
    pub(super) fn hold_is_over(&self, now: Moment) -> bool {
        self.facts.lock().hold.is_over(now)
    }

    /// Lifts a hold that is over.
    pub(super) fn lift_hold(&self) {
        self.change(|facts| facts.hold.lift());
    }

    /// The moment after which a scan must begin to mend what is broken.
    pub(super) fn broken_until(&self) -> Option<Moment> {
        self.facts.lock().broken.as_ref().map(|(at, _)| *at)
    }

    /// The key form does not fit the database's comparison (or does, now).
    pub(super) fn conflict(&self, conflict: Option<String>) {
        let conflicts = conflict.is_some();
        self.change(|facts| facts.conflict = conflict);
        if conflicts {
            self.void_snapshot();
        }
    }

    /// The delta log was read to its end, as it was when the read was sent.
    pub(super) fn log_read(&self, sent: Moment) {
        self.change(|facts| {
            facts.log_read = Some(sent);
            facts.log_trouble = None;
        });
    }

    /// The delta log can't be read, because …
    pub(super) fn log_failed(&self, reason: String) {
        self.facts.lock().log_trouble = Some(reason);
    }

    /// Polls begin (again): what they showed before is of no use any more.
    pub(super) fn polls_began(&self, covers: Option<Moment>) {
        self.change(|facts| facts.polls = Polls::beginning(covers));
    }

    /// A poll that began then is complete.
    pub(super) fn polled(&self, began: Moment, coverage: PollCoverage) {
        self.change(|facts| facts.polls = Polls::completed(began, coverage));
    }

    /// A poll failed, because …
    pub(super) fn poll_failed(&self, reason: &'static str) {
        self.facts.lock().polls.failed(reason);
    }

    /// Why transactions that are longer than the overlap may be missed.
    pub(super) fn hidden_transactions(&self) -> Option<&'static str> {
        self.facts.lock().polls.hidden
    }

    /// Whether the filter in force lacks what came between its scan and the first of the polls that the promise rests on.
    pub(super) fn needs_scan_under_polls(&self) -> bool {
        let facts = self.facts.lock();
        self.rests_on_polls() && facts.scan_started.is_some_and(|scan| facts.polls.begin_after(scan))
    }

    pub(super) const fn max_staleness(&self) -> Duration {
        self.max_staleness
    }

    pub(super) const fn freshness(&self) -> Freshness {
        self.freshness
    }

    /// For how long the filter in force needs no scan, as far as its promise goes.
    pub(super) fn can_do_without_scan(&self, now: Moment) -> Option<Duration> {
        let scan_started = self.whole()?.scan_started;
        Some(if self.freshness == Freshness::Rebuilt {
            scan_started.plus(self.max_staleness).since(now)
        } else {
            Duration::MAX
        })
    }

    fn rests_on_polls(&self) -> bool {
        self.freshness == Freshness::Polled
    }

    /// How long until the filter's age ends the rejecting; `None`: something else has ended it, or its age never does.
    pub(super) fn ages_in(&self, now: Moment) -> Option<Duration> {
        let facts = self.facts.lock();
        let ages = self.freshness == Freshness::Rebuilt && facts.broken.is_none() && facts.conflict.is_none();
        let end = facts.scan_started.filter(|_| ages)?.plus(self.max_staleness);
        (end > now).then(|| end.since(now))
    }

    /// How long ago the delta log was read to its end; `None`: never, or there is none.
    pub(super) fn log_lag(&self, now: Moment) -> Option<Duration> {
        self.facts.lock().log_read.map(|sent| now.since(sent))
    }

    pub(super) const fn max_lag(&self) -> Option<Duration> {
        self.max_lag
    }

    /// Whether a read of the delta log that was sent later than `moment` has left nothing unread.
    pub(super) fn log_was_read_after(&self, moment: Moment) -> bool {
        self.facts.lock().log_read.is_some_and(|sent| sent > moment)
    }

    fn change(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.facts.lock();
        change(&mut facts);
        let until = match (&facts.scan_started, &facts.broken, &facts.conflict) {
            (Some(scan), None, None) if self.freshness == Freshness::Rebuilt => scan.plus(self.max_staleness),
            (Some(scan), None, None) if self.freshness == Freshness::Polled => {
                facts.polls.complete(*scan).map_or(Moment::NEVER, |began| began.plus(self.max_staleness))
            }
            (Some(_), None, None) => Moment::FOREVER,
            _ => Moment::NEVER,
        };
        let until = if facts.hold.length().is_some() { Moment::NEVER } else { until };
        let until = self
            .max_lag
            .map_or(until, |max_lag| until.min(facts.log_read.map_or(Moment::NEVER, |sent| sent.plus(max_lag))));
        // Release: pairs with the acquire in `trusted_until`. Under the lock, so that two changes can't leave the older value.
        self.trusted_until.store(until.as_nanos(), Ordering::Release);
    }

    /// Since when the filter is known to hold every row that was visible then.
    pub(super) fn fresh_since(&self) -> Option<Moment> {
        let facts = self.facts.lock();
        let scan = facts.scan_started?;
        Some(if self.rests_on_polls() { facts.polls.complete(scan).unwrap_or(scan) } else { scan })
    }

    /// The present state, and why, in words.
    pub(super) fn explain(&self, now: Moment) -> (State, String) {
        let facts = self.facts.lock();
        let Some(scan_started) = facts.scan_started else {
            return (
                State::Cold,
                facts.cold_because.clone().unwrap_or_else(|| "the first filter is not built yet".into()),
            );
        };
        let age = now.since(scan_started);
        let aged = self.freshness == Freshness::Rebuilt && age > self.max_staleness;
        let trouble = match (&facts.conflict, &facts.broken) {
            (Some(conflict), _) => Some(conflict.clone()),
            (None, Some((_, broken))) => Some(broken.clone()),
            (None, None) if facts.hold.length().is_some() => facts.held(),
            (None, None) if aged => Some(format!(
                "the filter's scan began {} ago, longer than max_staleness = {}",
                humantime::format_duration(Duration::from_secs(age.as_secs())),
                humantime::format_duration(self.max_staleness)
            )),
            (None, None) => self.unpolled(&facts, now).or_else(|| self.behind(&facts, now)),
        };
        let state = Self::state(self.enforcing.in_force(), true, trouble.is_none());
        let enforcement = self.enforcing.status();
        let reason = match (state, trouble) {
            (State::Shadow, None) => enforcement.reason(),
            (State::Shadow, Some(trouble)) => format!("{}; it could not enforce: {trouble}", enforcement.reason()),
            (_, Some(trouble)) => trouble,
            (_, None) if enforcement.in_force.percent < EnforcementSetting::ALL => {
                format!("the filter is as fresh as promised; {}", enforcement.reason())
            }
            (_, None) => "the filter is as fresh as promised".into(),
        };
        (state, reason)
    }

    /// Why new keys may be missing here.
    fn unpolled(&self, facts: &Facts, now: Moment) -> Option<String> {
        facts
            .scan_started
            .filter(|_| self.rests_on_polls())
            .and_then(|scan| facts.polls.lack(scan, now, self.max_staleness))
    }

    /// Why other instances' announces may be missing here.
    fn behind(&self, facts: &Facts, now: Moment) -> Option<String> {
        let max_lag = self.max_lag?;
        if facts.log_read.is_some_and(|sent| now.since(sent) < max_lag) {
            return None;
        }
        let since = facts.log_read.map_or("yet".to_owned(), |sent| {
            format!("for {}", humantime::format_duration(Duration::from_secs(now.since(sent).as_secs())))
        });
        let why = facts.log_trouble.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        Some(format!(
            "the delta log has not been read to its end {since}, redis.max_lag is {}{why}",
            humantime::format_duration(max_lag)
        ))
    }

    /// Whether `state` is news since the last call.
    pub(super) fn is_news(&self, state: State) -> bool {
        let mut facts = self.facts.lock();
        facts.told.replace(state) != Some(state)
    }

    /// What the promise rests on, in words.
    pub(super) fn basis(&self) -> String {
        match self.freshness {
            Freshness::Announced => {
                if self.max_lag.is_some() {
                    "announced: every writer announces a key to an instance before it commits the row".into()
                } else {
                    "announced: every writer announces a key to this instance before it commits the row".into()
                }
            }
            Freshness::Polled => {
                format!(
                    "polled: the source is asked for new keys again at least every {}",
                    humantime::format_duration(self.max_staleness)
                )
            }
            Freshness::Rebuilt => {
                format!(
                    "rebuilt: the key set is scanned again at least every {}",
                    humantime::format_duration(self.max_staleness)
                )
            }
            Freshness::Static => "static: the key set does not change".into(),
        }
    }

    /// Whether a row that the filter had called absent, and that neither log nor polls have told of, breaks the promise.
    ///
    /// Between two scans `rebuilt` promises none. But where the canary finds one, somebody was told 404 of a row that exists, and so many more were not
    /// sampled that its writers can't be meant to be waited for; a lookup that finds one gives it to whoever asked.
    pub(super) fn is_broken_by(&self, found_by: FoundBy) -> bool {
        self.freshness != Freshness::Rebuilt || found_by == FoundBy::Canary
    }
}

impl Facts {
    fn break_promise(&mut self, at: Moment, reason: String) {
        // The later moment stays: a scan must have begun after both.
        if self.broken.as_ref().is_none_or(|(earlier, _)| *earlier < at) {
            self.broken = Some((at, reason));
        }
    }

    fn held(&self) -> Option<String> {
        let length = humantime::format_duration(self.hold.length()?);
        Some(format!(
            "a row was found that the filter had called absent: it is mended, and rejects nobody for {length} after that"
        ))
    }
}

#[cfg(test)]
mod tests;

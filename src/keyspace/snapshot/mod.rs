//! The filter on disk: written after each build, when the journal requests it and when the process stops. The next
//! process starts from it.
//!
//! The writer records the positions (log, polls, journal) **before** it checks that the filter is complete, and does
//! that before it copies the first word. So the copy contains everything up to these positions: an entry's bits are set
//! before the position moves past it, a loss ends the trust before that too, and a filter that becomes active meanwhile
//! holds at least as much. If the promise is broken during the copy, the snapshot is void.

mod age;
mod restore;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::age::Beginning;
pub use self::restore::{Expected, Refused, Restored, restore};
use super::build_state::BuildState;
use super::freshness::FreshnessTracker;
use super::identity::Identity;
use super::journal::Journal;
use super::polls::PollTracker;
use super::probe::Prober;
use super::replicate::LogFollower;
use super::snapshot_file::SnapshotFile;
use crate::background;
use crate::clock::Moment;
use crate::config::Freshness;
use crate::filter::Generation;
use crate::filter::snapshot::{HASH, Header, Hex, JournalMark, LogMark, PollMark, stage_snapshot, views};
use crate::fleet::LogPlace;
use crate::key::KeyForm;
use crate::labels::SnapshotOutcome;
use crate::metrics::KeyspaceMetrics;

/// Pause between two snapshots, as a multiple of the last one's duration: the disk has other work too.
const REST: u32 = 10;

/// Pause before the next attempt if nothing could be written.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// What a keyspace needs for snapshots.
#[derive(Debug)]
pub struct SnapshotParts {
    /// The file.
    pub file: Arc<SnapshotFile>,
    /// The filter to start from.
    pub restored: Option<Restored>,
}

/// Writes the snapshots of one keyspace, and starts from one.
pub(crate) struct SnapshotKeeper {
    /// `None`: no snapshots are kept.
    pub(crate) file: Option<Arc<SnapshotFile>>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) prober: Arc<Prober>,
    pub(crate) freshness: Arc<FreshnessTracker>,
    pub(crate) follower: Option<Arc<LogFollower>>,
    pub(crate) polls: Arc<PollTracker>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) builds: Arc<BuildState>,
    pub(crate) awaited: Mutex<Option<AwaitedForm>>,
    pub(crate) metrics: Arc<KeyspaceMetrics>,
}

/// The active filter comes from a snapshot, and the form of the source's keys is not known yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AwaitedForm {
    form: KeyForm,
    scan_started: Moment,
}

/// The positions recorded before the copy begins.
struct Positions {
    now: Moment,
    log: Option<LogPlace>,
    polls: Vec<PollMark>,
    journal: JournalMark,
}

impl SnapshotKeeper {
    /// Starts from a filter that an earlier process wrote. The filter is trusted only once the form of the source's
    /// keys is known, see [`SnapshotKeeper::trust`]; the journal's announces are in it by then.
    pub(crate) fn start_from(&self, restored: Restored) {
        let Restored { filter, generation, counted, proven, validated, .. } = restored;
        if proven {
            self.freshness.enforcement().inherit_proof();
        }
        self.prober.active.install(filter, generation);
        if let Some(follower) = &self.follower {
            follower.resume(validated.log);
        }
        let needed_from = self.follower.is_none().then_some(validated.journal_next);
        self.journal.hold_from(needed_from);
        self.polls.resume(validated.polls.clone(), validated.scan_started);
        self.builds.set_counted(counted);
        self.builds.set_swapped_at(Moment::now());
        *self.awaited.lock() = Some(AwaitedForm { form: validated.form, scan_started: validated.scan_started });
        self.freshness
            .explain_cold("a snapshot's filter is loaded, and the form of the source's keys is not known yet".into());
        self.metrics.snapshots.ended(SnapshotOutcome::Restored);
        let age = humantime::format_duration(Duration::from_secs(validated.age.as_secs()));
        tracing::info!(keyspace = %self.identity.name, generation, %age, "restored filter from snapshot");
        if let Some(file) = &self.file {
            file.started(format!("taken {age} before the start"), needed_from);
        }
    }

    /// The source's keys have this form. A snapshot's filter of another form can't be used, and the first scan replaces
    /// it.
    pub(crate) fn trust(&self, form: KeyForm) {
        // Once: a later scan has a later start.
        let Some(awaited) = self.awaited.lock().take() else { return };
        if awaited.form == form {
            self.freshness.swapped(awaited.scan_started);
        } else {
            self.freshness.explain_cold(format!(
                "the snapshot's keys have the form {}, the source's the form {form}",
                awaited.form
            ));
        }
    }

    /// Returns true if a snapshot's filter is active and the form of the source's keys is not known yet.
    pub(crate) fn awaits_form(&self) -> bool {
        self.awaited.lock().is_some()
    }

    /// Asks for a snapshot of the active filter.
    pub(crate) fn want(&self) {
        if let Some(file) = &self.file {
            file.want();
        }
    }

    /// Writes snapshots on request. Runs until dropped; the writing thread finishes or abandons one in progress by
    /// itself.
    pub(crate) async fn run(self: Arc<Self>) {
        let Some(file) = self.file.clone() else { return };
        loop {
            tokio::select! {
                () = file.wanted() => {}
                () = self.journal.snapshot_wanted() => {}
            }
            let (keeper, began, beginning) = (Arc::clone(&self), tokio::time::Instant::now(), Beginning::here());
            let tried = tokio::task::spawn_blocking(move || keeper.write(beginning, None)).await;
            tokio::time::sleep(began.elapsed() * REST).await;
            match tried {
                Ok(true) => {}
                Ok(false) => {
                    tokio::time::sleep(RETRY_AFTER).await;
                    file.want();
                }
                Err(_) => tracing::error!(keyspace = %self.identity.name, "snapshot writer panicked"),
            }
        }
    }

    /// Writes the last snapshot of this process, if that is possible by `deadline`.
    pub(crate) async fn write_last(self: Arc<Self>, deadline: Instant) {
        let Some(file) = &self.file else { return };
        // Abandons one in progress: this one is more recent.
        file.stopping.store(true, Ordering::Relaxed);
        let (keeper, beginning) = (Arc::clone(&self), Beginning::here());
        let written = tokio::task::spawn_blocking(move || keeper.write(beginning, Some(deadline)));
        // After the deadline the thread stops by itself, after at most one call to the disk.
        let _ = tokio::time::timeout_at(deadline.into(), written).await;
    }

    /// Blocks while it writes. Ages in the snapshot count from `beginning`. Returns false if the caller must try again:
    /// there is no filter now from which a process could start, or a void file could not be removed.
    fn write(&self, beginning: Beginning, deadline: Option<Instant>) -> bool {
        let Some(file) = &self.file else { return true };
        file.remove_void();
        if self.freshness.promise().freshness == Freshness::Static {
            // No process may start from it.
            return !file.has_void_file();
        }
        // Relaxed: it only ends a loop.
        let abandoned =
            || deadline.map_or_else(|| file.stopping.load(Ordering::Relaxed), |deadline| Instant::now() >= deadline);
        let _alone = file.writing.lock();
        let epoch = file.epoch();
        let Some((positions, generation, header)) = self.describe(beginning, file.basis()) else { return false };
        // Until either the new or the old file is certain to be there, keep the journal records that either needs.
        let needed_from = self.follower.is_none().then_some(positions.journal.next);
        self.journal.hold_from(needed_from.map(|number| file.needed_from().map_or(number, |held| held.min(number))));
        let write = || stage_snapshot(file.path(), header, &views(&generation.filter), abandoned);
        // Shutdown waits for the last one, so it is written here. The writing thread takes no lock of the journal.
        let written = if deadline.is_some() { write() } else { background::run("write-snapshot", write) };
        let outcome = file.publish(epoch, written, &generation, needed_from);
        self.journal.hold_from(file.needed_from());
        self.metrics.snapshots.ended(outcome);
        !file.has_void_file()
    }

    /// Everything but the filter's words, in the order that makes it true. `None` if the filter can't be shown to keep
    /// the promise, or if a later process could not tell from where to complete it.
    fn describe(&self, beginning: Beginning, basis: u64) -> Option<(Positions, Arc<Generation>, Header)> {
        let Beginning { now, taken } = beginning;
        let secret = self.identity.secret.agreed()?;
        let form = self.identity.form()?;
        let polls = self.polls.places().iter().map(|place| restore::poll_mark(place, now)).collect();
        let positions = Positions {
            now,
            log: self.follower.as_ref().and_then(|follower| follower.resumable()),
            polls,
            journal: self.journal.mark(),
        };
        let complete = self.freshness.complete()?;
        let generation = self.prober.current()?;
        let polls = Some(positions.polls.clone()).filter(|polls| complete.polled && !polls.is_empty());
        let log: Option<LogMark> = positions.log.map(restore::log_mark);
        let lacks_log = self.follower.is_some() && log.is_none();
        let lacks_polls = self.freshness.promise().freshness == Freshness::Polled && polls.is_none();
        if lacks_log || lacks_polls || secret.fingerprint != self.identity.secret.fingerprint() {
            return None;
        }
        let spec = *generation.filter.spec();
        let header = Header {
            keyspace: self.identity.name.clone(),
            written_by: concat!("bloomguard ", env!("CARGO_PKG_VERSION")).into(),
            hash: HASH.into(),
            secret: Hex(*secret.bytes()),
            key_form: form.as_str().into(),
            basis: Hex(basis.to_be_bytes()),
            kind: spec.kind.as_str().into(),
            capacity: spec.capacity,
            rate: spec.rate,
            generation: generation.number,
            items: generation.filter.items(),
            counted: self.builds.counted(),
            taken,
            scan_age: restore::nanos(positions.now.since(complete.scan_started)),
            log,
            polls,
            journal: positions.journal.clone(),
            proven: self.freshness.enforcement().is_proven(),
            layers: Vec::new(),
        };
        Some((positions, generation, header))
    }
}

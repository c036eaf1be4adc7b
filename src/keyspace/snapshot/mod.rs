//! The filter on disk: written after each build, when the journal wants it and when the process stops, and what the next process starts from.
//!
//! Where the filter stands (log, polls, journal) is noted **before** it is known that nothing speaks against the filter, and that before its first word is
//! copied. So all that is noted is in the copy: an entry's bits are set before the log's place moves past it, a loss ends the standing before that too, and
//! what is put in force meanwhile is a filter that holds at least as much. A promise that is broken while the copy is written makes it void.

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
use crate::filter::snapshot::{HASH, Header, Hex, JournalMark, LogMark, PollMark, views, write_aside};
use crate::fleet::LogPlace;
use crate::key::KeyForm;
use crate::labels::SnapshotOutcome;
use crate::metrics::KeyspaceMetrics;

/// Time between two snapshots, as a multiple of what the last one took: the disk has other things to do.
const REST: u32 = 10;

/// How soon it is looked again whether there is something to write.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What a keyspace needs of snapshots.
#[derive(Debug)]
pub struct SnapshotParts {
    /// Where it is kept.
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

/// The active filter is that of a snapshot, and the source has not told yet whether its keys are written as the source's are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AwaitedForm {
    form: KeyForm,
    scan_started: Moment,
}

/// What is noted before the copy begins.
struct Noted {
    now: Moment,
    log: Option<LogPlace>,
    polls: Vec<PollMark>,
    journal: JournalMark,
}

impl SnapshotKeeper {
    /// Starts from a filter that this or another process had written. It is trusted only once the form of the source's keys is known,
    /// see [`SnapshotKeeper::trust`]; the journal's announces are in it by then.
    pub(crate) fn start_from(&self, restored: Restored) {
        let Restored { filter, generation, counted, proven, judged, .. } = restored;
        if proven {
            self.freshness.enforcement().inherit_proof();
        }
        self.prober.active.install(filter, generation);
        if let Some(follower) = &self.follower {
            follower.resume(judged.log);
        }
        let needed_from = self.follower.is_none().then_some(judged.journal_next);
        self.journal.hold_from(needed_from);
        self.polls.resume(judged.polls.clone(), judged.scan_started);
        self.builds.set_counted(counted);
        self.builds.set_swapped_at(Moment::now());
        *self.awaited.lock() = Some(AwaitedForm { form: judged.form, scan_started: judged.scan_started });
        self.freshness.explain_cold(
            "the filter of a snapshot is there, and the source has not told the form of its keys yet".into(),
        );
        self.metrics.snapshots.ended(SnapshotOutcome::Restored);
        let age = humantime::format_duration(Duration::from_secs(judged.age.as_secs()));
        tracing::info!(keyspace = %self.identity.name, generation, %age, "restored filter from snapshot");
        if let Some(file) = &self.file {
            file.started(format!("taken {age} before the start"), needed_from);
        }
    }

    /// The keys are of this form. A snapshot's filter of another form can't be asked for them, and the first scan replaces it.
    pub(crate) fn trust(&self, form: KeyForm) {
        // Once: a later scan has a later start.
        let Some(awaited) = self.awaited.lock().take() else { return };
        if awaited.form == form {
            self.freshness.swapped(awaited.scan_started);
        } else {
            self.freshness.explain_cold(format!(
                "the keys of the snapshot are of form {}, the source's of form {form}",
                awaited.form
            ));
        }
    }

    /// Returns true if the filter of a snapshot waits for the source to tell the form of its keys.
    pub(crate) fn awaits_form(&self) -> bool {
        self.awaited.lock().is_some()
    }

    /// Asks for a snapshot of the active filter.
    pub(crate) fn want(&self) {
        if let Some(file) = &self.file {
            file.want();
        }
    }

    /// Writes snapshots whenever one is wanted. Runs until dropped; one that is being written then is finished or given up by its own thread.
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
                    tokio::time::sleep(LOOK_AGAIN).await;
                    file.want();
                }
                Err(_) => tracing::error!(keyspace = %self.identity.name, "snapshot writer panicked"),
            }
        }
    }

    /// Writes the last snapshot of this process, if that can be done until `deadline`.
    pub(crate) async fn write_last(self: Arc<Self>, deadline: Instant) {
        let Some(file) = &self.file else { return };
        // One that is being written would hold this one up, which knows more.
        file.stopping.store(true, Ordering::Relaxed);
        let (keeper, beginning) = (Arc::clone(&self), Beginning::here());
        let written = tokio::task::spawn_blocking(move || keeper.write(beginning, Some(deadline)));
        // What its thread has begun it gives up by itself, but for one call of the disk.
        let _ = tokio::time::timeout_at(deadline.into(), written).await;
    }

    /// Blocks while it writes. `beginning` is no later than that: its ages count from there. `false`: nothing can be written now that a process could start from, but later
    /// perhaps; or what none may start from is still there.
    fn write(&self, beginning: Beginning, deadline: Option<Instant>) -> bool {
        let Some(file) = &self.file else { return true };
        file.remove_void();
        if self.freshness.promise().freshness == Freshness::Static {
            // Nobody may start from it.
            return !file.void_stands();
        }
        // Relaxed: it only ends a loop.
        let abandoned =
            || deadline.map_or_else(|| file.stopping.load(Ordering::Relaxed), |deadline| Instant::now() >= deadline);
        let _alone = file.writing.lock();
        let epoch = file.epoch();
        let Some((noted, generation, header)) = self.describe(beginning, file.basis()) else { return false };
        // Until this one or the old one is there for certain, what either needs is held.
        let needed_from = self.follower.is_none().then_some(noted.journal.next);
        self.journal.hold_from(needed_from.map(|number| file.needed_from().map_or(number, |held| held.min(number))));
        let write = || write_aside(file.place(), header, &views(&generation.filter), abandoned);
        // The last one is waited for by who ends the process. What the journal holds is never locked by the other thread.
        let written = if deadline.is_some() { write() } else { background::run("write-snapshot", write) };
        let outcome = file.put(epoch, written, &generation, needed_from);
        self.journal.hold_from(file.needed_from());
        self.metrics.snapshots.ended(outcome);
        !file.void_stands()
    }

    /// Everything but the words, in the order that makes it true; `None` where the filter can't be shown to be what was promised, or from where on a later
    /// process would have to complete it.
    fn describe(&self, beginning: Beginning, basis: u64) -> Option<(Noted, Arc<Generation>, Header)> {
        let Beginning { now, taken } = beginning;
        let secret = self.identity.secret.agreed()?;
        let form = self.identity.form()?;
        let polls = self.polls.places().iter().map(|place| restore::poll_mark(place, now)).collect();
        let noted = Noted {
            now,
            log: self.follower.as_ref().and_then(|follower| follower.resumable()),
            polls,
            journal: self.journal.mark(),
        };
        let complete = self.freshness.complete()?;
        let generation = self.prober.current()?;
        let polls = Some(noted.polls.clone()).filter(|polls| complete.polled && !polls.is_empty());
        let log: Option<LogMark> = noted.log.map(restore::log_mark);
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
            scan_age: restore::nanos(noted.now.since(complete.scan_started)),
            log,
            polls,
            journal: noted.journal.clone(),
            proven: self.freshness.enforcement().is_proven(),
            layers: Vec::new(),
        };
        Some((noted, generation, header))
    }
}

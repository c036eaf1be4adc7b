//! The filter on disk: written after each build, when the journal wants it and when the process stops, and what the next process starts from.
//!
//! Where the filter stands (log, polls, journal) is noted **before** it is known that nothing speaks against the filter, and that before its first word is
//! copied. So all that is noted is in the copy: an entry's bits are set before the log's place moves past it, a loss ends the standing before that too, and
//! what is put in force meanwhile is a filter that holds at least as much. A promise that is broken while the copy is written makes it void.

mod age;
mod keeper;
mod restore;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use self::age::Beginning;
pub use self::keeper::{SnapshotStatus, Snapshots};
pub use self::restore::{Expected, Refused, Restored, restore};
use super::Keyspace;
use crate::background;
use crate::clock::Moment;
use crate::config::Freshness;
use crate::filter::Generation;
use crate::filter::snapshot::{HASH, Header, Hex, JournalMark, LogMark, PollMark, stage_snapshot, views};
use crate::fleet::LogPlace;
use crate::key::KeyForm;
use crate::labels::SnapshotOutcome;

/// Time between two snapshots, as a multiple of what the last one took: the disk has other things to do.
const REST: u32 = 10;

/// How soon it is looked again whether there is something to write.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What a keyspace needs of snapshots.
#[derive(Debug)]
pub struct SnapshotParts {
    /// Where they are kept.
    pub snapshots: Arc<Snapshots>,
    /// The filter to start from.
    pub restored: Option<Restored>,
}

/// The filter in force is that of a snapshot, and the source has not told yet whether its keys are written as the source's are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Untrusted {
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

impl Keyspace {
    /// Starts from a filter that this or another process had written. Nobody knows of this keyspace yet, and the journal's announces are in it before anybody
    /// may trust it, see [`Keyspace::trust_snapshot`].
    pub(super) fn start_from(&self, restored: Restored) {
        let Restored { filter, generation, counted, proven, judged, .. } = restored;
        if proven {
            self.standing.enforcing.proof.inherit();
            self.standing.enforcing.proof_changed();
        }
        self.active.install(filter, generation);
        if let Some(fleet) = &self.fleet {
            fleet.resume(judged.log);
        }
        let needed_from = self.fleet.is_none().then_some(judged.journal_next);
        self.journal.hold_from(needed_from);
        self.polls.resume(judged.polls.clone(), judged.scan_started);
        *self.counted.lock() = counted;
        *self.untrusted.lock() = Some(Untrusted { form: judged.form, scan_started: judged.scan_started });
        self.still_cold(
            "the filter of a snapshot is there, and the source has not told the form of its keys yet".into(),
        );
        *self.swapped_at.lock() = Some(Moment::now());
        self.metrics.snapshots.ended(SnapshotOutcome::Restored);
        let taken = humantime::format_duration(Duration::from_secs(judged.age.as_secs()));
        tracing::info!(keyspace = %self.name, generation, %taken, "started from the snapshot that was taken so long ago");
        if let Some(snapshots) = &self.snapshots {
            snapshots.started(format!("taken {taken} before the start"), needed_from);
        }
    }

    /// The keys are of this form: those of the snapshot's filter too, or it can't be asked for them and the first scan replaces it.
    pub(super) fn trust_snapshot(&self, form: KeyForm) {
        // Once: a later scan has a later beginning.
        let Some(untrusted) = self.untrusted.lock().take() else { return };
        if untrusted.form == form {
            self.shared.believe_absences_since(untrusted.scan_started);
            self.standing.swapped(untrusted.scan_started);
        } else {
            self.still_cold(format!(
                "the keys of the snapshot are of form {}, the source's of form {form}",
                untrusted.form
            ));
        }
    }

    /// A build has put a filter in force whose sources held so many keys each.
    pub(crate) fn build_ended(&self, counted: Vec<u64>) {
        *self.counted.lock() = counted;
        if let Some(snapshots) = &self.snapshots {
            snapshots.want();
        }
    }

    /// Keys that the last scan brought, of each source, as a snapshot tells; empty where there was none.
    pub(crate) fn counted(&self) -> Vec<u64> {
        self.counted.lock().clone()
    }

    /// Whether the filter of a snapshot waits for the source to tell the form of its keys.
    pub(crate) fn awaits_form(&self) -> bool {
        self.untrusted.lock().is_some()
    }

    /// For how long the filter that the process started from can do without a build; `None`: it did not start from one, or can't trust it.
    pub(crate) fn can_do_without_build(&self) -> Option<Duration> {
        self.standing.can_do_without_scan(Moment::now())
    }

    /// Writes snapshots whenever one is wanted. Runs until dropped; one that is being written then is finished or given up by its own thread.
    pub async fn keep_snapshots(self: Arc<Self>) {
        let Some(snapshots) = self.snapshots.clone() else { return };
        loop {
            tokio::select! {
                () = snapshots.wanted() => {}
                () = self.journal.snapshot_wanted() => {}
            }
            let (keyspace, began, beginning) = (Arc::clone(&self), tokio::time::Instant::now(), Beginning::here());
            let tried = tokio::task::spawn_blocking(move || keyspace.write_snapshot(beginning, None)).await;
            tokio::time::sleep(began.elapsed() * REST).await;
            match tried {
                Ok(true) => {}
                Ok(false) => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    snapshots.want();
                }
                Err(_) => tracing::error!(keyspace = %self.name, "writing a snapshot panicked"),
            }
        }
    }

    /// Writes the last snapshot of this process, if that can be done until `deadline`.
    pub async fn last_snapshot(self: Arc<Self>, deadline: Instant) {
        let Some(snapshots) = &self.snapshots else { return };
        // One that is being written would hold this one up, which knows more.
        snapshots.stopping.store(true, Ordering::Relaxed);
        let (keyspace, beginning) = (Arc::clone(&self), Beginning::here());
        let written = tokio::task::spawn_blocking(move || keyspace.write_snapshot(beginning, Some(deadline)));
        // What its thread has begun it gives up by itself, but for one call of the disk.
        let _ = tokio::time::timeout_at(deadline.into(), written).await;
    }

    /// Blocks while it writes. `beginning` is no later than that: its ages count from there. `false`: nothing can be written now that a process could start from, but later
    /// perhaps; or what none may start from is still there.
    fn write_snapshot(&self, beginning: Beginning, deadline: Option<Instant>) -> bool {
        let Some(snapshots) = &self.snapshots else { return true };
        snapshots.remove_void();
        if self.standing.freshness() == Freshness::Static {
            // Nobody may start from it.
            return !snapshots.void_stands();
        }
        // Relaxed: it only ends a loop.
        let abandoned = || {
            deadline.map_or_else(|| snapshots.stopping.load(Ordering::Relaxed), |deadline| Instant::now() >= deadline)
        };
        let _alone = snapshots.writing.lock();
        let epoch = snapshots.epoch();
        let Some((noted, generation, header)) = self.describe(beginning, snapshots.basis()) else { return false };
        // Until this one or the old one is there for certain, what either needs is held.
        let needed_from = self.fleet.is_none().then_some(noted.journal.next);
        self.journal
            .hold_from(needed_from.map(|number| snapshots.needed_from().map_or(number, |held| held.min(number))));
        let write = || stage_snapshot(snapshots.place(), header, &views(&generation.filter), abandoned);
        // The last one is waited for by who ends the process. What the journal holds is never locked by the other thread.
        let written = if deadline.is_some() { write() } else { background::run("write-snapshot", write) };
        let outcome = snapshots.put(epoch, written, &generation, needed_from);
        self.journal.hold_from(snapshots.needed_from());
        self.metrics.snapshots.ended(outcome);
        !snapshots.void_stands()
    }

    /// Everything but the words, in the order that makes it true; `None` where the filter can't be shown to be what was promised, or from where on a later
    /// process would have to complete it.
    fn describe(&self, beginning: Beginning, basis: u64) -> Option<(Noted, Arc<Generation>, Header)> {
        let Beginning { now, taken } = beginning;
        let secret = self.secret.agreed()?;
        let form = self.form()?;
        let polls = self.polls.places().iter().map(|place| restore::poll_mark(place, now)).collect();
        let noted = Noted {
            now,
            log: self.fleet.as_ref().and_then(|fleet| fleet.resumable()),
            polls,
            journal: self.journal.mark(),
        };
        let whole = self.standing.whole()?;
        let generation = self.active.current()?;
        let polls = Some(noted.polls.clone()).filter(|polls| whole.polled && !polls.is_empty());
        let log: Option<LogMark> = noted.log.map(restore::log_mark);
        let lacks_log = self.fleet.is_some() && log.is_none();
        let lacks_polls = self.standing.freshness() == Freshness::Polled && polls.is_none();
        if lacks_log || lacks_polls || secret.fingerprint != self.secret.fingerprint() {
            return None;
        }
        let spec = *generation.filter.spec();
        let header = Header {
            keyspace: self.name.clone(),
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
            counted: self.counted(),
            taken,
            scan_age: restore::nanos(noted.now.since(whole.scan_started)),
            log,
            polls,
            journal: noted.journal.clone(),
            proven: self.standing.enforcing.proof.is_proven(),
            layers: Vec::new(),
        };
        Some((noted, generation, header))
    }
}

//! A log that a process finds younger than the commit window: a first start, or a Redis without its data. An empty
//! Redis looks the same in both cases, so only the operator can say that it is a first start, and only where nothing
//! that was found says otherwise.

use std::collections::HashSet;
use std::time::Duration;

use super::LogFollower;
use crate::clock::Moment;
use crate::fleet::{LogPage, Loss, WriterId};
use crate::keyspace::freshness::YoungStart;
use crate::redis::LogIdentity;

/// From this age of the log on, the operator's word is a danger.
const REMOVE_WORD_AFTER: Duration = Duration::from_secs(3600);

/// What a process finds of earlier announces before it reads the log.
#[derive(Debug, Default)]
pub(crate) struct StartEvidence {
    pub(crate) journal: JournalFound,
    pub(crate) snapshot: SnapshotFound,
}

/// The journal in `data_dir`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum JournalFound {
    /// There is none, or it never had a record.
    #[default]
    Empty,
    /// So many announces were written to it.
    Records(u64),
    Damaged,
}

/// The snapshot in `data_dir`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum SnapshotFound {
    #[default]
    None,
    /// It could not be used.
    Refused,
    /// It continues in this log; `None`: in none.
    Of(Option<LogIdentity>),
}

/// Instances that had registered when the log's first page was read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RegisteredFound {
    /// Since the log was made.
    since: usize,
    /// Before that: Redis has kept its data.
    before: usize,
}

impl RegisteredFound {
    /// From a page that was read before this instance registered.
    pub(super) fn on(page: &LogPage) -> Self {
        let age = Duration::from_millis(page.now.saturating_sub(page.born));
        // An instance that learnt its key form has two lines.
        let all: HashSet<WriterId> = page.peers.iter().map(|peer| peer.writer).collect();
        let before: HashSet<WriterId> =
            page.peers.iter().filter(|peer| peer.ago > age).map(|peer| peer.writer).collect();
        Self { since: all.len() - before.len(), before: before.len() }
    }
}

impl StartEvidence {
    /// Returns true if announces may have been made before this log.
    pub(crate) fn shows_earlier_start(&self, log: Option<LogIdentity>) -> bool {
        let other_snapshot = match self.snapshot {
            SnapshotFound::None => false,
            SnapshotFound::Refused => true,
            SnapshotFound::Of(of) => log.is_none_or(|log| of != Some(log)),
        };
        self.journal != JournalFound::Empty || other_snapshot
    }

    fn describe(&self, registered: RegisteredFound) -> String {
        let journal = match self.journal {
            JournalFound::Empty => "no announce in the journal".to_owned(),
            JournalFound::Records(count) => format!("{count} announces in the journal"),
            JournalFound::Damaged => "a damaged journal".to_owned(),
        };
        let snapshot = match self.snapshot {
            SnapshotFound::None => "no snapshot",
            SnapshotFound::Refused => "a snapshot that can't be used",
            SnapshotFound::Of(_) => "a snapshot of another log",
        };
        let RegisteredFound { since, before } = registered;
        let instances = match (since, before) {
            (0, 0) => "no other instance registered in Redis".to_owned(),
            (since, 0) => format!("{since} other instances registered in Redis since then"),
            (_, before) => format!("{before} instances registered in Redis before the log was made"),
        };
        format!("{journal}, {snapshot}, {instances}")
    }
}

impl LogFollower {
    /// The first log that this process meets is younger than the commit window. One that Redis may evict proves nothing
    /// beside the operator's word.
    pub(super) fn begin_in_young_log(&self, loss: Loss, registered: RegisteredFound) {
        if !self.parts.freshness.promise().rests_on_log() {
            return self.revoke_after(loss);
        }
        let is_known_to_be_later = self.evidence.shows_earlier_start(None) || registered.before > 0;
        let evidence = match loss {
            Loss::Evictable => format!("{}; {loss}", self.evidence.describe(registered)),
            _ => self.evidence.describe(registered),
        };
        if self.is_first_start && !is_known_to_be_later && loss != Loss::Evictable {
            tracing::info!(
                keyspace = self.name(),
                evidence,
                "first start by redis.first_start: nothing was announced before"
            );
            return;
        }
        let left = loss.mended_by_scan_in(self.parts.windows.longest().window);
        let start = YoungStart { until: Moment::now().plus(left), evidence, is_known_to_be_later };
        if self.is_first_start {
            let refused = match loss {
                Loss::Evictable => format!("redis.first_start is true, and is not relied on: {loss}"),
                _ => format!(
                    "redis.first_start is true, and this is no first start: {}; remove it from the configuration",
                    start.evidence
                ),
            };
            tracing::warn!(keyspace = self.name(), reason = refused, "redis.first_start refused");
            *self.word_refused.lock() = Some(refused);
            if let Some(membership) = &self.parts.membership {
                membership.refuse_first_start();
            }
        }
        let reason = start.describe(Moment::now());
        tracing::warn!(keyspace = self.name(), reason, "delta log is younger than the commit window");
        self.parts.metrics.log.resync(super::resync_reason(loss));
        self.parts.freshness.revoke_until_proven(start);
        self.parts.rebuild.request();
    }

    /// For an operator: what is wrong with the word that this is a first start.
    pub(super) fn first_start_warning(&self) -> Option<String> {
        let refused = self.word_refused.lock().clone();
        let age = self.log_made.lock().map(|made| Moment::now().since(made));
        let is_old = self.is_first_start && age.is_some_and(|age| age >= REMOVE_WORD_AFTER);
        let left_on = is_old.then(|| {
            "redis.first_start is true, and Redis has been in use for longer than an hour: remove it, because a Redis \
             that lost its data would look like a first start"
                .to_owned()
        });
        refused.or(left_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_before_speaks_against_a_first_start() {
        let (this, other) = (LogIdentity([1; 16]), LogIdentity([2; 16]));
        let found = |journal, snapshot| StartEvidence { journal, snapshot }.shows_earlier_start(Some(this));
        assert!(!found(JournalFound::Empty, SnapshotFound::None));
        assert!(!found(JournalFound::Empty, SnapshotFound::Of(Some(this))), "it belongs to this log");
        assert!(found(JournalFound::Empty, SnapshotFound::Of(Some(other))));
        assert!(found(JournalFound::Empty, SnapshotFound::Of(None)));
        assert!(found(JournalFound::Empty, SnapshotFound::Refused));
        assert!(found(JournalFound::Records(1), SnapshotFound::None));
        assert!(found(JournalFound::Damaged, SnapshotFound::None));
    }
}

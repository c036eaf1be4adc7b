//! What polls for new keys show about the filter's freshness.

use std::time::Duration;

use crate::clock::Moment;

/// What a complete poll covers.
#[derive(Debug, Clone, Copy)]
pub struct PollCoverage {
    /// A scan that began later misses no row together with the polls since; `None`: unknown yet.
    pub covers: Option<Moment>,
    /// Why open transactions of other users can't be seen at a source.
    pub hidden: Option<&'static str>,
}

/// The last polls of all sources.
#[derive(Debug, Default)]
pub(crate) struct PollEvidence {
    /// A scan that began later misses no row together with the polls since.
    covers: Option<Moment>,
    /// Start of the last complete poll.
    began: Option<Moment>,
    /// Why the last poll failed.
    error: Option<&'static str>,
    /// Why long transactions can't be seen.
    pub(crate) hidden: Option<&'static str>,
}

impl PollEvidence {
    /// Polls begin; they show nothing yet.
    pub(crate) fn beginning(covers: Option<Moment>) -> Self {
        Self { covers, ..Self::default() }
    }

    /// A poll that began then is complete.
    pub(crate) const fn completed(began: Moment, coverage: PollCoverage) -> Self {
        Self { covers: coverage.covers, began: Some(began), error: None, hidden: coverage.hidden }
    }

    /// The last poll failed.
    pub(crate) const fn failed(&mut self, reason: &'static str) {
        self.error = Some(reason);
    }

    /// Returns true if it is known since when a scan must have begun.
    pub(crate) const fn is_begun(&self) -> bool {
        self.covers.is_some()
    }

    /// Returns true if rows between the scan and the first poll may be missing.
    pub(crate) fn begin_after(&self, scan_started: Moment) -> bool {
        self.covers.is_some_and(|covers| covers > scan_started)
    }

    /// The moment at which every visible row is in a filter whose scan began at `scan_started`. The poll must have
    /// begun after the scan, so that it found the rows that the scan had already passed.
    pub(crate) fn complete(&self, scan_started: Moment) -> Option<Moment> {
        let covered = self.covers.is_some_and(|covers| covers <= scan_started);
        self.began.filter(|began| covered && *began >= scan_started)
    }

    /// Why such a filter can't be trusted; `None`: it can.
    pub(crate) fn lack(&self, scan_started: Moment, now: Moment, max_staleness: Duration) -> Option<String> {
        let why = self.error.map(|why| format!(": {why}")).unwrap_or_default();
        match self.complete(scan_started) {
            Some(began) if now.since(began) < max_staleness => None,
            Some(began) => Some(format!(
                "the last complete poll began {} ago, longer than max_staleness = {}{why}",
                humantime::format_duration(Duration::from_secs(now.since(began).as_secs())),
                humantime::format_duration(max_staleness)
            )),
            None if self.begin_after(scan_started) => {
                Some(format!("polls began after the filter's scan; a rebuild fixes that{why}"))
            }
            None => Some(format!("no poll has been completed since the filter's scan began{why}")),
        }
    }
}

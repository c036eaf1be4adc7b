//! How far back a reader looks, and what a log can't show of that time.

use std::time::Duration;

use super::super::entry::EntryId;
use super::super::log::LogPage;
use super::loss::{Loss, millis};

#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    /// Announces of this age must have been read.
    pub(super) memory: Duration,
    /// The commit window: rows of lost announces are visible after it.
    pub(super) window: Duration,
}

impl Windows {
    /// Where the announces that must have been read begin.
    pub(super) fn start(self, now: u64) -> EntryId {
        EntryId::at(now.saturating_sub(millis(self.memory)))
    }

    /// Why the log may lack announces of this window although nothing shows that it lost any. Redis may have evicted
    /// it, or it was made within the window.
    pub(super) fn unproven(self, page: &LogPage) -> Option<Loss> {
        if page.is_evictable {
            return Some(Loss::Evictable);
        }
        let left = page.born.saturating_add(millis(self.window)).saturating_sub(page.now);
        (left > 0).then(|| Loss::Young { left: Duration::from_millis(left) })
    }
}

//! Keys that a build drew from the source and asked the backend for.

use crate::key::Key;

/// What the backend says of keys that were sampled from the source.
#[derive(Debug, Default)]
pub(crate) struct SourceSample {
    /// Keys of rows that it has.
    pub(crate) rows: Vec<Key>,
    /// Keys without rows.
    pub(crate) absent: usize,
}

impl SourceSample {
    /// From this share on `/status` warns.
    const MANY: f64 = 0.25;

    const fn asked(&self) -> usize {
        self.rows.len() + self.absent
    }

    pub(crate) fn absent_ratio(&self) -> Option<f64> {
        (self.asked() > 0).then(|| self.absent as f64 / self.asked() as f64)
    }

    pub(crate) fn warning(&self) -> Option<String> {
        let absent = self.absent;
        self.absent_ratio().filter(|ratio| *ratio >= Self::MANY && absent > 1).map(|_| {
            format!(
                "the backend has no row for {absent} of {} keys that were sampled from the source: the source lists \
                 keys without rows, or rows are missing at the backend",
                self.asked()
            )
        })
    }
}

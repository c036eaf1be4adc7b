//! Fills a candidate from a scan, on a thread of its own and at a bounded pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::error::BuildError;
use super::gather::KeyCollector;
use super::progress::Tracker;
use super::samples::Samples;
use crate::key::KeyBatch;
use crate::keyspace::Build;

/// The keys of one source, in batches.
pub(super) type Batches = mpsc::Receiver<KeyBatch>;

/// State of the thread that hashes and inserts.
pub(super) struct FillThread {
    pub(super) build: Arc<Build>,
    pub(super) collector: Option<KeyCollector>,
    pub(super) tracker: Arc<Tracker>,
    pub(super) pace: Pace,
    pub(super) abandoned: Arc<AtomicBool>,
}

/// Samples of each source of a union; and all keys, if they are collected for a set.
pub(super) type Scanned = (Vec<Samples>, Option<KeyCollector>);

impl FillThread {
    /// Inserts all keys of all sources. Blocks.
    pub(super) fn fill(mut self, mut members: mpsc::Receiver<Batches>) -> Result<Scanned, BuildError> {
        let mut samples = Vec::new();
        while let Some(batches) = members.blocking_recv() {
            samples.push(self.fill_from(batches)?);
        }
        Ok((samples, self.collector))
    }

    fn fill_from(&mut self, mut batches: Batches) -> Result<Samples, BuildError> {
        let mut samples = Samples::new();
        while let Some(batch) = batches.blocking_recv() {
            if let Some(collector) = &mut self.collector {
                collector.add(&batch)?;
            }
            self.build.fill(&batch);
            samples.draw(&batch);
            self.tracker.read(batch.len() as u64);
            self.pace.keep(batch.len() as u64, &self.abandoned);
            if self.abandoned.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(samples)
    }
}

/// Ends the fill thread when the build is dropped: a process that stops waits for that thread.
pub(super) struct AbandonOnDrop(pub(super) Arc<AtomicBool>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        // Relaxed, here and where it is read: it only ends a loop.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keeps a scan at `max_keys_per_second`: the reader sleeps, and the bounded channel slows the source.
pub(super) struct Pace {
    per_second: u64,
    began: Instant,
    keys: u64,
}

impl Pace {
    /// Longest time until the end of a build is noticed.
    const NAP: Duration = Duration::from_millis(20);

    pub(super) fn new(per_second: u64) -> Self {
        Self { per_second, began: Instant::now(), keys: 0 }
    }

    fn keep(&mut self, keys: u64, abandoned: &AtomicBool) {
        if self.per_second == 0 {
            return;
        }
        self.keys += keys;
        let due = Duration::from_secs_f64(self.keys as f64 / self.per_second as f64);
        while let Some(left) =
            due.checked_sub(self.began.elapsed()).filter(|left| !left.is_zero() && !abandoned.load(Ordering::Relaxed))
        {
            std::thread::sleep(left.min(Self::NAP));
        }
    }
}

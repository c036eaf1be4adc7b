//! The progress of a rebuild.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

use super::request::RebuildRequest;
use crate::keyspace::LastRebuild;

/// What `GET /admin/keyspaces/{ks}/rebuild` shows.
#[derive(Debug, Clone, Serialize)]
pub struct Progress {
    /// The running rebuild, if any.
    pub running: Option<Running>,
    /// The last one that ended.
    pub last: Option<LastRebuild>,
    /// Why the last one failed, in full: the admin listener may show it.
    pub last_error: Option<String>,
}

/// A running rebuild.
#[derive(Debug, Clone, Serialize)]
pub struct Running {
    /// Its number.
    pub job: u64,
    /// What it waits for before it reads the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<&'static str>,
    /// Keys read so far.
    pub keys_read: u64,
    /// Keys expected, from a count before the scan.
    pub keys_expected: Option<u64>,
    /// Keys read a second so far.
    pub keys_per_second: f64,
    /// Share of the expected keys, in percent.
    pub percent: Option<f64>,
    /// Remaining seconds at this rate.
    pub eta_seconds: Option<f64>,
    /// Seconds since it began, without its wait.
    pub elapsed_seconds: f64,
}

/// The state of a job. The counts are relaxed: the figures are only displayed, and the final count is read after the
/// fill thread was joined.
#[derive(Debug)]
pub(super) struct Tracker {
    job: u64,
    start: Mutex<Start>,
    operator_asked: Notify,
    keys_read: AtomicU64,
    /// 0 = not known yet.
    keys_expected: AtomicU64,
    scan_micros: AtomicU64,
}

/// The start of a job.
#[derive(Debug)]
struct Start {
    at: Instant,
    request: Option<RebuildRequest>,
    waits: bool,
}

impl Tracker {
    /// `request`: an operator's request.
    pub(super) fn new(job: u64, request: Option<RebuildRequest>) -> Self {
        let start = Start { at: Instant::now(), request, waits: false };
        Self {
            job,
            start: Mutex::new(start),
            operator_asked: Notify::new(),
            keys_read: AtomicU64::new(0),
            keys_expected: AtomicU64::new(0),
            scan_micros: AtomicU64::new(0),
        }
    }

    /// The job waits for other instances' scans.
    pub(super) fn waits(&self) {
        self.start.lock().waits = true;
    }

    /// An operator requests a job that waits: the wait ends. Returns false if it does not wait.
    pub(super) fn end_wait(&self, request: RebuildRequest) -> bool {
        let mut start = self.start.lock();
        if start.waits {
            start.request = Some(request);
            self.operator_asked.notify_one();
        }
        start.waits
    }

    /// Returns once an operator has requested the job.
    pub(super) async fn requested(&self) {
        while self.start.lock().request.is_none() {
            self.operator_asked.notified().await;
        }
    }

    /// The job's wait is over. Returns what an operator requested.
    pub(super) fn begins(&self) -> RebuildRequest {
        let mut start = self.start.lock();
        (start.waits, start.at) = (false, Instant::now());
        start.request.unwrap_or_default()
    }

    pub(super) const fn job(&self) -> u64 {
        self.job
    }

    pub(super) fn expect(&self, keys: u64) {
        self.keys_expected.store(keys, Ordering::Relaxed);
    }

    pub(super) fn read(&self, keys: u64) {
        self.keys_read.fetch_add(keys, Ordering::Relaxed);
    }

    pub(super) fn keys_read(&self) -> u64 {
        self.keys_read.load(Ordering::Relaxed)
    }

    /// Records the duration of the scan, successful or not.
    pub(super) fn scan_took(&self, time: Duration) {
        self.scan_micros.store(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn scanned(&self) -> Duration {
        Duration::from_micros(self.scan_micros.load(Ordering::Relaxed))
    }

    pub(super) fn took(&self) -> Duration {
        self.start.lock().at.elapsed()
    }

    pub(super) fn running(&self) -> Running {
        let (keys_read, elapsed) = (self.keys_read(), self.took().as_secs_f64());
        let waits = self.start.lock().waits.then_some("another instance scans");
        let keys_expected = Some(self.keys_expected.load(Ordering::Relaxed)).filter(|keys| *keys > 0);
        let keys_per_second = keys_read as f64 / elapsed.max(1e-3);
        Running {
            job: self.job,
            waits,
            keys_read,
            keys_expected,
            keys_per_second,
            percent: keys_expected.map(|all| (keys_read as f64 / all as f64 * 100.0).min(100.0)),
            eta_seconds: keys_expected
                .filter(|_| keys_read > 0)
                .map(|all| all.saturating_sub(keys_read) as f64 / keys_per_second),
            elapsed_seconds: elapsed,
        }
    }
}

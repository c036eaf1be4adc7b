//! How far a rebuild is.

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
    /// The rebuild under way, if any.
    pub running: Option<Running>,
    /// The last one that ended.
    pub last: Option<LastRebuild>,
    /// Why the last one failed, in full: the admin listener may show it.
    pub last_error: Option<String>,
}

/// A rebuild under way.
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
    /// Seconds to go at this rate.
    pub eta_seconds: Option<f64>,
    /// Seconds since it began, without its wait.
    pub elapsed_seconds: f64,
}

/// What is known of a job. The counts are relaxed: the figures are only shown, and the final count is read after the filler was joined.
#[derive(Debug)]
pub(super) struct Tracker {
    job: u64,
    start: Mutex<Start>,
    hurry: Notify,
    keys_read: AtomicU64,
    /// 0 = not known yet.
    keys_expected: AtomicU64,
    scan_micros: AtomicU64,
}

/// How a job begins.
#[derive(Debug)]
struct Start {
    at: Instant,
    asked: Option<RebuildRequest>,
    waits: bool,
}

impl Tracker {
    /// `asked`: by an operator.
    pub(super) fn new(job: u64, asked: Option<RebuildRequest>) -> Self {
        let start = Start { at: Instant::now(), asked, waits: false };
        Self {
            job,
            start: Mutex::new(start),
            hurry: Notify::new(),
            keys_read: AtomicU64::new(0),
            keys_expected: AtomicU64::new(0),
            scan_micros: AtomicU64::new(0),
        }
    }

    /// It waits for other instances' scans.
    pub(super) fn waits(&self) {
        self.start.lock().waits = true;
    }

    /// An operator asks for what waits: it is to begin now. `false`: it doesn't wait.
    pub(super) fn hurry(&self, request: RebuildRequest) -> bool {
        let mut start = self.start.lock();
        if start.waits {
            start.asked = Some(request);
            self.hurry.notify_one();
        }
        start.waits
    }

    /// Returns where an operator has asked for it.
    pub(super) async fn asked_for_at_once(&self) {
        while self.start.lock().asked.is_none() {
            self.hurry.notified().await;
        }
    }

    /// It waits no longer; returns what an operator asked of it.
    pub(super) fn begins(&self) -> RebuildRequest {
        let mut start = self.start.lock();
        (start.waits, start.at) = (false, Instant::now());
        start.asked.unwrap_or_default()
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

    /// The scan has ended, however: so long it took.
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

//! One task per keyspace, which builds when the schedule, an operator or the keyspace requests it: one build at a time.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::Utc;
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::build::{Builder, Built};
use super::counts::KeyCounts;
use super::error::BuildError;
use super::memory::MemoryBudget;
use super::plan::{Plan, Plans};
use super::progress::{Progress, Tracker};
use super::report;
use super::request::{AlreadyRunning, RebuildRequest};
use super::scan_slot::ScanSlots;
use crate::config::{KeyspaceConfig, RebuildConfig};
use crate::fleet::ScanPermit;
use crate::keyspace::{Keyspace, LastRebuild};
use crate::labels::RebuildOutcome;
use crate::metrics::KeyspaceMetrics;
use crate::source::KeySource;

/// First pause before a failed build is retried, and the longest pause after short builds.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Shortest time between a build's end and a build that the keyspace requests.
const MIN_REST: Duration = Duration::from_secs(10);
/// Longest sleep before the wall clock is read again: it may have been set.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Requests rebuilds of one keyspace and reports their progress.
#[derive(Debug, Clone)]
pub struct RebuildHandle(Arc<JobQueue>);

/// State shared by the handle and the runner.
#[derive(Debug)]
struct JobQueue {
    keyspace: Arc<Keyspace>,
    state: Mutex<JobState>,
    requested: Notify,
    plan: watch::Sender<Plan>,
}

#[derive(Debug, Default)]
struct JobState {
    last_job: u64,
    running: Option<Arc<Tracker>>,
    /// Key counts of the last scan that ended in a swap.
    last_keys: Option<KeyCounts>,
    last_error: Option<String>,
}

impl RebuildHandle {
    /// Starts a rebuild now, or the one that waits for other instances, and returns its job id.
    ///
    /// # Errors
    /// [`AlreadyRunning`].
    pub fn request(&self, request: RebuildRequest) -> Result<u64, AlreadyRunning> {
        let job = self.0.open(Some(request))?.job();
        self.0.requested.notify_one();
        Ok(job)
    }

    /// Applies new settings to the schedule and the next build. `on_start` applies at the next start.
    ///
    /// # Errors
    /// A schedule that can't be parsed; nothing has changed then.
    pub fn reconfigure(&self, config: &RebuildConfig) -> Result<(), String> {
        let new = Plan::new(config)?;
        // An unchanged plan must not draw its jitter again: with frequent reloads no build would ever start.
        self.0.plan.send_if_modified(|plan| {
            let changes = plan.config != new.config;
            *plan = new;
            changes
        });
        Ok(())
    }

    /// The progress of the running rebuild, and the result of the last one.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let state = self.0.state.lock();
        Progress {
            running: state.running.as_ref().map(|t| t.running()),
            last: self.0.keyspace.last_rebuild(),
            last_error: state.last_error.clone(),
        }
    }
}

impl JobState {
    /// The last scan's key counts come from a snapshot, so that a restart does not accept a collapsed source.
    fn restored(keyspace: &Keyspace) -> Self {
        let counted = keyspace.first_build().counted;
        Self { last_keys: (!counted.is_empty()).then(|| counted.into_iter().collect()), ..Self::default() }
    }
}

impl JobQueue {
    /// Opens the only job; it counts as running from here on.
    fn open(&self, request: Option<RebuildRequest>) -> Result<Arc<Tracker>, AlreadyRunning> {
        let mut state = self.state.lock();
        match (&state.running, request) {
            (Some(running), Some(request)) if running.end_wait(request) => return Ok(Arc::clone(running)),
            (Some(running), _) => return Err(AlreadyRunning(running.job())),
            (None, _) => {}
        }
        state.last_job += 1;
        let tracker = Arc::new(Tracker::new(state.last_job, request));
        state.running = Some(Arc::clone(&tracker));
        Ok(tracker)
    }
}

/// The task that builds.
pub struct Runner {
    jobs: Arc<JobQueue>,
    builder: Builder,
    metrics: Arc<KeyspaceMetrics>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("keyspace", &self.jobs.keyspace.name()).finish_non_exhaustive()
    }
}

impl Runner {
    /// A runner and the handle to it. Nothing happens before [`Runner::run`].
    ///
    /// # Errors
    /// A schedule that can't be parsed.
    pub fn new(
        keyspace: Arc<Keyspace>,
        source: Arc<dyn KeySource>,
        memory: Arc<MemoryBudget>,
        config: &KeyspaceConfig,
        metrics: Arc<KeyspaceMetrics>,
    ) -> Result<(Self, RebuildHandle), String> {
        let (plan, plans) = Plans::new(Plan::new(&config.rebuild)?);
        let jobs = Arc::new(JobQueue {
            keyspace: Arc::clone(&keyspace),
            state: Mutex::new(JobState::restored(&keyspace)),
            requested: Notify::new(),
            plan,
        });
        let builder = Builder {
            keyspace,
            source,
            memory,
            filter: config.filter.clone(),
            plans,
            allow_empty: config.source.iter().all(|source| source.allow_empty),
            slots: ScanSlots::new(config.max_staleness),
            metrics: Arc::clone(&metrics),
        };
        let handle = RebuildHandle(Arc::clone(&jobs));
        Ok((Self { jobs, builder, metrics }, handle))
    }

    /// Scans with a slot among the instances that share `permit`, as far as it may wait for one.
    #[must_use]
    pub fn taking_turns(mut self, permit: Option<Arc<dyn ScanPermit>>) -> Self {
        self.builder.slots.share(permit);
        self
    }

    /// Builds whenever there is a reason, until dropped. A build in progress is then abandoned and changes nothing.
    pub async fn run(self) {
        tokio::join!(self.learn_form(), self.build_forever());
    }

    /// Determines the key form: lookups need it, even if no build is due for long.
    async fn learn_form(&self) {
        let mut pause = RETRY.0;
        while let Err(error) = self.builder.key_form().await {
            tracing::debug!(keyspace = self.builder.keyspace.name(), %error, "key form not known yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
    }

    async fn build_forever(&self) {
        self.snapshot_evaluated().await;
        let mut due = self.first_build();
        let mut pause = RETRY.0;
        let mut rested = Instant::now();
        loop {
            let tracker = self.next_job(due, rested).await;
            let built = self.build(&tracker).await;
            rested = Instant::now() + MIN_REST;
            // A failed build is retried before the next schedule, because the active filter ages. A fault that only a
            // later scan fixes waits for it.
            let rescan = self.builder.keyspace.rescan_in();
            let retries = built.is_err() || rescan.is_some();
            due = retries.then(|| Instant::now() + pause.max(rescan.unwrap_or_default()));
            // A large or slow source must not be scanned over and over because a check fails.
            let longest = RETRY.1.max(tracker.took() * 10);
            pause = if retries { (pause * 2).min(longest) } else { RETRY.0 };
        }
    }

    /// Returns when it is known whether a snapshot's filter can be used, which depends on the form of the keys; or when
    /// the wait has lasted too long.
    async fn snapshot_evaluated(&self) {
        let evaluated = async {
            while !self.builder.keyspace.has_evaluated_snapshot() {
                tokio::time::sleep(RETRY.0 / 20).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(RETRY.1, evaluated) => {}
            // For the next waiter of this notification.
            () = self.jobs.requested.notified() => self.jobs.requested.notify_one(),
        }
    }

    /// When the first build starts: at once, or later if a snapshot's filter is active, so that a restarted fleet does
    /// not scan all at once.
    fn first_build(&self) -> Option<Instant> {
        let spare = self.builder.keyspace.first_build().lasts;
        let Plan { config, schedule } = self.builder.plans.current();
        config.on_start.then(|| Instant::now() + schedule.spread(spare / 2))
    }

    /// Waits for the next reason to build and opens the job.
    async fn next_job(&self, due: Option<Instant>, rested: Instant) -> Arc<Tracker> {
        let timely = async {
            tokio::select! {
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                () = self.builder.plans.follow(scheduled) => {}
                () = async { self.keyspace_requests(rested).await } => {}
            }
        };
        tokio::pin!(timely);
        loop {
            let is_requested = tokio::select! {
                () = self.jobs.requested.notified() => true,
                () = &mut timely => false,
            };
            if !is_requested && let Ok(tracker) = self.jobs.open(None) {
                return tracker;
            }
            // An operator's request holds the job. If there is none, a build for another reason has served that request
            // too.
            let running = self.jobs.state.lock().running.clone();
            if let Some(tracker) = running {
                return tracker;
            }
        }
    }

    /// Returns when the keyspace requests a build, no sooner than one can be of use.
    async fn keyspace_requests(&self, rested: Instant) {
        self.builder.keyspace.rebuild_requested().await;
        let useful = Instant::now() + self.builder.keyspace.rescan_in().unwrap_or_default();
        sleep_until(rested.max(useful)).await;
    }

    async fn build(&self, tracker: &Arc<Tracker>) -> Result<Built, BuildError> {
        let last = self.jobs.state.lock().last_keys.clone();
        // A panic is a failed build, not the end of all builds.
        let building = AssertUnwindSafe(self.builder.build(last.as_ref(), tracker)).catch_unwind();
        let built = tokio::select! {
            built = building => built.unwrap_or(Err(BuildError::Cancelled)),
            () = report::show(self.builder.keyspace.name(), Arc::clone(tracker)) => Err(BuildError::Cancelled),
        };
        self.ended(tracker, &built);
        built
    }

    fn ended(&self, tracker: &Tracker, built: &Result<Built, BuildError>) {
        let (keyspace, took, keys) = (&self.builder.keyspace, tracker.took(), tracker.keys_read());
        let outcome = built.as_ref().map_or_else(BuildError::outcome, |_| RebuildOutcome::Swapped);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.metrics.rebuilds.ended(outcome, took, keys, unix.as_secs_f64());
        let last = LastRebuild {
            job: tracker.job(),
            outcome,
            finished_unix: unix.as_secs(),
            duration_seconds: took.as_secs_f64(),
            scan_seconds: tracker.scanned().as_secs_f64(),
            keys,
            reason: built.as_ref().err().map(|error| error.public_reason().into_owned()),
        };
        keyspace.finish_rebuild(last, built.as_ref().ok().map(|built| built.keys.each()));
        match built {
            Ok(built) => tracing::info!(
                keyspace = keyspace.name(),
                job = tracker.job(),
                generation = built.generation,
                keys = built.keys.total(),
                seconds = took.as_secs_f64(),
                "rebuild finished: new filter active"
            ),
            Err(error) => {
                tracing::warn!(keyspace = keyspace.name(), job = tracker.job(), %outcome, %error, "rebuild failed: \
                    the active filter stays");
            }
        }
        let mut state = self.jobs.state.lock();
        state.running = None;
        state.last_error = built.as_ref().err().map(ToString::to_string);
        if let Ok(built) = built {
            state.last_keys = Some(built.keys.clone());
        }
    }
}

/// Returns at the next occurrence of the schedule.
async fn scheduled(plan: Plan) {
    let Some(start) = plan.schedule.next_after(Utc::now()) else { return std::future::pending().await };
    while let Ok(left) = (start - Utc::now()).to_std() {
        tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
    }
}

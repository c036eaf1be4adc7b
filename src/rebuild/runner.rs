//! One task a keyspace that builds when the schedule, an operator or the keyspace asks for it: one build at a time.

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
use super::turn::ScanSlots;
use crate::config::{KeyspaceConfig, RebuildConfig};
use crate::fleet::ScanPermit;
use crate::keyspace::{Keyspace, LastRebuild};
use crate::labels::RebuildOutcome;
use crate::metrics::KeyspaceMetrics;
use crate::source::KeySource;

/// First pause before a failed build is tried again, and the longest where builds are short.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Shortest time between a build's end and one that the keyspace asks for.
const BREATH: Duration = Duration::from_secs(10);
/// Longest sleep before the wall clock is looked at again: it may have been set.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Asks for rebuilds of one keyspace and tells how they go.
#[derive(Debug, Clone)]
pub struct RebuildHandle(Arc<JobQueue>);

/// Where requests and results are laid down.
#[derive(Debug)]
struct JobQueue {
    keyspace: Arc<Keyspace>,
    state: Mutex<Work>,
    asked: Notify,
    plan: watch::Sender<Plan>,
}

#[derive(Debug, Default)]
struct Work {
    last_job: u64,
    running: Option<Arc<Tracker>>,
    /// What the last scan that ended in a swap brought.
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
        self.0.asked.notify_one();
        Ok(job)
    }

    /// Goes by these settings from now on: the next build does, and the schedule. What `on_start` says counts at the next start.
    ///
    /// # Errors
    /// A schedule that can't be read; nothing has changed then.
    pub fn reconfigure(&self, config: &RebuildConfig) -> Result<(), String> {
        let new = Plan::new(config)?;
        // A plan that is as it was must not draw its jitter again, else who reloads often never builds.
        self.0.plan.send_if_modified(|plan| {
            let changes = plan.config != new.config;
            *plan = new;
            changes
        });
        Ok(())
    }

    /// How the running rebuild goes, and how the last one went.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let work = self.0.state.lock();
        Progress {
            running: work.running.as_ref().map(|t| t.running()),
            last: self.0.keyspace.last_rebuild(),
            last_error: work.last_error.clone(),
        }
    }
}

impl Work {
    /// A restart does not make a collapsed source believable: a snapshot tells what the last scan brought.
    fn after(keyspace: &Keyspace) -> Self {
        let counted = keyspace.first_build().counted;
        Self { last_keys: (!counted.is_empty()).then(|| counted.into_iter().collect()), ..Self::default() }
    }
}

impl JobQueue {
    /// Takes the one place that there is; the job counts as running from here on.
    fn open(&self, asked: Option<RebuildRequest>) -> Result<Arc<Tracker>, AlreadyRunning> {
        let mut work = self.state.lock();
        match (&work.running, asked) {
            (Some(running), Some(request)) if running.hurry(request) => return Ok(Arc::clone(running)),
            (Some(running), _) => return Err(AlreadyRunning(running.job())),
            (None, _) => {}
        }
        work.last_job += 1;
        let tracker = Arc::new(Tracker::new(work.last_job, asked));
        work.running = Some(Arc::clone(&tracker));
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
    /// A schedule that can't be read.
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
            state: Mutex::new(Work::after(&keyspace)),
            asked: Notify::new(),
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

    /// Scans only when it is its turn among the instances that share `permit`, as far as that can be waited for.
    #[must_use]
    pub fn taking_turns(mut self, permit: Option<Arc<dyn ScanPermit>>) -> Self {
        self.builder.slots.share(permit);
        self
    }

    /// Builds whenever there is a reason, until dropped; a build under way is then abandoned and changes nothing.
    pub async fn run(self) {
        tokio::join!(self.learn_form(), self.build_again_and_again());
    }

    /// Lookups need the key form, also where no build is due for long.
    async fn learn_form(&self) {
        let mut pause = RETRY.0;
        while let Err(error) = self.builder.key_form().await {
            tracing::debug!(keyspace = self.builder.keyspace.name(), %error, "the key form is not known yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
    }

    async fn build_again_and_again(&self) {
        self.snapshot_judged().await;
        let mut due = self.first_build();
        let mut pause = RETRY.0;
        let mut rested = Instant::now();
        loop {
            let tracker = self.next_job(due, rested).await;
            let built = self.build(&tracker).await;
            rested = Instant::now() + BREATH;
            // A failure is tried again before the next schedule, for the filter in force ages meanwhile; what only a later scan mends, later.
            let rescan = self.builder.keyspace.rescan_in();
            let again = built.is_err() || rescan.is_some();
            due = again.then(|| Instant::now() + pause.max(rescan.unwrap_or_default()));
            // A source that is large or slow is not scanned over and over because a check fails.
            let longest = RETRY.1.max(tracker.took() * 10);
            pause = if again { (pause * 2).min(longest) } else { RETRY.0 };
        }
    }

    /// Returns when it is known whether the filter of a snapshot serves, which the form of keys tells; or when that can't be waited for.
    async fn snapshot_judged(&self) {
        let judged = async {
            while !self.builder.keyspace.has_judged_snapshot() {
                tokio::time::sleep(RETRY.0 / 20).await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(RETRY.1, judged) => {}
            // For the next who waits for it.
            () = self.jobs.asked.notified() => self.jobs.asked.notify_one(),
        }
    }

    /// At once; or later, where a snapshot serves, so that a fleet that is restarted does not scan all at once.
    fn first_build(&self) -> Option<Instant> {
        let spare = self.builder.keyspace.first_build().lasts;
        let Plan { config, schedule } = self.builder.plans.present();
        config.on_start.then(|| Instant::now() + schedule.spread(spare / 2))
    }

    /// Waits for the next reason to build and takes the job.
    async fn next_job(&self, due: Option<Instant>, rested: Instant) -> Arc<Tracker> {
        let timely = async {
            tokio::select! {
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                () = self.builder.plans.follow(scheduled) => {}
                () = async { self.wanted(rested).await } => {}
            }
        };
        tokio::pin!(timely);
        loop {
            let asked = tokio::select! {
                () = self.jobs.asked.notified() => true,
                () = &mut timely => false,
            };
            if !asked && let Ok(tracker) = self.jobs.open(None) {
                return tracker;
            }
            // An operator's request has taken the place; a wake-up whose request was served along with a timely build is of no use any more.
            let running = self.jobs.state.lock().running.clone();
            if let Some(tracker) = running {
                return tracker;
            }
        }
    }

    /// Returns when the keyspace wants a build, no sooner than one can be of use.
    async fn wanted(&self, rested: Instant) {
        self.builder.keyspace.rebuild_requested().await;
        let useful = Instant::now() + self.builder.keyspace.rescan_in().unwrap_or_default();
        sleep_until(rested.max(useful)).await;
    }

    async fn build(&self, tracker: &Arc<Tracker>) -> Result<Built, BuildError> {
        let last = self.jobs.state.lock().last_keys.clone();
        let built = tokio::select! {
            // A panic is a failed build, not the end of all builds.
            built = AssertUnwindSafe(self.builder.build(last.as_ref(), tracker)).catch_unwind() => built.unwrap_or(Err(BuildError::Cancelled)),
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
                tracing::warn!(keyspace = keyspace.name(), job = tracker.job(), %outcome, %error, "rebuild failed: the active filter stays");
            }
        }
        let mut work = self.jobs.state.lock();
        work.running = None;
        work.last_error = built.as_ref().err().map(ToString::to_string);
        if let Ok(built) = built {
            work.last_keys = Some(built.keys.clone());
        }
    }
}

/// Returns at the next occurrence of the schedule.
async fn scheduled(plan: Plan) {
    let Some(start) = plan.schedule.next_after(Utc::now()) else { return std::future::pending().await };
    while let Ok(left) = (start - Utc::now()).to_std() {
        tokio::time::sleep(left.min(LOOK_AGAIN)).await;
    }
}

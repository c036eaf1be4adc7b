//! Polls: between two scans, asks sources for the keys of new rows.

mod window;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use self::window::Window;
use crate::cache::CacheError;
use crate::clock::Moment;
use crate::config::{IncrementalConfig, KeyspaceConfig};
use crate::key::KeyForm;
use crate::keyspace::{Keyspace, PollCoverage};
use crate::labels::PollOutcome;
use crate::metrics::KeyspaceMetrics;
use crate::source::{Incremental, PolledKey, SourceError};

/// Batches on their way from the source to the keyspace.
const BATCHES_AHEAD: usize = 4;
/// Longest pause after failed polls.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often the key form and the secret are checked at the start.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The task that polls one keyspace's sources.
pub struct Poller {
    keyspace: Arc<Keyspace>,
    feeds: Vec<PolledSource>,
    interval: Duration,
    /// A poll that takes longer can't be counted.
    longest: Duration,
    metrics: Arc<KeyspaceMetrics>,
}

/// One source.
struct PolledSource {
    source: Arc<dyn Incremental>,
    overlap: Duration,
    window: Option<Window>,
}

/// Why a poll did not complete.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("new keys could not be looked for in the shared cache: {0}")]
    Cache(#[from] CacheError),
    #[error("not done within max_staleness = {0:?}")]
    TooSlow(Duration),
}

impl PollError {
    const fn outcome(&self) -> PollOutcome {
        match self {
            Self::Source(SourceError::Unavailable(_) | SourceError::Cancelled) => PollOutcome::Unavailable,
            Self::Source(_) => PollOutcome::Invalid,
            Self::Cache(_) => PollOutcome::CacheFailed,
            Self::TooSlow(_) => PollOutcome::TimedOut,
        }
    }

    /// The error class, safe to show on the telemetry listener.
    fn public_reason(&self) -> &'static str {
        match self {
            Self::Source(error) => error.public_reason(),
            Self::Cache(_) => "Redis could not be asked for cached absences of new keys",
            Self::TooSlow(_) => "a poll takes longer than max_staleness",
        }
    }
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").field("keyspace", &self.keyspace.name()).finish_non_exhaustive()
    }
}

impl Poller {
    /// A poller of these sources. Nothing happens before [`Poller::run`].
    #[must_use]
    pub fn new(
        keyspace: Arc<Keyspace>,
        sources: Vec<(Arc<dyn Incremental>, IncrementalConfig)>,
        config: &KeyspaceConfig,
        metrics: Arc<KeyspaceMetrics>,
    ) -> Self {
        let interval = sources.iter().map(|(_, settings)| settings.interval).min().unwrap_or(config.max_staleness);
        let feeds = sources
            .into_iter()
            .map(|(source, settings)| PolledSource { source, overlap: settings.overlap, window: None })
            .collect();
        Self { keyspace, feeds, interval, longest: config.max_staleness, metrics }
    }

    /// Polls until dropped.
    pub async fn run(mut self) {
        let form = loop {
            match self.keyspace.form() {
                // Hashes under another secret than the fleet's are useless.
                Some(form) if self.keyspace.has_secret() => break form,
                _ => tokio::time::sleep(LOOK_AGAIN).await,
            }
        };
        let mut pause = self.interval;
        loop {
            // Before it is sent: a row that becomes visible later may not be in the answer.
            let began = Moment::now();
            self.keyspace.polls().begin(began);
            let polled = tokio::time::timeout(self.longest, self.poll(form))
                .await
                .unwrap_or(Err(PollError::TooSlow(self.longest)));
            let took = Moment::now().since(began);
            match polled {
                Ok(coverage) => {
                    self.keyspace.polls().set_places(
                        self.feeds.iter().filter_map(|feed| feed.window.as_ref().map(Window::place)).collect(),
                    );
                    self.metrics.polls.ended(PollOutcome::Completed, took);
                    self.keyspace.polls().completed(began, coverage);
                    pause = self.interval;
                }
                Err(error) => {
                    tracing::warn!(keyspace = self.keyspace.name(), %error, "a poll for new keys failed");
                    self.metrics.polls.ended(error.outcome(), took);
                    if matches!(error, PollError::TooSlow(_)) {
                        self.give_up_resumed();
                    }
                    self.keyspace.polls().failed(error.public_reason());
                    pause = (pause * 2).min(LONGEST_PAUSE.max(self.interval));
                }
            }
            // Spread, so that a fleet does not poll in step. Never longer than requested.
            let pause = pause.mul_f64(rand::random_range(0.8..1.0));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.keyspace.polls().wanted() => {}
            }
        }
    }

    /// Reads every source to its end.
    async fn poll(&mut self, form: KeyForm) -> Result<PollCoverage, PollError> {
        self.begin().await?;
        let mut hidden = None;
        for feed in &mut self.feeds {
            let polled = feed.poll(form, &self.keyspace, &self.metrics).await;
            if matches!(polled, Err(PollError::Source(SourceError::Invalid(_)))) {
                // The source no longer fits its query, and earlier answers may not have fitted either.
                feed.window = None;
            }
            hidden = polled?.or(hidden);
        }
        Ok(PollCoverage { covers: self.covers(), hidden })
    }

    /// What arrived while no process ran takes too long to read, and a retry would read more. A scan finds it, and
    /// polls begin where the scan does.
    fn give_up_resumed(&mut self) {
        for feed in &mut self.feeds {
            feed.window.take_if(|window| window.is_resumed());
        }
    }

    /// Asks sources that have not been polled yet for their position.
    async fn begin(&mut self) -> Result<(), PollError> {
        if self.feeds.iter().all(|feed| feed.window.is_some()) {
            return Ok(());
        }
        if let Some((places, covers)) =
            self.keyspace.polls().take_resume().filter(|(places, _)| places.len() == self.feeds.len())
        {
            for (feed, place) in self.feeds.iter_mut().zip(places) {
                feed.window = Some(Window::resumed(feed.overlap, place, covers));
            }
        }
        for feed in self.feeds.iter_mut().filter(|feed| feed.window.is_none()) {
            let began = Moment::now();
            let position = feed.source.position().await?;
            let first = position.watermark.ok_or(SourceError::Cancelled)?;
            feed.window = Some(Window::new(feed.overlap, first, position.open_for, began, Moment::now()));
        }
        self.keyspace.polls().began(self.covers());
        Ok(())
    }

    /// A scan that began after this moment is completed by the polls of all sources.
    fn covers(&self) -> Option<Moment> {
        let mut each = self.feeds.iter().map(|feed| feed.window.as_ref().and_then(Window::covers));
        each.try_fold(Moment::NEVER, |all, this| this.map(|this| all.max(this)))
    }
}

impl PolledSource {
    /// Returns why transactions can't be seen, if they can't.
    async fn poll(
        &mut self,
        form: KeyForm,
        keyspace: &Keyspace,
        metrics: &KeyspaceMetrics,
    ) -> Result<Option<&'static str>, PollError> {
        let Some(window) = &mut self.window else { return Err(SourceError::Cancelled.into()) };
        let began = Moment::now();
        let plan = window.plan(began);
        let (sender, mut batches) = mpsc::channel::<Vec<PolledKey>>(BATCHES_AHEAD);
        // Owns the receiver, which closes if this ends early: the source must not wait for a reader that is gone.
        let learn = async move {
            while let Some(rows) = batches.recv().await {
                metrics.polls.keys(keyspace.polls().learn(&rows).await?);
            }
            Ok::<(), CacheError>(())
        };
        let (position, learned) = tokio::join!(self.source.since(&plan, form, sender), learn);
        // Checked before the source's result: a reader that stops makes the source end too.
        learned?;
        let position = position?;
        let hidden = position.hidden;
        window.completed(began, Moment::now(), position);
        Ok(hidden)
    }
}

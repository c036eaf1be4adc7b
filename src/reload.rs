//! Reloads the configuration on SIGHUP, on request, and when its files change. A valid configuration is applied as far
//! as its settings are live; an invalid one changes nothing.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, watch};

pub use self::files::ConfigSource;
use self::files::FileWatch;
use crate::config::{Config, ConfigErrors};
use crate::http::{ActiveConfig, LiveTokens, ReloadReport, ReloadRequest, Tokens};
use crate::keyspace::Keyspace;
use crate::labels::ReloadOutcome;
use crate::metrics::Metrics;
use crate::rebuild::RebuildHandle;
use crate::telemetry::LogLevel;

/// What the live settings of a keyspace change.
#[derive(Debug)]
pub struct LiveKeyspace {
    /// Answers lookups.
    pub keyspace: Arc<Keyspace>,
    /// Builds its filter.
    pub rebuild: RebuildHandle,
}

/// What a reload changes and where it reports.
#[derive(Debug)]
pub struct ReloadParts {
    /// By name.
    pub keyspaces: BTreeMap<String, LiveKeyspace>,
    /// Counts reloads.
    pub metrics: Arc<Metrics>,
    /// The tokens that listeners accept.
    pub tokens: Arc<LiveTokens>,
    /// Reload requests of the admin listener.
    pub requests: mpsc::Receiver<ReloadRequest>,
    /// Publishes the active configuration.
    pub active: watch::Sender<Arc<ActiveConfig>>,
}

/// What triggers a reload.
#[derive(Debug)]
pub struct ReloadTriggers {
    /// The files, and what was seen there.
    pub source: ConfigSource,
    /// SIGHUP.
    pub hangups: Signal,
    /// The log level.
    pub log: LogLevel,
}

/// The task that reloads, one reload after another.
#[derive(Debug)]
pub struct Reloader {
    parts: ReloadParts,
    /// The settings that the process uses.
    active: Config,
    /// The last valid configuration that was read.
    last_read: Config,
    hangups: Signal,
    log: LogLevel,
    files: FileWatch,
}

impl ActiveConfig {
    fn new(config: &Config, needs_restart: Vec<String>) -> Self {
        Self { config: config.document(), needs_restart }
    }

    /// The active configuration at startup.
    #[must_use]
    pub fn at_start(config: &Config) -> Self {
        Self::new(config, vec![])
    }
}

impl Reloader {
    /// For a process that was started with `config`.
    #[must_use]
    pub fn new(config: Config, parts: ReloadParts, triggers: ReloadTriggers) -> Self {
        let ReloadTriggers { source, hangups, log } = triggers;
        Self { parts, last_read: config.clone(), active: config, hangups, log, files: FileWatch::new(source) }
    }

    /// Reloads on each trigger. Runs until dropped.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                Some(reply) = self.parts.requests.recv() => {
                    let result = self.reload("admin API").await;
                    // The client may have disconnected.
                    let _ = reply.send(result);
                }
                Some(()) = self.hangups.recv() => drop(self.reload("SIGHUP").await),
                () = self.files.changed() => drop(self.reload("changed files").await),
            }
        }
    }

    async fn reload(&mut self, trigger: &'static str) -> Result<ReloadReport, ConfigErrors> {
        match self.files.load().await {
            Ok(new) => Ok(self.apply_live(new, trigger)),
            Err(errors) => {
                let listed: Vec<String> = errors.errors().iter().map(ToString::to_string).collect();
                tracing::error!(trigger, errors = listed.join("; "), "reload rejected: invalid configuration");
                let waiting = self.active.differences(&self.last_read).len();
                self.parts.metrics.reloads.ended(ReloadOutcome::Failed, waiting);
                Err(errors)
            }
        }
    }

    fn apply_live(&mut self, new: Config, trigger: &'static str) -> ReloadReport {
        let merged = self.active.with_live_settings_of(&new);
        let applied = self.active.differences(&merged);
        let waiting = merged.differences(&new);
        let outcome = match (self.last_read.differences(&new).is_empty(), waiting.is_empty()) {
            (true, _) => ReloadOutcome::Unchanged,
            (false, false) => ReloadOutcome::NeedsRestart,
            (false, true) => ReloadOutcome::Applied,
        };
        if !applied.is_empty() {
            self.apply(&merged);
        }
        (self.active, self.last_read) = (merged, new);
        let reloaded = ReloadReport { outcome, applied: list(applied), needs_restart: list(waiting) };
        self.publish(&reloaded, trigger);
        reloaded
    }

    /// Applies all live settings. Those that did not change have no effect.
    fn apply(&self, merged: &Config) {
        for (name, config) in &merged.keyspaces {
            let Some(served) = self.parts.keyspaces.get(name) else { continue };
            served.keyspace.reconfigure(config);
            if let Err(error) = served.rebuild.reconfigure(&config.rebuild) {
                tracing::error!(keyspace = name, error, "rebuild schedule not changed");
            }
        }
        self.parts.tokens.store(Arc::new(Tokens::of(&merged.server)));
        if let Err(error) = self.log.set(&merged.log.level) {
            tracing::error!(error = format!("{error:#}"), "log level not changed");
        }
    }

    fn publish(&self, reloaded: &ReloadReport, trigger: &'static str) {
        let ReloadReport { outcome, applied, needs_restart } = reloaded;
        self.parts.metrics.reloads.ended(*outcome, needs_restart.len());
        self.parts.active.send_replace(Arc::new(ActiveConfig::new(&self.active, needs_restart.clone())));
        let applied = if applied.is_empty() { "none".to_owned() } else { applied.join(", ") };
        tracing::info!(trigger, %outcome, applied, "configuration reloaded");
        if *outcome == ReloadOutcome::NeedsRestart {
            tracing::warn!(settings = needs_restart.join(", "), trigger, "restart needed for changed settings");
        }
    }
}

fn list(paths: BTreeSet<String>) -> Vec<String> {
    paths.into_iter().collect()
}

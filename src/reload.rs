//! Reading the configuration again: on SIGHUP, on request, and when its files change. Validate, then take over what is live, or keep everything.

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

/// Who goes by the live settings of a keyspace.
#[derive(Debug)]
pub struct LiveKeyspace {
    /// Answers lookups.
    pub keyspace: Arc<Keyspace>,
    /// Builds its filter.
    pub rebuild: RebuildHandle,
}

/// Everybody who goes by live settings, and who is result of them.
#[derive(Debug)]
pub struct ReloadParts {
    /// By name.
    pub keyspaces: BTreeMap<String, LiveKeyspace>,
    /// Counts what became of it.
    pub metrics: Arc<Metrics>,
    /// What the listeners compare bearer tokens with.
    pub tokens: Arc<LiveTokens>,
    /// Those who ask for it.
    pub requests: mpsc::Receiver<ReloadRequest>,
    /// What is in force, for people.
    pub active: watch::Sender<Arc<ActiveConfig>>,
}

/// What makes a process read its configuration again.
#[derive(Debug)]
pub struct ReloadTriggers {
    /// Where it was read from, and what was seen there.
    pub source: ConfigSource,
    /// SIGHUP.
    pub hangups: Signal,
    /// The level of the log.
    pub log: LogLevel,
}

/// The one task that changes settings, one reload after another.
#[derive(Debug)]
pub struct Reloader {
    parts: ReloadParts,
    /// What the process goes by.
    active: Config,
    /// What the files said when they were last found good.
    last_read: Config,
    hangups: Signal,
    log: LogLevel,
    files: FileWatch,
}

impl ActiveConfig {
    fn new(config: &Config, needs_restart: Vec<String>) -> Self {
        Self { config: config.document(), needs_restart }
    }

    /// As it is when the process starts.
    #[must_use]
    pub fn at_start(config: &Config) -> Self {
        Self::new(config, vec![])
    }
}

impl Reloader {
    /// Of a process that was started with `config`.
    #[must_use]
    pub fn new(config: Config, parts: ReloadParts, triggers: ReloadTriggers) -> Self {
        let ReloadTriggers { source, hangups, log } = triggers;
        Self { parts, last_read: config.clone(), active: config, hangups, log, files: FileWatch::new(source) }
    }

    /// Reloads whenever there is a reason. Runs until dropped.
    pub async fn run(mut self) {
        loop {
            tokio::select! {
                Some(reply) = self.parts.requests.recv() => {
                    let result = self.reload("admin API").await;
                    // Whoever reply may have hung up.
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

    /// Of what is the same nobody notices anything.
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

//! The files that the configuration is read from, and when they have changed.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::{self, Config, ConfigErrors, Mistake};

/// How often they are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Where a process was told to read its configuration.
#[derive(Debug, Clone)]
pub struct ConfigSource {
    files: Vec<PathBuf>,
    environment: Vec<(String, String)>,
    /// What they held before they were last loaded.
    seen: u64,
}

impl ConfigSource {
    /// These files and this environment.
    #[must_use]
    pub fn new(files: Vec<PathBuf>, environment: impl Iterator<Item = (String, String)>) -> Self {
        Self { files, environment: environment.collect(), seen: 0 }
    }

    /// Loads the configuration.
    ///
    /// # Errors
    /// As [`config::load`].
    pub fn load(&mut self) -> Result<Config, ConfigErrors> {
        // First: a change that comes in between is then found by the next look.
        self.seen = self.look();
        config::load(&self.files, self.environment.iter().cloned())
    }

    fn look(&self) -> u64 {
        config::fingerprint(&self.files, self.environment.iter().cloned())
    }
}

/// Notices when the files hold something else than what was loaded.
///
/// By reading them, and not by inotify: that tells nothing of network file systems, of a file that is mounted over another, or of the other end of a symbolic
/// link, which is what a volume of Kubernetes swaps; and a node's instances of it are soon used up where all its sidecars run as one user. Reading some
/// kilobytes a second costs nothing beside that.
#[derive(Debug)]
pub(super) struct FileWatch {
    source: ConfigSource,
    /// What the last look saw.
    last: u64,
}

impl FileWatch {
    pub(super) fn new(source: ConfigSource) -> Self {
        Self { last: source.seen, source }
    }

    /// Returns once they have changed and two looks in a row see the same: half of a file that is being written may well be a good configuration, of
    /// another meaning. May be dropped at any time.
    pub(super) async fn changed(&mut self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let source = self.source.clone();
            // Where the look fails, the next one tells.
            let Ok(now) = tokio::task::spawn_blocking(move || source.look()).await else { continue };
            let settled = std::mem::replace(&mut self.last, now) == now;
            if settled && now != self.source.seen {
                return;
            }
        }
    }

    /// Loads what they hold.
    pub(super) async fn load(&mut self) -> Result<Config, ConfigErrors> {
        let mut source = self.source.clone();
        let loading = tokio::task::spawn_blocking(move || (source.load(), source));
        match loading.await {
            Ok((loaded, source)) => {
                self.source = source;
                loaded
            }
            Err(_) => Err(Mistake::of_all("could not be read: reading it panicked").into()),
        }
    }
}

//! The configuration files, and when they change.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::{self, Config, ConfigError, ConfigErrors};

/// How often the files are checked.
const LOOK: Duration = Duration::from_secs(1);

/// How often a configuration that changes during the read is read again.
const TRIES: usize = 10;

/// The files and environment that the configuration is read from.
#[derive(Debug, Clone)]
pub struct ConfigSource {
    files: Vec<PathBuf>,
    environment: Vec<(String, String)>,
    /// Fingerprint of the files before they were last loaded.
    seen: u64,
}

impl ConfigSource {
    /// Creates a source from these files and this environment.
    #[must_use]
    pub fn new(files: Vec<PathBuf>, environment: impl Iterator<Item = (String, String)>) -> Self {
        Self { files, environment: environment.collect(), seen: 0 }
    }

    /// Loads the configuration.
    ///
    /// # Errors
    /// As [`config::load`].
    pub fn load(&mut self) -> Result<Config, ConfigErrors> {
        // Fingerprints before and after must match: otherwise half of a change may have been read.
        for _ in 0..TRIES {
            self.seen = self.look();
            let loaded = config::load(&self.files, self.environment.iter().cloned());
            if self.look() == self.seen {
                return loaded;
            }
        }
        Err(ConfigError::general("could not be read: its files keep changing").into())
    }

    fn look(&self) -> u64 {
        config::fingerprint(&self.files, self.environment.iter().cloned())
    }
}

/// Detects when the files differ from what was loaded.
///
/// It reads them instead of using inotify. inotify misses network file systems, bind mounts and the target of a
/// symbolic link, which is what a Kubernetes volume swaps. A node's inotify instances are also used up quickly if all
/// its sidecars run as one user. Reading a few kilobytes per second costs nothing in comparison.
#[derive(Debug)]
pub(super) struct FileWatch {
    source: ConfigSource,
    /// Fingerprint of the last check.
    last: u64,
}

impl FileWatch {
    pub(super) fn new(source: ConfigSource) -> Self {
        Self { last: source.seen, source }
    }

    /// Returns once the files have changed and two checks in a row agree: half of a written file may be a valid
    /// configuration with another meaning. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let source = self.source.clone();
            // If the check fails, the next one decides.
            let Ok(now) = tokio::task::spawn_blocking(move || source.look()).await else { continue };
            let settled = std::mem::replace(&mut self.last, now) == now;
            if settled && now != self.source.seen {
                return;
            }
        }
    }

    /// Loads the files.
    pub(super) async fn load(&mut self) -> Result<Config, ConfigErrors> {
        let mut source = self.source.clone();
        let loading = tokio::task::spawn_blocking(move || (source.load(), source));
        match loading.await {
            Ok((loaded, source)) => {
                self.source = source;
                loaded
            }
            Err(_) => Err(ConfigError::general("could not be read: reading it panicked").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_being_written_is_left_alone_until_two_looks_agree() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("bloomguard.toml");
        std::fs::write(&file, "before").unwrap();
        let mut source = ConfigSource::new(vec![file.clone()], std::iter::empty());
        assert!(source.load().is_err(), "what it says does not matter here");
        let mut watch = FileWatch::new(source);
        let writing = tokio::spawn(async move {
            tokio::time::sleep(LOOK / 2).await;
            for written in 0..5 {
                std::fs::write(&file, "x".repeat(written)).unwrap();
                tokio::time::sleep(LOOK).await;
            }
        });
        let began = Instant::now();
        watch.changed().await;
        assert!(writing.is_finished() && began.elapsed() == LOOK * 6, "{:?}", began.elapsed());
        let _ = watch.load().await;
        assert!(tokio::time::timeout(LOOK * 10, watch.changed()).await.is_err(), "what was loaded is no change");
    }
}

//! The shared cache of a keyspace that caches nothing.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::{CacheError, CacheStatus, Entry, Mark, Seen, SharedCache, Stamp, Stored};
use crate::backend::Value;
use crate::key::Key;

/// Stores nothing. For a keyspace whose keys are in memory: its answers are free, so no cached answer exists for a mark
/// to outrank.
#[derive(Debug)]
pub struct NoCache {
    /// Never changes: there is no connection.
    epochs: watch::Sender<u64>,
}

impl Default for NoCache {
    fn default() -> Self {
        Self { epochs: watch::Sender::new(0) }
    }
}

#[async_trait]
impl SharedCache for NoCache {
    async fn get(&self, _: &Key) -> Result<Seen, CacheError> {
        Ok(Seen { entry: Entry::Nothing, stamp: Stamp::local(None), expiry: None })
    }

    async fn put_value(&self, _: &Key, _: &Value, _: Duration, _: Duration, _: &Stamp) -> Result<Stored, CacheError> {
        Ok(Stored::No)
    }

    async fn put_absence(&self, _: &Key, _: Duration, _: &Stamp) -> Result<Stored, CacheError> {
        Ok(Stored::No)
    }

    async fn put_mark(&self, _: &Key, _: Mark, _: Duration) -> Result<(), CacheError> {
        Ok(())
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }

    fn status(&self) -> CacheStatus {
        CacheStatus { kind: "none", reachable: true, warning: None }
    }
}

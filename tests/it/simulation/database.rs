//! The one database: what each row was at each moment, and its two sides, [`Backend`] and [`KeySource`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bloomguard::backend::{Backend, BackendError, ContentType, FetchContext, Value};
use bloomguard::key::{Key, KeyForm};
use bloomguard::source::{KeyBatches, KeySource, SourceError};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::network::Network;

/// Rows that are never touched: a build that finds them missing at the backend would be refused.
const ANCHORS: usize = 20;

/// What a row became; `None`: there is none any more.
pub type Change = Option<u64>;

#[derive(Default)]
struct Rows {
    changes: HashMap<Key, Vec<Change>>,
    version: u64,
}

/// Rows in memory.
pub struct Database {
    rows: Mutex<Rows>,
    network: Arc<Network>,
    /// Keys that every scan brings, whether or not they have rows: of these the filter says maybe, and absences are
    /// cached.
    phantoms: Vec<Key>,
}

pub fn key(number: usize) -> Key {
    KeyForm::Text.canonical(format!("key:{number}").as_bytes()).unwrap()
}

impl Database {
    pub fn new(network: Arc<Network>, phantoms: Vec<Key>) -> Arc<Self> {
        let database = Self { rows: Mutex::default(), network, phantoms };
        for n in 0..ANCHORS {
            database.write(&KeyForm::Text.canonical(format!("anchor:{n}").as_bytes()).unwrap());
        }
        Arc::new(database)
    }

    /// Makes or changes a row, visible at once, and returns its version.
    pub fn write(&self, key: &Key) -> u64 {
        let mut rows = self.rows.lock();
        rows.version += 1;
        let version = rows.version;
        rows.changes.entry(key.clone()).or_default().push(Some(version));
        version
    }

    /// Removes a row.
    pub fn remove(&self, key: &Key) {
        self.rows.lock().changes.entry(key.clone()).or_default().push(None);
    }

    /// All that the row ever was.
    pub fn history(&self, key: &Key) -> Vec<Change> {
        self.rows.lock().changes.get(key).cloned().unwrap_or_default()
    }

    pub fn version(&self, key: &Key) -> Option<u64> {
        *self.rows.lock().changes.get(key)?.last()?
    }

    fn keys(&self) -> Vec<Key> {
        let rows = self.rows.lock();
        let present = rows.changes.iter().filter(|(_, changes)| changes.last().is_some_and(Option::is_some));
        present.map(|(key, _)| key.clone()).chain(self.phantoms.iter().cloned()).collect()
    }
}

/// One instance's side of it. Calls are slow now and then, before the row is read or after.
pub struct Reader(pub Arc<Database>);

impl Reader {
    async fn pause(&self) {
        let millis = match self.0.network.below(20) {
            0 => 100 + self.0.network.below(150),
            1..=3 => self.0.network.below(60),
            _ => 1,
        };
        sleep(Duration::from_millis(millis.into())).await;
    }
}

#[async_trait]
impl Backend for Reader {
    async fn fetch(&self, key: &Key, _: &FetchContext) -> Result<Option<Value>, BackendError> {
        self.pause().await;
        let version = self.0.version(key);
        self.pause().await;
        Ok(version
            .map(|version| Value { body: version.to_string().into_bytes().into(), content_type: ContentType::Json }))
    }

    fn fingerprint(&self) -> u64 {
        7
    }
}

/// The other side. The scan itself takes no time on the simulated clock, which stands still while the filter's thread
/// works; a build takes its time after it, until the swap.
pub struct Source {
    database: Arc<Database>,
    /// How long the next builds take, and whether they come to nothing.
    pub next: Mutex<(Duration, bool)>,
}

impl Source {
    pub fn new(database: Arc<Database>) -> Arc<Self> {
        Arc::new(Self { database, next: Mutex::default() })
    }
}

#[async_trait]
impl KeySource for Source {
    async fn key_form(&self) -> Result<Option<KeyForm>, SourceError> {
        Ok(Some(KeyForm::Text))
    }

    async fn form_conflict(&self, _: KeyForm) -> Result<Option<String>, SourceError> {
        let (takes, fails) = std::mem::take(&mut *self.next.lock());
        sleep(takes).await;
        if fails { Err(SourceError::Unavailable("as the run wants it".into())) } else { Ok(None) }
    }

    async fn count(&self) -> Result<Option<u64>, SourceError> {
        Ok(Some(self.database.keys().len() as u64))
    }

    async fn scan(&self, _: KeyForm, batches: KeyBatches) -> Result<u64, SourceError> {
        let keys = self.database.keys();
        let count = keys.len() as u64;
        batches.send(keys.into_iter().collect()).await.map_err(|_| SourceError::Cancelled)?;
        Ok(count)
    }
}

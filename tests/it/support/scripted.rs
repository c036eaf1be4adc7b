//! A backend and a source whose every step the test decides: for races, where a real server can't be stopped between
//! two instructions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use std::time::{Duration, Instant};

use async_trait::async_trait;
use bloomguard::backend::{Backend, BackendError, ContentType, FetchContext, Value};
use bloomguard::cache::{CacheError, CacheStatus, Mark, Seen, SharedCache, Stamp, Stored};
use bloomguard::key::{Key, KeyForm};
use bloomguard::source::{KeyBatches, KeySource, SourceError};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// A point where a task waits until the test lets it go on.
#[derive(Debug)]
pub struct Turnstile {
    reached: Semaphore,
    go_on: Semaphore,
}

impl Turnstile {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { reached: Semaphore::new(0), go_on: Semaphore::new(0) })
    }

    async fn pass(&self) {
        self.reached.add_permits(1);
        self.go_on.acquire().await.unwrap().forget();
    }

    /// Waits until somebody stands here.
    pub async fn reached(&self) {
        self.reached.acquire().await.unwrap().forget();
    }

    /// Lets one go on.
    pub fn release(&self) {
        self.go_on.add_permits(1);
    }
}

/// Rows in memory.
#[derive(Default)]
pub struct ScriptedBackend {
    rows: Mutex<HashMap<Key, Value>>,
    calls: AtomicU64,
    /// Keys that single calls asked for, in order, once a test wants to know.
    asked: Mutex<Option<Vec<Key>>>,
    failure: Mutex<Option<BackendError>>,
    refused: Mutex<HashSet<Key>>,
    block: Mutex<Duration>,
    /// 0 stands for the default.
    batch_limit: AtomicUsize,
    last_read: Mutex<Option<Instant>>,
    /// Passed after the row was read and before it is returned.
    after_read: Mutex<Option<Arc<Turnstile>>>,
}

pub fn key(text: impl AsRef<str>) -> Key {
    KeyForm::Text.canonical(text.as_ref().as_bytes()).unwrap()
}

pub fn value(text: &str) -> Value {
    Value { body: text.as_bytes().to_vec().into(), content_type: ContentType::Json }
}

impl ScriptedBackend {
    pub fn commit(&self, text: &str) {
        self.rows.lock().insert(key(text), value(text));
    }

    /// Changes a row.
    pub fn change(&self, text: &str, body: &str) {
        self.rows.lock().insert(key(text), value(body));
    }

    pub fn remove(&self, text: &str) {
        self.rows.lock().remove(&key(text));
    }

    /// Each call blocks its thread for so long, as a process does that stands still.
    pub fn block_for(&self, time: Duration) {
        *self.block.lock() = time;
    }

    /// When a row, or that there is none, was read last.
    pub fn last_read(&self) -> Option<Instant> {
        *self.last_read.lock()
    }

    /// Calls since the start.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Keys that single calls have asked for since this was called first, in order.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().get_or_insert_default().iter().map(|key| key.as_str().unwrap().to_owned()).collect()
    }

    pub fn fail_with(&self, error: Option<BackendError>) {
        *self.failure.lock() = error;
    }

    /// It can't be asked for this key.
    pub fn refuse(&self, text: &str) {
        self.refused.lock().insert(key(text));
    }

    /// So many keys can be asked for by one call.
    pub fn answer_together(&self, keys: usize) {
        self.batch_limit.store(keys, Ordering::SeqCst);
    }

    pub fn hold_after_read(&self) -> Arc<Turnstile> {
        let turnstile = Turnstile::new();
        *self.after_read.lock() = Some(Arc::clone(&turnstile));
        turnstile
    }

    pub fn hold_no_more(&self) {
        *self.after_read.lock() = None;
    }
}

#[async_trait]
impl Backend for ScriptedBackend {
    async fn fetch(&self, key: &Key, _: &FetchContext) -> Result<Option<Value>, BackendError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if let Some(asked) = &mut *self.asked.lock() {
            asked.push(key.clone());
        }
        let failure = self.failure.lock().clone();
        if let Some(error) = failure {
            return Err(error);
        }
        if self.refused.lock().contains(key) {
            return Err(BackendError::Invalid("no such key can be asked for".into()));
        }
        let row = self.rows.lock().get(key).cloned();
        *self.last_read.lock() = Some(Instant::now());
        let block = *self.block.lock();
        if !block.is_zero() {
            std::thread::sleep(block);
        }
        let turnstile = self.after_read.lock().clone();
        if let Some(turnstile) = turnstile {
            turnstile.pass().await;
        }
        // It may have gone down meanwhile.
        self.failure.lock().clone().map_or(Ok(row), Err)
    }

    fn batch_limit(&self) -> usize {
        self.batch_limit.load(Ordering::SeqCst).max(1)
    }

    fn fingerprint(&self) -> u64 {
        7
    }
}

/// Keys in memory.
#[derive(Default)]
pub struct ScriptedSource {
    pub keys: Mutex<Vec<String>>,
    pub failure: Mutex<Option<SourceError>>,
    /// Only a scan can tell how many keys there are.
    pub uncounted: AtomicBool,
    panic: std::sync::atomic::AtomicBool,
    /// Passed after the last key was sent and before the scan ends.
    after_scan: Mutex<Option<Arc<Turnstile>>>,
}

impl ScriptedSource {
    pub fn of(keys: impl IntoIterator<Item = String>) -> Self {
        Self { keys: Mutex::new(keys.into_iter().collect()), ..Self::default() }
    }

    /// The next scan panics.
    pub fn panic_once(&self) {
        self.panic.store(true, Ordering::SeqCst);
    }

    pub fn hold_after_scan(&self) -> Arc<Turnstile> {
        let turnstile = Turnstile::new();
        *self.after_scan.lock() = Some(Arc::clone(&turnstile));
        turnstile
    }
}

#[async_trait]
impl KeySource for ScriptedSource {
    async fn key_form(&self) -> Result<Option<KeyForm>, SourceError> {
        Ok(Some(KeyForm::Text))
    }

    async fn form_conflict(&self, _form: KeyForm) -> Result<Option<String>, SourceError> {
        Ok(None)
    }

    async fn count(&self) -> Result<Option<u64>, SourceError> {
        Ok((!self.uncounted.load(Ordering::SeqCst)).then_some(self.keys.lock().len() as u64))
    }

    async fn scan(&self, form: KeyForm, batches: KeyBatches) -> Result<u64, SourceError> {
        let keys: Vec<Key> = self.keys.lock().iter().map(|k| form.canonical(k.as_bytes()).unwrap()).collect();
        let count = keys.len() as u64;
        assert!(!self.panic.swap(false, Ordering::SeqCst), "as the test wants it");
        for batch in keys.chunks(1000) {
            batches.send(batch.iter().cloned().collect()).await.map_err(|_| SourceError::Cancelled)?;
        }
        let turnstile = self.after_scan.lock().clone();
        if let Some(turnstile) = turnstile {
            turnstile.pass().await;
        }
        self.failure.lock().clone().map_or(Ok(count), Err)
    }
}

/// A shared cache that is down.
pub struct DeadCache(tokio::sync::watch::Sender<u64>);

impl Default for DeadCache {
    fn default() -> Self {
        Self(tokio::sync::watch::channel(0).0)
    }
}

fn down<T>() -> Result<T, CacheError> {
    Err(CacheError::Unavailable("connection refused".into()))
}

#[async_trait]
impl SharedCache for DeadCache {
    async fn get(&self, _: &Key) -> Result<Seen, CacheError> {
        down()
    }

    async fn put_value(&self, _: &Key, _: &Value, _: Duration, _: Duration, _: &Stamp) -> Result<Stored, CacheError> {
        down()
    }

    async fn put_absence(&self, _: &Key, _: Duration, _: &Stamp) -> Result<Stored, CacheError> {
        down()
    }

    async fn put_mark(&self, _: &Key, _: Mark, _: Duration) -> Result<(), CacheError> {
        down()
    }

    fn epochs(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.subscribe()
    }

    fn status(&self) -> CacheStatus {
        CacheStatus { kind: "redis", reachable: false, warning: None }
    }
}

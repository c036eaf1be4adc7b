//! [`MemoryCache`]: the shared cache of a process that has no Redis.

mod marks;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use moka::Expiry;
use moka::sync::Cache;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use self::marks::{Marked, Marks};
use super::{CacheError, CacheStatus, Entry, Mark, Seen, SharedCache, Stamp, Stored};
use crate::backend::Value;
use crate::clock::Moment;
use crate::key::Key;

/// What moka and this module hold for an entry beyond key and body: 545 bytes, measured at a million entries.
const ENTRY_OVERHEAD: usize = 550;
/// Memory of a mark: a place in its stripe's table, which is between 7/16 and 7/8 full, and a row by expiry.
pub const MARK_BYTES: usize = 90;
/// Calls for keys of one stripe wait for each other; more stripes than cores make that rare.
const STRIPES: usize = 64;
/// Expired marks that one `put_mark` removes: more than it adds, so that the backlog shrinks, and few enough to be
/// cheap.
const PURGE_STEP: usize = 8;

struct MemorySlot {
    token: u64,
    /// `None` is an absence.
    value: Option<Value>,
    /// How long it may be served.
    ttl: Duration,
    /// How long it is kept after that.
    kept_stale: Duration,
    /// How long the backend took to answer.
    cost: Duration,
    stored: Instant,
}

/// The [`SharedCache`] of one process and one keyspace, bounded in bytes and in marks.
///
/// Values and absences may be evicted. Marks are never evicted, so they are counted, and rejected over their limit.
/// Each call holds the lock of its key's stripe of marks throughout: reading, comparing and storing are one step, as in
/// Redis.
pub struct MemoryCache {
    slots: Cache<Key, Arc<MemorySlot>>,
    stripes: Box<[Mutex<Marks>]>,
    hasher: RandomState,
    /// Marks in all stripes, including expired ones that are not purged yet.
    marks: AtomicUsize,
    max_marks: usize,
    next_token: AtomicU64,
    epochs: watch::Sender<u64>,
    /// How much longer than they may be served values are kept.
    kept_stale: Duration,
}

impl MemoryCache {
    /// An empty cache that holds about `capacity_bytes` of values and absences, and `max_marks` marks of [`MARK_BYTES`]
    /// each.
    #[must_use]
    pub fn new(capacity_bytes: u64, max_marks: usize) -> Self {
        let slots = Cache::builder()
            .max_capacity(capacity_bytes)
            .weigher(|key: &Key, slot: &Arc<MemorySlot>| u32::try_from(slot.bytes(key)).unwrap_or(u32::MAX))
            .expire_after(ByMemorySlot)
            .build();
        Self {
            slots,
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            marks: AtomicUsize::new(0),
            max_marks,
            next_token: AtomicU64::new(0),
            epochs: watch::Sender::new(0),
            kept_stale: Duration::ZERO,
        }
    }

    /// Keeps values for this long after their expiry, within the same capacity; see [`Entry::Stale`].
    #[must_use]
    pub const fn keeping_stale(mut self, kept_stale: Duration) -> Self {
        self.kept_stale = kept_stale;
        self
    }

    fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }

    fn stripe(&self, key: &Key) -> MutexGuard<'_, Marks> {
        // Not by the lowest bits, which the stripe's own table uses. The modulo makes the cast lossless.
        self.stripes[((self.hash(key) >> 32) % STRIPES as u64) as usize].lock()
    }

    /// The entry under `key`. The stripe's lock makes the two reads one.
    fn look(&self, marks: &Marks, key: &Key) -> (Entry, Option<u64>, Option<super::Expiry>) {
        let marked = marks.live(self.hash(key), Moment::now());
        match (self.slots.get(key), marked) {
            // A value stored over a mark. If it is evicted, the mark is still there and rejects older fills.
            (slot, Some(marked)) if slot.as_ref().is_none_or(|slot| slot.token < marked.token) => {
                (Entry::Mark(marked.mark), Some(marked.token), None)
            }
            (Some(slot), _) => match &slot.value {
                Some(value) => match slot.stored.elapsed().checked_sub(slot.ttl) {
                    Some(past) if !slot.kept_stale.is_zero() => {
                        (Entry::Stale { value: value.clone(), past }, Some(slot.token), None)
                    }
                    _ => (Entry::Value(value.clone()), Some(slot.token), Some(slot.expiry())),
                },
                None => (Entry::Absence, Some(slot.token), None),
            },
            (None, _) => (Entry::Nothing, None, None),
        }
    }

    /// Stores if the entry is unchanged since `seen`.
    fn put(&self, key: &Key, value: Option<Value>, ttl: Duration, cost: Duration, seen: &Stamp) -> Stored {
        let marks = self.stripe(key);
        let (_, token, _) = self.look(&marks, key);
        if head(token) != seen.head {
            return Stored::No;
        }
        let kept_stale = if value.is_some() { self.kept_stale } else { Duration::ZERO };
        self.slots.insert(
            key.clone(),
            Arc::new(MemorySlot { token: self.token(), value, ttl, kept_stale, cost, stored: Instant::now() }),
        );
        Stored::Yes
    }

    /// Sets the mark if there is room for it.
    fn try_mark(&self, key: &Key, mark: Mark, life: Duration) -> bool {
        let (now, hash) = (Moment::now(), self.hash(key));
        let mut marks = self.stripe(key);
        self.release(marks.purge(now, PURGE_STEP));
        if !marks.contains(hash) && !self.reserve() {
            return false;
        }
        marks.set(hash, Marked { mark, token: self.token() }, now.plus(life));
        self.slots.invalidate(key);
        true
    }

    fn purge_all(&self) {
        let now = Moment::now();
        for stripe in &self.stripes {
            self.release(stripe.lock().purge(now, usize::MAX));
        }
    }

    fn reserve(&self) -> bool {
        // Relaxed, here and in `release`: the count guards no other memory.
        self.marks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < self.max_marks).then_some(n + 1)).is_ok()
    }

    fn release(&self, marks: usize) {
        self.marks.fetch_sub(marks, Ordering::Relaxed);
    }

    fn token(&self) -> u64 {
        // Relaxed: the stripe's lock orders the tokens of one key.
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }
}

#[async_trait]
impl SharedCache for MemoryCache {
    async fn get(&self, key: &Key) -> Result<Seen, CacheError> {
        let marks = self.stripe(key);
        let (entry, token, expiry) = self.look(&marks, key);
        Ok(Seen { entry, stamp: Stamp::local(head(token)), expiry })
    }

    async fn put_value(
        &self,
        key: &Key,
        value: &Value,
        ttl: Duration,
        cost: Duration,
        seen: &Stamp,
    ) -> Result<Stored, CacheError> {
        Ok(self.put(key, Some(value.clone()), ttl, cost, seen))
    }

    async fn put_absence(&self, key: &Key, ttl: Duration, seen: &Stamp) -> Result<Stored, CacheError> {
        if seen.head.is_some() {
            return Ok(Stored::No);
        }
        Ok(self.put(key, None, ttl, Duration::ZERO, seen))
    }

    async fn put_mark(&self, key: &Key, mark: Mark, life: Duration) -> Result<(), CacheError> {
        if self.try_mark(key, mark, life) {
            return Ok(());
        }
        // Expired marks of other stripes may still be counted.
        self.purge_all();
        if self.try_mark(key, mark, life) {
            return Ok(());
        }
        Err(CacheError::Refused(format!(
            "{} keys are marked already, which is as many as this process holds",
            self.max_marks
        )))
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }

    fn purge(&self) {
        self.purge_all();
    }

    fn status(&self) -> CacheStatus {
        CacheStatus { kind: "memory", reachable: true, warning: None }
    }
}

impl fmt::Debug for MemoryCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCache")
            .field("bytes", &self.slots.weighted_size())
            .field("marks", &self.marks)
            .finish_non_exhaustive()
    }
}

fn head(token: Option<u64>) -> Option<Vec<u8>> {
    token.map(|token| token.to_be_bytes().to_vec())
}

impl MemorySlot {
    fn expiry(&self) -> super::Expiry {
        super::Expiry { left: self.ttl.saturating_sub(self.stored.elapsed()), cost: self.cost }
    }

    fn bytes(&self, key: &Key) -> usize {
        key.as_bytes().len() + self.value.as_ref().map_or(0, Value::bytes) + ENTRY_OVERHEAD
    }
}

/// An entry lives as long as its slot says, from its latest replacement on.
struct ByMemorySlot;

impl Expiry<Key, Arc<MemorySlot>> for ByMemorySlot {
    fn expire_after_create(&self, _: &Key, slot: &Arc<MemorySlot>, _: Instant) -> Option<Duration> {
        Some(slot.ttl.saturating_add(slot.kept_stale))
    }

    fn expire_after_update(
        &self,
        _: &Key,
        slot: &Arc<MemorySlot>,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(slot.ttl.saturating_add(slot.kept_stale))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::backend::ContentType;

    const LONG: Duration = Duration::from_secs(600);

    fn key(n: usize) -> Key {
        Key::from_canonical(Bytes::from(n.to_string()))
    }

    fn value(bytes: usize) -> Value {
        Value { body: Bytes::from(vec![b'x'; bytes]), content_type: ContentType::OctetStream }
    }

    #[tokio::test]
    async fn mark_over_the_limit_is_refused_and_changes_nothing() {
        let cache = MemoryCache::new(1 << 20, 2);
        let stamp = cache.get(&key(3)).await.unwrap().stamp;
        cache.put_value(&key(3), &value(1), LONG, Duration::ZERO, &stamp).await.unwrap();
        for n in [1, 2, 1] {
            cache.put_mark(&key(n), Mark::Announced, LONG).await.unwrap();
        }
        let refused = cache.put_mark(&key(3), Mark::Announced, LONG).await.unwrap_err();
        assert!(matches!(&refused, CacheError::Refused(why) if why.contains("2 keys")), "{refused}");
        assert_eq!(cache.get(&key(3)).await.unwrap().entry, Entry::Value(value(1)));
    }

    #[tokio::test]
    async fn expired_marks_make_room() {
        let cache = MemoryCache::new(1 << 20, 100);
        for n in 0..100 {
            cache.put_mark(&key(n), Mark::Dropped, Duration::ZERO).await.unwrap();
        }
        for n in 100..200 {
            cache.put_mark(&key(n), Mark::Dropped, LONG).await.unwrap();
        }
        assert_eq!(cache.marks.load(Ordering::Relaxed), 100);
        cache.put_mark(&key(0), Mark::Dropped, LONG).await.unwrap_err();
    }

    #[tokio::test]
    async fn an_evicted_value_leaves_the_mark_that_it_was_stored_over() {
        let cache = MemoryCache::new(1 << 20, 10);
        let before = cache.get(&key(1)).await.unwrap().stamp;
        cache.put_mark(&key(1), Mark::Dropped, LONG).await.unwrap();
        let marked = cache.get(&key(1)).await.unwrap().stamp;
        assert_eq!(cache.put_value(&key(1), &value(1), LONG, Duration::ZERO, &marked).await.unwrap(), Stored::Yes);
        assert!(matches!(cache.get(&key(1)).await.unwrap().entry, Entry::Value(_)));
        cache.slots.invalidate(&key(1));
        assert_eq!(cache.get(&key(1)).await.unwrap().entry, Entry::Mark(Mark::Dropped));
        assert_eq!(
            cache.put_value(&key(1), &value(1), LONG, Duration::ZERO, &before).await.unwrap(),
            Stored::No,
            "an older fill is still turned away"
        );
    }

    #[tokio::test]
    async fn marks_outlive_a_flood_of_values() {
        let cache = MemoryCache::new(64 << 10, 1000);
        for n in 0..1000 {
            cache.put_mark(&key(n), Mark::Announced, LONG).await.unwrap();
        }
        for n in 1000..5000 {
            let stamp = cache.get(&key(n)).await.unwrap().stamp;
            cache.put_value(&key(n), &value(1000), LONG, Duration::ZERO, &stamp).await.unwrap();
        }
        cache.slots.run_pending_tasks();
        assert!(cache.slots.weighted_size() <= 64 << 10, "{} bytes", cache.slots.weighted_size());
        for n in 0..1000 {
            assert_eq!(cache.get(&key(n)).await.unwrap().entry, Entry::Mark(Mark::Announced));
        }
    }

    #[test]
    fn racing_puts_of_one_stamp_store_once() {
        let cache = Arc::new(MemoryCache::new(1 << 20, 10));
        let stamp = Stamp::local(None);
        for n in 0..200 {
            let racers: Vec<_> = (0..4)
                .map(|_| {
                    let (cache, stamp) = (Arc::clone(&cache), stamp.clone());
                    std::thread::spawn(move || cache.put(&key(n), None, LONG, Duration::ZERO, &stamp))
                })
                .collect();
            let stored = racers.into_iter().filter_map(|r| r.join().ok()).filter(|s| *s == Stored::Yes).count();
            assert_eq!(stored, 1);
        }
    }
}

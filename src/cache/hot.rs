//! The in-process tier in front of the shared cache, bounded in bytes.
//!
//! Every method is synchronous and none waits for IO. So a caller can store an absence and check its memory of
//! announces again without an `.await` in between.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moka::Expiry;
use moka::sync::Cache;
use parking_lot::Mutex;

use crate::backend::Value;
use crate::key::{Key, KeyHash};

/// What moka and this module hold for an entry beyond key and body: 510 bytes, measured at a million entries.
const ENTRY_OVERHEAD: usize = 520;
/// Writers of one stripe wait for each other; more stripes than cores make that rare.
const STRIPES: usize = 64;

/// An answer kept in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HotEntry {
    /// The value of the key.
    Value(Value),
    /// The backend has no row of the key.
    Absence,
}

struct HotSlot {
    /// Compared on `get`: equal hashes of different keys must not answer for each other.
    key: Key,
    content: Content,
    ttl: Duration,
}

enum Content {
    /// Void once the epoch of the cache is another one.
    Value { value: Value, epoch: u64 },
    /// The epoch of absences that it belongs to. One of an older epoch is void.
    Absence { epoch: u64 },
}

/// Answers kept in this process for a short while.
///
/// `get` takes no lock of this module. Writers of the same key wait for each other, so "remove it if it is an absence"
/// is one step.
pub struct HotCache {
    slots: Cache<u128, Arc<HotSlot>, BuildHasherDefault<Folded>>,
    absence_epoch: AtomicU64,
    epoch: AtomicU64,
    writers: Box<[Mutex<()>]>,
}

impl HotCache {
    /// An empty cache that holds at most about `capacity_bytes`; 0 holds nothing.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        let slots = Cache::builder()
            .max_capacity(capacity_bytes)
            .weigher(|_, slot: &Arc<HotSlot>| u32::try_from(slot.bytes()).unwrap_or(u32::MAX))
            .expire_after(ByHotSlot)
            .build_with_hasher(BuildHasherDefault::default());
        Self {
            slots,
            absence_epoch: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            writers: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        }
    }

    /// The live entry of `key`.
    #[must_use]
    pub fn get(&self, hash: KeyHash, key: &Key) -> Option<HotEntry> {
        let slot = self.slots.get(&hash.get())?;
        if slot.key != *key {
            return None;
        }
        match &slot.content {
            Content::Value { value, epoch } => {
                // Acquire: pairs with the increment in `drop_all`.
                (*epoch == self.epoch.load(Ordering::Acquire)).then(|| HotEntry::Value(value.clone()))
            }
            Content::Absence { epoch } => self.is_current(*epoch).then_some(HotEntry::Absence),
        }
    }

    /// Stores a value for `ttl`, in place of any entry.
    pub fn put_value(&self, hash: KeyHash, key: Key, value: Value, ttl: Duration) {
        // Read before the store: a value that races with `drop_all` has the old epoch and is void.
        let epoch = self.epoch.load(Ordering::Acquire);
        self.put(hash, HotSlot { key, content: Content::Value { value, epoch }, ttl });
    }

    /// Stores an absence for `ttl`, in place of any entry.
    pub fn put_absence(&self, hash: KeyHash, key: Key, ttl: Duration) {
        // Read before the store: an absence that races with `drop_all_absences` has the old epoch and is void.
        let epoch = self.absence_epoch.load(Ordering::Acquire);
        self.put(hash, HotSlot { key, content: Content::Absence { epoch }, ttl });
    }

    /// Removes the entry of `hash` if it is an absence. A value stored since then stays.
    pub fn drop_absence(&self, hash: KeyHash) {
        let _alone = self.writer(hash);
        if let Some(slot) = self.slots.get(&hash.get())
            && matches!(slot.content, Content::Absence { .. })
        {
            self.slots.invalidate(&hash.get());
        }
    }

    /// Removes the entry of `hash`.
    pub fn drop_entry(&self, hash: KeyHash) {
        let _alone = self.writer(hash);
        self.slots.invalidate(&hash.get());
    }

    /// Voids every absence at once. They leave memory as they expire or are evicted.
    pub fn drop_all_absences(&self) {
        // Release: a reader that sees the new epoch sees what was done before the drop, such as a degraded state.
        self.absence_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Voids every value and absence at once, as [`HotCache::drop_all_absences`] does for absences.
    pub fn drop_all(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.drop_all_absences();
    }

    /// Bytes held, as the bound counts them. Lags slightly behind.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.slots.weighted_size()
    }

    fn is_current(&self, epoch: u64) -> bool {
        // Acquire: pairs with the increment in `drop_all_absences`.
        epoch == self.absence_epoch.load(Ordering::Acquire)
    }

    fn put(&self, hash: KeyHash, slot: HotSlot) {
        let _alone = self.writer(hash);
        self.slots.insert(hash.get(), Arc::new(slot));
    }

    fn writer(&self, hash: KeyHash) -> parking_lot::MutexGuard<'_, ()> {
        // The modulo makes the cast lossless.
        self.writers[(hash.get() % STRIPES as u128) as usize].lock()
    }
}

impl std::fmt::Debug for HotCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HotCache").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl HotSlot {
    fn bytes(&self) -> usize {
        let body = match &self.content {
            Content::Value { value, .. } => value.bytes(),
            Content::Absence { .. } => 0,
        };
        self.key.as_bytes().len() + body + ENTRY_OVERHEAD
    }
}

/// An entry lives as long as its slot says, from its latest replacement on.
struct ByHotSlot;

impl Expiry<u128, Arc<HotSlot>> for ByHotSlot {
    fn expire_after_create(&self, _: &u128, slot: &Arc<HotSlot>, _: Instant) -> Option<Duration> {
        Some(slot.ttl)
    }

    fn expire_after_update(&self, _: &u128, slot: &Arc<HotSlot>, _: Instant, _: Option<Duration>) -> Option<Duration> {
        Some(slot.ttl)
    }
}

/// Passes a [`KeyHash`] on: it is keyed and uniform already, so a second hash adds nothing.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = (hash as u64) ^ ((hash >> 64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use bytes::Bytes;

    use super::*;
    use crate::backend::ContentType;
    use crate::key::KeySecret;

    const LONG: Duration = Duration::from_secs(600);

    fn key(text: &str) -> Key {
        Key::from_canonical(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn hashed(text: &str) -> (KeyHash, Key) {
        let key = key(text);
        (KeySecret::new([7; KeySecret::LEN]).hash(&key), key)
    }

    fn value(body: &str) -> Value {
        Value { body: Bytes::copy_from_slice(body.as_bytes()), content_type: ContentType::Json }
    }

    #[test]
    fn a_value_is_shared_with_whoever_gets_it_and_not_copied() {
        let hot = HotCache::new(4 << 20);
        let ((hash, key), large) = (hashed("1"), Bytes::from(vec![7; 1 << 20]));
        hot.put_value(hash, key.clone(), Value { body: large.clone(), content_type: ContentType::OctetStream }, LONG);
        let Some(HotEntry::Value(found)) = hot.get(hash, &key) else { panic!("it is gone") };
        assert_eq!((found.body.as_ptr(), found.body.len()), (large.as_ptr(), large.len()));
    }

    #[test]
    fn value_and_absence_are_found_again() {
        let hot = HotCache::new(1 << 20);
        let ((h1, k1), (h2, k2)) = (hashed("1"), hashed("2"));
        assert_eq!(hot.get(h1, &k1), None);
        hot.put_value(h1, k1.clone(), value("a"), LONG);
        hot.put_absence(h2, k2.clone(), LONG);
        assert_eq!(hot.get(h1, &k1), Some(HotEntry::Value(value("a"))));
        assert_eq!(hot.get(h2, &k2), Some(HotEntry::Absence));
    }

    #[test]
    fn another_key_with_the_same_hash_is_a_miss() {
        let hot = HotCache::new(1 << 20);
        let (hash, one) = hashed("1");
        hot.put_absence(hash, one.clone(), LONG);
        assert_eq!(hot.get(hash, &key("2")), None);
        assert_eq!(hot.get(hash, &one), Some(HotEntry::Absence));
    }

    #[test]
    fn dropping_an_absence_leaves_a_value_alone() {
        let hot = HotCache::new(1 << 20);
        let (hash, key) = hashed("1");
        hot.put_absence(hash, key.clone(), LONG);
        hot.drop_absence(hash);
        assert_eq!(hot.get(hash, &key), None);
        hot.put_value(hash, key.clone(), value("a"), LONG);
        hot.drop_absence(hash);
        assert_eq!(hot.get(hash, &key), Some(HotEntry::Value(value("a"))));
        hot.drop_entry(hash);
        assert_eq!(hot.get(hash, &key), None);
    }

    #[test]
    fn value_stored_while_absences_are_dropped_survives() {
        let hot = Arc::new(HotCache::new(1 << 20));
        let (hash, key) = hashed("1");
        let done = Arc::new(AtomicBool::new(false));
        let dropper = {
            let (hot, done) = (Arc::clone(&hot), Arc::clone(&done));
            std::thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    hot.drop_absence(hash);
                }
            })
        };
        for round in 0..20_000 {
            hot.put_absence(hash, key.clone(), LONG);
            hot.put_value(hash, key.clone(), value("a"), LONG);
            assert_eq!(hot.get(hash, &key), Some(HotEntry::Value(value("a"))), "round {round}");
        }
        done.store(true, Ordering::Relaxed);
        dropper.join().unwrap();
    }

    #[test]
    fn dropping_all_absences_keeps_values_and_later_absences() {
        let hot = HotCache::new(1 << 20);
        let ((h1, k1), (h2, k2)) = (hashed("1"), hashed("2"));
        hot.put_value(h1, k1.clone(), value("a"), LONG);
        hot.put_absence(h2, k2.clone(), LONG);
        hot.drop_all_absences();
        assert_eq!(hot.get(h1, &k1), Some(HotEntry::Value(value("a"))));
        assert_eq!(hot.get(h2, &k2), None);
        hot.put_absence(h2, k2.clone(), LONG);
        assert_eq!(hot.get(h2, &k2), Some(HotEntry::Absence));
    }

    #[test]
    fn each_entry_expires_after_its_own_lifetime() {
        let hot = HotCache::new(1 << 20);
        let ((h1, k1), (h2, k2)) = (hashed("1"), hashed("2"));
        hot.put_absence(h1, k1.clone(), LONG);
        hot.put_absence(h2, k2.clone(), LONG);
        // A replaced entry takes the new lifetime, not the rest of the old one.
        let start = Instant::now();
        hot.put_absence(h1, k1.clone(), Duration::from_millis(20));
        while hot.get(h1, &k1).is_some() {
            assert!(start.elapsed() < Duration::from_secs(60), "it never expired");
            std::thread::yield_now();
        }
        assert!(start.elapsed() >= Duration::from_millis(15));
        assert_eq!(hot.get(h2, &k2), Some(HotEntry::Absence));
    }

    #[test]
    fn flood_of_entries_stays_within_the_bound() {
        let capacity = 256 << 10;
        let hot = HotCache::new(capacity);
        let body = "x".repeat(1000);
        for n in 0..5_000 {
            let (hash, key) = hashed(&n.to_string());
            hot.put_value(hash, key, value(&body), LONG);
        }
        hot.slots.run_pending_tasks();
        assert!(hot.bytes() <= capacity, "{} bytes", hot.bytes());
        assert!(hot.bytes() > capacity / 2, "{} bytes: it should be nearly full", hot.bytes());
    }

    #[test]
    fn capacity_zero_holds_nothing() {
        let hot = HotCache::new(0);
        let (hash, key) = hashed("1");
        hot.put_value(hash, key.clone(), value("a"), LONG);
        hot.slots.run_pending_tasks();
        assert_eq!(hot.get(hash, &key), None);
    }
}

//! Recent announces of this instance and the others: which keys are within their commit window.
//!
//! The window begins when an announce arrives and lasts `commit_window + deadline`: a lookup that read the backend just
//! before the row became visible may try to store its absence one deadline later. While a key is in here, no instance
//! stores or serves an absence of it, and every build adds it to its candidate.
//!
//! Keys are kept in slices of time. A slice is dropped as a whole once the window of its youngest key has closed. That
//! frees memory in steps and needs no queue beside the keys. A key stays up to a sixteenth of its window longer, which
//! is harmless.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::clock::Moment;
use crate::key::{Key, KeyHash};

/// Slices of one window.
const SLICES: u32 = 16;
/// Keys are stored in chunks of this many bytes, so that none is ever copied to a larger buffer.
const CHUNK: usize = 16 << 10;
/// Bytes of the length before each key.
const LENGTH: usize = size_of::<u32>();

/// Bounded memory of announced keys.
#[derive(Debug)]
pub(crate) struct Recent {
    /// Nanoseconds: the longest window of the fleet. Set rarely.
    life: AtomicU64,
    limits: MemoryLimits,
    inner: Mutex<Announces>,
}

/// Bounds of the memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryLimits {
    /// Announces.
    pub(crate) count: usize,
    /// Bytes of all announces: `cost` each, plus the keys that are kept.
    pub(crate) bytes: usize,
    /// Bytes of each announce beside its key, here and for its mark.
    pub(crate) cost: usize,
    /// True if the keys themselves are kept, so that their marks can be set again.
    pub(crate) keeps_keys: bool,
}

#[derive(Debug, Default)]
struct Announces {
    /// The youngest last.
    slices: VecDeque<Slice>,
    /// Hashes in all slices.
    count: usize,
    /// Bytes of keys in all slices.
    key_bytes: usize,
    /// More keys were polled, or announced by others, than fit. Until this moment every key counts as within its
    /// window.
    all_until: Option<Moment>,
    /// Until this moment, announces of others that did not fit are within their window: a build would lack them.
    unheld_until: Option<Moment>,
}

/// The announces of a sixteenth of a window.
#[derive(Debug)]
struct Slice {
    began: Moment,
    /// When the window of its youngest key closes.
    until: Moment,
    /// Announced here, with the key in `keys`. A repeated announce moves the hash to a younger slice; the bytes of the
    /// key stay.
    own: Hashes,
    /// Without a key: announced by others, found by polls, or announced here where keys are not kept.
    keyless: Hashes,
    keys: Keys,
}

type Hashes = HashSet<KeyHash, BuildHasherDefault<AlreadyHashed>>;

/// Chunks of keys, each preceded by its length.
#[derive(Debug, Default)]
struct Keys(Vec<Vec<u8>>);

/// Position of a chunk of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkPlace(Moment, usize);

/// The memory is full: it holds this many announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full(pub(crate) usize);

impl Recent {
    pub(crate) fn new(life: Duration, limits: MemoryLimits) -> Self {
        Self { life: AtomicU64::new(nanos(life)), limits, inner: Mutex::default() }
    }

    /// How long a key is remembered, at the least.
    pub(crate) fn life(&self) -> Duration {
        // Relaxed, here and where it is set: a reader of an entry with a longer window has set it before.
        Duration::from_nanos(self.life.load(Ordering::Relaxed))
    }

    /// Sets how long new keys are remembered. Held keys keep their time.
    pub(crate) fn set_life(&self, life: Duration) {
        self.life.store(nanos(life), Ordering::Relaxed);
    }

    /// Remembers all of these keys, or none.
    pub(crate) fn remember_all(&self, hashes: &[KeyHash], keys: &[Key], now: Moment) -> Result<(), Full> {
        if !self.limits.keeps_keys {
            return self.remember_keyless(hashes, now);
        }
        let bytes: usize = keys.iter().map(|key| key.as_bytes().len() + LENGTH).sum();
        let mut inner = self.make_room(hashes, bytes, now)?;
        let slice = inner.begin_slice(now, self.life());
        for (hash, key) in hashes.iter().zip(keys) {
            inner.remember_own(slice, *hash, key.as_bytes());
        }
        Ok(())
    }

    fn remember_keyless(&self, hashes: &[KeyHash], now: Moment) -> Result<(), Full> {
        let mut inner = self.make_room(hashes, 0, now)?;
        inner.remember_keyless(hashes, now, self.life());
        Ok(())
    }

    /// Remembers announces of another instance. They were acknowledged, so none may be lost. If they do not fit, every
    /// key counts as within its window, and a build that begins before that closes [would lack some](Self::lacks_some).
    /// Returns false if that state has just begun.
    pub(crate) fn remember_others(&self, hashes: &[KeyHash], now: Moment) -> bool {
        let Err(Full(_)) = self.remember_keyless(hashes, now) else { return true };
        let (mut inner, until) = (self.inner.lock(), now.plus(self.life()));
        let before = inner.unheld_until;
        inner.all_until = inner.all_until.max(Some(until));
        inner.unheld_until = before.max(Some(until));
        before.is_some_and(|before| before > now)
    }

    /// From now on every key counts as within its window, until the windows of now have closed: the keys are hashed
    /// under another secret.
    pub(crate) fn doubt_all(&self, now: Moment) {
        let (mut inner, until) = (self.inner.lock(), now.plus(self.life()));
        inner.all_until = inner.all_until.max(Some(until));
    }

    /// Returns true if announces of others that did not fit are within their window. Call it after the candidate is
    /// published: later announces reach the candidate.
    pub(crate) fn lacks_some(&self, now: Moment) -> bool {
        self.inner.lock().unheld_until.is_some_and(|until| until > now)
    }

    /// Remembers keys of rows that a poll has found. Announces keep half of the room; if the keys do not fit, every key
    /// counts as within its window.
    pub(crate) fn remember_polled(&self, hashes: &[KeyHash], now: Moment) {
        let mut inner = self.inner.lock();
        inner.forget_expired(now);
        if !self.limits.half().admit(&inner, hashes.len(), 0) {
            inner.all_until = inner.all_until.max(Some(now.plus(self.life())));
            return;
        }
        inner.remember_keyless(hashes, now, self.life());
    }

    fn make_room(&self, hashes: &[KeyHash], key_bytes: usize, now: Moment) -> Result<MutexGuard<'_, Announces>, Full> {
        let mut inner = self.inner.lock();
        inner.forget_expired(now);
        if self.limits.admit(&inner, hashes.len(), key_bytes) {
            return Ok(inner);
        }
        // A key that is held already takes no further room, so repeated announces pass at the limit.
        let new = hashes.iter().filter(|hash| !inner.holds(**hash)).count();
        if self.limits.admit(&inner, new, key_bytes) { Ok(inner) } else { Err(Full(inner.count)) }
    }

    /// Returns true if the key is within its window.
    pub(crate) fn contains(&self, hash: KeyHash, now: Moment) -> bool {
        let inner = self.inner.lock();
        inner.all_until.is_some_and(|until| until > now) || inner.open(now).any(|slice| slice.holds(hash))
    }

    /// Frees the memory of closed windows.
    pub(crate) fn purge(&self, now: Moment) {
        let mut inner = self.inner.lock();
        inner.forget_expired(now);
        inner.all_until = inner.all_until.filter(|until| *until > now);
    }

    /// Every key within its window. A key announced by several instances may be listed twice.
    pub(crate) fn hashes(&self, now: Moment) -> Vec<KeyHash> {
        let inner = self.inner.lock();
        inner.open(now).flat_map(|slice| slice.own.iter().chain(&slice.keyless)).copied().collect()
    }

    /// Number of keys held, and the bytes they count for.
    pub(crate) fn held(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.count, self.limits.bytes_of(inner.count, inner.key_bytes))
    }

    /// The next chunk, after `after`, of keys that were announced here; `None`: no more. In chunks, to avoid a second
    /// copy of all keys.
    pub(crate) fn own_keys(&self, after: Option<ChunkPlace>, now: Moment) -> Option<(ChunkPlace, Vec<u8>)> {
        let inner = self.inner.lock();
        // Announces that arrive meanwhile are not included.
        let open = inner.open(now).filter(|slice| slice.began <= now);
        let mut places = open
            .flat_map(|slice| (0..).zip(&slice.keys.0).map(|(index, chunk)| (ChunkPlace(slice.began, index), chunk)));
        let is_next = |place: &ChunkPlace| after.is_none_or(|after| (place.0, place.1) > (after.0, after.1));
        places.find(|(place, _)| is_next(place)).map(|(place, chunk)| (place, chunk.clone()))
    }

    /// Also remembers the keys that were announced here under new hashes. Returns the new hashes, and whether all had
    /// room.
    pub(crate) fn rehash_own(
        &self,
        now: Moment,
        mut hash: impl FnMut(&[u8]) -> KeyHash,
    ) -> (Vec<KeyHash>, Result<(), Full>) {
        let mut inner = self.inner.lock();
        inner.forget_expired(now);
        let mut chunks = Vec::new();
        for slice in &mut inner.slices {
            let own = std::mem::take(&mut slice.own);
            slice.keyless.extend(own);
            chunks.append(&mut slice.keys.0);
        }
        inner.key_bytes = 0;
        inner.count = inner.slices.iter().map(|slice| slice.keyless.len()).sum();
        let slice = inner.begin_slice(now, self.life());
        let (mut hashes, mut remembered) = (Vec::new(), Ok(()));
        for key in chunks.iter().flat_map(|chunk| keys_of(chunk)) {
            let hash = hash(key);
            hashes.push(hash);
            if self.limits.admit(&inner, 1, key.len() + LENGTH) {
                inner.remember_own(slice, hash, key);
            } else {
                remembered = Err(Full(inner.count));
            }
        }
        (hashes, remembered)
    }
}

impl MemoryLimits {
    const fn bytes_of(&self, count: usize, key_bytes: usize) -> usize {
        count * self.cost + key_bytes
    }

    const fn half(self) -> Self {
        Self { count: self.count / 2, bytes: self.bytes / 2, ..self }
    }

    /// Returns true if there is room for this many more.
    const fn admit(&self, inner: &Announces, count: usize, key_bytes: usize) -> bool {
        let all = inner.count + count;
        all <= self.count && self.bytes_of(all, inner.key_bytes + key_bytes) <= self.bytes
    }
}

fn nanos(life: Duration) -> u64 {
    u64::try_from(life.as_nanos()).unwrap_or(u64::MAX)
}

impl Announces {
    fn open(&self, now: Moment) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(move |slice| slice.until > now)
    }

    fn holds(&self, hash: KeyHash) -> bool {
        self.slices.iter().any(|slice| slice.holds(hash))
    }

    /// Index of the slice for this moment. Its keys are held for one more window.
    fn begin_slice(&mut self, now: Moment, life: Duration) -> usize {
        let until = now.plus(life);
        match self.slices.back_mut() {
            // If windows were longer before, a new slice could not be dropped sooner; so the last one is used. Its end
            // never moves back.
            Some(last) if now < last.began.plus(life / SLICES) || until <= last.until => {
                last.until = last.until.max(until)
            }
            _ => self.slices.push_back(Slice {
                began: now,
                until,
                own: Hashes::default(),
                keyless: Hashes::default(),
                keys: Keys::default(),
            }),
        }
        self.slices.len() - 1
    }

    fn remember_keyless(&mut self, hashes: &[KeyHash], now: Moment, life: Duration) {
        let last = self.begin_slice(now, life);
        for hash in hashes {
            if self.slices[last].holds(*hash) {
                continue;
            }
            // An own announce stays in its slice, where its key is.
            self.count -= self.slices.range_mut(..last).filter_map(|slice| slice.keyless.take(hash)).count();
            self.slices[last].keyless.insert(*hash);
            self.count += 1;
        }
    }

    fn remember_own(&mut self, last: usize, hash: KeyHash, key: &[u8]) {
        if !self.slices[last].own.insert(hash) {
            return;
        }
        self.count += 1;
        for slice in self.slices.range_mut(..last) {
            self.count -= usize::from(slice.own.remove(&hash)) + usize::from(slice.keyless.remove(&hash));
        }
        self.count -= usize::from(self.slices[last].keyless.remove(&hash));
        self.slices[last].keys.push(key);
        self.key_bytes += key.len() + LENGTH;
    }

    fn forget_expired(&mut self, now: Moment) {
        while let Some(slice) = self.slices.pop_front_if(|slice| slice.until <= now) {
            self.count -= slice.own.len() + slice.keyless.len();
            self.key_bytes -= slice.keys.bytes();
        }
        // Repeated announces leave tables with unused capacity.
        for hashes in self.slices.iter_mut().flat_map(|slice| [&mut slice.own, &mut slice.keyless]) {
            if hashes.capacity() / 4 > hashes.len() {
                hashes.shrink_to_fit();
            }
        }
    }
}

impl Slice {
    fn holds(&self, hash: KeyHash) -> bool {
        self.own.contains(&hash) || self.keyless.contains(&hash)
    }
}

impl Keys {
    fn push(&mut self, key: &[u8]) {
        let room = key.len() + LENGTH;
        if self.0.last().is_none_or(|last| last.capacity() - last.len() < room) {
            self.0.push(Vec::with_capacity(CHUNK.max(room)));
        }
        if let Some(last) = self.0.last_mut() {
            last.extend_from_slice(&(key.len() as u32).to_le_bytes());
            last.extend_from_slice(key);
        }
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }
}

/// The keys of a chunk.
pub(crate) fn keys_of(mut chunk: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = chunk.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        chunk = rest;
        Some(key)
    })
}

/// Key hashes are not hashed again.
#[derive(Debug, Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;

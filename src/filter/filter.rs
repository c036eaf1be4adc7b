//! One filter of any kind, with the layers by which it grows.
//!
//! Lookups and inserts take no lock. A layer is published once, by a release store of the number of layers, and never
//! removed or replaced. So an insert into an older layer is still found: lookups ask every layer, and growth loses
//! nothing. A reader that must see an insert learns of it afterwards (by a response, a lock, a channel). That edge
//! orders the relaxed bits and the number of layers alike.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::hash::Salt;
use super::layer::{Layer, LayerHeader};
use super::memory::Memory;
use super::spec::{FilterKind, FilterSpec};
use super::{AllocError, Confirmed, LayersError, UnionError};

/// With fewer keys a prefetch comes too late.
const MIN_PREFETCHED_KEYS: usize = 64;

/// Memory reserved for a layer; released when dropped.
pub type MemoryGrant = Box<dyn Any + Send + Sync>;

/// Called with the bytes of a layer before it is made; `None` if the filter can't grow now.
pub type GrowthBudget = Box<dyn Fn(u64) -> Option<MemoryGrant> + Send + Sync>;

/// Why a full filter does not grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutOfRoom {
    /// No memory for another layer now.
    Memory,
    /// It has all layers of its kind.
    Layers,
}

/// A filter over 128-bit key hashes.
pub struct Filter {
    first: Layer,
    /// Number of layers beside the first. Layers are read only once they are counted here.
    grown: AtomicUsize,
    more: Box<[OnceLock<(Layer, MemoryGrant)>]>,
    spec: FilterSpec,
    growth: GrowthBudget,
    growing: Mutex<()>,
    /// Whether the last attempt to grow lacked memory. Relaxed: it is only displayed.
    refused: AtomicBool,
}

impl Filter {
    /// Creates an empty filter that grows as its kind does, without a memory limit.
    ///
    /// # Errors
    /// [`AllocError`]; a lack of memory never aborts the process.
    pub fn new(spec: FilterSpec) -> Result<Self, AllocError> {
        Self::within(spec, Box::new(|_| Some(Box::new(()))))
    }

    /// Creates an empty filter that grows if `growth` allows it. The first layer is not asked for.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn within(spec: FilterSpec, growth: GrowthBudget) -> Result<Self, AllocError> {
        Self::with_salt(spec, Salt::random(), growth)
    }

    pub(super) fn with_salt(spec: FilterSpec, salt: Salt, growth: GrowthBudget) -> Result<Self, AllocError> {
        spec.footprint()?;
        let first = Layer::new(spec.first_layer(), salt)?;
        Ok(Self::of(spec, first, growth))
    }

    fn of(spec: FilterSpec, first: Layer, growth: GrowthBudget) -> Self {
        let more = (1..spec.max_layers()).map(|_| OnceLock::new()).collect();
        Self {
            first,
            grown: AtomicUsize::new(0),
            more,
            spec,
            growth,
            growing: Mutex::new(()),
            refused: AtomicBool::new(false),
        }
    }

    /// Restores a filter from its [`Filter::layers`]. Asks `growth` for all layers but the first.
    ///
    /// # Errors
    /// [`LayersError`] if they are not layers of such a filter, or there is no memory.
    pub fn from_layers(
        spec: FilterSpec,
        layers: Vec<(LayerHeader, Memory)>,
        growth: GrowthBudget,
    ) -> Result<Self, LayersError> {
        let (count, most) = (layers.len(), spec.max_layers());
        let mut layers = layers.into_iter().enumerate().map(|(index, (header, memory))| {
            let made_for = spec.layer(index).ok_or(LayersError::Count { count, most })?;
            Layer::restored(made_for, &header, memory)?.ok_or(LayersError::Foreign(index))
        });
        let first = layers.next().ok_or(LayersError::Count { count, most })??;
        let filter = Self::of(spec, first, growth);
        for (index, layer) in layers.enumerate() {
            let layer = layer?;
            let grant = (filter.growth)(layer.bytes()).ok_or(LayersError::NoRoom(layer.bytes()))?;
            // No other thread knows this filter yet.
            let _ = filter.more[index].set((layer, grant));
        }
        filter.grown.store(count - 1, Ordering::Release);
        Ok(filter)
    }

    /// The layers, which are enough to restore the filter. They may or may not contain keys that are inserted
    /// meanwhile.
    #[must_use]
    pub fn layers(&self) -> Vec<(LayerHeader, &[AtomicU64])> {
        self.each().map(|layer| (layer.header(), layer.words())).collect()
    }

    /// Adds a key. Concurrent with everything. Lock-free except for adding a layer, which one caller does while the
    /// others continue.
    #[inline]
    pub fn insert(&self, hash: u128) {
        if let Some(counters) = self.first.counters() {
            // A key that seems present may be a false positive whose counters other removals lower. So each insert is
            // counted.
            counters.insert(hash);
            return;
        }
        // Bits are never cleared, so a key with all bits set stays found, whichever keys set them. A reader that learns
        // of this insert sees at least what was read here (coherence). Without this check each repeated announce would
        // use up a later layer; the first layer takes no key twice.
        // Relaxed: the check is an optimisation. At worst a key goes into one more layer.
        if self.grown.load(Ordering::Relaxed) > 0 && self.contains(hash) {
            return;
        }
        let newest = self.newest();
        newest.insert(hash);
        if newest.is_fill_check_due(hash) && newest.is_full() {
            self.grow();
        }
    }

    /// Adds keys as [`Filter::insert`] does, faster if the kind has plain stores. For a filter that is not shared.
    pub fn fill(&mut self, mut hashes: &[u128]) {
        while !hashes.is_empty() && self.layer_count() == 1 {
            // At most as many keys as need no check of the fill, so that a layer closes no later than with inserts.
            let (part, rest) = hashes.split_at(self.first.free_inserts().min(hashes.len()));
            if part.len() < MIN_PREFETCHED_KEYS.min(hashes.len()) || !self.first.fill(part) {
                break;
            }
            hashes = rest;
        }
        hashes.iter().for_each(|hash| self.insert(*hash));
    }

    /// Whether the key may be in the filter; `false` is certain.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: u128) -> bool {
        self.first.contains(hash) || self.later_layers_contain(hash)
    }

    #[inline]
    fn later_layers_contain(&self, hash: u128) -> bool {
        // Acquire: layers are made before they are counted.
        let grown = self.grown.load(Ordering::Acquire);
        grown > 0 && self.any_later_layer_contains(grown, hash)
    }

    #[inline(never)]
    fn any_later_layer_contains(&self, grown: usize, hash: u128) -> bool {
        // The newest layer is the largest, so it has most keys.
        self.more[..grown].iter().rev().filter_map(OnceLock::get).any(|(layer, _)| layer.contains(hash))
    }

    /// Answers for each of `hashes` whether it may be in the filter.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn contains_many(&self, hashes: &[u128], found: &mut [bool]) {
        assert_eq!(hashes.len(), found.len(), "one answer a key");
        self.first.contains_many(hashes, found);
        let grown = self.grown.load(Ordering::Acquire);
        if grown > 0 {
            found
                .iter_mut()
                .zip(hashes)
                .for_each(|(found, hash)| *found = *found || self.any_later_layer_contains(grown, *hash));
        }
    }

    fn newest(&self) -> &Layer {
        let grown = self.grown.load(Ordering::Acquire);
        let last = grown.checked_sub(1).and_then(|last| self.more.get(last)).and_then(OnceLock::get);
        last.map_or(&self.first, |(layer, _)| layer)
    }

    fn each(&self) -> impl Iterator<Item = &Layer> {
        let grown = self.grown.load(Ordering::Acquire);
        std::iter::once(&self.first).chain(self.more[..grown].iter().filter_map(OnceLock::get).map(|(layer, _)| layer))
    }

    /// Adds a layer if the newest is full. If there is none to add, or no memory, inserts continue in the newest: the
    /// rate rises, and no key is missed.
    #[cold]
    fn grow(&self) {
        // If another caller is growing the filter, this caller's key is inserted already.
        let Some(_growing) = self.growing.try_lock() else { return };
        let index = self.grown.load(Ordering::Relaxed);
        let Some(slot) = self.more.get(index).filter(|_| self.newest().is_full()) else { return };
        let Some(next) = self.spec.layer(index + 1) else { return };
        // Derived, so that filters of one origin grow alike and can be united.
        let salt = self.first.salt().of_layer(index as u64 + 1);
        let grant = next.footprint().ok().and_then(|footprint| (self.growth)(footprint.bytes));
        let made = grant.and_then(|grant| Some((grant, Layer::new(next, salt).ok()?)));
        self.refused.store(made.is_none(), Ordering::Relaxed);
        let Some((grant, layer)) = made else { return };
        if slot.set((layer, grant)).is_ok() {
            self.grown.store(index + 1, Ordering::Release);
        }
    }

    /// Removes one insert of a key. Returns false, and changes nothing, if the kind can't.
    pub fn remove(&self, key: Confirmed) -> bool {
        let counters = self.first.counters();
        counters.map(|counters| counters.remove(key)).is_some()
    }

    /// Adds every key of `other` to this filter.
    ///
    /// # Errors
    /// [`UnionError`] if the result would differ from inserting those keys; nothing is changed then.
    pub fn union(&self, other: &Self) -> Result<(), UnionError> {
        let (own, others): (Vec<_>, Vec<_>) = (self.each().collect(), other.each().collect());
        if others.len() > own.len() {
            return Err(UnionError::Layers { ours: own.len(), theirs: others.len() });
        }
        for (own, other) in own.iter().zip(&others) {
            own.header().comparable(&other.header())?;
        }
        own.iter().zip(&others).for_each(|(own, other)| own.merge(other));
        Ok(())
    }

    /// Why more keys raise the rate above the configured one; `None` if they don't.
    #[must_use]
    pub fn out_of_room(&self) -> Option<OutOfRoom> {
        let last = self.layer_count() == self.spec.max_layers();
        if last && self.newest().is_full() {
            return Some(OutOfRoom::Layers);
        }
        self.refused.load(Ordering::Relaxed).then_some(OutOfRoom::Memory)
    }

    /// The specification that it was made for.
    #[must_use]
    pub const fn spec(&self) -> &FilterSpec {
        &self.spec
    }

    /// Number of layers.
    #[must_use]
    pub fn layer_count(&self) -> usize {
        1 + self.grown.load(Ordering::Acquire)
    }

    /// Keys it was made for. A scalable filter's capacity grows with it; an overflow layer does not count, because it
    /// only bridges the time to a rebuild.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self.spec.kind {
            FilterKind::Scalable => self.each().map(|layer| layer.capacity()).fold(0, u64::saturating_add),
            _ => self.spec.capacity,
        }
    }

    /// Bits (or counters) of all layers.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.each().map(|layer| layer.header().bits).sum()
    }

    /// Bytes of all layers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.each().map(Layer::bytes).sum()
    }

    /// Share of bits (or counters) that are set.
    #[must_use]
    pub fn fill_ratio(&self) -> f64 {
        let set: f64 = self.each().map(|layer| layer.fill_ratio() * layer.header().bits as f64).sum();
        set / self.bits() as f64
    }

    /// Distinct keys, estimated from the fill. A key that earlier layers took for present is in no later layer. So each
    /// later layer has seen all but that share of its keys, and is scaled up by it.
    #[must_use]
    pub fn items(&self) -> u64 {
        let seen = |passed: &mut f64, layer: &Layer| {
            let items = layer.items() as f64 / *passed;
            *passed *= 1.0 - layer.estimated_fpr();
            Some(items)
        };
        self.each().scan(1.0, seen).sum::<f64>().round() as u64
    }

    /// The false-positive rate that the current fill predicts.
    #[must_use]
    pub fn estimated_fpr(&self) -> f64 {
        1.0 - self.each().map(|layer| 1.0 - layer.estimated_fpr()).product::<f64>()
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("spec", &self.spec).field("layers", &self.layer_count()).finish_non_exhaustive()
    }
}

//! One layer of a filter: all kinds of bits behind one interface.

use std::sync::atomic::AtomicU64;

use super::classic::{Classic, ClassicSize};
use super::counting::Counting;
use super::hash::Salt;
use super::layer_spec::{LayerKind, LayerSpec};
use super::memory::Memory;
use super::sizing::SizingError;
use super::spec::SPLIT_BLOCK_HASHES;
use super::{AllocError, SplitBlock, UnionError};

/// Checks of the fill while a layer fills: enough to close it within 0.03 % of its keys.
const FILL_CHECKS: u64 = 4096;

/// The parameters of a layer. With its words they are enough to query it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerHeader {
    /// How the words are read.
    pub kind: LayerKind,
    /// Keys it was made for.
    pub capacity: u64,
    /// The rate it was made for.
    pub rate: f64,
    /// The salt that maps hashes to positions.
    pub salt: [u64; 4],
    /// Positions per key.
    pub hashes: u32,
    /// Number of positions: bits, or counters of a counting layer.
    pub bits: u64,
}

impl LayerHeader {
    /// Number of words of such a layer.
    #[must_use]
    pub const fn words(&self) -> u64 {
        match self.kind {
            LayerKind::SplitBlock | LayerKind::Classic => self.bits.div_ceil(64),
            LayerKind::Counting => self.bits.div_ceil(16),
        }
    }

    /// Returns the first parameter in which two layers differ, so that they can't be united.
    pub(super) fn comparable(&self, other: &Self) -> Result<(), UnionError> {
        if self.kind != other.kind {
            return Err(UnionError::Kind { ours: self.kind, theirs: other.kind });
        }
        if self.bits != other.bits {
            return Err(UnionError::Size { ours: self.bits, theirs: other.bits });
        }
        if self.hashes != other.hashes {
            return Err(UnionError::Hashes { ours: self.hashes, theirs: other.hashes });
        }
        if self.salt != other.salt {
            return Err(UnionError::Salt);
        }
        if self.capacity != other.capacity {
            return Err(UnionError::Capacity { ours: self.capacity, theirs: other.capacity });
        }
        Ok(())
    }
}

/// One layer of a filter.
#[derive(Debug)]
pub(super) struct Layer {
    bits: Bits,
    made_for: LayerSpec,
    full: FullMark,
}

/// The bits of a layer.
#[derive(Debug)]
enum Bits {
    Bloom(SplitBlock),
    Classic(Classic),
    Counting(Counting),
}

/// When a layer is full, and how often that is checked.
#[derive(Debug, Clone, Copy)]
struct FullMark {
    fill: f64,
    /// Check after a key if these bits of its hash are 0.
    mask: u64,
}

/// Calls a method of the bits: one branch, which is always taken the same way for a filter.
macro_rules! dispatch {
    ($layer:expr, $bits:ident => $call:expr) => {
        match &$layer.bits {
            Bits::Bloom($bits) => $call,
            Bits::Classic($bits) => $call,
            Bits::Counting($bits) => $call,
        }
    };
}

impl Layer {
    /// Creates an empty layer.
    pub(super) fn new(made_for: LayerSpec, salt: Salt) -> Result<Self, AllocError> {
        let LayerSpec { kind, capacity, rate, .. } = made_for;
        let bits = match kind {
            LayerKind::SplitBlock => Bits::Bloom(SplitBlock::with_salt(capacity, rate, salt)?),
            LayerKind::Classic => Bits::Classic(Classic::with_salt(capacity, rate, salt)?),
            LayerKind::Counting => Bits::Counting(Counting::with_salt(capacity, rate, salt)?),
        };
        Ok(Self { bits, made_for, full: FullMark::new(&made_for)? })
    }

    /// Restores a layer from its words. `None` if a layer made for this specification now would be different.
    pub(super) fn restored(
        made_for: LayerSpec,
        header: &LayerHeader,
        mut memory: Memory,
    ) -> Result<Option<Self>, SizingError> {
        let footprint = made_for.footprint()?;
        let fits = header.kind == made_for.kind
            && header.capacity == made_for.capacity
            && header.rate == made_for.rate
            && header.hashes == footprint.hashes
            && header.bits == footprint.places
            && header.words() == memory.words().len() as u64;
        if !fits {
            return Ok(None);
        }
        let (salt, capacity) = (Salt::new(header.salt), header.capacity);
        let size = ClassicSize { bits: header.bits, hashes: header.hashes };
        let bits = match made_for.kind {
            LayerKind::SplitBlock => {
                let ones = memory.sum(|word| u64::from(word.count_ones()));
                Bits::Bloom(SplitBlock::over(memory, salt, capacity, ones))
            }
            LayerKind::Classic => Bits::Classic(Classic::restored(memory, size, salt, capacity)),
            LayerKind::Counting => Bits::Counting(Counting::restored(memory, size, salt, capacity)),
        };
        Ok(Some(Self { bits, made_for, full: FullMark::new(&made_for)? }))
    }

    #[inline]
    pub(super) fn insert(&self, hash: u128) {
        dispatch!(self, bits => bits.insert(hash));
    }

    /// Like `insert`, by plain stores. Returns false, and does nothing, if this kind has none.
    pub(super) fn fill(&mut self, hashes: &[u128]) -> bool {
        if let Bits::Bloom(bits) = &mut self.bits {
            bits.fill(hashes);
            return true;
        }
        false
    }

    #[inline]
    pub(super) fn contains(&self, hash: u128) -> bool {
        dispatch!(self, bits => bits.contains(hash))
    }

    /// Like `contains`, for many keys at once if that is faster.
    pub(super) fn contains_many(&self, hashes: &[u128], found: &mut [bool]) {
        match &self.bits {
            Bits::Bloom(bits) => bits.contains_many(hashes, found),
            Bits::Classic(_) | Bits::Counting(_) => {
                found.iter_mut().zip(hashes).for_each(|(found, hash)| *found = self.contains(*hash));
            }
        }
    }

    /// The counters, if keys can be removed.
    #[inline]
    pub(super) const fn counters(&self) -> Option<&Counting> {
        if let Bits::Counting(counters) = &self.bits { Some(counters) } else { None }
    }

    pub(super) fn header(&self) -> LayerHeader {
        let (hashes, bits) = match &self.bits {
            Bits::Bloom(bits) => (SPLIT_BLOCK_HASHES, bits.bits()),
            Bits::Classic(bits) => (bits.size().hashes, bits.size().bits),
            Bits::Counting(bits) => (bits.size().hashes, bits.size().bits),
        };
        let LayerSpec { kind, capacity, rate, .. } = self.made_for;
        LayerHeader { kind, capacity, rate, salt: self.salt().words(), hashes, bits }
    }

    pub(super) const fn salt(&self) -> Salt {
        dispatch!(self, bits => bits.salt())
    }

    pub(super) const fn words(&self) -> &[AtomicU64] {
        dispatch!(self, bits => bits.words())
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.made_for.capacity
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.words().len() as u64 * 8
    }

    pub(super) fn fill_ratio(&self) -> f64 {
        dispatch!(self, bits => bits.fill_ratio())
    }

    pub(super) fn items(&self) -> u64 {
        dispatch!(self, bits => bits.items())
    }

    pub(super) fn estimated_fpr(&self) -> f64 {
        dispatch!(self, bits => bits.estimated_fpr())
    }

    /// Whether the fill should be checked after this key.
    #[inline]
    pub(super) const fn is_fill_check_due(&self, hash: u128) -> bool {
        hash as u64 & self.full.mask == 0
    }

    /// Whether the layer has used up its share of the rate.
    pub(super) fn is_full(&self) -> bool {
        self.fill_ratio() >= self.full.fill
    }

    /// Number of keys that can't fill the layer, whatever their bits.
    pub(super) fn free_inserts(&self) -> usize {
        let header = self.header();
        ((self.full.fill - self.fill_ratio()) * header.bits as f64 / f64::from(header.hashes)) as usize
    }

    /// Adds the keys of a layer that is [comparable](LayerHeader::comparable).
    pub(super) fn merge(&self, other: &Self) {
        match (&self.bits, &other.bits) {
            (Bits::Bloom(bits), Bits::Bloom(other)) => {
                let united = bits.unite(other);
                debug_assert!(united.is_ok(), "{united:?}");
            }
            (Bits::Classic(bits), Bits::Classic(other)) => bits.merge(other),
            (Bits::Counting(bits), Bits::Counting(other)) => bits.merge(other),
            _ => debug_assert!(false, "layers of two kinds are not comparable"),
        }
    }
}

impl FullMark {
    fn new(layer: &LayerSpec) -> Result<Self, SizingError> {
        let every = (layer.capacity / FILL_CHECKS).max(1);
        Ok(Self { fill: layer.full_fill()?, mask: every.next_power_of_two() - 1 })
    }
}

//! The specification of a filter (kind, capacity, rate), and what it costs.

use super::classic::ClassicSize;
use super::counting::COUNTER_BITS;
use super::layer_spec::{LayerKind, LayerSpec};
use super::scalable;
use super::sizing::{BITS_PER_BLOCK, SizingError, blocks_for, expected_fpr, load_for};

/// Bits per key in a split block: one in each word.
pub(super) const SPLIT_BLOCK_HASHES: u32 = 8;

/// Kinds of filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilterKind {
    /// Split block: one cache line per lookup.
    Bloom,
    /// Bits anywhere: the fewest bits per key.
    Classic,
    /// Classic layers that are added as keys arrive.
    Scalable,
    /// Counters instead of bits: keys can be removed, with proof.
    Counting,
}

impl FilterKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Bloom, Self::Classic, Self::Scalable, Self::Counting];

    /// The spelling in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bloom => "bloom",
            Self::Classic => "classic",
            Self::Scalable => "scalable",
            Self::Counting => "counting",
        }
    }
}

/// The specification of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterSpec {
    /// The kind.
    pub kind: FilterKind,
    /// Number of keys.
    pub capacity: u64,
    /// The largest false-positive rate, between 0 and 1.
    pub rate: f64,
}

/// Size and rate of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Footprint {
    /// Positions that a key can have: bits, or counters of a counting filter.
    pub places: u64,
    /// Bits: four per counter.
    pub bits: u64,
    /// Bits or counters per key.
    pub hashes: u32,
    /// Bytes in memory.
    pub bytes: u64,
    /// The rate at capacity.
    pub expected_fpr: f64,
}

impl FilterSpec {
    /// Bytes of such a filter before it grows.
    ///
    /// # Errors
    /// [`SizingError`].
    pub fn bytes_needed(&self) -> Result<u64, SizingError> {
        self.footprint().map(|footprint| footprint.bytes)
    }

    /// The footprint of such a filter before it grows.
    ///
    /// # Errors
    /// [`SizingError`].
    pub fn footprint(&self) -> Result<Footprint, SizingError> {
        let Self { capacity: keys, rate, .. } = *self;
        if !(rate > 0.0 && rate < 1.0) {
            return Err(SizingError::Rate(rate));
        }
        // The error names the requested values, not those of one layer.
        self.first_layer().footprint().map_err(|_| SizingError::TooLarge { keys, rate })
    }

    /// Bytes of the first layer by which such a filter would grow; `None` if it does not grow.
    #[must_use]
    pub fn growth_bytes(&self) -> Option<u64> {
        self.layer(1)?.footprint().ok().map(|footprint| footprint.bytes)
    }

    /// Largest number of layers.
    pub(super) const fn max_layers(&self) -> usize {
        match self.kind {
            FilterKind::Bloom | FilterKind::Classic => 2,
            FilterKind::Scalable => scalable::MAX_LAYERS,
            FilterKind::Counting => 1,
        }
    }

    pub(super) fn first_layer(&self) -> LayerSpec {
        self.unbounded_layer(0)
    }

    /// The layer at this index, counted from 0; `None` beyond the last.
    pub(super) fn layer(&self, index: usize) -> Option<LayerSpec> {
        (index < self.max_layers()).then(|| self.unbounded_layer(index))
    }

    fn unbounded_layer(&self, index: usize) -> LayerSpec {
        let Self { capacity, rate, .. } = *self;
        match self.kind {
            FilterKind::Bloom => scalable::with_overflow(LayerKind::SplitBlock, capacity, rate, index),
            FilterKind::Classic => scalable::with_overflow(LayerKind::Classic, capacity, rate, index),
            FilterKind::Scalable => scalable::doubling(capacity, rate, index),
            FilterKind::Counting => LayerSpec { kind: LayerKind::Counting, capacity, rate, full_at: rate },
        }
    }
}

impl LayerSpec {
    pub(super) fn footprint(&self) -> Result<Footprint, SizingError> {
        if self.kind == LayerKind::SplitBlock {
            let blocks = blocks_for(self.capacity, self.rate)?;
            let bits = blocks * BITS_PER_BLOCK;
            return Ok(Footprint {
                places: bits,
                bits,
                hashes: SPLIT_BLOCK_HASHES,
                bytes: bits / 8,
                expected_fpr: expected_fpr(self.capacity as f64 / blocks as f64),
            });
        }
        let size = ClassicSize::new(self.capacity, self.rate)?;
        let width = if self.kind == LayerKind::Counting { COUNTER_BITS } else { 1 };
        let bits = size.bits * width;
        Ok(Footprint {
            places: size.bits,
            bits,
            hashes: size.hashes,
            bytes: bits.div_ceil(64) * 8,
            expected_fpr: size.expected_fpr(self.capacity),
        })
    }

    /// The share of set bits at which `full_at` is reached.
    pub(super) fn full_fill(&self) -> Result<f64, SizingError> {
        if self.kind == LayerKind::SplitBlock {
            // A key sets one of 64 bits in each word of its block, and the keys of a block are Poisson distributed.
            return Ok(-(-load_for(self.full_at) / 64.0).exp_m1());
        }
        Ok(ClassicSize::new(self.capacity, self.rate)?.fill_at(self.full_at))
    }
}

//! The specification of one layer.

/// The layout of a layer's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// Blocks of 512 bits.
    SplitBlock,
    /// Bits.
    Classic,
    /// Counters of four bits.
    Counting,
}

/// A layer to be made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LayerSpec {
    pub(super) kind: LayerKind,
    pub(super) capacity: u64,
    pub(super) rate: f64,
    /// The rate at which further keys go to the next layer.
    pub(super) full_at: f64,
}

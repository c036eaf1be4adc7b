//! Errors of making, restoring and uniting filters.

use super::layer_spec::LayerKind;
use super::sizing::SizingError;

/// A filter that could not be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AllocError {
    /// There is no such size.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// The allocator has no memory.
    #[error("could not allocate {0} bytes for the filter")]
    Memory(u64),
}

/// Layers that don't form a filter of this kind.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LayersError {
    /// None, or too many.
    #[error("the filter has {count} layers; its kind has between 1 and {most}")]
    Count {
        /// Number of layers given.
        count: usize,
        /// Layers that this kind may have.
        most: usize,
    },
    /// Made for other parameters or under older rules.
    #[error("layer {0} does not match the filter's parameters")]
    Foreign(usize),
    /// There is no such size.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// The memory budget is used up.
    #[error("no memory for another layer of {0} bytes")]
    NoRoom(u64),
}

/// Why two filters can't be united.
///
/// Only the caller knows whether their keys are hashed under the same secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnionError {
    /// The other filter has grown further.
    #[error("the filters differ in layers: {ours} and {theirs}")]
    Layers {
        /// Layers of this filter.
        ours: usize,
        /// Layers of the other filter.
        theirs: usize,
    },
    /// Their words have different layouts.
    #[error("the filters differ in kind: {ours:?} and {theirs:?}")]
    Kind {
        /// Kind of this filter.
        ours: LayerKind,
        /// Kind of the other filter.
        theirs: LayerKind,
    },
    /// Of different sizes.
    #[error("the filters differ in size: {ours} and {theirs} bits")]
    Size {
        /// Bits of this filter.
        ours: u64,
        /// Bits of the other filter.
        theirs: u64,
    },
    /// Different numbers of bits per key.
    #[error("the filters differ in bits per key: {ours} and {theirs}")]
    Hashes {
        /// Bits per key of this filter.
        ours: u32,
        /// Bits per key of the other filter.
        theirs: u32,
    },
    /// Different salts.
    #[error("the filters differ in salt")]
    Salt,
    /// Sized for different numbers of keys.
    #[error("the filters differ in capacity: {ours} and {theirs} keys")]
    Capacity {
        /// Capacity of this filter.
        ours: u64,
        /// Capacity of the other filter.
        theirs: u64,
    },
}

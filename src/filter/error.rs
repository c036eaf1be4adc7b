//! Why a filter could not be made.

use super::layer_spec::LayerKind;
use super::sizing::SizingError;

/// A filter that could not be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AllocError {
    /// No such size.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// The allocator has no such memory.
    #[error("could not allocate {0} bytes for the filter")]
    Memory(u64),
}

/// Layers that are not those of such a filter.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LayersError {
    /// None, or too many.
    #[error("the filter has {count} layers; its kind has between 1 and {most}")]
    Count {
        /// Layers that were given.
        count: usize,
        /// That such a filter may have.
        most: usize,
    },
    /// Made for something else, or by other rules than those of now.
    #[error("layer {0} does not match the filter's parameters")]
    Foreign(usize),
    /// No such size.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// Beyond the memory that there is.
    #[error("no memory for another layer of {0} bytes")]
    NoRoom(u64),
}

/// What keeps two filters from being united.
///
/// That their keys are hashed under the same secret only the caller knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnionError {
    /// The other one has grown further.
    #[error("the filters differ in layers: {ours} and {theirs}")]
    Layers {
        /// Layers of the filter that was to take the other's keys.
        ours: usize,
        /// Layers of the other one.
        theirs: usize,
    },
    /// Their words are read otherwise.
    #[error("the filters differ in kind: {ours:?} and {theirs:?}")]
    Kind {
        /// Of the filter that was to take the other's keys.
        ours: LayerKind,
        /// Of the other one.
        theirs: LayerKind,
    },
    /// Of different sizes.
    #[error("the filters differ in size: {ours} and {theirs} bits")]
    Size {
        /// Bits of the filter that was to take the other's keys.
        ours: u64,
        /// Bits of the other one.
        theirs: u64,
    },
    /// Keys have other numbers of bits.
    #[error("the filters differ in bits per key: {ours} and {theirs}")]
    Hashes {
        /// Bits of a key in the filter that was to take the other's.
        ours: u32,
        /// In the other one.
        theirs: u32,
    },
    /// Under different salts.
    #[error("the filters differ in salt")]
    Salt,
    /// Sized for different numbers of keys.
    #[error("the filters differ in capacity: {ours} and {theirs} keys")]
    Capacity {
        /// Keys for which the one that was to take the other's was sized.
        ours: u64,
        /// Keys of the other one.
        theirs: u64,
    },
}

//! Why a filter could not be made.

use super::sizing::SizingError;
use super::spec::LayerKind;

/// A filter that could not be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AllocError {
    /// No such size.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// The allocator has no such memory.
    #[error("{0} bytes for the filter could not be allocated")]
    Memory(u64),
}

/// Layers that are not those of such a filter.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LayersError {
    /// None, or too many.
    #[error("the filter has {count} layers, and such a filter has between 1 and {most}")]
    Count {
        /// Layers that were given.
        count: usize,
        /// That such a filter may have.
        most: usize,
    },
    /// Made for something else, or by other rules than those of now.
    #[error("layer {0} is not as such a filter has it")]
    Foreign(usize),
    /// No such size.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// Beyond the memory that there is.
    #[error("there is no room for a further layer of {0} bytes")]
    NoRoom(u64),
}

/// Filters whose union is not the filter of both their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnionError {
    /// The other one has grown further.
    #[error("the filters can't be united: this one has {own} layers, the other {other}")]
    Layers {
        /// Of this one.
        own: usize,
        /// Of the other.
        other: usize,
    },
    /// Their words are read otherwise.
    #[error("the filters can't be united: this one is of kind {own:?}, the other {other:?}")]
    Kind {
        /// Of this one.
        own: LayerKind,
        /// Of the other.
        other: LayerKind,
    },
    /// They differ in size.
    #[error("the filters can't be united: this one has {own} bits, the other {other}")]
    Bits {
        /// Of this one.
        own: u64,
        /// Of the other.
        other: u64,
    },
    /// Keys have other numbers of bits.
    #[error("the filters can't be united: this one sets {own} bits a key, the other {other}")]
    Hashes {
        /// Of this one.
        own: u32,
        /// Of the other.
        other: u32,
    },
    /// Keys have other places.
    #[error("the filters can't be united: their salts differ")]
    Salt,
}

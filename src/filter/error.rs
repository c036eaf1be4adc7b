//! Why a filter could not be made.

use super::sizing::SizingError;

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

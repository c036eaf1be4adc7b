//! The Bloom filter, its size, and the generation in force. Knows hashes only: no keys, no HTTP, no Redis, no async runtime.

mod active;
mod error;
mod hash;
mod memory;
mod ones;
mod sizing;
mod split_block;

pub use self::active::{Active, Busy, Candidate, Generation};
pub use self::error::AllocError;
pub use self::memory::Memory;
pub use self::sizing::{BITS_PER_BLOCK, SizingError, blocks_for, expected_fpr};
pub use self::split_block::{SplitBlock, UnionError};

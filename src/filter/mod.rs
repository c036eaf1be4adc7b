//! The Bloom filter, its sizing, and the active generation. Knows only hashes: no keys, no HTTP, no Redis, no async
//! runtime.
//!
//! The filters are our own: no crate has atomic inserts beside lookups, a stable format, and growth within a memory
//! budget.

mod active;
mod classic;
#[cfg(test)]
mod contract;
mod counting;
mod error;
mod filling;
#[allow(clippy::module_inception)] // It is the filter: any other name would say less.
mod filter;
mod hash;
mod layer;
mod layer_spec;
mod memory;
mod probes;
mod scalable;
mod sizing;
pub mod snapshot;
mod spec;
mod split_block;
mod striped_counter;
mod windowed;

pub use self::active::{Active, Busy, Candidate, Generation};
pub use self::classic::Classic;
pub use self::counting::{Confirmed, Counting};
pub use self::error::{AllocError, LayersError, UnionError};
pub use self::filter::{Filter, GrowthBudget, MemoryGrant, OutOfRoom};
pub use self::layer::LayerHeader;
pub use self::layer_spec::LayerKind;
pub use self::memory::Memory;
pub use self::sizing::{BITS_PER_BLOCK, SizingError, blocks_for, expected_fpr};
pub use self::spec::{FilterKind, FilterSpec, Footprint};
pub use self::split_block::SplitBlock;
pub use self::windowed::{Windowed, WindowedError, WindowedSpec};

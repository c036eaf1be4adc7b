//! One block of the filter.

use std::sync::atomic::AtomicU64;

/// One cache line of the filter.
pub(in super::super) type Block = [AtomicU64; 8];

//! The product's `filter/active.rs`, over filters of 64 keys.

#[allow(dead_code, reason = "nobody looks at the generation itself here")]
#[path = "../../../src/filter/active.rs"]
mod active;

use loom::sync::atomic::{AtomicU64, Ordering};

pub use active::Active;

/// A filter without false positives: the bit of a key is its hash. Its orderings are those of the real one.
#[derive(Debug, Default)]
pub struct Filter(AtomicU64);

impl Filter {
    pub fn insert(&self, hash: u128) {
        self.0.fetch_or(1 << hash, Ordering::Relaxed);
    }

    pub fn contains(&self, hash: u128) -> bool {
        self.0.load(Ordering::Relaxed) >> hash & 1 == 1
    }
}

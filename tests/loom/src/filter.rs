//! The product's `filter/active.rs` and `filter/filling.rs`, over filters of 64 keys: as they are, and with faults.
//! `build.rs` makes the copies.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};

/// A filter without false positives: the bit of a key is its hash. Its orderings are those of the real one.
#[derive(Debug, Default)]
pub struct Filter(AtomicU64);

impl Filter {
    pub fn insert(&self, hash: u128) {
        self.0.fetch_or(1 << hash, Ordering::Relaxed);
    }

    /// Plain stores: loom ends a run in which another access is concurrent.
    pub fn fill(&mut self, hashes: &[u128]) {
        for hash in hashes {
            // A scheduling point for loom; plain stores are none.
            self.0.load(Ordering::Relaxed);
            self.0.with_mut(|bits| *bits |= 1 << hash);
        }
    }

    pub fn contains(&self, hash: u128) -> bool {
        self.0.load(Ordering::Relaxed) >> hash & 1 == 1
    }
}

/// The part of `Active` that the keyspace uses.
pub trait Pair: Default + Send + Sync + 'static {
    type Candidate: Candidate;

    fn begin(self: &Arc<Self>) -> Self::Candidate;
    fn insert(&self, hash: u128);
    fn probe(&self, hash: u128) -> Option<(bool, u64)>;
}

pub trait Candidate {
    fn fill(&self, hashes: &[u128]);
    fn swap(self) -> u64;
}

macro_rules! variants {
    ($($name:ident),*) => { $(
        pub mod $name {
            use super::Filter;

            #[allow(dead_code, reason = "the generation itself is not used here")]
            mod active {
                include!(concat!(env!("OUT_DIR"), "/", stringify!($name), "/active.rs"));
            }
            mod filling {
                include!(concat!(env!("OUT_DIR"), "/", stringify!($name), "/filling.rs"));
            }
            pub use active::Active;

            impl super::Pair for Active {
                type Candidate = active::Candidate;

                fn begin(self: &std::sync::Arc<Self>) -> active::Candidate {
                    Active::begin(self, Filter::default()).unwrap()
                }

                fn insert(&self, hash: u128) {
                    Active::insert(self, hash);
                }

                fn probe(&self, hash: u128) -> Option<(bool, u64)> {
                    Active::probe(self, hash)
                }
            }

            impl super::Candidate for active::Candidate {
                fn fill(&self, hashes: &[u128]) {
                    active::Candidate::fill(self, hashes);
                }

                fn swap(self) -> u64 {
                    active::Candidate::swap(self)
                }
            }
        }
    )* };
}

variants!(as_built, drain_forgotten, list_left_open, full_list_drops, swap_before_drain);

//! An explicit-state model of bloomguard's rules: one key, two instances, a Redis with a replica (or two of them), a
//! database row, a clock.
//!
//! Every interleaving of atomic steps is looked at, breadth-first, so a counterexample is a shortest one. Each rule can
//! be taken away, and a rule that nobody misses is either of no use or its scenario too weak. `docs/consistency.md`
//! tells how to read it.

pub mod case;
pub mod polls;
pub mod protocol;
pub mod rule;
pub mod scenario;
pub mod search;
#[allow(missing_docs, reason = "the fields are the model's own, and most say what they are")]
mod world;

//! An explicit-state model of bloomguard's rules: one key, two instances, a Redis with a replica (or two of them), a
//! database row, a clock.
//!
//! The search visits every interleaving of atomic steps, breadth-first, so a counterexample is a shortest one. Each
//! rule can be removed; a rule whose removal no scenario notices is useless, or its scenario is too weak.
//! `docs/consistency.md` explains how to read it.

pub mod case;
pub mod polls;
pub mod protocol;
pub mod roll_call;
pub mod rule;
pub mod scenario;
pub mod search;
#[allow(missing_docs, reason = "the fields are the model's own, and most say what they are")]
mod world;

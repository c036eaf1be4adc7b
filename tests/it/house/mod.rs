//! Rules about the repository itself.

pub mod architecture;
mod invariants;
mod rooms;
mod suite;

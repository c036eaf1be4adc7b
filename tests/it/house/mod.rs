//! Rules about the repository itself.

pub mod architecture;
pub mod rooms;

//! What instances send each other through Redis.

mod delta_log;
mod roster;

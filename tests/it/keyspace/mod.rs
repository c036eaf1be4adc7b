//! The keyspace with scripted parts: what must always hold, race by race.

mod allocations;
mod batch_bytes;
mod breaker;
mod canary;
mod check;
mod commit_window;
mod expiry;
mod followed_log;
mod late_secret;
mod lease;
mod leaving;
mod lookup;
mod marks;
mod polled;
mod queue;
mod rebuild;
mod refresh;
mod set;
mod stale;
mod state;
mod storm;
mod without_announces;

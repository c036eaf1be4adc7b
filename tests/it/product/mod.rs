//! The whole program over HTTP, on real servers.

mod announces;
mod bad_input;
mod batches;
mod fleet;
mod http_api;
mod nginx;
mod outages;
mod outcomes;
mod pgbench;
mod polls;
mod process;
mod rebuild;
mod set;
pub mod users;

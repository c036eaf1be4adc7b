//! The whole program over HTTP, on real servers.

mod announces;
mod bad_input;
mod batch_bytes;
mod batches;
mod canary;
mod chaos;
mod enforcement;
mod failover;
mod fleet;
mod http_api;
mod nginx;
mod odd_keys;
mod outages;
mod outcomes;
mod pgbench;
mod polls;
mod process;
mod prometheus;
mod rebuild;
mod reload;
mod replicas;
mod restart;
mod set;
mod turns;
pub mod users;

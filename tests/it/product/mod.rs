//! The whole program over HTTP, on real servers.

mod announces;
mod attacks;
mod bad_input;
mod batch_bytes;
mod batches;
mod canary;
mod chaos;
mod database;
mod enforcement;
mod failover;
mod fleet;
mod http_api;
mod nginx;
mod odd_keys;
mod outages;
mod outcomes;
mod pgbench;
mod pgbouncer;
mod polls;
mod process;
mod prometheus;
mod rebuild;
mod replicas;
mod restart;
mod set;
mod turns;
pub mod users;

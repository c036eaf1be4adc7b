//! Backends against real servers: one contract for all of them, and what each kind adds.

mod batches;
mod contract;
mod http;
mod mysql;
mod postgres;

//! bloomguard: a cache-penetration guard.
//!
//! Each lookup first asks a local Bloom filter; "definitely absent" is answered at once and costs neither cache nor database anything,
//! "maybe" falls through to Redis and then to the database.

pub mod app;
pub mod backend;
pub mod background;
pub mod breaker;
pub mod buffers;
pub mod cache;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod filter;
pub mod fleet;
pub mod http;
pub mod key;
pub mod keyspace;
pub mod labels;
pub mod metrics;
pub mod plan;
pub mod poll;
pub mod pool;
pub mod quickstart;
pub mod rebuild;
pub mod redis;
pub mod reload;
pub mod shutdown;
pub mod source;
pub mod sql;
pub mod sqltext;
pub mod telemetry;

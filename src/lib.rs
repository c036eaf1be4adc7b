//! bloomguard: a cache-penetration guard.
//!
//! Each lookup first asks a local Bloom filter; "definitely absent" is answered at once and costs neither cache nor database anything,
//! "maybe" falls through to Redis and then to the database.

pub mod backend;
pub mod cache;
pub mod config;
pub mod guard;
pub mod http;
pub mod key;
pub mod metrics;
pub mod rebuild;
pub mod source;
pub mod words;

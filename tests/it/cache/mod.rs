//! Shared caches: one contract for all of them, the lease, and Redis.

pub mod contract;
mod lease;
mod redis;
mod redis_tls;

//! Integration tests: one binary, real servers on free ports.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod cache_contract;
mod cache_redis;
mod config;
mod guard;
mod support;

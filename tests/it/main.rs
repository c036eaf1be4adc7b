//! Integration tests: one binary, real servers on free ports.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod attacks;
mod backend;
mod cache;
mod config;
mod documents;
mod fleet;
mod house;
mod http;
mod keyspace;
mod product;
#[cfg(debug_assertions)]
mod simulation;
mod source;
mod support;

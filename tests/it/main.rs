//! Integration tests: one binary, real servers on free ports.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod architecture;
mod backend_contract;
mod config;
mod dashboards;
mod guard;
mod http_server;
mod readme;
mod support;

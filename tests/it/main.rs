//! Integration tests: one binary, real servers on free ports.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod http_routes;
mod http_server;

//! Integration tests: one binary, real servers on free ports.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod allocations;
mod architecture;
mod attacks;
mod backend_batches;
mod backend_contract;
mod backend_http;
mod backend_mysql;
mod backend_postgres;
mod cache_contract;
mod cache_lease;
mod cache_redis;
mod clients;
mod config;
mod dashboards;
mod delta_log;
mod fuzz;
mod http_routes;
mod http_server;
mod keyspace;
mod plan;
mod product;
mod readme;
mod reference;
#[cfg(debug_assertions)]
mod simulation;
mod snapshot_reader;
mod source_contract;
mod source_file;
mod source_http;
mod source_kinds;
mod source_members;
mod source_polls;
mod source_postgres;
mod source_redis;
mod source_sqlite;
mod source_union;
mod support;

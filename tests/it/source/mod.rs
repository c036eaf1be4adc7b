//! Key sources against real files and servers: one contract for all of them, and what each kind adds.

mod contract;
mod file;
mod http;
mod kinds;
mod members;
mod polls;
mod postgres;
mod redis;
mod sqlite;
mod union;

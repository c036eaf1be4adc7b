//! The tests' code that starts servers.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, missing_docs)]

#[path = "../../../tests/it/support/mariadb.rs"]
pub(crate) mod mariadb;
#[path = "../../../tests/it/support/postgres.rs"]
pub(crate) mod postgres;
#[path = "../../../tests/it/support/server.rs"]
pub(crate) mod server;

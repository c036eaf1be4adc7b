//! Real servers for tests.

pub mod database;
pub mod postgres;

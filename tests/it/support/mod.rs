//! What tests share: scripted parts, real servers, waiting.

pub mod allocations;
pub mod app;
pub mod bystander;
pub mod certificates;
pub mod chaos_proxy;
pub mod config;
pub mod database;
pub mod http_server;
pub mod keyspace;
pub mod long_run;
pub mod mariadb;
pub mod nginx;
pub mod pgbouncer;
pub mod postgres;
pub mod postgres_proxy;
pub mod process;
pub mod prometheus;
pub mod promql;
pub mod redis;
pub mod redis_cluster;
pub mod redis_pair;
pub mod redis_sentinels;
pub mod redis_tls;
pub mod scan;
pub mod scripted;
pub mod server;
pub mod wait;

pub(crate) use self::wait::assert_eventually;
pub use self::wait::{eventually, eventually_blocking};

/// The value of the series `line` (name and labels) in a scrape.
pub fn metric(scrape: &str, line: &str) -> f64 {
    let found = scrape.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no series {line} in\n{scrape}")).parse().unwrap()
}

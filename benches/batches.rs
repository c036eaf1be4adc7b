//! Measures what batches save: rows per second one by one and together, on servers that the benchmark starts itself.
//!
//! ```sh
//! cargo bench --bench batches
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, unreachable_pub)]

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bloomguard::backend::{Backend, FetchContext, SqlBackend};
use bloomguard::config::{BackendConfig, SecretUrl};
use bloomguard::key::{Key, KeyForm};

use self::support::database::Site;

// Shared with the tests; only the databases are needed here.
#[allow(dead_code, unused_imports, unused_macros)]
#[path = "../tests/it/support/mod.rs"]
mod support;

const ROWS: usize = 100_000;
const ASKED: usize = 1000;
const ROUNDS: usize = 5;

fn main() {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(async {
        measure("PostgreSQL", Site::postgres()).await;
        measure("MariaDB", Site::mariadb()).await;
    });
}

async fn measure(name: &str, site: Site) {
    let rows = format!("SELECT i, 'User ' || i FROM ({}) AS n", site.series(ROWS));
    site.run(&format!("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT NOT NULL); INSERT INTO t {rows}")).await;
    let query = site.query("SELECT id, name FROM t WHERE id = $1");
    let config = BackendConfig {
        url: SecretUrl::new(site.url()),
        query,
        timeout: Duration::from_secs(60),
        ..Default::default()
    };
    let backend = SqlBackend::new(&config, Arc::new(OnceLock::from(KeyForm::Integer))).unwrap();
    let keys: Vec<Key> =
        (1..=ASKED).map(|i| KeyForm::Integer.canonical((i * 97).to_string().as_bytes()).unwrap()).collect();
    // The first round creates connections, plans and statements.
    for round in 0..=ROUNDS {
        let (alone, together) = (each_alone(&backend, &keys).await, by_chunks(&backend, &keys).await);
        if round > 0 {
            let ratio = alone.as_secs_f64() / together.as_secs_f64();
            println!("{name}: {ASKED} rows, each alone {alone:?}, together {together:?}: {ratio:.1} times");
        }
    }
}

async fn each_alone(backend: &SqlBackend, keys: &[Key]) -> Duration {
    let start = Instant::now();
    for key in keys {
        assert!(backend.fetch(key, &FetchContext::default()).await.unwrap().is_some());
    }
    start.elapsed()
}

async fn by_chunks(backend: &SqlBackend, keys: &[Key]) -> Duration {
    let start = Instant::now();
    for chunk in keys.chunks(backend.batch_limit()) {
        let rows = backend.fetch_many(chunk, &FetchContext::default()).await;
        assert!(rows.iter().all(|row| matches!(row, Ok(Some(_)))));
    }
    start.elapsed()
}

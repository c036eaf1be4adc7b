//! The body of each fuzz target: deterministic and bounded; it panics if something is wrong. libFuzzer calls it (`make
//! fuzz TARGET=…`), and the test suite calls it with the corpus and mutations of it.

pub mod batch;
pub mod config;
pub mod entry;
pub mod http1;
pub mod journal;
pub mod key;
pub mod snapshot;

/// Longer inputs find nothing more.
const MAX_BYTES: usize = 16 << 10;

/// Runs the body of a target. Returns false if there is no such target.
#[allow(dead_code, reason = "libFuzzer calls one of them itself")]
pub fn run(target: &str, data: &[u8]) -> bool {
    let data = &data[..data.len().min(MAX_BYTES)];
    match target {
        "batch" => batch::run(data),
        "config" => config::run(data),
        "entry" => entry::run(data),
        "http1" => http1::run(data),
        "journal" => journal::run(data),
        "key" => key::run(data),
        "snapshot" => snapshot::run(data),
        _ => return false,
    }
    true
}

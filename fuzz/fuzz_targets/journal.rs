//! `make fuzz TARGET=journal`; what it does is in `bodies/journal.rs`.
#![no_main]

#[allow(dead_code, reason = "each target calls one of them")]
#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    bodies::run("journal", data);
});

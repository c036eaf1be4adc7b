//! `make fuzz TARGET=entry`; what it does is in `bodies/entry.rs`.
#![no_main]

#[allow(dead_code, reason = "each target calls one of them")]
#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    bodies::run("entry", data);
});

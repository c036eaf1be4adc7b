//! `make fuzz TARGET=http1`; what it does is in `bodies/http1.rs`.
#![no_main]

#[allow(dead_code, reason = "each target calls one of them")]
#[path = "../bodies/mod.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    bodies::run("http1", data);
});

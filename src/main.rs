//! The program: parse, load, run, exit code. Nothing else.

fn main() {}

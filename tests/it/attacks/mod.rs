//! Attacks that once held against the release binary, each against a real process: docs/security.md lists them with their bounds.

mod announces;
mod backend_evidence;
mod batch_memory;
mod browsers;
mod buffers;
mod connections;
mod figures;
mod forgetful_redis;
mod freshness;
mod freshness_journal;
mod freshness_spelling;
mod mixed_fleets;
mod secrets;
mod tokens;

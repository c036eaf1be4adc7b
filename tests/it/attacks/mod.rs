//! Attacks that once worked against the release binary, each against a real process (docs/security.md lists them with
//! their bounds), and the inputs of the fuzz targets.

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
mod fuzz;
mod mixed_fleets;
mod secrets;
mod tokens;

//! What the repository shows beside the program: pages, the client, dashboards. All of it works as it stands.

mod clients;
pub mod dashboards;
mod readme;
mod reference;
mod snapshot_reader;

//! Building the next filter: when (`schedule`), how (`build`), what it must pass (`counts`, `checks`, `agreement`), how far it is (`progress`),
//! and whether another instance scans (`turn`).

mod agreement;
mod build;
mod checks;
mod counts;
mod error;
mod gather;
mod memory;
mod plan;
mod progress;
mod report;
mod request;
mod runner;
mod samples;
mod schedule;
mod turn;

pub use self::error::BuildError;
pub use self::memory::{MemoryBudget, NoMemory, PROCESS_BYTES, Reservation, machine_memory, memory_limit};
pub use self::progress::{Progress, Running};
pub use self::request::{AlreadyRunning, RebuildRequest};
pub use self::runner::{RebuildHandle, Runner};
pub use self::schedule::Schedule;

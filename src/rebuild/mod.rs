//! Builds the next filter: when (`schedule`), how (`build`), which checks it must pass (`counts`, `checks`,
//! `agreement`), its progress (`progress`), and when this instance may scan (`scan_slot`).

mod agreement;
mod build;
mod checks;
mod counts;
mod error;
mod fill;
mod gather;
mod memory;
mod plan;
mod progress;
mod report;
mod request;
mod runner;
mod samples;
mod scan_slot;
mod schedule;

pub use self::error::BuildError;
pub use self::memory::{MemoryBudget, MemoryReservation, NoMemory, PROCESS_BYTES, machine_memory, memory_limit};
pub use self::progress::{Progress, Running};
pub use self::request::{AlreadyRunning, RebuildRequest};
pub use self::runner::{RebuildHandle, Runner};
pub use self::schedule::Schedule;

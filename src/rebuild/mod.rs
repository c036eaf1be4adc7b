//! Building the next filter: when (`schedule`), how (`build`), what it must pass (`checks`), how far it is (`progress`).

mod build;
mod checks;
mod memory;
mod progress;
mod report;
mod runner;
mod schedule;

pub use self::build::BuildError;
pub use self::memory::{MemoryBudget, NoMemory, memory_limit};
pub use self::progress::{Progress, Running};
pub use self::runner::{AlreadyRunning, RebuildHandle, RebuildRequest, Runner};
pub use self::schedule::Schedule;

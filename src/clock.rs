//! The clock that promises are measured with: `CLOCK_BOOTTIME`, which also counts while the machine is suspended, so that a filter can't
//! look young because its host slept.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment since boot, in nanoseconds. Comparable within one process only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// A moment before all others.
    pub const NEVER: Self = Self(0);
    /// A moment after all others.
    pub const FOREVER: Self = Self(u64::MAX);

    /// The present.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        Self(u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
    }

    /// Nanoseconds since boot, for atomics.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The inverse of [`Moment::as_nanos`].
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// This moment and so much; never past [`Moment::FOREVER`].
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero where it is not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

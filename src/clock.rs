//! The clock for freshness: `CLOCK_BOOTTIME`, which also counts while the machine is suspended. Otherwise a filter
//! could look young because its host slept.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// 73 years: offset of the boot from [`Moment::NEVER`], so that scans before the boot (from snapshots) can be
/// represented.
const BOOT: u64 = 1 << 61;

/// A moment, in nanoseconds, comparable within one boot.
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
        #[cfg(debug_assertions)]
        if let Some(now) = VirtualTime::now() {
            return now;
        }
        let now = clock_gettime(ClockId::Boottime);
        Self(BOOT + u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
    }

    /// Nanoseconds since the machine was booted.
    #[must_use]
    pub const fn since_boot(self) -> u64 {
        self.0.saturating_sub(BOOT)
    }

    /// In nanoseconds, for atomics.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The inverse of [`Moment::as_nanos`].
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Adds a duration, saturating at [`Moment::FOREVER`].
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Subtracts a duration; `None` if that is before all moments.
    #[must_use]
    pub fn minus(self, by: Duration) -> Option<Self> {
        self.0.checked_sub(u64::try_from(by.as_nanos()).ok()?).filter(|nanos| *nanos > 0).map(Self)
    }

    /// Time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Moments of this thread follow the clock of its Tokio runtime, which a test may have paused, until this is dropped. A
/// simulation can then let seconds of the protocol pass at once, on one clock for timers and freshness. Absent in
/// release builds.
#[cfg(debug_assertions)]
#[derive(Debug)]
pub struct VirtualTime(std::marker::PhantomData<*const ()>);

#[cfg(debug_assertions)]
thread_local! {
    static BEGAN: std::cell::Cell<Option<tokio::time::Instant>> = const { std::cell::Cell::new(None) };
}

#[cfg(debug_assertions)]
impl VirtualTime {
    /// The first moment: long after the boot, so that nothing is before [`Moment::NEVER`].
    const FIRST: Moment = Moment(BOOT + 1_000_000_000_000_000);

    /// Must be called within a Tokio runtime of one thread.
    #[must_use]
    pub fn begin() -> Self {
        BEGAN.set(Some(tokio::time::Instant::now()));
        Self(std::marker::PhantomData)
    }

    fn now() -> Option<Moment> {
        BEGAN.get().map(|began| Self::FIRST.plus(began.elapsed()))
    }
}

#[cfg(debug_assertions)]
impl Drop for VirtualTime {
    fn drop(&mut self) {
        BEGAN.set(None);
    }
}

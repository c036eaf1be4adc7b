//! The server's time, without a request for each use.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::clock::Moment;

/// The server's clock, which expires entries there, as of its last answer.
#[derive(Debug)]
pub(super) struct ServerClock {
    /// Milliseconds that the server is ahead of our clock.
    ahead: AtomicI64,
    /// Milliseconds that this may be too low: the time that the answer took.
    late: AtomicI64,
}

impl ServerClock {
    /// From an answer of `TIME` that was requested at `asked` and arrives now. The server's clock has moved on since,
    /// so the estimate is never ahead.
    pub(super) fn new(told: (u64, u64), asked: Moment) -> Self {
        Self { ahead: AtomicI64::new(ahead(told)), late: AtomicI64::new(late(asked)) }
    }

    /// The server's clock may have been set since.
    pub(super) fn set(&self, told: (u64, u64), asked: Moment) {
        // Relaxed, here and at the reads: any of the last values is good enough.
        self.ahead.store(ahead(told), Ordering::Relaxed);
        self.late.store(late(asked), Ordering::Relaxed);
    }

    /// Unix milliseconds, never less than the server's at that moment.
    pub(super) fn at_most(&self, moment: Moment) -> u64 {
        let here = i64::try_from(moment.as_nanos() / 1_000_000).unwrap_or(i64::MAX);
        let ahead = self.ahead.load(Ordering::Relaxed).saturating_add(self.late.load(Ordering::Relaxed));
        here.saturating_add(ahead).max(0).unsigned_abs()
    }

    /// Unix milliseconds.
    pub(super) fn now(&self) -> u64 {
        local().saturating_add(self.ahead.load(Ordering::Relaxed)).max(0).unsigned_abs()
    }
}

fn ahead((seconds, micros): (u64, u64)) -> i64 {
    let millis = seconds.saturating_mul(1000).saturating_add(micros / 1000);
    i64::try_from(millis).unwrap_or(i64::MAX).saturating_sub(local())
}

/// Plus the error of three rounded milliseconds.
fn late(asked: Moment) -> i64 {
    i64::try_from(Moment::now().since(asked).as_millis()).unwrap_or(i64::MAX).saturating_add(3)
}

fn local() -> i64 {
    i64::try_from(Moment::now().as_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_what_was_told_last() {
        let told = 1_700_000_000_000;
        let clock = ServerClock::new((1_700_000_000, 999), Moment::now());
        // Holds on a slow machine too.
        assert!((told..told + 600_000).contains(&clock.now()));
        clock.set((1_600_000_000, 0), Moment::now());
        assert!(clock.now() < told - 90_000_000_000);
        let asked = Moment::now().minus(std::time::Duration::from_secs(2)).unwrap();
        clock.set((1_600_000_000, 0), asked);
        assert!(clock.at_most(Moment::now()) >= clock.now() + 1_900, "the answer was two seconds under way");
    }
}

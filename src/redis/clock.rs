//! What time it is at the server, without asking it each time.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::clock::Moment;

/// The server's clock, by which entries expire there, as far as it was last told.
#[derive(Debug)]
pub(super) struct ServerClock {
    /// Milliseconds that it is ahead of ours.
    ahead: AtomicI64,
    /// Milliseconds that this may be too little: the answer was so long under way.
    late: AtomicI64,
}

impl ServerClock {
    /// As `TIME` told it, asked then and arrived now: it is later at the server already, so what is made of it is never ahead.
    pub(super) fn new(told: (u64, u64), asked: Moment) -> Self {
        Self { ahead: AtomicI64::new(ahead(told)), late: AtomicI64::new(late(asked)) }
    }

    /// It may have been set since.
    pub(super) fn set(&self, told: (u64, u64), asked: Moment) {
        // Relaxed, here and where it is read: any of the last values does.
        self.ahead.store(ahead(told), Ordering::Relaxed);
        self.late.store(late(asked), Ordering::Relaxed);
    }

    /// Unix milliseconds, no less than they were at that moment.
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

/// With what the three roundings of a millisecond may come to.
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
        // However slow this machine is.
        assert!((told..told + 600_000).contains(&clock.now()));
        clock.set((1_600_000_000, 0), Moment::now());
        assert!(clock.now() < told - 90_000_000_000);
        let asked = Moment::now().minus(std::time::Duration::from_secs(2)).unwrap();
        clock.set((1_600_000_000, 0), asked);
        assert!(clock.at_most(Moment::now()) >= clock.now() + 1_900, "the answer was two seconds under way");
    }
}

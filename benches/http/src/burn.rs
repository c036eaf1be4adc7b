//! A process that only uses processor time, at a given share.

use std::io;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Pause between two checks of its processor time.
const NAP: Duration = Duration::from_millis(1);

/// Uses that share of one processor, for ever, or less if it does not get as much.
pub(crate) fn burn(share: f64) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        let had = clock_gettime(ClockId::ThreadCPUTime);
        let had = had.tv_sec as f64 + had.tv_nsec as f64 / 1e9;
        if had > share * begin.elapsed().as_secs_f64() {
            std::thread::sleep(NAP);
        }
        (0..10_000).for_each(|n| _ = std::hint::black_box(n));
    }
}

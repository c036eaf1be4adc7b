//! Many threads at once, each running one operation after another for a while: operations per second, and their
//! latency.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::keys::Keys;

/// Duration of a race.
const LASTS: Duration = Duration::from_millis(500);
/// One in this many operations is timed, because the clock takes longer than most of them.
const TIMED: usize = 16;
/// Timed operations kept per thread.
const KEPT: usize = 1 << 20;

/// The result of a race.
pub(crate) struct Outcome {
    /// Operations per second of all threads.
    pub per_second: f64,
    /// Nanoseconds of each timed operation, in order.
    took: Vec<u32>,
}

impl Outcome {
    /// In microseconds.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let last = self.took.len() - 1;
        f64::from(self.took[(last as f64 * percent / 100.0) as usize]) / 1e3
    }

    /// P50, P90, P99 and P99.9 as cells of a table.
    pub(crate) fn percentiles(&self) -> String {
        [50.0, 90.0, 99.0, 99.9].map(|percent| format!("{:.2}", self.percentile(percent))).join(" | ")
    }
}

/// Each thread has its own share of the keys, and starts over at its end if `again`.
pub(crate) fn race<C>(
    threads: usize,
    keys: &Keys,
    again: bool,
    client: impl Fn() -> C + Sync,
    operation: impl Fn(&mut C, &[u8]) + Sync,
) -> Outcome {
    let (over, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let one = |number: usize| {
        let (mut client, mut took, mut done) = (client(), Vec::with_capacity(KEPT), 0);
        let share = number * keys.len() / threads..(number + 1) * keys.len() / threads;
        start.wait();
        let mut at = share.clone();
        while !over.load(Relaxed) {
            if at.len() < TIMED {
                if !again {
                    break;
                }
                at = share.clone();
            }
            for (index, place) in at.by_ref().take(TIMED).enumerate() {
                let begin = (index == 0).then(Instant::now);
                operation(&mut client, keys.get(place));
                if let Some(begin) = begin.filter(|_| took.len() < KEPT) {
                    took.push(begin.elapsed().as_nanos() as u32);
                }
            }
            done += TIMED;
        }
        (done, took)
    };
    std::thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || one(number))).collect();
        start.wait();
        let begin = Instant::now();
        while begin.elapsed() < LASTS && running.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        over.store(true, Relaxed);
        let (mut done, mut took) = (0, Vec::new());
        for thread in running {
            let (its_done, its_took) = thread.join().unwrap();
            done += its_done;
            took.extend(its_took);
        }
        let per_second = done as f64 / begin.elapsed().as_secs_f64();
        took.sort_unstable();
        Outcome { per_second, took }
    })
}

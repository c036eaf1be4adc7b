//! How many distinct keys there were in the last five minutes, estimated by HyperLogLog (Flajolet, Fusy, Gandouet, Meunier 2007).
//!
//! Not a set of keys: a flood of random ones is what has to be counted, and a bounded set would be full of it. A sketch takes 1 KiB whatever comes, an
//! add is one load and seldom a store, and it is 3 % off as a rule.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::key::KeyHash;

const REGISTERS: usize = 1024;
/// Sketches that are merged, the last of them still being filled.
const SKETCHES: usize = 10;
/// Time of one sketch.
const TURN: Duration = Duration::from_secs(30);

/// Distinct keys of the last five minutes. All relaxed: an estimate needs no order.
#[derive(Debug)]
pub(super) struct Distinct {
    sketches: Box<[Sketch]>,
    current: AtomicUsize,
    turned: Mutex<Option<Moment>>,
}

#[derive(Debug)]
struct Sketch([AtomicU8; REGISTERS]);

impl Default for Distinct {
    fn default() -> Self {
        let sketches = std::iter::repeat_with(|| Sketch(std::array::from_fn(|_| AtomicU8::new(0)))).take(SKETCHES).collect();
        Self { sketches, current: AtomicUsize::new(0), turned: Mutex::default() }
    }
}

impl Distinct {
    pub(super) fn add(&self, hash: KeyHash) {
        let (low, high) = (hash.get() as u64, (hash.get() >> 64) as u64);
        let register = &self.sketches[self.current.load(Ordering::Relaxed)].0[low as usize % REGISTERS];
        let rank = high.leading_zeros() as u8 + 1;
        // Load first: nearly always it is there already, and a load leaves the cache line shared.
        if register.load(Ordering::Relaxed) < rank {
            register.fetch_max(rank, Ordering::Relaxed);
        }
    }

    /// Forgets what is too old; to be called every second or so.
    pub(super) fn turn(&self, now: Moment) {
        let mut turned = self.turned.lock();
        let mut last = *turned.get_or_insert(now);
        for _ in 0..SKETCHES {
            if now.since(last) < TURN {
                break;
            }
            last = last.plus(TURN);
            let next = (self.current.load(Ordering::Relaxed) + 1) % SKETCHES;
            self.sketches[next].0.iter().for_each(|register| register.store(0, Ordering::Relaxed));
            self.current.store(next, Ordering::Relaxed);
        }
        // After a long sleep everything is forgotten, and the turns that were slept through are not made up for.
        *turned = Some(if now.since(last) < TURN { last } else { now });
    }

    pub(super) fn count(&self) -> u64 {
        let rank = |at: usize| self.sketches.iter().map(|sketch| sketch.0[at].load(Ordering::Relaxed)).max().unwrap_or(0);
        let (mut sum, mut empty) = (0.0, 0u32);
        for rank in (0..REGISTERS).map(rank) {
            sum += (-f64::from(rank)).exp2();
            empty += u32::from(rank == 0);
        }
        let m = REGISTERS as f64;
        let estimate = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        // Few keys are counted by the registers that they left empty.
        let counted = if estimate <= 2.5 * m && empty > 0 { m * (m / f64::from(empty)).ln() } else { estimate };
        counted.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(distinct: &Distinct, numbers: std::ops::Range<u64>) {
        numbers.for_each(|n| distinct.add(KeyHash::from_bits(xxhash_rust::xxh3::xxh3_128(&n.to_be_bytes()))));
    }

    #[test]
    fn counts_are_near_however_often_keys_come() {
        for keys in [0, 1, 10, 100, 1_000, 3_000, 10_000, 300_000] {
            let distinct = Distinct::default();
            for _ in 0..3 {
                add(&distinct, 0..keys);
            }
            // Four standard deviations.
            assert!(distinct.count().abs_diff(keys) as f64 <= keys as f64 * 0.13, "{} of {keys}", distinct.count());
        }
    }

    #[test]
    fn keys_are_forgotten_after_five_minutes() {
        let (distinct, start) = (Distinct::default(), Moment::from_nanos(1_000_000_000));
        distinct.turn(start);
        add(&distinct, 0..1000);
        for second in 0..=600 {
            distinct.turn(start.plus(Duration::from_secs(second)));
            match second {
                ..270 => assert!(distinct.count() > 800, "{second}"),
                301.. => assert_eq!(distinct.count(), 0, "{second}"),
                _ => {}
            }
        }
        add(&distinct, 0..1000);
        distinct.turn(start.plus(Duration::from_secs(86_400)));
        assert_eq!(distinct.count(), 0, "also where nobody looked for long");
    }
}

//! The number of distinct keys in the last five minutes, estimated by HyperLogLog.
//!
//! Not a set of keys: floods of random keys must be counted, and would fill a bounded set. A sketch takes 1 KiB for any
//! input and is typically 3 % off. `hyperloglockless` accepts ready hashes from many threads without a lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyperloglockless::AtomicHyperLogLog;
use parking_lot::Mutex;

use crate::clock::Moment;
use crate::key::KeyHash;

/// 2¹⁰ registers of one byte.
const PRECISION: u8 = 10;
/// Sketches that are merged, the last of them still being filled.
const SKETCHES: usize = 10;
/// Period of one sketch.
const PERIOD: Duration = Duration::from_secs(30);

/// Distinct keys of the last five minutes.
#[derive(Debug)]
pub(super) struct Distinct {
    current: ArcSwap<AtomicHyperLogLog>,
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    rotated_at: Option<Moment>,
    /// The oldest first. A thread that loaded a sketch before its period ended may still add to it.
    sketches: VecDeque<Arc<AtomicHyperLogLog>>,
}

impl Default for Distinct {
    fn default() -> Self {
        Self { current: ArcSwap::from_pointee(empty()), past: Mutex::default() }
    }
}

/// Its hasher is never used: keys are hashed already.
fn empty() -> AtomicHyperLogLog {
    AtomicHyperLogLog::seeded(PRECISION, 0)
}

impl Distinct {
    pub(super) fn add(&self, hash: KeyHash) {
        self.add_all([hash]);
    }

    /// As [`add`](Self::add), at less cost than one by one.
    pub(super) fn add_all(&self, hashes: impl IntoIterator<Item = KeyHash>) {
        let sketch = self.current.load();
        let (registers, ..) = sketch.parts();
        for hash in hashes.into_iter().map(|hash| hash.get() as u64) {
            // After some thousands of keys hardly any raises its register, and a load costs less than the locked
            // instruction. The register of a key and its value are computed as in `insert_hash`; relaxed as there,
            // because registers only grow.
            let register = &registers[(hash >> (u64::BITS - u32::from(PRECISION))) as usize];
            if u32::from(register.load(Relaxed)) <= hash.trailing_zeros() {
                sketch.insert_hash(hash);
            }
        }
    }

    /// Drops old sketches. Call it about once a second.
    pub(super) fn rotate(&self, now: Moment) {
        let mut past = self.past.lock();
        let mut last = *past.rotated_at.get_or_insert(now);
        for _ in 0..SKETCHES {
            if now.since(last) < PERIOD {
                break;
            }
            last = last.plus(PERIOD);
            let full = self.current.swap(Arc::new(empty()));
            past.sketches.push_back(full);
            if past.sketches.len() == SKETCHES {
                past.sketches.pop_front();
            }
        }
        // After a long pause all sketches are dropped, and missed periods are not made up for.
        past.rotated_at = Some(if now.since(last) < PERIOD { last } else { now });
    }

    pub(super) fn count(&self) -> u64 {
        let (past, all) = (self.past.lock(), empty());
        for sketch in past.sketches.iter().chain([&*self.current.load()]) {
            // Fails only for sketches of different sizes.
            let _ = all.union(sketch);
        }
        all.raw_count().round() as u64
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
        distinct.rotate(start);
        add(&distinct, 0..1000);
        for second in (0..=600).step_by(10) {
            distinct.rotate(start.plus(Duration::from_secs(second)));
            match second {
                ..270 => assert!(distinct.count() > 800, "{second}"),
                300.. => assert_eq!(distinct.count(), 0, "{second}"),
                _ => {}
            }
        }
        add(&distinct, 0..1000);
        distinct.rotate(start.plus(Duration::from_secs(86_400)));
        assert_eq!(distinct.count(), 0, "also after a long pause");
    }
}

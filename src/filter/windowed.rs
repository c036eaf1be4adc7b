//! A filter that forgets: a ring of time slices, each a classic filter. For sets of claims ("seen within the last
//! hour"), never for the keys of a keyspace: a forgotten key would be called absent.
//!
//! The caller provides the time, in ticks of its choice. A key inserted at tick `t` is found for at least `window`
//! ticks, and for at most one slice longer. The ring has one slice more than the window, because the oldest is partly
//! older than the window. Each slice gets an equal share of the rate.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use super::AllocError;
use super::classic::{Classic, ClassicSize};
use super::hash::Salt;
use super::sizing::SizingError;

/// The specification of a windowed filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowedSpec {
    /// Keys per window.
    pub capacity: u64,
    /// The largest false-positive rate of the whole ring.
    pub rate: f64,
    /// Ticks for which a key is remembered, at least.
    pub window: u64,
    /// Slices per window, at least 1. With more slices keys are forgotten sooner after their window, and a lookup asks
    /// more filters.
    pub slices: u32,
}

/// A windowed filter that can't be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WindowedError {
    /// Slices must be whole ticks.
    #[error("a window of {window} ticks can't be divided into {slices} slices")]
    Slices {
        /// Ticks of the window.
        window: u64,
        /// Slices asked for.
        slices: u32,
    },
    /// A slice can't be made.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}

/// A ring of time slices.
#[derive(Debug)]
pub struct Windowed {
    spec: WindowedSpec,
    /// Ticks per slice.
    slice: u64,
    /// The slice of epoch e is at index e modulo their number.
    ring: Box<[ArcSwapOption<TimeSlice>]>,
    /// Held while a slice replaces an old one; lookups never take it.
    turning: Mutex<()>,
}

#[derive(Debug)]
struct TimeSlice {
    /// Its number, counted from tick 0.
    epoch: u64,
    filter: Classic,
}

impl WindowedSpec {
    /// Number of slices kept: those of a window, and the one that has begun.
    const fn kept(&self) -> u32 {
        self.slices.saturating_add(1)
    }

    /// Keys may arrive unevenly, so a slice is sized for twice its share.
    fn slice_size(&self) -> (u64, f64) {
        let keys = (self.capacity.div_ceil(u64::from(self.slices.max(1)))).saturating_mul(2);
        (keys.min(self.capacity.max(1)), self.rate / f64::from(self.kept()))
    }

    fn slice(&self) -> Result<ClassicSize, SizingError> {
        if !(self.rate > 0.0 && self.rate < 1.0) {
            return Err(SizingError::Rate(self.rate));
        }
        let (keys, rate) = self.slice_size();
        ClassicSize::new(keys, rate).map_err(|_| self.too_large())
    }

    const fn too_large(&self) -> SizingError {
        SizingError::TooLarge { keys: self.capacity, rate: self.rate }
    }

    /// Bytes of the whole ring.
    ///
    /// # Errors
    /// [`SizingError`].
    pub fn bytes_needed(&self) -> Result<u64, SizingError> {
        let bytes = self.slice()?.bits.div_ceil(64) * 8;
        bytes.checked_mul(u64::from(self.kept())).ok_or(self.too_large())
    }

    /// Bits per key in one slice.
    ///
    /// # Errors
    /// [`SizingError`].
    pub fn hashes(&self) -> Result<u32, SizingError> {
        Ok(self.slice()?.hashes)
    }

    /// The rate with every slice at capacity.
    ///
    /// # Errors
    /// [`SizingError`].
    pub fn expected_fpr(&self) -> Result<f64, SizingError> {
        let slice = self.slice()?.expected_fpr(self.slice_size().0);
        Ok(1.0 - (1.0 - slice).powi(self.kept().min(i32::MAX as u32) as i32))
    }
}

impl Windowed {
    /// Creates an empty ring. Slices are made as time reaches them.
    ///
    /// # Errors
    /// [`WindowedError`].
    pub fn new(spec: WindowedSpec) -> Result<Self, WindowedError> {
        let slices = u64::from(spec.slices);
        if slices == 0 || spec.window == 0 || !spec.window.is_multiple_of(slices) {
            return Err(WindowedError::Slices { window: spec.window, slices: spec.slices });
        }
        spec.bytes_needed().map_err(AllocError::from)?;
        let ring = (0..spec.kept()).map(|_| ArcSwapOption::empty()).collect();
        Ok(Self { spec, slice: spec.window / slices, ring, turning: Mutex::new(()) })
    }

    /// Remembers a key from `now` on.
    ///
    /// # Errors
    /// [`AllocError`] if a new slice has no memory; the key is not remembered then.
    pub fn insert(&self, hash: u128, now: u64) -> Result<(), AllocError> {
        self.slice_of(now / self.slice)?.filter.insert(hash);
        Ok(())
    }

    /// Whether the key may have been inserted within the window before `now`; `false` is certain.
    #[must_use]
    pub fn contains(&self, hash: u128, now: u64) -> bool {
        let oldest = (now / self.slice).saturating_sub(u64::from(self.spec.slices));
        // Also asks slices of later epochs: another caller's clock may be ahead, and its keys were seen.
        self.ring.iter().any(|place| {
            place.load().as_ref().is_some_and(|slice| slice.epoch >= oldest && slice.filter.contains(hash))
        })
    }

    /// The slice for keys of this epoch: its own, or a later one in its place, in which they are only remembered
    /// longer.
    ///
    /// An insert may hold a slice that is replaced meanwhile, and be lost with it. But then a whole ring of epochs has
    /// passed since the caller's tick, and the key would be forgotten anyway.
    fn slice_of(&self, epoch: u64) -> Result<Arc<TimeSlice>, AllocError> {
        let place = &self.ring[(epoch % self.ring.len() as u64) as usize];
        let current = |place: &ArcSwapOption<TimeSlice>| place.load_full().filter(|slice| slice.epoch >= epoch);
        if let Some(slice) = current(place) {
            return Ok(slice);
        }
        let _turning = self.turning.lock();
        // Another caller may have made it meanwhile.
        if let Some(slice) = current(place) {
            return Ok(slice);
        }
        let (keys, rate) = self.spec.slice_size();
        let slice = Arc::new(TimeSlice { epoch, filter: Classic::with_salt(keys, rate, Salt::random())? });
        place.store(Some(Arc::clone(&slice)));
        Ok(slice)
    }

    /// Bytes of the existing slices.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ring.iter().filter_map(|place| place.load().as_ref().map(|slice| slice.filter.bytes())).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_128;

    use super::*;

    const SPEC: WindowedSpec = WindowedSpec { capacity: 6_000, rate: 0.01, window: 60, slices: 6 };

    fn hash(n: u64) -> u128 {
        xxh3_128(&n.to_le_bytes())
    }

    #[test]
    fn a_key_is_remembered_for_its_window_and_no_more_than_a_slice_longer() {
        let windowed = Windowed::new(SPEC).unwrap();
        for at in 0..10 {
            windowed.insert(hash(at), at).unwrap();
        }
        for at in 0..10 {
            assert!((at..=at + 60).all(|now| windowed.contains(hash(at), now)), "{at}");
            assert!(!windowed.contains(hash(at), 70), "{at}");
        }
        windowed.insert(hash(99), 70).unwrap();
        assert!(!windowed.contains(hash(0), 5), "its slice was replaced by one of a later epoch");
    }

    #[test]
    fn the_whole_ring_keeps_the_rate() {
        let windowed = Windowed::new(SPEC).unwrap();
        for n in 0..6_000 {
            windowed.insert(hash(n), n / 100).unwrap();
        }
        let passed = (1_000_000..1_100_000).filter(|n| windowed.contains(hash(*n), 59)).count();
        assert!(passed < 1_000 + 160, "{passed} of 100,000");
        assert!(windowed.bytes() <= SPEC.bytes_needed().unwrap());
    }

    #[test]
    fn threads_that_turn_the_ring_together_lose_nothing() {
        let windowed = Windowed::new(SPEC).unwrap();
        // In step: a thread whose clock is a window ahead makes the ring forget keys that another thread still asks
        // for.
        let tick = std::sync::Barrier::new(8);
        let missed = &|thread: u64| {
            // Counted and not asserted: the other threads would wait for one that has panicked.
            let mut missed = 0;
            for now in 0..600 {
                tick.wait();
                let (key, earlier) = (hash(thread << 32 | now), hash(thread << 32 | now.saturating_sub(50)));
                windowed.insert(key, now).unwrap();
                missed += u32::from(!windowed.contains(key, now)) + u32::from(!windowed.contains(earlier, now));
            }
            missed
        };
        let missed: u32 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || missed(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(missed, 0);
    }

    #[test]
    fn what_can_not_be_is_refused_by_name() {
        let refused = |spec| Windowed::new(spec).unwrap_err().to_string();
        assert!(refused(WindowedSpec { slices: 7, ..SPEC }).contains("60 ticks can't be divided into 7"));
        assert!(refused(WindowedSpec { slices: 0, ..SPEC }).contains("into 0 slices"));
        assert!(refused(WindowedSpec { window: 0, ..SPEC }).contains("of 0 ticks"));
        assert!(refused(WindowedSpec { rate: f64::NAN, ..SPEC }).contains("is NaN"));
        assert!(refused(WindowedSpec { rate: 1.0, ..SPEC }).contains("is 1"));
        assert!(refused(WindowedSpec { capacity: u64::MAX, ..SPEC }).contains("more bits than can be addressed"));
    }

    proptest! {
        #[test]
        fn no_key_is_forgotten_within_its_window(steps in prop::collection::vec((0u64..20, 0u64..15), 0..300)) {
            let windowed = Windowed::new(SPEC).unwrap();
            let (mut now, mut last) = (0, HashMap::new());
            for (key, passed) in steps {
                now += passed;
                windowed.insert(hash(key), now).unwrap();
                last.insert(key, now);
                prop_assert!(last.iter().all(|(key, at)| now - at > 60 || windowed.contains(hash(*key), now)));
            }
        }
    }
}

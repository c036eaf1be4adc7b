//! The positions of a key in filters that spread its bits over all their memory.

use super::hash::{Salt, reduce};

/// An odd constant without structure (2⁶⁴ divided by the golden ratio).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Enhanced double hashing (Dillinger, Manolios, "Bloom Filters in Probabilistic Verification", 2004): xᵢ = a + i·b +
/// (i³ − i)/6, all modulo 2⁶⁴.
///
/// The last term keeps two keys with equal or small steps from sharing many positions, which happens more often with
/// plain double hashing than the formula of the rate allows. Positions come from the *upper* bits, which small integers
/// would not change. So the term is multiplied by [`SPREAD`].
#[derive(Debug, Clone)]
pub(super) struct Probes {
    place: u64,
    step: u64,
    bend: u64,
    left: u32,
    places: u64,
}

impl Probes {
    /// `hashes` positions below `places`.
    #[inline]
    pub(super) const fn new(salt: Salt, hash: u128, hashes: u32, places: u64) -> Self {
        let (place, step) = salt.mix(hash);
        Self { place, step, bend: 0, left: hashes, places }
    }
}

impl Iterator for Probes {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let place = reduce(self.place, self.places);
        self.place = self.place.wrapping_add(self.step);
        self.bend = self.bend.wrapping_add(SPREAD);
        self.step = self.step.wrapping_add(self.bend);
        Some(place)
    }
}

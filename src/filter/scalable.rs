//! How filters grow: by further layers, each with its own share of the rate.
//!
//! A key is in the filter if any layer has it, so the rates of the layers add up. Each layer is closed when it has used
//! up *its* share, never when the whole filter has reached the rate: by that rule ten layers would end at a hundred
//! times the rate. (Almeida, Baquero, Preguiça, Hutchison, "Scalable Bloom Filters", 2007.)

use super::layer_spec::{LayerKind, LayerSpec};

/// Layers of a scalable filter: room for 65,536 times its keys.
pub(super) const MAX_LAYERS: usize = 16;

/// Share of the rate at which the main layer closes, if one overflow layer may follow. Of the rest, the overflow gets
/// one part and keys that arrive while it is made the other.
const MAIN_SHARE: f64 = 0.85;
const OVERFLOW_SHARE: f64 = 0.1;

/// The layers of a scalable filter: each twice as large as the one before, at half its rate. ½ + ¼ + ⅛ + … stays below
/// 1.
pub(super) fn doubling(capacity: u64, rate: f64, index: usize) -> LayerSpec {
    let rate = rate / 2f64.powi(index as i32 + 1);
    // Saturates: sizing rejects it with a typed error.
    let capacity = capacity.max(1).saturating_mul(1 << index.min(63));
    LayerSpec { kind: LayerKind::Classic, capacity, rate, full_at: rate }
}

/// A main layer for all keys, and an overflow layer for half as many more, until a rebuild with the right size.
///
/// The main layer is made for the whole rate, so that it needs no more memory than without the other. It closes at 97 %
/// of its keys.
pub(super) fn with_overflow(kind: LayerKind, capacity: u64, rate: f64, index: usize) -> LayerSpec {
    if index == 0 {
        return LayerSpec { kind, capacity, rate, full_at: rate * MAIN_SHARE };
    }
    LayerSpec { kind, capacity: capacity.div_ceil(2), rate: rate * OVERFLOW_SHARE, full_at: rate * OVERFLOW_SHARE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_layers_together_are_at_most_the_rate() {
        for rate in [0.5, 0.01, 1e-6] {
            assert!((0..MAX_LAYERS).map(|index| doubling(10, rate, index).full_at).sum::<f64>() <= rate);
            assert!(
                (0..2).map(|index| with_overflow(LayerKind::Classic, 10, rate, index).full_at).sum::<f64>() <= rate
            );
        }
        assert_eq!(doubling(u64::MAX, 0.1, 3).capacity, u64::MAX);
    }
}

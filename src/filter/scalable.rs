//! How filters grow: by further layers, each with a share of the rate that is its own.
//!
//! A key is in the filter if any layer holds it, so the rates of the layers add up. Each layer is closed when it has used up *its* share, never when the
//! whole has reached the rate asked: judged by that, ten layers end at a hundred times the rate. (Almeida, Baquero, Preguiça, Hutchison, "Scalable
//! Bloom Filters", 2007.)

use super::layer_spec::{LayerKind, LayerSpec};

/// Of a scalable filter: 65,536 times the keys that it was made for.
pub(super) const MAX_LAYERS: usize = 16;

/// Share of the rate at which the main layer is closed, for a filter that is to have one overflow layer. What is left to 1 is the overflow's, and half of
/// that for keys that come while it is made.
const MAIN_SHARE: f64 = 0.85;
const OVERFLOW_SHARE: f64 = 0.1;

/// The layers of a scalable filter: each twice as large as the one before, at half its rate. ½ + ¼ + ⅛ + … stays below 1.
pub(super) fn doubling(capacity: u64, rate: f64, index: usize) -> LayerSpec {
    let rate = rate / 2f64.powi(index as i32 + 1);
    // Saturates: what can't be sized is refused with a typed error.
    let capacity = capacity.max(1).saturating_mul(1 << index.min(63));
    LayerSpec { kind: LayerKind::Classic, capacity, rate, full_at: rate }
}

/// A main layer for all keys, and one for half as many more: until a rebuild at the right size.
///
/// The main layer is made for the whole rate, so that it costs no more memory than without the other. It uses less at 97 % of its keys.
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

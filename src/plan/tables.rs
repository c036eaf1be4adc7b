//! Sizes over keys and rates, and what each rate costs.

use std::fmt;

use bytesize::ByteSize;

use crate::filter::{FilterKind, FilterSpec};

/// How much more a split block may cost than `classic` before its one cache line a lookup is not worth it.
const WORTH: f64 = 1.2;

/// Memory of the default kind: keys in rows, rates in columns.
pub(super) struct Sizes;

/// Bits a key over rates.
pub(super) struct Pareto;

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RATES: [f64; 3] = [1e-2, 1e-3, 1e-4];
        writeln!(f, "Memory of bloom (of classic)")?;
        write!(f, "{:>14}", "keys")?;
        RATES.iter().try_for_each(|rate| write!(f, "{:>26}", format!("{rate:e}")))?;
        writeln!(f)?;
        for keys in (4..=9).map(|power| 10u64.pow(power)) {
            write!(f, "{:>14}", grouped(keys))?;
            for rate in RATES {
                let of = |kind| bytes(kind, keys, rate).map_or("-".into(), size);
                write!(f, "{:>26}", format!("{} ({})", of(FilterKind::Bloom), of(FilterKind::Classic)))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Pareto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KEYS: u64 = 10_000_000;
        writeln!(f, "Bits a key")?;
        writeln!(f, "{:>8}{:>10}{:>10}{:>16}   better", "rate", "classic", "bloom", "bloom/classic")?;
        for rate in [3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6] {
            let per_key = |kind| bytes(kind, KEYS, rate).map_or(f64::NAN, |bytes| bytes as f64 * 8.0 / KEYS as f64);
            let (classic, bloom) = (per_key(FilterKind::Classic), per_key(FilterKind::Bloom));
            let ratio = bloom / classic;
            let better = if ratio > WORTH { "classic: the memory" } else { "bloom: one cache line a lookup" };
            writeln!(f, "{:>8}{classic:>10.2}{bloom:>10.2}{ratio:>16.2}   {better}", format!("{rate:e}"))?;
        }
        Ok(())
    }
}

fn bytes(kind: FilterKind, capacity: u64, rate: f64) -> Option<u64> {
    FilterSpec { kind, capacity, rate }.bytes_needed().ok()
}

/// Digits in groups of three.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in a fitting unit.
pub(super) fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn classic_is_better_from_one_in_ten_thousand_on() {
        let table = Pareto.to_string();
        let better =
            |rate: &str| table.lines().find(|line| line.trim_start().starts_with(rate)).unwrap().contains("classic: ");
        assert!(!better("1e-3 ") && !better("3e-2 ") && better("1e-4 ") && better("1e-6 "), "{table}");
    }
}

//! Several rounds, in which the compared servers take turns: one round in five is off by a fifth, so only medians
//! count.

use super::Speed;
use crate::load::Outcome;

pub(super) const SPEED_ROUNDS: usize = 5;

/// A round has hardly two hundred answers above its P99, and one pause of the machine delays as many at once: hence
/// this many rounds.
pub(super) const PACED_ROUNDS: usize = 9;

/// The results of one server, round by round.
#[derive(Debug)]
pub(super) struct Rounds(Vec<Outcome>);

impl Rounds {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn push(&mut self, outcome: Outcome) {
        self.0.push(outcome);
    }

    /// Percentiles of each round, in microseconds.
    fn percentiles(&self, percent: f64) -> Vec<f64> {
        self.0.iter().map(|round| round.percentile(percent)).collect()
    }

    /// The medians of the rounds' percentiles, in microseconds.
    pub(super) fn medians<const N: usize>(&self, percents: [f64; N]) -> [f64; N] {
        percents.map(|percent| median(self.percentiles(percent)))
    }

    /// The cells of a table: P50 and P99 in the median of the rounds, the P99 of the calmest one, and the P99.9 in the
    /// median.
    pub(super) fn cells(&self) -> String {
        let [p50, p99, p999] = self.medians([50.0, 99.0, 99.9]);
        format!("{p50:.0} | {p99:.0} | {:.0} | {p999:.0}", least(&self.percentiles(99.0)))
    }

    /// The P99 relative to another server's: the median of the rounds' ratios, and the ratio of the calmest rounds.
    pub(super) fn beside(&self, other: &Self) -> [f64; 2] {
        let (ours, theirs) = (self.percentiles(99.0), other.percentiles(99.0));
        let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        [median(ratios), least(&ours) / least(&theirs)]
    }
}

/// The speed of one server, round by round.
#[derive(Debug)]
pub(super) struct Speeds(Vec<Speed>);

impl Speeds {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn push(&mut self, speed: Speed) {
        self.0.push(speed);
    }

    /// The median.
    pub(super) fn per_second(&self) -> f64 {
        median(self.0.iter().map(|speed| speed.per_second).collect())
    }

    /// The median.
    pub(super) fn processor_us(&self) -> f64 {
        median(self.0.iter().map(|speed| speed.processor_us).collect())
    }

    /// The median of the rounds' ratios.
    pub(super) fn beside(&self, other: &Self) -> f64 {
        median(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours.per_second / theirs.per_second).collect())
    }
}

/// The heads of [`Rounds::cells`].
pub(super) const HEADS: &str = "P50 | P99 | P99, calmest | P99.9";

pub(super) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Disturbances of the machine only add time.
fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(p99s: &[u64]) -> Rounds {
        let outcome = |micros: &u64| Outcome { latencies: vec![micros * 1_000; 3], ..Outcome::default() };
        Rounds(p99s.iter().map(outcome).collect())
    }

    #[test]
    fn a_disturbed_round_moves_neither_ratio() {
        assert_eq!(rounds(&[200, 9_000, 400]).beside(&rounds(&[100, 100, 200])), [2.0, 2.0]);
        assert_eq!(rounds(&[200, 9_000, 400]).cells(), "400 | 400 | 200 | 400");
    }

    #[test]
    fn without_rounds_there_is_no_ratio() {
        assert!(rounds(&[]).beside(&rounds(&[])).iter().all(|ratio| ratio.is_nan()));
    }
}

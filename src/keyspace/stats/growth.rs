//! Notices when a filter has become too small for its keys; then a rebuild sizes a new one for them.

use std::time::Duration;

use parking_lot::Mutex;

use super::distinct::Distinct;
use crate::clock::Moment;
use crate::config::FilterConfig;
use crate::filter::{Filter, Generation, OutOfRoom};
use crate::key::KeyHash;

/// Above this share of the capacity a build is due, at any false-positive rate.
const FULL: f64 = 0.95;
/// How long the rates must exceed the configured one.
const LASTING: Duration = Duration::from_secs(180);
/// Pause between two builds for this reason: the first, which doubles with each further build, and the longest for
/// short builds.
const PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));
/// The pause after a build is at least this many times the build's duration, but never longer than `QUIET`.
const PAUSE_PER_BUILD: u32 = 10;
/// After this time without such a build the next pause is the first one again.
const QUIET: Duration = Duration::from_secs(3600);
/// A filter that would hardly be larger fixes nothing, as with little or no headroom.
const WORTHWHILE: f64 = 1.05;
/// Minimum of expected false positives for a meaningful rate.
const EXPECTED_POSITIVES: f64 = 10.0;
/// This many distinct absent keys suffice, however low the rate.
const ENOUGH_KEYS: f64 = 100_000.0;

/// The observed growth of one keyspace's filters.
#[derive(Debug)]
pub(crate) struct GrowthMonitor {
    asked_fpr: f64,
    headroom: f64,
    absent: Distinct,
    /// Those of them that passed the filter. A key that is requested repeatedly counts once.
    positives: Distinct,
    inserted: Distinct,
    decided: Mutex<Decision>,
    /// What was last logged about the active filter: its number, its layers, what keeps it from growing.
    reported: Mutex<(u64, usize, Option<OutOfRoom>)>,
}

#[derive(Debug, Default)]
struct Decision {
    over_since: Option<Moment>,
    /// When the last build was requested, and the pause after it.
    last: Option<(Moment, Duration)>,
}

impl GrowthMonitor {
    pub(crate) fn new(config: &FilterConfig) -> Self {
        Self {
            asked_fpr: config.false_positive_rate,
            headroom: config.headroom,
            absent: Distinct::default(),
            positives: Distinct::default(),
            inserted: Distinct::default(),
            decided: Mutex::default(),
            reported: Mutex::default(),
        }
    }

    pub(crate) fn true_negative(&self, hash: KeyHash) {
        self.absent.add(hash);
    }

    /// As [`true_negative`](Self::true_negative), for many keys.
    pub(crate) fn true_negatives(&self, hashes: impl IntoIterator<Item = KeyHash>) {
        self.absent.add_all(hashes);
    }

    pub(crate) fn false_positive(&self, hash: KeyHash) {
        self.absent.add(hash);
        self.positives.add(hash);
    }

    /// Keys that were inserted one by one, not by a scan.
    pub(crate) fn inserted(&self, hashes: &[KeyHash]) {
        self.inserted.add_all(hashes.iter().copied());
    }

    /// Distinct absent keys of the last five minutes.
    pub(crate) fn distinct_absent(&self) -> u64 {
        self.absent.count()
    }

    /// Distinct keys inserted in the last five minutes.
    pub(crate) fn distinct_inserted(&self) -> u64 {
        self.inserted.count()
    }

    /// Drops old sketches. Call it about once a second.
    fn rotate(&self, now: Moment) {
        [&self.absent, &self.positives, &self.inserted].iter().for_each(|keys| keys.rotate(now));
    }

    /// Returns true if a build is due. `took`: duration of the last build.
    fn is_due(&self, filter: &Filter, took: Duration, now: Moment) -> bool {
        let (items, capacity) = (filter.items() as f64, filter.capacity() as f64);
        let worthwhile = items * self.headroom > capacity * WORTHWHILE;
        let full = worthwhile && items > capacity * FULL;
        let over = worthwhile && filter.estimated_fpr() > self.asked_fpr && self.observed_over();
        self.decided.lock().evaluate(full, over, took, now)
    }

    /// Returns true if the filter can't grow and its fill predicts more than the configured rate.
    fn is_exceeded(&self, filter: &Filter) -> bool {
        filter.estimated_fpr() > self.asked_fpr && filter.out_of_room().is_some()
    }

    /// Returns true if more distinct absent keys passed than the configured rate allows. Each key counts once, so no
    /// single key that is requested repeatedly decides it.
    fn observed_over(&self) -> bool {
        let (absent, positives) = (self.absent.count() as f64, self.positives.count() as f64);
        absent >= (EXPECTED_POSITIVES / self.asked_fpr).min(ENOUGH_KEYS) && positives > self.asked_fpr * absent
    }
}

impl Decision {
    fn evaluate(&mut self, full: bool, over: bool, took: Duration, now: Moment) -> bool {
        self.over_since = self.over_since.filter(|_| over).or(over.then_some(now));
        let lasting = self.over_since.is_some_and(|since| now.since(since) >= LASTING);
        let long_build = (took * PAUSE_PER_BUILD).min(QUIET);
        let due = (full || lasting) && self.last.is_none_or(|(last, rest)| now.since(last) >= rest.max(long_build));
        if due {
            let again = self.last.filter(|(last, _)| now.since(*last) < QUIET);
            let rest = again.map_or(PAUSE.0, |(_, rest)| (rest * 2).min(PAUSE.1));
            *self = Self { over_since: None, last: Some((now, rest)) };
        }
        due
    }
}

impl GrowthMonitor {
    /// Drops old sketches, logs growth, and returns true if a build is due because the filter has become too small.
    pub(crate) fn watch(
        &self,
        keyspace: &str,
        current: Option<&Generation>,
        last_build: Duration,
        now: Moment,
    ) -> bool {
        // Without a filter too, because announces arrive all the same.
        self.rotate(now);
        let Some(current) = current else { return false };
        self.report(keyspace, current);
        let filter = &current.filter;
        let due = self.is_due(filter, last_build, now);
        if due {
            tracing::info!(
                keyspace,
                items = filter.items(),
                capacity = filter.capacity(),
                "filter too small: requesting a rebuild"
            );
        }
        due
    }

    /// Logs that the active filter has grown, or can't.
    fn report(&self, keyspace: &str, current: &Generation) {
        let filter = &current.filter;
        let now = (current.number, filter.layer_count(), filter.out_of_room());
        let before = std::mem::replace(&mut *self.reported.lock(), now);
        let (items, capacity, layers) = (filter.items(), filter.capacity(), now.1);
        if layers > 1 && (before.0, before.1) != (now.0, now.1) {
            tracing::info!(keyspace, items, capacity, layers, "filter has grown by a layer");
        }
        if let Some(reason) = now.2.filter(|_| before.2.is_none()) {
            let estimated = filter.estimated_fpr();
            tracing::warn!(
                keyspace,
                items,
                capacity,
                layers,
                estimated,
                ?reason,
                "filter full: its false-positive rate rises until a rebuild"
            );
        }
    }

    /// For an operator, if the filter holds more keys than it was built for.
    pub(crate) fn warning(&self, filter: &Filter) -> Option<String> {
        let why = match filter.out_of_room()? {
            OutOfRoom::Memory => "the memory limit leaves no room for a further layer",
            OutOfRoom::Layers => "it has grown as far as it can",
        };
        // Full means that its share of the rate is used up, which is below the configured rate.
        self.is_exceeded(filter).then(|| {
            format!(
                "the filter holds about {} keys, and {why}: until a rebuild it lets an expected {:.2e} of \
                 absent keys pass, more than filter.false_positive_rate = {}",
                filter.items(),
                filter.estimated_fpr(),
                self.asked_fpr
            )
        })
    }

    /// The same in few words, as an addition to the reason of a state.
    pub(crate) fn exceeded_rate(&self, filter: &Filter) -> Option<String> {
        self.is_exceeded(filter).then(|| {
            format!(
                "its false-positive rate is exceeded: an estimated {:.2e} of absent keys pass, not {}",
                filter.estimated_fpr(),
                self.asked_fpr
            )
        })
    }

    /// `filter.false_positive_rate`.
    pub(crate) const fn asked_fpr(&self) -> f64 {
        self.asked_fpr
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{FilterKind, FilterSpec};

    fn growth(headroom: f64) -> GrowthMonitor {
        GrowthMonitor::new(&FilterConfig { false_positive_rate: 0.01, headroom, ..FilterConfig::default() })
    }

    fn hash(n: u64) -> KeyHash {
        KeyHash::from_bits(xxhash_rust::xxh3::xxh3_128(&n.to_be_bytes()))
    }

    /// A filter that can't grow.
    fn filled(capacity: u64, keys: u64) -> Filter {
        let filter =
            Filter::within(FilterSpec { kind: FilterKind::Bloom, capacity, rate: 0.01 }, Box::new(|_| None)).unwrap();
        (0..keys).for_each(|n| filter.insert(hash(n).get()));
        filter
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(1).plus(Duration::from_secs(seconds))
    }

    /// Watches every second; returns the seconds at which a build was due.
    fn watch(growth: &GrowthMonitor, filter: &Filter, seconds: std::ops::Range<u64>) -> Vec<u64> {
        let watched = |second: &u64| {
            growth.rotate(at(*second));
            growth.is_due(filter, Duration::ZERO, at(*second))
        };
        seconds.filter(watched).collect()
    }

    /// Lookups of absent keys, as they come out at this filter.
    fn ask(growth: &GrowthMonitor, filter: &Filter, keys: std::ops::Range<u64>) {
        for hash in keys.map(hash) {
            if filter.contains(hash.get()) { growth.false_positive(hash) } else { growth.true_negative(hash) }
        }
    }

    #[test]
    fn a_full_filter_is_rebuilt_at_once_and_then_ever_less_often() {
        let growth = growth(1.3);
        assert_eq!(watch(&growth, &filled(10_000, 9_000), 0..10), [0u64; 0]);
        let full = filled(10_000, 9_900);
        assert_eq!(watch(&growth, &full, 10..2_500), [10, 20, 40, 80, 160, 320, 640, 1_240, 1_840, 2_440]);
        assert_eq!(watch(&growth, &full, 6_100..6_125), [6_100, 6_110], "after a quiet hour");
    }

    #[test]
    fn long_builds_are_followed_by_long_pauses_of_at_most_an_hour() {
        let mut decision = Decision::default();
        let mut due = |took| {
            (0..20_000)
                .filter(|second| decision.evaluate(true, false, Duration::from_secs(took), at(*second)))
                .collect::<Vec<_>>()
        };
        assert_eq!(due(300), [0, 3_000, 6_000, 9_000, 12_000, 15_000, 18_000]);
        let mut decision = Decision::default();
        let mut due = |took| {
            (0..8_000)
                .filter(|second| decision.evaluate(true, false, Duration::from_secs(took), at(*second)))
                .collect::<Vec<_>>()
        };
        assert_eq!(due(7_200), [0, 3_600, 7_200], "no longer than an hour, as before");
    }

    #[test]
    fn without_headroom_a_filter_as_large_as_before_is_not_built_again() {
        let growth = growth(1.0);
        assert_eq!(watch(&growth, &filled(10_000, 10_000), 0..10), [0u64; 0]);
        assert_eq!(watch(&growth, &filled(10_000, 11_500), 10..20), [10]);
    }

    /// A filter too small for its rate is also full, except during a pause: so this tests the rate alone.
    #[test]
    fn rates_count_once_they_have_been_over_for_three_minutes() {
        let mut decision = Decision::default();
        let mut evaluate = |full, over, second| decision.evaluate(full, over, Duration::ZERO, at(second));
        assert!((0..=180).all(|second| !evaluate(false, second != 100, second)));
        assert!((181..281).all(|second| !evaluate(false, true, second)));
        assert!(evaluate(false, true, 281), "three minutes after it was last below");
        assert!((282..291).all(|second| !evaluate(true, true, second)));
        assert!(evaluate(true, true, 291));
    }

    #[test]
    fn a_filter_whose_rate_stays_over_is_rebuilt_although_it_is_not_full() {
        // Built for a higher rate than is asked for by now.
        let (growth, filter) = (
            growth(1.3),
            Filter::within(FilterSpec { kind: FilterKind::Bloom, capacity: 10_000, rate: 0.05 }, Box::new(|_| None))
                .unwrap(),
        );
        (0..9_000).for_each(|n| filter.insert(hash(n).get()));
        let calm = watch(&growth, &filter, 0..300);
        assert_eq!(calm, [0u64; 0], "{} is estimated and nothing observed", filter.estimated_fpr());
        ask(&growth, &filter, 1_000_000..1_020_000);
        assert_eq!(watch(&growth, &filter, 300..700), [480]);
    }

    #[test]
    fn one_repeated_false_positive_never_starts_a_build() {
        let (growth, filter) = (growth(1.3), filled(10_000, 13_000));
        ask(&growth, &filter, 1_000_000..1_000_010);
        let replayed = (1_000_000..).map(hash).find(|hash| filter.contains(hash.get())).unwrap();
        (0..1_000_000).for_each(|_| growth.false_positive(replayed));
        assert!(!growth.observed_over(), "too few keys");
        let sparse = filled(10_000, 1_000);
        ask(&growth, &sparse, 2_000_000..2_050_000);
        assert!(!growth.observed_over(), "one of many");
    }

    #[test]
    fn many_distinct_false_positives_show_that_the_rate_is_over() {
        let (growth, filter) = (growth(1.3), filled(10_000, 16_000));
        ask(&growth, &filter, 1_000_000..1_050_000);
        assert!(growth.observed_over(), "{} of {}", growth.positives.count(), growth.absent.count());
    }
}

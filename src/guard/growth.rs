//! When a filter has become too small for its keys: then a new one is built, at the size that they need now.

use std::time::Duration;

use parking_lot::Mutex;

use super::Guard;
use super::distinct::Distinct;
use crate::clock::Moment;
use crate::config::FilterConfig;
use crate::filter::{Filter, Generation, OutOfRoom};
use crate::key::KeyHash;

/// Share of the capacity at which there is no waiting for the rate to show it.
const FULL: f64 = 0.95;
/// How long the rates must be over the asked one.
const LASTING: Duration = Duration::from_secs(180);
/// Between two builds for this reason.
const REST: Duration = Duration::from_secs(3600);
/// A filter that would hardly be larger mends nothing, as with little or no headroom.
const WORTHWHILE: f64 = 1.05;
/// False positives that must be expected before their rate says anything.
const EXPECTED_POSITIVES: f64 = 10.0;
/// Distinct absent keys that suffice, however low the rate.
const ENOUGH_KEYS: f64 = 100_000.0;

/// What is watched.
#[derive(Debug)]
pub(super) struct Growth {
    asked_fpr: f64,
    headroom: f64,
    absent: Distinct,
    /// Those of them that passed the filter: a key that is asked for over and over counts once.
    positives: Distinct,
    inserted: Distinct,
    judged: Mutex<Judged>,
    /// What was said last of the filter in force: its number, its layers, what keeps it from growing.
    said: Mutex<(u64, usize, Option<OutOfRoom>)>,
}

#[derive(Debug, Default)]
struct Judged {
    over_since: Option<Moment>,
    last: Option<Moment>,
}

impl Growth {
    pub(super) fn new(config: &FilterConfig) -> Self {
        Self {
            asked_fpr: config.false_positive_rate,
            headroom: config.headroom,
            absent: Distinct::default(),
            positives: Distinct::default(),
            inserted: Distinct::default(),
            judged: Mutex::default(),
            said: Mutex::default(),
        }
    }

    pub(super) fn true_negative(&self, hash: KeyHash) {
        self.absent.add(hash);
    }

    /// As [`true_negative`](Self::true_negative), of many keys.
    pub(super) fn true_negatives(&self, hashes: impl IntoIterator<Item = KeyHash>) {
        self.absent.add_all(hashes);
    }

    pub(super) fn false_positive(&self, hash: KeyHash) {
        self.absent.add(hash);
        self.positives.add(hash);
    }

    /// Keys that came into the filter one by one, and not by a scan.
    pub(super) fn inserted(&self, hashes: &[KeyHash]) {
        self.inserted.add_all(hashes.iter().copied());
    }

    /// Distinct absent keys of the last five minutes.
    pub(super) fn distinct_absent(&self) -> u64 {
        self.absent.count()
    }

    /// Distinct keys that were inserted in the last five minutes.
    pub(super) fn distinct_inserted(&self) -> u64 {
        self.inserted.count()
    }

    /// Forgets what is too old; to be called every second or so.
    fn turn(&self, now: Moment) {
        [&self.absent, &self.positives, &self.inserted].iter().for_each(|keys| keys.turn(now));
    }

    /// Whether a build is due.
    fn is_due(&self, filter: &Filter, now: Moment) -> bool {
        let (items, capacity) = (filter.items() as f64, filter.capacity() as f64);
        let worthwhile = items * self.headroom > capacity * WORTHWHILE;
        let full = worthwhile && items > capacity * FULL;
        let over = worthwhile && filter.estimated_fpr() > self.asked_fpr && self.observed_over();
        self.judged.lock().judge(full, over, now)
    }

    /// Whether more of the absent keys passed than were to. Each key counts once, so no single one that is asked for again and again tips it.
    fn observed_over(&self) -> bool {
        let (absent, positives) = (self.absent.count() as f64, self.positives.count() as f64);
        absent >= (EXPECTED_POSITIVES / self.asked_fpr).min(ENOUGH_KEYS) && positives > self.asked_fpr * absent
    }
}

impl Judged {
    fn judge(&mut self, full: bool, over: bool, now: Moment) -> bool {
        self.over_since = self.over_since.filter(|_| over).or(over.then_some(now));
        let lasting = self.over_since.is_some_and(|since| now.since(since) >= LASTING);
        let due = (full || lasting) && self.last.is_none_or(|last| now.since(last) >= REST);
        if due {
            *self = Self { over_since: None, last: Some(now) };
        }
        due
    }
}

impl Guard {
    /// Asks for a build where the filter in force has become too small.
    pub(super) fn watch_growth(&self, now: Moment) {
        // Without a filter too: announces come all the same.
        self.growth.turn(now);
        let Some(current) = self.active.current() else { return };
        let filter = &current.filter;
        self.tell_growth(&current);
        if self.growth.is_due(filter, now) {
            tracing::info!(keyspace = %self.name, items = filter.items(), capacity = filter.capacity(), "the filter is too small for its keys: a rebuild starts");
            self.rebuild_wanted.notify_one();
        }
    }

    /// Logs that the filter in force has grown, or can't.
    fn tell_growth(&self, current: &Generation) {
        let filter = &current.filter;
        let now = (current.number, filter.layer_count(), filter.out_of_room());
        let said = std::mem::replace(&mut *self.growth.said.lock(), now);
        let (items, capacity, layers) = (filter.items(), filter.capacity(), now.1);
        if layers > 1 && (said.0, said.1) != (now.0, now.1) {
            tracing::info!(keyspace = %self.name, items, capacity, layers, "the filter has grown: further keys go to a layer of their own");
        }
        if let Some(why) = now.2.filter(|_| said.2.is_none()) {
            let estimated = filter.estimated_fpr();
            tracing::warn!(keyspace = %self.name, items, capacity, layers, estimated, ?why, "the filter is full: with further keys its false-positive rate rises until a rebuild");
        }
    }

    /// What an operator should know of a filter that holds more keys than it was to.
    pub(super) fn growth_warning(&self, filter: &Filter) -> Option<String> {
        let why = match filter.out_of_room()? {
            OutOfRoom::Memory => "the memory limit leaves no room for a further layer",
            OutOfRoom::Layers => "it has grown as far as it can",
        };
        let estimated = filter.estimated_fpr();
        // Full is where its share is used up, which is below the rate asked.
        (estimated > self.asked_fpr).then(|| {
            format!(
                "the filter holds about {} keys, and {why}: it is expected to let {estimated:.2e} of absent keys pass, more than filter.false_positive_rate = {}, until a rebuild",
                filter.items(),
                self.asked_fpr
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{FilterKind, FilterSpec};

    fn growth(headroom: f64) -> Growth {
        Growth::new(&FilterConfig { false_positive_rate: 0.01, headroom, ..FilterConfig::default() })
    }

    fn hash(n: u64) -> KeyHash {
        KeyHash::from_bits(xxhash_rust::xxh3::xxh3_128(&n.to_be_bytes()))
    }

    /// A filter that can't grow.
    fn filled(capacity: u64, keys: u64) -> Filter {
        let filter = Filter::within(FilterSpec { kind: FilterKind::Bloom, capacity, rate: 0.01 }, Box::new(|_| None)).unwrap();
        (0..keys).for_each(|n| filter.insert(hash(n).get()));
        filter
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(1).plus(Duration::from_secs(seconds))
    }

    /// Watches for so long, every second; the seconds at which a build was due.
    fn watch(growth: &Growth, filter: &Filter, seconds: std::ops::Range<u64>) -> Vec<u64> {
        let watched = |second: &u64| {
            growth.turn(at(*second));
            growth.is_due(filter, at(*second))
        };
        seconds.filter(watched).collect()
    }

    /// Lookups of absent keys, as they come out at this filter.
    fn ask(growth: &Growth, filter: &Filter, keys: std::ops::Range<u64>) {
        for hash in keys.map(hash) {
            if filter.contains(hash.get()) { growth.false_positive(hash) } else { growth.true_negative(hash) }
        }
    }

    #[test]
    fn a_full_filter_is_built_anew_at_once_and_no_more_than_once_an_hour() {
        let growth = growth(1.3);
        assert_eq!(watch(&growth, &filled(10_000, 9_000), 0..10), [0u64; 0]);
        assert_eq!(watch(&growth, &filled(10_000, 9_900), 10..8_000), [10, 3_610, 7_210]);
    }

    #[test]
    fn without_headroom_a_filter_as_large_as_before_is_not_built_again() {
        let growth = growth(1.0);
        assert_eq!(watch(&growth, &filled(10_000, 10_000), 0..10), [0u64; 0]);
        assert_eq!(watch(&growth, &filled(10_000, 11_500), 10..20), [10]);
    }

    /// What makes a filter too small for its rate makes it full too, except while an hour has not passed: so the rate is judged here by itself.
    #[test]
    fn rates_count_once_they_have_been_over_for_three_minutes() {
        let mut judged = Judged::default();
        assert!((0..=180).all(|second| judged.judge(false, second != 100, at(second)) == (second > 1_000)));
        assert!((181..281).all(|second| !judged.judge(false, true, at(second))));
        assert!(judged.judge(false, true, at(281)), "three minutes after it was last below");
        assert!((282..3_881).all(|second| !judged.judge(true, true, at(second))));
        assert!(judged.judge(false, true, at(3_881)));
    }

    #[test]
    fn a_filter_whose_rate_stays_over_is_built_anew_although_it_is_not_full() {
        // Built for a higher rate than is asked for by now.
        let (growth, filter) = (
            growth(1.3),
            Filter::within(FilterSpec { kind: FilterKind::Bloom, capacity: 10_000, rate: 0.05 }, Box::new(|_| None)).unwrap(),
        );
        (0..9_000).for_each(|n| filter.insert(hash(n).get()));
        let calm = watch(&growth, &filter, 0..300);
        assert_eq!(calm, [0u64; 0], "{} is estimated and nothing observed", filter.estimated_fpr());
        ask(&growth, &filter, 1_000_000..1_020_000);
        assert_eq!(watch(&growth, &filter, 300..700), [480]);
    }

    #[test]
    fn one_false_positive_that_is_asked_for_again_and_again_never_starts_a_build() {
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

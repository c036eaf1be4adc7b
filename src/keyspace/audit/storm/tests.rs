use super::*;
use crate::key::KeyForm;

/// Answers to keys by number, a rate of 0.1 % unless a test says otherwise.
struct World {
    storm: Storm,
    now: Moment,
    true_negatives: u64,
    rate: f64,
}

impl World {
    fn new() -> Self {
        Self { storm: Storm::default(), now: Moment::from_nanos(1), true_negatives: 0, rate: 0.001 }
    }

    fn hash(n: u64) -> KeyHash {
        KeyHash::from_bits(xxhash_rust::xxh3::xxh3_128(&n.to_be_bytes()))
    }

    fn found(&self, n: u64) {
        self.storm.found(Self::hash(n), self.true_negatives, self.now);
    }

    fn absent(&self, n: u64, had_row: bool) -> Suspicion {
        let key = KeyForm::Integer.canonical(n.to_string().as_bytes()).unwrap();
        let Self { rate, true_negatives, .. } = *self;
        self.storm.positive(&Positive { hash: Self::hash(n), key: &key, had_row, rate, true_negatives }, self.now)
    }

    fn is_raging(&self) -> bool {
        self.storm.is_raging(self.now)
    }
}

#[test]
fn rows_that_are_lost_are_a_storm_within_a_hundred_answers() {
    for found in [0, 20, 1000] {
        let world = World::new();
        (0..found).for_each(|n| world.found(n));
        let lost: Vec<Suspicion> = (5000..5100).map(|n| world.absent(n, true)).collect();
        let began = lost.iter().position(|suspicion| *suspicion != Suspicion::None).unwrap();
        assert_eq!(began + 1, if found > 50 { 51 } else { 30 }, "of {found} rows found before");
        assert!(matches!(&lost[began], Suspicion::Storm(taken_back) if taken_back.len() == began + 1));
        assert!(lost[began + 1..].iter().all(|suspicion| *suspicion == Suspicion::None), "it begins once");
        assert!(world.is_raging());
    }
}

#[test]
fn a_storm_ends_with_rows_that_are_found_and_without_rows_that_are_lost() {
    let mut world = World::new();
    (0..40).for_each(|n| drop(world.absent(n, true)));
    assert!(world.is_raging());
    (0..20).for_each(|n| world.found(n));
    assert!(!world.is_raging(), "the same keys are back");
    (0..40).for_each(|n| drop(world.absent(n, true)));
    world.now = world.now.plus(MAX_AGE);
    assert!(world.is_raging());
    world.now = world.now.plus(Duration::from_secs(1));
    assert!(!world.is_raging());
}

#[test]
fn one_lost_row_that_is_asked_for_again_and_again_is_one() {
    let world = World::new();
    for _ in 0..1000 {
        assert_eq!(world.absent(7, true), Suspicion::None);
    }
}

/// Of each `1 / rate` random keys one passes, for so many that pass, while the backend finds no row at all.
fn flood(rate: f64, times: f64) -> Suspicion {
    let mut world = World { rate, ..World::new() };
    for n in 0..20_000 {
        world.true_negatives += ((1.0 / rate - 1.0) / times) as u64;
        world.now = world.now.plus(Duration::from_millis(50));
        let suspicion = world.absent(n, false);
        if suspicion != Suspicion::None {
            return suspicion;
        }
    }
    Suspicion::None
}

#[test]
fn a_flood_of_random_keys_is_explained_by_the_filters_own_rate() {
    for rate in [0.0001, 0.001, 0.01, 0.05] {
        assert_eq!(flood(rate, 1.0), Suspicion::None, "{rate}");
        assert_eq!(flood(rate, 1.4), Suspicion::None, "{rate}: a filter may be worse than its estimate");
        assert_eq!(flood(rate, 4.0), Suspicion::Doubt, "{rate}: that is no filter's doing");
    }
}

#[test]
fn a_positive_that_is_replayed_counts_once() {
    let world = World::new();
    for n in 0..10_000 {
        assert_eq!(world.absent(n % 29, false), Suspicion::None);
    }
}

#[test]
fn an_empty_backend_behind_a_filter_without_rows_is_soon_doubted() {
    let mut world = World::new();
    for n in 0..29 {
        world.true_negatives += 20;
        assert_eq!(world.absent(n, false), Suspicion::None);
    }
    assert_eq!(world.absent(29, false), Suspicion::Doubt);
    assert_eq!(world.absent(30, false), Suspicion::None, "it is asked once");
    assert!(world.is_raging(), "no absence is stored until the backend has answered");
    assert_eq!(world.storm.confirm(world.now).map(|keys| keys.len()), Some(31));
    assert!(world.is_raging());
    assert_eq!(world.storm.confirm(world.now), None, "it begins once");
}

#[test]
fn while_most_rows_are_found_positives_are_not_doubted() {
    let world = World::new();
    for n in 0..1000 {
        world.found(n * 2);
        assert_eq!(world.absent(n * 2 + 1, false), Suspicion::None);
    }
}

#[test]
fn a_backend_that_has_its_rows_is_left_in_peace_for_a_while() {
    let mut world = World::new();
    let mut doubts = 0;
    for n in 0..10_000 {
        if world.absent(n, false) == Suspicion::Doubt {
            doubts += 1;
            world.storm.refute(world.now);
            assert!(!world.is_raging());
        }
        world.now = world.now.plus(Duration::from_millis(10));
    }
    assert!((5..=10).contains(&doubts), "{doubts} within 100 seconds");
}

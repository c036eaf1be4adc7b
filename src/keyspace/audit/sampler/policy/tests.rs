use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

fn hash(n: u64) -> KeyHash {
    KeyHash::from_bits(xxhash_rust::xxh3::xxh3_128(&n.to_be_bytes()))
}

fn at(seconds: f64) -> Moment {
    Moment::from_nanos(1).plus(Duration::from_secs_f64(seconds))
}

fn config(sample_rate: f64, max_per_second: u32) -> CanaryConfig {
    CanaryConfig { sample_rate, max_per_second, ..CanaryConfig::default() }
}

#[test]
fn the_budget_falls_from_all_to_the_usual_while_checks_find_nothing() {
    for (absences, usual) in [(0, 5.0), (1_000, 5.0), (10_000, 10.0), (1_000_000, 50.0)] {
        let mut policy = Policy::new(&config(0.001, 50));
        policy.tick(0, at(0.0));
        policy.tick(absences, at(1.0));
        assert_eq!(policy.budget(), 50.0, "{absences} absences a second");
        (0..6_000).for_each(|n| policy.checked(hash(n), true, at(1.0)));
        assert!((policy.budget() - usual).abs() < 0.01, "{absences}: {}", policy.budget());
        policy.warm_up();
        assert!(policy.budget() <= usual + (50.0 - usual) / 4.0 && policy.budget() >= usual);
        policy.heat_up();
        assert_eq!(policy.budget(), 50.0);
    }
}

#[test]
fn without_a_sample_rate_nothing_is_ever_checked() {
    let mut policy = Policy::new(&config(0.0, 50));
    assert_eq!(policy.probability(), 0.0);
    assert!((0..100).all(|n| !policy.admits(hash(n), at(n as f64))));
}

#[test]
fn no_second_has_more_checks_than_its_budget_and_that_is_spent() {
    let mut policy = Policy::new(&config(1.0, 50));
    let mut checked = 0;
    for n in 0..100_000 {
        let now = at(n as f64 / 1000.0);
        if n % 1000 == 0 {
            policy.tick(n, now);
        }
        if policy.admits(hash(n), now) {
            policy.checked(hash(n), true, now);
            checked += 1;
        }
    }
    assert!((4_950..=5_050).contains(&checked), "{checked} in 100 seconds");
}

#[test]
fn a_checked_key_is_checked_again_only_if_there_are_no_others() {
    let mut policy = Policy::new(&config(0.001, 50));
    let mut checks = |keys: u64, seconds: std::ops::Range<u64>| {
        let mut checked = vec![0_u32; keys as usize];
        for n in seconds.start * 1000..seconds.end * 1000 {
            let now = at(n as f64 / 1000.0);
            // Every other one is the same.
            let key = if n % 2 == 0 { 0 } else { n % keys };
            if policy.admits(hash(key), now) {
                policy.checked(hash(key), true, now);
                checked[key as usize] += 1;
            }
        }
        checked
    };
    let many = checks(20_000, 0..20);
    // Half of the first second's budget is left over at first.
    assert!(many[0] <= 15 && many.iter().sum::<u32>() > 300, "{} checks of one key", many[0]);
    let one = checks(1, 20..40);
    assert!(one[0] >= 80, "{} checks of the only key", one[0]);
}

/// Absences of a keyspace, of which one in a hundred is a row that nobody has announced. The others are keys without
/// rows: of each hundred lookups 60 are of 2,000 keys that are asked for over and over, the others of random ones.
struct Traffic {
    draws: StdRng,
    writes: bool,
    random: u64,
}

impl Traffic {
    /// The key, and whether it has a row.
    fn next(&mut self) -> (u64, bool) {
        match self.draws.random_range(0..100) {
            // Each row is read a few times after it was made.
            0 if self.writes => (1 << 40 | self.draws.random_range(0..500), true),
            0..60 => (self.draws.random_range(0..2_000), false),
            _ => {
                self.random += 1;
                (1 << 41 | self.random, false)
            }
        }
    }
}

/// The result of a run.
#[derive(Debug, Default, Clone, Copy)]
struct Run {
    /// Checks until the first row was found.
    calls: u64,
    /// Rows answered 404 until then.
    wrong: u64,
}

enum Canary {
    /// As it was: each absence with one probability, within the same pace.
    Old(f64),
    New(Box<Policy>),
}

/// Runs until a writer is found that appears after a number of seconds, or for a number of seconds. At most one check
/// per 20 ms, as with `max_per_second = 50`; further samples are not queued.
fn run(canary: &mut Canary, per_second: u64, quiet: u64, seconds: u64, seed: u64) -> Run {
    let mut traffic = Traffic { draws: StdRng::seed_from_u64(seed), writes: false, random: 0 };
    let (mut run, mut probability, mut free_at) = (Run::default(), 1.0, 0.0);
    for n in 0..per_second * seconds {
        let seconds = n as f64 / per_second as f64;
        traffic.writes = seconds >= quiet as f64;
        let (key, row) = traffic.next();
        let draw: f64 = traffic.draws.random();
        run.wrong += u64::from(row);
        let checked = match canary {
            Canary::Old(sample_rate) => draw < *sample_rate && seconds >= free_at,
            Canary::New(policy) => {
                if n % per_second == 0 {
                    policy.tick(n, at(seconds));
                    probability = policy.probability();
                }
                let checked = draw < probability && seconds >= free_at && policy.admits(hash(key), at(seconds));
                if checked {
                    policy.checked(hash(key), !row, at(seconds));
                    probability = policy.probability();
                }
                checked
            }
        };
        if checked {
            free_at = seconds + 0.02;
            run.calls += 1;
            if row {
                break;
            }
        }
    }
    run
}

const FOR_EVER: u64 = 100_000;
/// Over which calls are compared.
const HORIZON: u64 = 300;

fn median(runs: impl Iterator<Item = Run>) -> u64 {
    let mut wrong: Vec<u64> = runs.map(|run| run.wrong).collect();
    wrong.sort_unstable();
    wrong[wrong.len() / 2]
}

fn old(sample_rate: f64, per_second: u64, runs: u64) -> u64 {
    median((0..runs).map(|seed| run(&mut Canary::Old(sample_rate), per_second, 0, FOR_EVER, seed)))
}

fn policy() -> Canary {
    Canary::New(Box::new(Policy::new(&config(0.001, 50))))
}

fn new(per_second: u64, quiet: u64, runs: u64) -> u64 {
    median((0..runs).map(|seed| run(&mut policy(), per_second, quiet, FOR_EVER, seed)))
}

/// Calls while nothing is wrong, in the first [`HORIZON`] seconds of a filter.
fn calls(per_second: u64) -> u64 {
    run(&mut policy(), per_second, FOR_EVER, HORIZON, 1).calls
}

/// The rate with which the old canary makes as many.
fn matching_rate(per_second: u64) -> f64 {
    calls(per_second) as f64 / (per_second * HORIZON) as f64
}

#[test]
fn with_as_many_calls_a_writer_beside_a_new_filter_is_found_earlier() {
    for per_second in [100, 1_000] {
        let (before, same) = (old(0.001, per_second, 5), old(matching_rate(per_second), per_second, 5));
        let now = new(per_second, 0, 5);
        assert!(
            now * 5 < before && now * 3 < same * 2,
            "{per_second} a second: {before} before, {same} with as many calls, {now} now"
        );
    }
}

/// The table of docs/scaling.md: `cargo test --lib canary::policy -- --ignored --nocapture`.
#[test]
#[ignore = "a long run: make long"]
#[allow(clippy::print_stdout)]
fn table_of_wrong_answers_until_detection() {
    println!(
        "| absences per second | checks in the first 5 minutes | writer comes with the filter | 5 minutes later | \
         fixed rate, as many checks | fixed rate 0.001 |"
    );
    println!("|---:|---:|---:|---:|---:|---:|");
    for per_second in [100, 1_000, 10_000] {
        let runs = if per_second < 10_000 { 21 } else { 9 };
        let (early, late) = (new(per_second, 0, runs), new(per_second, HORIZON, runs));
        let (same, before) = (old(matching_rate(per_second), per_second, runs), old(0.001, per_second, runs));
        println!("| {per_second} | {} | {early} | {late} | {same} | {before} |", calls(per_second));
    }
}

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
        if policy.admits(hash(n), now) {
            policy.checked(hash(n), true, now);
            checked += 1;
        }
    }
    assert!((4_950..=5_050).contains(&checked), "{checked} in 100 seconds");
}

#[test]
fn a_key_that_was_checked_gives_way_to_others_and_is_checked_again_where_there_are_none() {
    let mut policy = Policy::new(&config(0.001, 50));
    let mut checks = |keys: u64, seconds: std::ops::Range<u64>| {
        let mut checked = vec![0; keys as usize];
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
    assert!(many[0] <= 2, "{} checks of one key", many[0]);
    let one = checks(1, 20..40);
    assert!(one[0] >= 80, "{} checks of the only key", one[0]);
}

/// Absences of a keyspace, of which one in a hundred is a row that nobody has announced. The others are keys without rows: of each hundred lookups 60 are of
/// 2,000 keys that are asked for over and over, the others of random ones.
struct Traffic {
    draws: StdRng,
    per_second: u64,
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

/// What a run comes to.
#[derive(Debug, Default, Clone, Copy)]
struct Run {
    /// Checks while nothing was wrong, and until the first row was found.
    calls: u64,
    /// Rows answered 404 until then.
    wrong: u64,
}

/// The canary as it was: each absence with one probability, within the same pace.
struct Fixed {
    sample_rate: f64,
    free_at: f64,
}

enum Canary {
    Old(Fixed),
    New(Box<Policy>),
}

/// A writer appears after so many seconds. At most one check each 20 ms, as with `max_per_second = 50`; what comes meanwhile waits in no queue.
fn run(canary: &mut Canary, per_second: u64, quiet: u64, seed: u64) -> Run {
    let mut traffic = Traffic { draws: StdRng::seed_from_u64(seed), per_second, writes: false, random: 0 };
    let (mut run, mut probability, mut free_at) = (Run::default(), 1.0, 0.0);
    for n in 0.. {
        let seconds = n as f64 / traffic.per_second as f64;
        traffic.writes = seconds >= quiet as f64;
        let (key, row) = traffic.next();
        let draw: f64 = traffic.draws.random();
        run.wrong += u64::from(row);
        let checked = match canary {
            Canary::Old(Fixed { sample_rate, free_at }) => {
                let drawn = draw < *sample_rate && seconds >= *free_at;
                *free_at = if drawn { seconds + 0.02 } else { *free_at };
                drawn
            }
            Canary::New(policy) => {
                if n % per_second == 0 {
                    policy.tick(n, at(seconds));
                    probability = policy.probability();
                }
                let drawn = draw < probability && seconds >= free_at && policy.admits(hash(key), at(seconds));
                if drawn {
                    free_at = seconds + 0.02;
                    policy.checked(hash(key), !row, at(seconds));
                    probability = policy.probability();
                }
                drawn
            }
        };
        run.calls += u64::from(checked);
        if checked && row {
            break;
        }
    }
    run
}

fn median(mut runs: Vec<Run>) -> Run {
    runs.sort_by_key(|run| run.wrong);
    let calls = runs.iter().map(|run| run.calls).sum::<u64>() / runs.len() as u64;
    Run { calls, wrong: runs[runs.len() / 2].wrong }
}

fn old(sample_rate: f64, per_second: u64, quiet: u64, runs: u64) -> Run {
    median((0..runs).map(|seed| run(&mut Canary::Old(Fixed { sample_rate, free_at: 0.0 }), per_second, quiet, seed)).collect())
}

fn new(per_second: u64, quiet: u64, runs: u64) -> Run {
    median((0..runs).map(|seed| run(&mut Canary::New(Box::new(Policy::new(&config(0.001, 50)))), per_second, quiet, seed)).collect())
}

/// The rate with which the old canary makes as many calls.
fn matching_rate(calls: u64, per_second: u64, quiet: u64, runs: u64) -> f64 {
    let (mut low, mut high) = (0.000_01_f64, 1.0_f64);
    for _ in 0..12 {
        let middle = (low * high).sqrt();
        if old(middle, per_second, quiet, runs).calls < calls { low = middle } else { high = middle }
    }
    high
}

#[test]
fn a_writer_that_comes_with_a_new_filter_is_found_early() {
    for (per_second, most) in [(100, 20), (1_000, 60), (10_000, 400)] {
        let (before, now) = (old(0.001, per_second, 0, 9), new(per_second, 0, 9));
        assert!(now.wrong <= most && now.wrong * 2 < before.wrong, "{per_second}: {before:?} {now:?}");
    }
}

#[test]
fn for_the_same_calls_fewer_rows_are_answered_404() {
    for per_second in [100, 1_000] {
        let now = new(per_second, 120, 9);
        let rate = matching_rate(now.calls, per_second, 120, 9);
        let before = old(rate, per_second, 120, 9);
        assert!(now.wrong < before.wrong, "{per_second}: {before:?} at {rate} {now:?}");
    }
}

/// The table of docs/operations.md: `cargo test --release --lib canary::policy -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout)]
fn table_of_wrong_answers_until_detection() {
    println!("| absences a second | writer appears | before | now | before, with as many calls | calls |");
    println!("|---:|---|---:|---:|---:|---:|");
    for per_second in [100, 1_000, 10_000] {
        for quiet in [0, 60, 600] {
            let runs = if per_second * quiet > 1_000_000 { 5 } else { 21 };
            let (before, now) = (old(0.001, per_second, quiet, runs), new(per_second, quiet, runs));
            let same = old(matching_rate(now.calls, per_second, quiet, runs), per_second, quiet, runs);
            let when = if quiet == 0 { "at once".to_owned() } else { format!("after {quiet} s") };
            println!("| {per_second} | {when} | {} | {} | {} | {} |", before.wrong, now.wrong, same.wrong, now.calls);
        }
    }
}

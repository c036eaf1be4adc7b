//! Many keys asked of the filter at once.

use std::time::Duration;

use bloomguard::config::KeyspaceConfig;
use bloomguard::key::KeySecret;
use bloomguard::labels::{RebuildOutcome, State, Verdict};

use crate::support::eventually;
use crate::support::keyspace::{TestKeyspace, config};
use crate::support::scripted::key;

fn keys() -> Vec<String> {
    // One in four is there; more keys than are probed together, and the last handful is not full.
    (0..1_999).map(|n| if n % 4 == 0 { format!("user:{}", n / 2) } else { format!("nobody:{n}") }).collect()
}

/// Invariant: batch-equals-single
#[tokio::test]
async fn a_batch_check_says_of_each_key_what_a_check_of_it_says() {
    for percent in [0, 30, 100] {
        let mut config = config();
        config.enforce_percent = percent;
        let ks = TestKeyspace::enforcing(config).await;
        let keys = keys();
        let mut check = ks.keyspace.begin_check(keys.len()).unwrap();
        assert!(check.add(b"").is_err(), "a key that is refused leaves no trace");
        keys.iter().for_each(|key| check.add(key.as_bytes()).unwrap());
        let checked = check.finish();
        let verdicts = ["absent", "maybe"].map(|verdict| {
            let name = format!("bloomguard_filter_checks_total{{keyspace=\"users\",verdict=\"{verdict}\"}}");
            ks.metric(&name)
        });
        let absent: Vec<usize> = checked.absent().collect();
        let single = |index: &usize| ks.keyspace.check(&key(&keys[*index])).effective() == Verdict::Absent;
        assert_eq!(absent, (0..keys.len()).filter(single).collect::<Vec<_>>(), "{percent} %");
        assert!(
            if percent == 100 { absent.len() > 1_400 } else { absent.len() < 700 },
            "{percent} %: {}",
            absent.len()
        );
        let raw = keys.iter().filter(|text| ks.keyspace.peek(&key(text)).verdict == Verdict::Absent).count();
        assert_eq!(verdicts, [raw as f64, (keys.len() - raw) as f64], "raw verdicts are counted, once");
    }
}

#[tokio::test]
async fn a_batch_of_a_cold_keyspace_is_all_maybe_and_counts_no_verdict() {
    let ks = TestKeyspace::cold(config());
    let mut check = ks.keyspace.begin_check(3).unwrap();
    ["user:1", "nobody", "user:2"].iter().for_each(|key| check.add(key.as_bytes()).unwrap());
    let checked = check.finish();
    assert_eq!(
        (checked.absent().count(), checked.checked, checked.generation, checked.state.as_str()),
        (0, 3, 0, "cold")
    );
    assert_eq!(checked.into_bits(), [0b111]);
    assert_eq!(ks.metric("bloomguard_filter_checks_total{keyspace=\"users\",verdict=\"maybe\"}"), 0.0);
}

#[tokio::test]
async fn absences_that_a_batch_was_told_are_sampled_and_nothing_else_of_it() {
    let mut eager = config();
    (eager.canary.sample_rate, eager.canary.max_per_second) = (1.0, 1000);
    let ks = TestKeyspace::enforcing(eager).await;
    let absent = ks.absent();
    let mut check = ks.keyspace.begin_check(3).unwrap();
    ["user:1", &absent, "user:2"].iter().for_each(|key| check.add(key.as_bytes()).unwrap());
    assert_eq!(check.finish().absent().collect::<Vec<_>>(), [1]);
    let checks = |result: &str| {
        ks.metric(&format!("bloomguard_filter_canary_checks_total{{keyspace=\"users\",result=\"{result}\"}}"))
    };
    eventually("the absence is checked", || checks("absent") == 1.0).await;
    assert_eq!((checks("late"), checks("false_negative"), checks("error")), (0.0, 0.0, 0.0));
}

#[tokio::test]
async fn a_batch_is_judged_by_the_filter_in_force_when_its_last_key_is_there() {
    let ks = TestKeyspace::enforcing(config()).await;
    let absent = ks.absent();
    let mut check = ks.keyspace.begin_check(0).unwrap();
    check.add(absent.as_bytes()).unwrap();
    // While more of its keys arrive: a row, and a filter that knows it.
    ks.source.keys.lock().push(absent.clone());
    assert_eq!(ks.rebuild().await, RebuildOutcome::Swapped);
    check.add(b"user:1").unwrap();
    let checked = check.finish();
    assert_eq!((checked.absent().count(), checked.checked, checked.generation), (0, 2, ks.keyspace.generation()));
}

#[tokio::test]
async fn keys_hashed_before_the_secret_changed_are_asked_of_no_filter() {
    let ks = TestKeyspace::enforcing(KeyspaceConfig { commit_window: Duration::from_millis(1), ..config() }).await;
    let mut check = ks.keyspace.begin_check(1).unwrap();
    check.add(b"user:1").unwrap();
    ks.keyspace.agree_on_secret(KeySecret::random());
    let before = ks.keyspace.generation();
    eventually("a filter under the new secret rejects", || {
        ks.keyspace.generation() > before && ks.keyspace.state() == State::Enforcing
    })
    .await;
    let checked = check.finish();
    assert_eq!((checked.absent().count(), checked.checked, checked.generation), (0, 1, 0));
}

//! What is asked most allocates nothing.

use bloomguard::filter::{Filter, FilterKind, FilterSpec};
use bloomguard::key::{KeyForm, KeySecret};
use bloomguard::labels::Verdict;

use crate::support::allocations::allocations;
use crate::support::keyspace::{TestKeyspace, config};
use crate::support::scripted::key;

/// Allocations of this thread meanwhile.
fn allocated(action: impl FnOnce()) -> u64 {
    let before = allocations();
    action();
    allocations() - before
}

#[test]
fn the_allocator_counts() {
    assert_eq!(allocated(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

/// Invariant: probes-allocate-nothing
#[test]
fn no_probe_allocates_anything() {
    let secret = KeySecret::random();
    let keys: Vec<_> = (0..2_000).map(|n| KeyForm::Text.canonical(format!("user:{n}").as_bytes()).unwrap()).collect();
    for kind in FilterKind::ALL {
        let filter = Filter::new(FilterSpec { kind, capacity: 1_000, rate: 0.01 }).unwrap();
        let (members, absent) = keys.split_at(1_000);
        members.iter().for_each(|key| filter.insert(secret.hash(key).get()));
        let probes = allocated(|| {
            assert!(members.iter().all(|key| filter.contains(secret.hash(key).get())));
            assert!(absent.iter().filter(|key| filter.contains(secret.hash(key).get())).count() < 100);
        });
        assert_eq!(probes, 0, "{kind:?}");
        let hashes: Vec<u128> = keys.iter().map(|key| secret.hash(key).get()).collect();
        let mut found = vec![false; hashes.len()];
        assert_eq!(allocated(|| filter.contains_many(&hashes, &mut found)), 0, "{kind:?}, many at once");
        assert_eq!(
            allocated(|| members.iter().for_each(|key| filter.insert(secret.hash(key).get()))),
            0,
            "{kind:?}, inserts of keys it has"
        );
    }
}

/// Invariant: probes-allocate-nothing
#[tokio::test]
async fn a_check_of_many_keys_allocates_no_more_often_than_one_of_few() {
    let mut config = config();
    config.canary.sample_rate = 0.0;
    let ks = TestKeyspace::enforcing(config).await;
    let keys: Vec<String> = (0..20_000).map(|n| format!("user:{n}")).collect();
    let allocated_for = |keys: &[String]| {
        allocated(|| {
            let mut check = ks.keyspace.begin_check(keys.len()).unwrap();
            assert!(keys.iter().all(|key| check.add(key.as_bytes()).is_ok()));
            let checked = check.finish();
            assert!(checked.checked == keys.len() && checked.absent().count() > keys.len().saturating_sub(1_100));
        })
    };
    // What a thread makes for itself once.
    allocated_for(&keys);
    assert_eq!(allocated_for(&keys), allocated_for(&keys[19_990..]));
}

/// Invariant: probes-allocate-nothing
#[tokio::test]
async fn no_check_that_says_absent_allocates_anything() {
    let mut config = config();
    // A sampled check is looked up at the backend, in a task.
    config.canary.sample_rate = 0.0;
    let ks = TestKeyspace::enforcing(config).await;
    let absent = key(ks.absent());
    let check = || assert_eq!(ks.keyspace.check(&absent).verdict, Verdict::Absent);
    // What a thread makes for itself once.
    check();
    assert_eq!(allocated(|| (0..1_000).for_each(|_| check())), 0);
}

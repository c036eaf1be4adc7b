//! Avalanche: entries that are made together must not expire together.

use std::time::{Duration, Instant};

use bloomguard::keyspace::LookupOptions;
use bloomguard::labels::RebuildOutcome;

use super::marks::redis_cache;
use crate::support::keyspace::{TestKeyspace, config, unlimited};
use crate::support::redis::RedisServer;
use crate::support::scripted::key;

const TTL: Duration = Duration::from_secs(3600);
const JITTER: f64 = 0.1;
const BINS: usize = 20;

/// Each entry lives within the range, and no twentieth of it holds more than a uniform draw puts there, six standard
/// deviations included.
fn assert_spread(what: &str, left: &[Duration], took: Duration) {
    let [shortest, longest] = [1.0 - JITTER, 1.0 + JITTER].map(|share| TTL.as_secs_f64() * share);
    // Entries made earlier have lost what has passed since; that only spreads them further.
    let begin = shortest - took.as_secs_f64();
    let width = (longest - shortest) / BINS as f64;
    let mut bins = vec![0; ((longest - begin) / width).ceil() as usize + 1];
    for left in left.iter().map(Duration::as_secs_f64) {
        assert!((begin..=longest).contains(&left), "{what}: {left} s left of {shortest} to {longest} s");
        bins[((left - begin) / width) as usize] += 1;
    }
    let (count, share) = (left.len() as f64, 1.0 / BINS as f64);
    let bound = count * share + 6.0 * (count * share * (1.0 - share)).sqrt();
    assert!(bins.iter().all(|bin| f64::from(*bin) <= bound), "{what}: more than {bound} in one of {bins:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_one_moment_expire_all_over_their_range() {
    let redis = RedisServer::start();
    let mut hourly = config();
    hourly.deadline = Duration::from_secs(120);
    hourly.max_staleness = 10 * TTL;
    hourly.cache.ttl = TTL;
    hourly.cache.absent_ttl = TTL;
    hourly.cache.jitter = JITTER;
    let ks = TestKeyspace::with_cache(hourly, redis_cache(&redis).await);
    let names: Vec<String> = (0..3000).map(|i| format!("user:{i}")).collect();
    *ks.source.keys.lock() = names.clone();
    names.iter().for_each(|name| ks.backend.commit(name));
    assert_eq!(ks.rebuild().await, RebuildOutcome::Swapped);
    // Two of three are there: fewer would be an absence storm.
    let (gone, there): (Vec<_>, Vec<_>) = names.iter().enumerate().partition(|(i, _)| i % 3 == 2);
    gone.iter().for_each(|(_, name)| ks.backend.remove(name));
    let start = Instant::now();
    let lookups = ks
        .keyspace
        .lookup_all(names.iter().map(key).collect(), LookupOptions::default(), u64::MAX, &mut unlimited())
        .await;
    assert!(lookups.iter().all(|lookup| lookup.answer.is_ok()));
    let left = |names: &[(usize, &String)]| -> Vec<Duration> {
        let mut asks = redis::pipe();
        names.iter().for_each(|(_, name)| {
            asks.cmd("PTTL").arg(format!("bloomguard:entry:users:{name}"));
        });
        let left: Vec<i64> = asks.query(&mut redis.connection()).unwrap();
        left.into_iter()
            .map(|left| Duration::from_millis(u64::try_from(left).expect("an entry that expires")))
            .collect()
    };
    let (values, absences) = (left(&there), left(&gone));
    assert_spread("values", &values, start.elapsed());
    assert_spread("absences", &absences, start.elapsed());
}

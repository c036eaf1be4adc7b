//! Leases, and what reads tell of expiries, on a real Redis.

use std::time::Duration;

use bloomguard::cache::{Ending, Entry, Lease, LeaseState, Mark, RedisCache, SharedCache};

use crate::cache::contract::{LONG, Linked, key, value};
use crate::support::eventually;
use crate::support::redis::RedisServer;

async fn turn(cache: &RedisCache, lease: &Lease, life: Duration) -> LeaseState {
    cache.claim(&key("1"), lease, life).await.unwrap().state
}

fn leases(server: &RedisServer) -> usize {
    redis::cmd("KEYS").arg("bloomguard:lease:*").query::<Vec<String>>(&mut server.connection()).unwrap().len()
}

#[tokio::test]
async fn one_claim_is_granted_and_the_same_one_again() {
    let linked = Linked::to(RedisServer::start()).await;
    let (cache, other) = (linked.cache(), linked.cache_of("orders", 7));
    let (first, second) = (Lease::random(), Lease::random());
    assert_eq!(turn(&cache, &first, LONG).await, LeaseState::Ours);
    assert_eq!(turn(&cache, &second, LONG).await, LeaseState::Theirs);
    assert_eq!(turn(&cache, &first, LONG).await, LeaseState::Ours, "as where the answer to the first was lost");
    assert_eq!(turn(&other, &second, LONG).await, LeaseState::Ours, "keyspaces don't share keys");
}

#[tokio::test]
async fn who_claims_after_a_load_finds_what_it_stored() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache = linked.cache();
    let (first, second) = (Lease::random(), Lease::random());
    let claim = cache.claim(&key("1"), &first, LONG).await.unwrap();
    assert_eq!(claim.seen.entry, Entry::Nothing);
    cache.put_value(&key("1"), &value("a"), LONG, Duration::ZERO, &claim.seen.stamp).await.unwrap();
    cache.release(&key("1"), &first, Ending::Stored, LONG).await.unwrap();
    let claim = cache.claim(&key("1"), &second, LONG).await.unwrap();
    assert_eq!((claim.state, claim.seen.entry), (LeaseState::Ours, Entry::Value(value("a"))));
}

#[tokio::test]
async fn a_load_that_stored_nothing_frees_the_key_for_everybody_for_a_while() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache = linked.cache();
    let first = Lease::random();
    assert_eq!(turn(&cache, &first, LONG).await, LeaseState::Ours);
    cache.release(&key("1"), &first, Ending::NotStored, LONG).await.unwrap();
    for _ in 0..3 {
        assert_eq!(turn(&cache, &Lease::random(), LONG).await, LeaseState::Free);
    }
    let _: () =
        redis::cmd("PEXPIRE").arg("bloomguard:lease:users:1").arg(1).query(&mut linked.server.connection()).unwrap();
    eventually("the note is gone", || leases(&linked.server) == 0).await;
    assert_eq!(turn(&cache, &Lease::random(), LONG).await, LeaseState::Ours);
}

#[tokio::test]
async fn a_lease_that_ended_can_not_give_the_next_one_back() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache = linked.cache();
    let (first, second) = (Lease::random(), Lease::random());
    assert_eq!(turn(&cache, &first, Duration::from_millis(1)).await, LeaseState::Ours);
    eventually("the first has ended", || leases(&linked.server) == 0).await;
    assert_eq!(turn(&cache, &second, LONG).await, LeaseState::Ours);
    for ending in [Ending::Stored, Ending::NotStored] {
        cache.release(&key("1"), &first, ending, LONG).await.unwrap();
        assert_eq!(turn(&cache, &Lease::random(), LONG).await, LeaseState::Theirs);
    }
}

#[tokio::test]
async fn leases_expire_even_if_their_holders_are_gone() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache = linked.cache();
    let life = Duration::from_millis(300);
    for n in 0..200 {
        let lease = Lease::random();
        cache.claim(&key(&n.to_string()), &lease, life).await.unwrap();
        if n % 2 == 0 {
            cache.release(&key(&n.to_string()), &lease, Ending::NotStored, life).await.unwrap();
        }
    }
    eventually("nothing is left", || leases(&linked.server) == 0).await;
}

#[tokio::test]
async fn expiries_are_told_of_values_alone_and_where_they_are_asked_for() {
    let linked = Linked::to(RedisServer::start()).await;
    let (silent, cache) = (linked.cache(), linked.cache().telling_expiries(true));
    let keys = ["value", "absence", "mark", "nothing"].map(key);
    let stamp = cache.get(&keys[0]).await.unwrap().stamp;
    let cost = Duration::from_millis(12);
    cache.put_value(&keys[0], &value("a"), LONG, cost, &stamp).await.unwrap();
    cache.put_absence(&keys[1], LONG, &stamp).await.unwrap();
    cache.put_mark(&keys[2], Mark::Dropped, LONG).await.unwrap();
    let mut seen = cache.get_many(&keys).await.unwrap();
    seen.push(cache.get(&keys[0]).await.unwrap());
    for (n, seen) in seen.into_iter().enumerate() {
        let told = seen.expiry.inspect(|expiry| assert!(expiry.left <= LONG && expiry.left > LONG / 2, "{expiry:?}"));
        assert_eq!(told.map(|expiry| expiry.cost), [0, 4].contains(&n).then_some(cost), "{n}: {:?}", seen.entry);
    }
    assert_eq!(cache.get(&keys[1]).await.unwrap().expiry, None);
    assert_eq!(silent.get(&keys[0]).await.unwrap().expiry, None);
}

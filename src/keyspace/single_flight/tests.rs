use super::*;
use crate::key::KeyForm;
use crate::labels::Source;

const HASH: KeyHash = KeyHash::from_bits(7);

fn key() -> Key {
    KeyForm::Text.canonical(b"k").unwrap()
}

fn absent() -> Loaded {
    Ok(Answer::fresh(None, Source::Backend))
}

fn found() -> Loaded {
    let value = crate::backend::Value {
        body: bytes::Bytes::from_static(b"{}"),
        content_type: crate::backend::ContentType::Json,
    };
    Ok(Answer::fresh(Some(value), Source::Backend))
}

fn lead(flights: &Arc<Flights>) -> (Flight, Waiter) {
    match flights.join(HASH, &key(), Kind::Plain) {
        Role::Leader(flight, waiter) => (flight, waiter),
        Role::Follower(_) => panic!("the key has a leader already"),
    }
}

fn join(flights: &Arc<Flights>) -> Waiter {
    match flights.join(HASH, &key(), Kind::Plain) {
        Role::Follower(waiter) => waiter,
        Role::Leader(..) => panic!("the key has no leader"),
    }
}

#[tokio::test]
async fn an_absence_is_shared_only_with_those_who_joined_before_the_read() {
    let flights = Flights::new();
    let (flight, leader) = lead(&flights);
    let early = join(&flights);
    flight.begin_read();
    let (late, later) = (join(&flights), join(&flights));
    let second = flight.finish(&absent(), || ()).expect("the late ones want a round of their own");
    assert!(matches!(leader.result().await, Some(Ok(Answer { value: None, .. }))));
    assert!(matches!(early.result().await, Some(Ok(Answer { value: None, .. }))));
    second.begin_read();
    assert!(second.finish(&found(), || ()).is_none());
    for waiter in [late, later] {
        assert!(matches!(waiter.result().await, Some(Ok(Answer { value: Some(_), .. }))));
    }
}

#[tokio::test]
async fn a_value_is_shared_with_everyone() {
    let flights = Flights::new();
    let (flight, _leader) = lead(&flights);
    flight.begin_read();
    let late = join(&flights);
    assert!(flight.finish(&found(), || ()).is_none());
    assert!(matches!(late.result().await, Some(Ok(Answer { value: Some(_), .. }))));
}

#[tokio::test]
async fn a_detached_flight_is_not_joined_and_stores_nothing_hot() {
    let flights = Flights::new();
    let (flight, leader) = lead(&flights);
    flight.begin_read();
    let late = join(&flights);
    flights.detach(HASH);
    assert!(late.result().await.is_none(), "a late waiter looks again");
    let (second, _) = lead(&flights);
    let mut stored = false;
    assert!(flight.finish(&found(), || stored = true).is_none());
    assert!(!stored);
    assert!(leader.result().await.is_some());
    second.finish(&found(), || stored = true);
    assert!(stored, "finishing the detached one left the second in place");
}

#[tokio::test(start_paused = true)]
async fn a_late_waiter_of_a_detached_flight_looks_again_at_once() {
    let flights = Flights::new();
    let (flight, leader) = lead(&flights);
    flight.begin_read();
    let late = join(&flights);
    drop(leader);
    let loading = async {
        // Never ends: the next round has a waiter.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), flight.abandoned()).await;
    };
    let looking = async {
        tokio::task::yield_now().await;
        flights.detach(HASH);
        late.result().await
    };
    let ((), looked) =
        tokio::join!(biased; loading, tokio::time::timeout(std::time::Duration::from_millis(500), looking));
    assert!(matches!(looked, Ok(None)), "it looks again at once");
}

#[tokio::test]
async fn a_dead_leader_frees_the_key() {
    let flights = Flights::new();
    let (flight, leader) = lead(&flights);
    drop(flight);
    assert!(leader.result().await.is_none());
    let _ = lead(&flights);
}

#[tokio::test]
async fn a_fresh_load_shares_no_earlier_read() {
    let flights = Flights::new();
    let (plain, _waiter) = lead(&flights);
    let join = || flights.join(HASH, &key(), Kind::Fresh);
    let Role::Leader(flight, first) = join() else { panic!("a load that may use a cached absence was joined") };
    flight.begin_read();
    let Role::Follower(late) = join() else { panic!("a second load beside the first") };
    let second = flight.finish(&found(), || ()).expect("a value of the older read is not for the late one");
    assert!(first.result().await.is_some());
    second.begin_read();
    assert!(second.finish(&found(), || ()).is_none());
    assert!(late.result().await.is_some());
    assert!(
        matches!(flights.join(HASH, &key(), Kind::Bypass), Role::Leader(..)),
        "a bypass shares no load that may read a cache"
    );
    drop(plain);
}

#[test]
fn keys_of_one_hash_are_loaded_separately() {
    let flights = Flights::new();
    let (_flight, _waiter) = lead(&flights);
    let other = KeyForm::Text.canonical(b"other").unwrap();
    assert!(matches!(flights.join(HASH, &other, Kind::Plain), Role::Leader(..)));
}

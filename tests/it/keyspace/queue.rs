//! The queue in front of the backend, which the filter's verdict orders also while the filter answers nothing.

use std::sync::Arc;
use std::time::Duration;

use bloomguard::config::{Enforcement, KeyspaceConfig};
use bloomguard::keyspace::LookupOptions;
use bloomguard::labels::State;
use tokio::task::JoinHandle;

use crate::support::eventually;
use crate::support::keyspace::{TestKeyspace, config, told, unlimited};
use crate::support::scripted::{Turnstile, key};

/// One call at a time, and so many that wait. Whatever the filter says, the backend is asked.
fn narrow(max_queue: usize) -> KeyspaceConfig {
    let mut config = KeyspaceConfig { enforcement: Enforcement::Shadow, ..config() };
    (config.backend.max_concurrency, config.backend.max_queue) = (1, max_queue);
    config
}

/// A keyspace whose one call is taken by `user:0`, until [`Busy::free`].
struct Busy {
    ks: TestKeyspace,
    turnstile: Arc<Turnstile>,
    waiting: Vec<JoinHandle<String>>,
    /// Reads of the shared cache that found nothing.
    misses: f64,
}

impl Busy {
    async fn new(ks: TestKeyspace) -> Self {
        assert!(ks.backend.asked().is_empty(), "recorded from now on");
        let turnstile = ks.backend.hold_after_read();
        let mut busy = Self { ks, turnstile, waiting: vec![], misses: 0.0 };
        busy.asks("user:0", LookupOptions::default()).await;
        busy.turnstile.reached().await;
        busy.ks.backend.hold_no_more();
        busy
    }

    /// Begins a lookup, which is at the queue on return: nothing between the shared cache of these tests and the queue
    /// waits, and there is one thread.
    async fn asks(&mut self, name: &str, options: LookupOptions) {
        let (keyspace, name) = (Arc::clone(&self.ks.keyspace), name.to_owned());
        self.waiting.push(tokio::spawn(async move { told(&keyspace.lookup(key(name), options).await) }));
        self.misses += 1.0;
        let read = "bloomguard_cache_requests_total{keyspace=\"users\",tier=\"redis\",result=\"miss\"}";
        eventually("it is at the queue", || self.ks.metric(read) >= self.misses).await;
    }

    async fn wait(&mut self, name: &str) {
        self.asks(name, LookupOptions::default()).await;
    }

    /// Lets the call end. Returns the answers, and the keys that the backend was asked for, in order.
    async fn free(self) -> (Vec<String>, Vec<String>) {
        self.turnstile.release();
        let mut answers = vec![];
        for lookup in self.waiting {
            answers.push(lookup.await.unwrap());
        }
        (answers, self.ks.backend.asked())
    }
}

/// Invariant: absent-keys-wait-behind-present-ones
#[tokio::test]
async fn keys_that_the_filter_called_absent_wait_behind_those_it_holds() {
    let ks = TestKeyspace::enforcing(narrow(10)).await;
    assert_eq!(ks.keyspace.state(), State::Shadow);
    let stranger = ks.absent();
    let mut busy = Busy::new(ks).await;
    for name in [&stranger, "user:1", "user:2"] {
        busy.wait(name).await;
    }
    let (answers, asked) = busy.free().await;
    assert_eq!(asked, ["user:0", "user:1", "user:2", &stranger]);
    assert_eq!(answers, ["200 backend", "404 backend", "200 backend", "200 backend"]);
}

/// Invariant: absent-keys-wait-behind-present-ones
#[tokio::test]
async fn keys_that_the_filter_called_absent_are_shed_first() {
    let ks = TestKeyspace::enforcing(narrow(2)).await;
    let stranger = |number: u32| format!("stranger:{number}");
    let strangers: Vec<String> = (0..).map(stranger).filter(|name| !ks.maybe(name)).take(3).collect();
    let mut busy = Busy::new(ks).await;
    busy.wait(&strangers[0]).await;
    busy.wait(&strangers[1]).await;
    assert_eq!(busy.ks.get(&strangers[2]).await, "503", "at once");
    busy.wait("user:1").await;
    let full = "bloomguard_shed_total{keyspace=\"users\",reason=\"queue_full\"}";
    assert_eq!(busy.ks.metric(full), 2.0, "the one that came to a full queue, and the youngest in it");
    let (answers, asked) = busy.free().await;
    assert_eq!(answers, ["200 backend", "404 backend", "503", "200 backend"]);
    assert_eq!(asked, ["user:0", "user:1", &strangers[0]]);
}

#[tokio::test]
async fn a_key_announced_while_it_waits_goes_first_when_asked_again() {
    let ks = TestKeyspace::enforcing(narrow(10)).await;
    let strangers: Vec<String> =
        (0..).map(|n| format!("stranger:{n}")).filter(|name| !ks.maybe(name)).take(2).collect();
    let mut busy = Busy::new(ks).await;
    busy.wait(&strangers[0]).await;
    busy.wait(&strangers[1]).await;
    busy.ks.keyspace.announce(&[key(&strangers[1])]).await.unwrap();
    busy.ks.backend.commit(&strangers[1]);
    busy.wait(&strangers[1]).await;
    let (answers, asked) = busy.free().await;
    assert_eq!(asked, ["user:0", &strangers[1], &strangers[0], &strangers[1]], "the second load is its own");
    assert_eq!(answers, ["200 backend", "404 backend", "200 backend", "200 backend"]);
}

#[tokio::test]
async fn a_key_of_a_version_that_is_not_applied_is_not_called_absent() {
    let ks = TestKeyspace::enforcing(narrow(10)).await;
    let strangers: Vec<String> =
        (0..).map(|n| format!("stranger:{n}")).filter(|name| !ks.maybe(name)).take(3).collect();
    let mut busy = Busy::new(ks).await;
    busy.wait(&strangers[0]).await;
    let unapplied = LookupOptions { unapplied_version: true, ..LookupOptions::default() };
    busy.asks(&strangers[1], unapplied).await;
    let (_, asked) = busy.free().await;
    assert_eq!(asked, ["user:0", &strangers[1], &strangers[0]]);
}

#[tokio::test]
async fn without_a_filter_lookups_wait_in_order_of_arrival() {
    let mut busy = Busy::new(TestKeyspace::cold(narrow(10))).await;
    for name in ["stranger:1", "user:1", "stranger:2"] {
        busy.wait(name).await;
    }
    let (_, asked) = busy.free().await;
    assert_eq!(asked, ["user:0", "stranger:1", "user:1", "stranger:2"]);
}

#[tokio::test]
async fn a_batch_asks_for_keys_called_absent_by_calls_of_their_own() {
    let ks = TestKeyspace::enforcing(narrow(2)).await;
    ks.backend.answer_together(10);
    let strangers: Vec<String> =
        (0..).map(|n| format!("stranger:{n}")).filter(|name| !ks.maybe(name)).take(2).collect();
    let mut busy = Busy::new(ks).await;
    busy.wait(&strangers[0]).await;
    let keyspace = Arc::clone(&busy.ks.keyspace);
    let batch = [strangers[1].clone(), "user:1".into(), "user:2".into()].map(key).to_vec();
    let batch = tokio::spawn(async move {
        let lookups = keyspace.lookup_all(batch, LookupOptions::default(), u64::MAX, &mut unlimited()).await;
        lookups.iter().map(told).collect::<Vec<_>>()
    });
    busy.misses += 3.0;
    let read = "bloomguard_cache_requests_total{keyspace=\"users\",tier=\"redis\",result=\"miss\"}";
    eventually("it is at the queue", || busy.ks.metric(read) >= busy.misses).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let (_, asked) = busy.free().await;
    assert_eq!(batch.await.unwrap(), ["404 backend", "200 backend", "200 backend"]);
    assert_eq!(asked[1..3], ["user:1", "user:2"], "{asked:?}");
}

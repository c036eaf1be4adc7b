//! What every shared cache promises, on a real Redis, a real Valkey, and in the process.

use std::sync::Arc;
use std::time::Duration;

use bloomguard::backend::{ContentType, Value};
use bloomguard::cache::{Entry, Mark, MemoryCache, RedisCache, Seen, SharedCache, Stored};
use bloomguard::config::{RedisConfig, SecretUrl};
use bloomguard::key::Key;
use bloomguard::redis::RedisLink;
use bytes::Bytes;

use crate::support::assert_eventually;
use crate::support::redis::RedisServer;

pub const LONG: Duration = Duration::from_secs(600);
const KEYSPACE: &str = "users";
const FINGERPRINT: u64 = 7;

pub fn key(text: &str) -> Key {
    Key::from_canonical(Bytes::copy_from_slice(text.as_bytes()))
}

pub fn value(body: &str) -> Value {
    Value { body: Bytes::copy_from_slice(body.as_bytes()), content_type: ContentType::Json }
}

pub async fn entry(cache: &dyn SharedCache, key: &Key) -> Entry {
    cache.get(key).await.unwrap().entry
}

async fn seen(cache: &dyn SharedCache, key: &Key) -> Seen {
    cache.get(key).await.unwrap()
}

/// A server and a connected link.
pub struct Linked {
    pub server: RedisServer,
    pub link: Arc<RedisLink>,
}

impl Linked {
    pub async fn to(server: RedisServer) -> Self {
        // Longer than any pause of a busy machine: these tests are not about timeouts.
        let link = RedisLink::connect(&redis_config(&server.url(), Duration::from_secs(5)), |_| {}).unwrap();
        assert!(link.wait_connected(Duration::from_secs(30)).await, "no connection to Redis");
        Self { server, link }
    }

    pub fn cache(&self) -> RedisCache {
        self.cache_of(KEYSPACE, FINGERPRINT)
    }

    pub fn cache_of(&self, keyspace: &str, fingerprint: u64) -> RedisCache {
        RedisCache::new(Arc::clone(&self.link), keyspace, fingerprint).storing_within(LONG)
    }
}

pub fn redis_config(url: &str, timeout: Duration) -> RedisConfig {
    RedisConfig { url: SecretUrl::new(url.to_owned()), timeout, ..RedisConfig::default() }
}

/// Runs each promise on all caches.
macro_rules! contract {
    ($($promise:ident)+) => {
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                let linked = super::Linked::to(super::RedisServer::start()).await;
                super::$promise(&linked.cache()).await;
            })+
        }
        mod valkey {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                let linked = super::Linked::to(super::RedisServer::start_program("valkey-server", &[])).await;
                super::$promise(&linked.cache()).await;
            })+
        }
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise(&super::MemoryCache::new(16 << 20, 1000)).await;
            })+
        }
    };
}

contract! {
    unknown_key_is_nothing
    stored_value_is_found
    stored_absence_is_found
    keys_of_any_bytes_are_kept_apart
    value_of_a_later_lookup_replaces_the_earlier_one
    value_is_not_stored_over_a_changed_entry
    equal_value_written_between_still_counts_as_a_change
    absence_is_stored_only_where_nothing_is
    absence_is_never_stored_over_a_mark
    mark_overwrites_value_and_absence
    what_a_mark_replaced_does_not_come_back_when_the_mark_expires
    late_fill_does_not_resurrect_what_a_mark_replaced
    value_read_after_a_mark_may_replace_it
    nothing_is_stored_where_the_seen_entry_is_gone
    entries_expire
    shortest_lifetime_is_accepted
    marks_differ_each_time
    racing_fills_of_one_stamp_store_once
    status_is_healthy
}

async fn unknown_key_is_nothing(cache: &dyn SharedCache) {
    assert_eq!(entry(cache, &key("1")).await, Entry::Nothing);
}

async fn stored_value_is_found(cache: &dyn SharedCache) {
    for (n, value) in [
        value("{\"a\":1}"),
        Value { body: Bytes::new(), content_type: ContentType::OctetStream },
        Value { body: Bytes::from(vec![0xff; 100_000]), content_type: ContentType::OctetStream },
    ]
    .into_iter()
    .enumerate()
    {
        let key = key(&n.to_string());
        let stamp = seen(cache, &key).await.stamp;
        assert_eq!(cache.put_value(&key, &value, LONG, Duration::ZERO, &stamp).await.unwrap(), Stored::Yes);
        assert_eq!(entry(cache, &key).await, Entry::Value(value));
    }
}

async fn stored_absence_is_found(cache: &dyn SharedCache) {
    let stamp = seen(cache, &key("1")).await.stamp;
    assert_eq!(cache.put_absence(&key("1"), LONG, &stamp).await.unwrap(), Stored::Yes);
    assert_eq!(entry(cache, &key("1")).await, Entry::Absence);
    assert_eq!(entry(cache, &key("2")).await, Entry::Nothing);
}

async fn keys_of_any_bytes_are_kept_apart(cache: &dyn SharedCache) {
    let keys: Vec<Key> = [&b"a"[..], b"a ", b" a", b"a:b", b":", b"\0", b"a\r\nSET x y", b"\xff\xfe", b"{a}", b"*"]
        .iter()
        .map(|raw| Key::from_canonical(Bytes::copy_from_slice(raw)))
        .collect();
    for (n, key) in keys.iter().enumerate() {
        let stamp = seen(cache, key).await.stamp;
        assert_eq!(
            cache.put_value(key, &value(&n.to_string()), LONG, Duration::ZERO, &stamp).await.unwrap(),
            Stored::Yes,
            "{key:?}"
        );
    }
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(entry(cache, key).await, Entry::Value(value(&n.to_string())), "{key:?}");
    }
}

async fn value_of_a_later_lookup_replaces_the_earlier_one(cache: &dyn SharedCache) {
    for body in ["a", "b", "c"] {
        let stamp = seen(cache, &key("1")).await.stamp;
        assert_eq!(cache.put_value(&key("1"), &value(body), LONG, Duration::ZERO, &stamp).await.unwrap(), Stored::Yes);
    }
    assert_eq!(entry(cache, &key("1")).await, Entry::Value(value("c")));
}

async fn value_is_not_stored_over_a_changed_entry(cache: &dyn SharedCache) {
    let nothing = seen(cache, &key("1")).await.stamp;
    cache.put_value(&key("1"), &value("a"), LONG, Duration::ZERO, &nothing).await.unwrap();
    let first = seen(cache, &key("1")).await.stamp;
    cache.put_value(&key("1"), &value("b"), LONG, Duration::ZERO, &first).await.unwrap();
    for stale in [nothing, first] {
        assert_eq!(
            cache.put_value(&key("1"), &value("stale"), LONG, Duration::ZERO, &stale).await.unwrap(),
            Stored::No
        );
    }
    assert_eq!(entry(cache, &key("1")).await, Entry::Value(value("b")));
}

async fn equal_value_written_between_still_counts_as_a_change(cache: &dyn SharedCache) {
    let nothing = seen(cache, &key("1")).await.stamp;
    cache.put_value(&key("1"), &value("same"), LONG, Duration::ZERO, &nothing).await.unwrap();
    let first = seen(cache, &key("1")).await.stamp;
    cache.put_value(&key("1"), &value("same"), LONG, Duration::ZERO, &first).await.unwrap();
    assert_eq!(cache.put_value(&key("1"), &value("stale"), LONG, Duration::ZERO, &first).await.unwrap(), Stored::No);
}

async fn absence_is_stored_only_where_nothing_is(cache: &dyn SharedCache) {
    let nothing = seen(cache, &key("1")).await.stamp;
    cache.put_value(&key("1"), &value("a"), LONG, Duration::ZERO, &nothing).await.unwrap();
    let present = seen(cache, &key("1")).await.stamp;
    for stamp in [nothing, present] {
        assert_eq!(cache.put_absence(&key("1"), LONG, &stamp).await.unwrap(), Stored::No);
    }
    assert_eq!(entry(cache, &key("1")).await, Entry::Value(value("a")));
}

/// Invariant: announced-never-cached-absent
async fn absence_is_never_stored_over_a_mark(cache: &dyn SharedCache) {
    for mark in [Mark::Announced, Mark::Dropped] {
        let key = key(&format!("{mark:?}"));
        let before = seen(cache, &key).await.stamp;
        cache.put_mark(&key, mark, LONG).await.unwrap();
        let after = seen(cache, &key).await.stamp;
        for stamp in [before, after] {
            assert_eq!(cache.put_absence(&key, LONG, &stamp).await.unwrap(), Stored::No);
        }
        assert_eq!(entry(cache, &key).await, Entry::Mark(mark));
    }
}

async fn mark_overwrites_value_and_absence(cache: &dyn SharedCache) {
    let (with_value, with_absence) = (key("1"), key("2"));
    let stamp = seen(cache, &with_value).await.stamp;
    cache.put_value(&with_value, &value("a"), LONG, Duration::ZERO, &stamp).await.unwrap();
    let stamp = seen(cache, &with_absence).await.stamp;
    cache.put_absence(&with_absence, LONG, &stamp).await.unwrap();
    for key in [with_value, with_absence] {
        cache.put_mark(&key, Mark::Dropped, LONG).await.unwrap();
        assert_eq!(entry(cache, &key).await, Entry::Mark(Mark::Dropped));
        cache.put_mark(&key, Mark::Announced, LONG).await.unwrap();
        assert_eq!(entry(cache, &key).await, Entry::Mark(Mark::Announced));
    }
}

async fn what_a_mark_replaced_does_not_come_back_when_the_mark_expires(cache: &dyn SharedCache) {
    let stamp = seen(cache, &key("1")).await.stamp;
    cache.put_value(&key("1"), &value("old"), LONG, Duration::ZERO, &stamp).await.unwrap();
    cache.put_mark(&key("1"), Mark::Dropped, Duration::from_millis(30)).await.unwrap();
    becomes(cache, &key("1"), Entry::Nothing).await;
}

/// Invariant: removed-rows-stay-removed
async fn late_fill_does_not_resurrect_what_a_mark_replaced(cache: &dyn SharedCache) {
    let (fresh, filled, marked) = (key("1"), key("2"), key("3"));
    let stamp = seen(cache, &filled).await.stamp;
    cache.put_value(&filled, &value("old"), LONG, Duration::ZERO, &stamp).await.unwrap();
    cache.put_mark(&marked, Mark::Dropped, LONG).await.unwrap();
    for key in [fresh, filled, marked] {
        let before = seen(cache, &key).await.stamp;
        cache.put_mark(&key, Mark::Dropped, LONG).await.unwrap();
        assert_eq!(
            cache.put_value(&key, &value("old"), LONG, Duration::ZERO, &before).await.unwrap(),
            Stored::No,
            "{key:?}"
        );
        assert_eq!(entry(cache, &key).await, Entry::Mark(Mark::Dropped), "{key:?}");
    }
}

async fn value_read_after_a_mark_may_replace_it(cache: &dyn SharedCache) {
    cache.put_mark(&key("1"), Mark::Announced, LONG).await.unwrap();
    let stamp = seen(cache, &key("1")).await.stamp;
    assert_eq!(cache.put_value(&key("1"), &value("new"), LONG, Duration::ZERO, &stamp).await.unwrap(), Stored::Yes);
    assert_eq!(entry(cache, &key("1")).await, Entry::Value(value("new")));
}

async fn nothing_is_stored_where_the_seen_entry_is_gone(cache: &dyn SharedCache) {
    let mut life = Duration::from_millis(50);
    let seen = loop {
        cache.put_mark(&key("1"), Mark::Dropped, life).await.unwrap();
        let seen = seen(cache, &key("1")).await;
        if seen.entry == Entry::Mark(Mark::Dropped) {
            break seen;
        }
        // A busy machine looked too late.
        life *= 2;
    };
    becomes(cache, &key("1"), Entry::Nothing).await;
    assert_eq!(cache.put_value(&key("1"), &value("old"), LONG, Duration::ZERO, &seen.stamp).await.unwrap(), Stored::No);
    assert_eq!(cache.put_absence(&key("1"), LONG, &seen.stamp).await.unwrap(), Stored::No);
    assert_eq!(entry(cache, &key("1")).await, Entry::Nothing);
}

async fn entries_expire(cache: &dyn SharedCache) {
    let soon = Duration::from_millis(30);
    let (with_value, with_absence, with_mark, lasting) = (key("1"), key("2"), key("3"), key("4"));
    let stamp = seen(cache, &with_value).await.stamp;
    cache.put_value(&with_value, &value("a"), soon, Duration::ZERO, &stamp).await.unwrap();
    let stamp = seen(cache, &with_absence).await.stamp;
    cache.put_absence(&with_absence, soon, &stamp).await.unwrap();
    cache.put_mark(&with_mark, Mark::Announced, soon).await.unwrap();
    let stamp = seen(cache, &lasting).await.stamp;
    cache.put_value(&lasting, &value("a"), LONG, Duration::ZERO, &stamp).await.unwrap();
    for key in [with_value, with_absence, with_mark] {
        becomes(cache, &key, Entry::Nothing).await;
    }
    assert_eq!(entry(cache, &lasting).await, Entry::Value(value("a")));
}

async fn shortest_lifetime_is_accepted(cache: &dyn SharedCache) {
    let stamp = seen(cache, &key("1")).await.stamp;
    cache.put_value(&key("1"), &value("a"), Duration::from_nanos(1), Duration::ZERO, &stamp).await.unwrap();
    cache.put_mark(&key("1"), Mark::Announced, Duration::ZERO).await.unwrap();
    becomes(cache, &key("1"), Entry::Nothing).await;
}

async fn marks_differ_each_time(cache: &dyn SharedCache) {
    let mut stamps = Vec::new();
    for _ in 0..3 {
        cache.put_mark(&key("1"), Mark::Announced, LONG).await.unwrap();
        stamps.push(seen(cache, &key("1")).await.stamp);
    }
    assert!(stamps[0] != stamps[1] && stamps[1] != stamps[2] && stamps[0] != stamps[2], "{stamps:?}");
}

async fn racing_fills_of_one_stamp_store_once(cache: &dyn SharedCache) {
    for round in 0..20 {
        let key = key(&round.to_string());
        let empty = seen(cache, &key).await.stamp;
        let value = value("a");
        let (a, b, c) = tokio::join!(
            cache.put_value(&key, &value, LONG, Duration::ZERO, &empty),
            cache.put_absence(&key, LONG, &empty),
            cache.put_value(&key, &value, LONG, Duration::ZERO, &empty)
        );
        let stored = [a, b, c].into_iter().filter(|s| *s.as_ref().unwrap() == Stored::Yes).count();
        assert_eq!(stored, 1);
    }
}

async fn status_is_healthy(cache: &dyn SharedCache) {
    let status = cache.status();
    assert!(status.reachable && status.warning.is_none(), "{status:?}");
    assert!(["redis", "memory"].contains(&status.kind));
}

async fn becomes(cache: &dyn SharedCache, key: &Key, expected: Entry) {
    assert_eventually!(entry(cache, key).await == expected, "{key:?} never became {expected:?}");
}

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Numbers its connections. Each opens at once, unless `slow`.
#[derive(Default)]
struct Numbered {
    opened: AtomicUsize,
    slow: Duration,
    refuses: bool,
    /// Lets abandoned connections settle.
    settled: Option<Arc<Notify>>,
}

impl Connect for Arc<Numbered> {
    type Connection = usize;
    type Error = &'static str;

    async fn connect(&self) -> Result<usize, &'static str> {
        tokio::time::sleep(self.slow).await;
        let number = self.opened.fetch_add(1, Ordering::SeqCst) + 1;
        if self.refuses { Err("refused") } else { Ok(number) }
    }

    fn interrupted(&self) -> &'static str {
        "interrupted"
    }

    fn settle(&self, connection: usize) -> Option<BoxFuture<'static, Option<usize>>> {
        let settled = Arc::clone(self.settled.as_ref()?);
        Some(async move { settled.notified().await }.map(move |()| Some(connection)).boxed())
    }
}

fn settings(max: usize, min: usize) -> PoolSettings {
    let maintenance = (min > 0).then_some(SECOND);
    PoolSettings { max, min, idle_timeout: 30 * SECOND, lifetime: 300 * SECOND, maintenance }
}

fn pool(numbered: Numbered, max: usize, min: usize) -> (Arc<Numbered>, Pool<Arc<Numbered>>) {
    let numbered = Arc::new(numbered);
    (Arc::clone(&numbered), Pool::new(numbered, settings(max, min)))
}

#[tokio::test(start_paused = true)]
async fn no_more_than_max_connections_are_open_and_returned_ones_are_reused() {
    let (opened, pool) = pool(Numbered::default(), 2, 0);
    let first = pool.acquire().await.unwrap();
    let mut second = pool.acquire().await.unwrap();
    assert_eq!((*second.connection(), second.is_reused()), (2, false));
    assert!(timeout(SECOND, pool.acquire()).await.is_err(), "a third connection was opened");
    second.finish();
    let mut again = pool.acquire().await.unwrap();
    assert_eq!((*again.connection(), again.is_reused()), (2, true));
    first.discard();
    let mut third = pool.acquire().await.unwrap();
    assert_eq!((*third.connection(), third.is_reused()), (3, false));
    assert_eq!(opened.opened.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_opens_too_late_for_its_caller_serves_the_next() {
    let (opened, pool) = pool(Numbered { slow: 2 * SECOND, ..Numbered::default() }, 1, 0);
    assert!(timeout(SECOND, pool.acquire()).await.is_err());
    let mut connection = pool.acquire().await.unwrap();
    assert_eq!((*connection.connection(), connection.is_reused()), (1, true));
    assert_eq!(opened.opened.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_an_error_at_once_and_frees_its_slot() {
    let (_, pool) = pool(Numbered { refuses: true, ..Numbered::default() }, 1, 0);
    for _ in 0..3 {
        assert_eq!(pool.acquire().await.map(drop).unwrap_err(), "refused");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_are_old_or_were_idle_for_long_are_replaced() {
    let (_, pool) = pool(Numbered::default(), 2, 0);
    pool.acquire().await.unwrap().finish();
    tokio::time::advance(31 * SECOND).await;
    assert!(!pool.acquire().await.unwrap().is_reused(), "it was idle for too long");
    let kept = pool.acquire().await.unwrap();
    tokio::time::advance(301 * SECOND).await;
    kept.finish();
    assert!(!pool.acquire().await.unwrap().is_reused(), "it was open for too long");
}

#[tokio::test(start_paused = true)]
async fn the_minimum_is_kept_open_and_the_rest_is_closed() {
    let (opened, pool) = pool(Numbered::default(), 4, 2);
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(opened.opened.load(Ordering::SeqCst), 2);
    let connections = [pool.acquire().await.unwrap(), pool.acquire().await.unwrap(), pool.acquire().await.unwrap()];
    connections.into_iter().for_each(PooledConnection::finish);
    assert_eq!(pool.0.idle.lock().len(), 3);
    tokio::time::sleep(40 * SECOND).await;
    assert_eq!(pool.0.idle.lock().len(), 2);
    assert_eq!(opened.opened.load(Ordering::SeqCst), 3, "the minimum itself was idle, and is not replaced");
    tokio::time::sleep(300 * SECOND).await;
    assert_eq!(opened.opened.load(Ordering::SeqCst), 5, "it was old");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_connection_keeps_its_slot_until_it_has_settled() {
    let settled = Arc::new(Notify::new());
    let (_, pool) = pool(Numbered { settled: Some(Arc::clone(&settled)), ..Numbered::default() }, 1, 0);
    drop(pool.acquire().await.unwrap());
    assert!(timeout(SECOND, pool.acquire()).await.is_err(), "its slot was free");
    settled.notify_one();
    assert!(pool.acquire().await.unwrap().is_reused());
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_connection_that_can_not_settle_is_closed() {
    let (_, pool) = pool(Numbered::default(), 1, 0);
    drop(pool.acquire().await.unwrap());
    assert!(!pool.acquire().await.unwrap().is_reused());
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_reopened_in_its_own_slot() {
    let (_, pool) = pool(Numbered::default(), 1, 0);
    pool.acquire().await.unwrap().finish();
    let broken = pool.acquire().await.unwrap();
    assert!(broken.is_reused());
    let mut opened = broken.reopen().await.unwrap();
    assert_eq!((*opened.connection(), opened.is_reused()), (2, false));
}

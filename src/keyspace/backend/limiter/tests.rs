use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures_util::{FutureExt, poll};

use super::Priority::{Low, Normal};
use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn limiter(max_concurrency: usize, max_queue: usize) -> ConcurrencyLimiter {
    ConcurrencyLimiter::new(max_concurrency, max_queue, MINUTE)
}

fn later() -> Instant {
    Instant::now() + MINUTE
}

#[tokio::test]
async fn the_queue_is_bounded_and_empties() {
    let limiter = ConcurrencyLimiter::new(1, 1, Duration::from_secs(1));
    let soon = || Instant::now() + Duration::from_millis(20);
    let held = limiter.enter(Normal, soon()).await.unwrap();
    let (first, second) = tokio::join!(limiter.enter(Normal, soon()), limiter.enter(Normal, soon()));
    assert_eq!(first.err(), Some(ShedReason::QueueTimeout));
    assert_eq!(second.err(), Some(ShedReason::QueueFull));
    drop(held);
    assert!(limiter.enter(Normal, soon()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_has_no_time_left_for_a_call_gives_its_place_up() {
    let limiter = ConcurrencyLimiter::new(1, 10, Duration::from_millis(300));
    let _held = limiter.enter(Normal, Instant::now()).await.unwrap();
    for (took, waited) in [(20, 280), (60, 240), (20, 247), (1000, 150)] {
        limiter.record_duration(Duration::from_millis(took));
        let began = Instant::now();
        for priority in [Normal, Low] {
            let shed = limiter.enter(priority, began + Duration::from_millis(300)).await.err();
            assert_eq!(shed, Some(ShedReason::QueueTimeout));
        }
        let rounded = began.elapsed().as_millis().abs_diff(waited);
        assert!(rounded <= 2, "a call of {took} ms: waited for {:?} and not {waited} ms", began.elapsed());
    }
}

#[tokio::test]
async fn calls_of_the_first_class_go_before_those_of_the_second() {
    let limiter = limiter(1, 10);
    let mut permit = limiter.enter(Low, later()).await.ok();
    let mut waiting: Vec<_> =
        [Low, Normal, Low, Normal].into_iter().map(|class| Box::pin(limiter.enter(class, later()))).collect();
    for wait in &mut waiting {
        assert!(poll!(wait.as_mut()).is_pending());
    }
    for next in [1, 3, 0, 2] {
        drop(permit.take());
        for (index, wait) in waiting.iter_mut().enumerate().filter(|(index, _)| *index == next) {
            permit = wait.as_mut().now_or_never().unwrap_or_else(|| panic!("{index} still waits")).ok();
        }
        assert!(limiter.enter_if_free().is_none(), "it has the permit");
    }
}

#[tokio::test]
async fn the_second_class_leaves_an_eighth_of_the_cap_to_the_first() {
    for (cap, low) in [(1, 1), (2, 1), (4, 3), (8, 7), (9, 7), (16, 14)] {
        let limiter = limiter(cap, 10);
        let mut held: Vec<_> = std::iter::from_fn(|| limiter.enter(Low, later()).now_or_never()).collect();
        assert_eq!(held.len(), low, "of {cap}");
        let mut waiting = Box::pin(limiter.enter(Low, later()));
        assert!(poll!(waiting.as_mut()).is_pending());
        let kept: Vec<_> = std::iter::from_fn(|| limiter.enter(Normal, later()).now_or_never()).collect();
        assert_eq!(held.len() + kept.len(), cap);
        drop(kept);
        assert!(poll!(waiting.as_mut()).is_pending(), "none of those kept");
        held.pop();
        assert!(waiting.now_or_never().is_some(), "one of its own class");
    }
}

#[tokio::test]
async fn a_full_queue_sheds_the_youngest_of_the_second_class_first() {
    let limiter = limiter(1, 3);
    let held = limiter.enter(Normal, later()).await.unwrap();
    let (mut oldest, mut older, mut youngest) = (
        Box::pin(limiter.enter(Low, later())),
        Box::pin(limiter.enter(Normal, later())),
        Box::pin(limiter.enter(Low, later())),
    );
    assert!(poll!(oldest.as_mut()).is_pending() && poll!(older.as_mut()).is_pending());
    assert!(poll!(youngest.as_mut()).is_pending());
    assert_eq!(limiter.enter(Low, later()).await.err(), Some(ShedReason::QueueFull));
    assert!(poll!(youngest.as_mut()).is_pending(), "one of its own class does not displace it");
    let mut third = Box::pin(limiter.enter(Normal, later()));
    assert!(poll!(third.as_mut()).is_pending());
    assert_eq!(youngest.await.err(), Some(ShedReason::QueueFull));
    assert!(!limiter.is_full(Normal) && limiter.is_full(Low));
    let mut fourth = Box::pin(limiter.enter(Normal, later()));
    assert!(poll!(fourth.as_mut()).is_pending());
    assert_eq!(oldest.await.err(), Some(ShedReason::QueueFull));
    assert!(limiter.is_full(Normal));
    assert_eq!(limiter.enter(Normal, later()).await.err(), Some(ShedReason::QueueFull));
    drop(held);
    let permit = older.await.unwrap();
    assert!(poll!(third.as_mut()).is_pending());
    drop(permit);
    drop(third.await.unwrap());
    drop(fourth.await.unwrap());
    assert!(limiter.enter_if_free().is_some());
}

#[tokio::test]
async fn a_call_cancelled_after_it_was_admitted_passes_its_permit_on() {
    for next in [None, Some(Low), Some(Normal)] {
        let limiter = limiter(1, 10);
        let held = limiter.enter(Normal, later()).await.unwrap();
        let mut cancelled = Box::pin(limiter.enter(Normal, later()));
        assert!(poll!(cancelled.as_mut()).is_pending());
        let mut waiting = next.map(|class| Box::pin(limiter.enter(class, later())));
        if let Some(waiting) = &mut waiting {
            assert!(poll!(waiting.as_mut()).is_pending());
        }
        drop(held);
        assert!(limiter.enter_if_free().is_none(), "one of them has the permit");
        drop(cancelled);
        match waiting {
            Some(waiting) => drop(waiting.now_or_never().unwrap().unwrap()),
            None => drop(limiter.enter_if_free().unwrap()),
        }
        assert!(limiter.enter_if_free().is_some());
    }
}

#[tokio::test]
async fn a_call_cancelled_while_it_waits_leaves_its_place() {
    let limiter = limiter(1, 1);
    let held = limiter.enter(Normal, later()).await.unwrap();
    for class in [Low, Normal] {
        let mut waiting = Box::pin(limiter.enter(class, later()));
        assert!(poll!(waiting.as_mut()).is_pending());
        assert!(limiter.is_full(class));
        drop(waiting);
        assert!(!limiter.is_full(class));
    }
    drop(held);
    assert!(limiter.enter_if_free().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_permit_is_lost_or_made_up_whatever_is_cancelled() {
    let (limiter, inside) = (Arc::new(limiter(3, 8)), Arc::new(AtomicUsize::new(0)));
    let calls: Vec<_> = (0..4_000u64)
        .map(|number| {
            let (limiter, inside) = (Arc::clone(&limiter), Arc::clone(&inside));
            tokio::spawn(async move {
                let class = if rand::random() { Low } else { Normal };
                let patience = Duration::from_micros(rand::random_range(0..300));
                tokio::time::sleep(Duration::from_micros(number * 5)).await;
                let call = async {
                    let Ok(_permit) = limiter.enter(class, later()).await else { return };
                    assert!(inside.fetch_add(1, SeqCst) < 3);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, SeqCst);
                };
                if number % 2 == 0 {
                    call.await;
                } else {
                    tokio::select! {
                        biased;
                        _ = limiter.enter(class, later()) => {}
                        () = tokio::time::sleep(patience) => {}
                    }
                }
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    let low: Vec<_> = std::iter::from_fn(|| limiter.enter_if_free()).collect();
    let rest: Vec<_> = std::iter::from_fn(|| limiter.enter(Normal, later()).now_or_never()).collect();
    assert_eq!((low.len(), rest.len()), (2, 1));
    assert_eq!(limiter.queue.lock().len(), 0);
}

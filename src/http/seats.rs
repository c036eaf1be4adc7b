//! The places of a listener: how many connections it holds, and which one leaves where all are taken.
//!
//! A connection on which nothing was ever asked leaves before any other, the oldest first; then the one on which nothing was asked for the longest. A connection
//! with a request in flight, or with an answer that is not sent, does only where no other can, and only once its client has taken nothing of an answer for a
//! second: else as many clients as there are places, each of which takes nothing, would keep everybody else out until `server.send_timeout`. Only the accept loop touches the order, so it needs no lock.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::activity::Activity;

/// While all connections are busy, how often the accept loop looks whether one has become idle.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A client that connects to ask has this long to begin: clients that only connect, again and again, would else push it out before.
const TO_BEGIN: Duration = Duration::from_millis(10);
/// Kept-alive connections found by one look at all of them.
const FOUND_AT_ONCE: usize = 64;
/// Entries of closed connections that are kept at the least.
const FEW: usize = 64;
/// Connections that were answered and closed may wait for their clients to close too: one for eight open ones, and no more than this.
pub(super) const MOST_CLOSING: usize = 64;

/// How long a connection has been idle. Lesser ones leave first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Idle {
    /// Its client does not take an answer; `since` is when that began.
    pub(super) stalled: bool,
    /// Whether anything was ever asked on it.
    pub(super) asked_before: bool,
    /// The end of the last request, or the beginning of the connection.
    pub(super) since: Instant,
}

/// A connection's place.
#[derive(Debug, Default)]
pub(super) struct Seat {
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// Places for connections that only wait for their clients to close.
    closing: Option<Arc<Semaphore>>,
    declined: Arc<Notify>,
}

impl Seat {
    /// Gives the place to the next connection and takes one of those that are closing; `false`: none is free, and nothing has changed.
    pub(super) fn leave_for_closing(&self) -> bool {
        let Some(closing) = &self.closing else { return true };
        let Ok(permit) = Arc::clone(closing).try_acquire_owned() else { return false };
        *self.permit.lock() = Some(permit);
        true
    }

    /// The connection that was asked to leave stays: a request has come.
    pub(super) fn decline(&self) {
        self.declined.notify_one();
    }
}

/// All places of a listener.
#[derive(Debug)]
pub(super) struct Seats {
    free: Arc<Semaphore>,
    closing: Arc<Semaphore>,
    declined: Arc<Notify>,
    /// Connections on which nothing had been asked when they were last looked at, the oldest first.
    fresh: VecDeque<Weak<Activity>>,
    /// The others.
    kept: Vec<Weak<Activity>>,
    /// The longest idle of `kept`, the very longest last. What happens to a connection makes it idle later, so those that did not change stay in front of all
    /// that are not listed.
    longest_idle: Vec<(Idle, Weak<Activity>)>,
    /// Entries at which those of closed connections are thrown away.
    sweep_at: usize,
}

/// How many connections may be closing beside `max` open ones.
pub(super) fn closing_beside(max: usize) -> usize {
    max.div_ceil(8).min(MOST_CLOSING)
}

impl Seats {
    pub(super) fn new(max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(max)),
            closing: Arc::new(Semaphore::new(closing_beside(max))),
            declined: Arc::default(),
            fresh: VecDeque::new(),
            kept: Vec::new(),
            longest_idle: Vec::new(),
            sweep_at: FEW,
        }
    }

    /// A place, made free by the longest-idle connection where there is none. Waits while all are busy.
    pub(super) async fn take(&mut self) -> Seat {
        loop {
            if let Some(seat) = self.try_take() {
                return seat;
            }
            let wait = self.evict().err().unwrap_or(LOOK_AGAIN);
            let free = Arc::clone(&self.free);
            tokio::select! {
                biased;
                Ok(permit) = free.acquire_owned() => return self.seat(permit),
                () = self.declined.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// A place that is free.
    pub(super) fn try_take(&self) -> Option<Seat> {
        Arc::clone(&self.free).try_acquire_owned().ok().map(|permit| self.seat(permit))
    }

    /// Waits for a place; nobody is asked to leave.
    pub(super) async fn wait(&self) -> Option<Seat> {
        Arc::clone(&self.free).acquire_owned().await.ok().map(|permit| self.seat(permit))
    }

    fn seat(&self, permit: OwnedSemaphorePermit) -> Seat {
        Seat {
            permit: Mutex::new(Some(permit)),
            closing: Some(Arc::clone(&self.closing)),
            declined: Arc::clone(&self.declined),
        }
    }

    /// Remembers a connection that has taken its place.
    pub(super) fn enter(&mut self, activity: &Arc<Activity>) {
        if self.fresh.len() + self.kept.len() >= self.sweep_at {
            self.sweep();
        }
        self.fresh.push_back(Arc::downgrade(activity));
    }

    fn sweep(&mut self) {
        for entry in std::mem::take(&mut self.fresh) {
            match entry.upgrade() {
                Some(activity) if activity.begun() == 0 => self.fresh.push_back(entry),
                Some(_) => self.kept.push(entry),
                None => {}
            }
        }
        self.kept.retain(|entry| entry.strong_count() > 0);
        self.sweep_at = FEW.max(2 * (self.fresh.len() + self.kept.len()));
    }

    /// Asks the longest-idle connection to leave; an error: none may be asked, for so long.
    pub(super) fn evict(&mut self) -> Result<(), Duration> {
        while let Some(entry) = self.fresh.pop_front() {
            let Some(activity) = entry.upgrade() else { continue };
            if activity.begun() == 0 {
                let young = TO_BEGIN.saturating_sub(activity.age());
                if !young.is_zero() {
                    self.fresh.push_front(entry);
                    return Err(young);
                }
            }
            let leaves = activity.begun() == 0 && activity.idle().is_some() && activity.ask_to_leave();
            self.kept.push(entry);
            if leaves {
                return Ok(());
            }
        }
        let asked = self.evict_listed() || {
            self.list_longest_idle();
            self.evict_listed()
        };
        if asked { Ok(()) } else { Err(LOOK_AGAIN) }
    }

    fn evict_listed(&mut self) -> bool {
        while let Some((idle, entry)) = self.longest_idle.pop() {
            if entry.upgrade().is_some_and(|activity| activity.idle() == Some(idle) && activity.ask_to_leave()) {
                return true;
            }
        }
        false
    }

    fn list_longest_idle(&mut self) {
        self.kept.retain(|entry| entry.strong_count() > 0);
        let idle = |entry: &Weak<Activity>| Some((entry.upgrade()?.idle()?, Weak::clone(entry)));
        let mut all: Vec<_> = self.kept.iter().filter_map(idle).collect();
        if all.len() > FOUND_AT_ONCE {
            all.select_nth_unstable_by_key(FOUND_AT_ONCE, |(idle, _)| *idle);
            all.truncate(FOUND_AT_ONCE);
        }
        all.sort_unstable_by_key(|(idle, _)| std::cmp::Reverse(*idle));
        self.longest_idle = all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections that took the places of `seats`, one each millisecond, the first of them `asked`.
    async fn connections(seats: &mut Seats, count: usize, asked: usize) -> Vec<Arc<Activity>> {
        let mut all = Vec::new();
        for n in 0..count {
            let activity = Arc::new(Activity::new(Arc::default()).seated(seats.try_take().unwrap()));
            seats.enter(&activity);
            if n < asked {
                drop(activity.begin(false));
            }
            all.push(activity);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        all
    }

    fn leaving(all: &[Arc<Activity>]) -> Vec<usize> {
        (0..all.len()).filter(|n| all[*n].takes_leave()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connections_leave_first_and_then_the_longest_idle() {
        let mut seats = Seats::new(200);
        let mut all: Vec<_> = connections(&mut seats, 200, 150).await.into_iter().map(Some).collect();
        tokio::time::advance(TO_BEGIN).await;
        // The first of those that asked asks once more, and is idle last.
        drop(all[0].as_ref().unwrap().begin(false));
        let mut order = Vec::new();
        while seats.evict().is_ok() {
            let leaves =
                |activity: &Option<Arc<Activity>>| activity.as_ref().is_some_and(|activity| activity.takes_leave());
            let left = all.iter().position(leaves).unwrap();
            all[left] = None;
            order.push(left);
        }
        assert_eq!(order, (150..200).chain(1..150).chain([0]).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_connection_is_never_asked_to_leave() {
        let mut seats = Seats::new(3);
        let all = connections(&mut seats, 3, 3).await;
        let (one, two) = (all[0].begin(false), all[1].begin(true));
        all[2].sends(true);
        assert_eq!(seats.evict(), Err(LOOK_AGAIN));
        drop(one);
        all[2].sends(false);
        assert_eq!((seats.evict(), leaving(&all)), (Ok(()), vec![2]));
        assert_eq!((seats.evict(), leaving(&all)), (Ok(()), vec![0]));
        drop(two);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_just_connected_is_given_time_to_ask() {
        let mut seats = Seats::new(2);
        let all = connections(&mut seats, 2, 1).await;
        assert_eq!(seats.evict(), Err(TO_BEGIN - Duration::from_millis(1)), "the one that asked is worth more");
        tokio::time::advance(TO_BEGIN).await;
        assert_eq!((seats.evict(), leaving(&all)), (Ok(()), vec![1]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_comes_first_lets_another_connection_leave() {
        let mut seats = Seats::new(2);
        let mut all = connections(&mut seats, 2, 0).await;
        tokio::time::advance(TO_BEGIN).await;
        assert_eq!(seats.evict(), Ok(()));
        // Before it was looked at.
        drop(all[0].begin(false));
        assert_eq!(leaving(&all), [0; 0], "it was answered just now");
        let taken = tokio::spawn(async move { seats.take().await });
        while !all[1].takes_leave() {
            tokio::task::yield_now().await;
        }
        drop(all.pop());
        taken.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn closed_connections_are_forgotten() {
        let mut seats = Seats::new(10);
        for n in 0..100_000 {
            connections(&mut seats, 1, n % 2).await;
        }
        assert!(seats.fresh.len() + seats.kept.len() <= 2 * FEW);
        assert!(seats.fresh.capacity() + seats.kept.capacity() <= 8 * FEW);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closing_connection_makes_room_as_long_as_it_has_another_place() {
        let mut seats = Seats::new(16);
        let all = connections(&mut seats, 16, 16).await;
        let left: Vec<bool> = all.iter().map(|activity| activity.may_linger()).collect();
        assert_eq!(left.iter().filter(|left| **left).count(), closing_beside(16));
        assert_eq!(seats.evict(), Ok(()));
        assert_eq!(leaving(&all), [closing_beside(16)], "those that are closing have no place to give");
        assert!((0..closing_beside(16)).all(|_| seats.try_take().is_some()));
    }
}

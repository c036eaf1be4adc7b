//! The connection slots of a listener: how many connections it holds, and which one it evicts when all slots are taken.
//!
//! A connection that never had a request is evicted first, the oldest before others; then the connection that is idle
//! for the longest. A connection with a request in flight or an unsent response is evicted only if no other can be, and
//! only after its client has read nothing for a second. Otherwise as many such clients as there are slots would lock
//! everybody else out until `server.send_timeout`.
//!
//! Only the accept loop uses the order, so it needs no lock.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::activity::Activity;
use super::limits::max_closing;
use super::slot::{ConnectionSlot, IdleRank};

/// How often the accept loop checks for an idle connection while all are busy.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time for a client that has just connected to send a request. Without it clients that only connect, again and again,
/// would evict it first.
const FIRST_REQUEST_GRACE: Duration = Duration::from_millis(10);
/// Idle connections collected by one pass over all of them.
const MAX_LISTED: usize = 64;
/// Smallest number of entries at which entries of closed connections are removed.
const MIN_SWEEP_ENTRIES: usize = 64;

/// All slots of a listener.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    free: Arc<Semaphore>,
    closing: Arc<Semaphore>,
    declined: Arc<Notify>,
    /// Connections without a request when they were last checked, the oldest first.
    unused: VecDeque<Weak<Activity>>,
    /// All other connections.
    used: Vec<Weak<Activity>>,
    /// The longest idle of `used`, the very longest last. Activity only makes a connection less idle, so the entries
    /// that did not change stay in front of all that are not listed.
    longest_idle: Vec<(IdleRank, Weak<Activity>)>,
    /// Number of entries at which those of closed connections are removed.
    sweep_at: usize,
}

impl ConnectionSlots {
    pub(super) fn new(max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(max)),
            closing: Arc::new(Semaphore::new(max_closing(max))),
            declined: Arc::default(),
            unused: VecDeque::new(),
            used: Vec::new(),
            longest_idle: Vec::new(),
            sweep_at: MIN_SWEEP_ENTRIES,
        }
    }

    /// Waits for a slot. Evicts the longest-idle connection if none is free; waits while all are busy.
    pub(super) async fn acquire(&mut self) -> ConnectionSlot {
        loop {
            if let Some(slot) = self.try_acquire() {
                return slot;
            }
            let wait = self.evict().err().unwrap_or(RECHECK_INTERVAL);
            let free = Arc::clone(&self.free);
            tokio::select! {
                biased;
                Ok(permit) = free.acquire_owned() => return self.slot(permit),
                () = self.declined.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Returns a slot if one is free.
    pub(super) fn try_acquire(&self) -> Option<ConnectionSlot> {
        Arc::clone(&self.free).try_acquire_owned().ok().map(|permit| self.slot(permit))
    }

    /// Waits for a slot without evicting a connection.
    pub(super) async fn acquire_without_eviction(&self) -> Option<ConnectionSlot> {
        Arc::clone(&self.free).acquire_owned().await.ok().map(|permit| self.slot(permit))
    }

    fn slot(&self, permit: OwnedSemaphorePermit) -> ConnectionSlot {
        ConnectionSlot::new(permit, &self.closing, &self.declined)
    }

    /// Adds a connection that has taken its slot.
    pub(super) fn track(&mut self, activity: &Arc<Activity>) {
        if self.unused.len() + self.used.len() >= self.sweep_at {
            self.sweep();
        }
        self.unused.push_back(Arc::downgrade(activity));
    }

    fn sweep(&mut self) {
        for entry in std::mem::take(&mut self.unused) {
            match entry.upgrade() {
                Some(activity) if activity.begun() == 0 => self.unused.push_back(entry),
                Some(_) => self.used.push(entry),
                None => {}
            }
        }
        self.used.retain(|entry| entry.strong_count() > 0);
        self.sweep_at = MIN_SWEEP_ENTRIES.max(2 * (self.unused.len() + self.used.len()));
    }

    /// Requests the eviction of the longest-idle connection. Returns the time to wait if none can be evicted now.
    pub(super) fn evict(&mut self) -> Result<(), Duration> {
        while let Some(entry) = self.unused.pop_front() {
            let Some(activity) = entry.upgrade() else { continue };
            if activity.begun() == 0 {
                let young = FIRST_REQUEST_GRACE.saturating_sub(activity.age());
                if !young.is_zero() {
                    self.unused.push_front(entry);
                    return Err(young);
                }
            }
            let leaves = activity.begun() == 0 && activity.idle_rank().is_some() && activity.request_eviction();
            self.used.push(entry);
            if leaves {
                return Ok(());
            }
        }
        let asked = self.evict_listed() || {
            self.list_longest_idle();
            self.evict_listed()
        };
        if asked { Ok(()) } else { Err(RECHECK_INTERVAL) }
    }

    fn evict_listed(&mut self) -> bool {
        while let Some((idle, entry)) = self.longest_idle.pop() {
            if entry.upgrade().is_some_and(|activity| activity.idle_rank() == Some(idle) && activity.request_eviction())
            {
                return true;
            }
        }
        false
    }

    fn list_longest_idle(&mut self) {
        self.used.retain(|entry| entry.strong_count() > 0);
        let idle = |entry: &Weak<Activity>| Some((entry.upgrade()?.idle_rank()?, Weak::clone(entry)));
        let mut all: Vec<_> = self.used.iter().filter_map(idle).collect();
        if all.len() > MAX_LISTED {
            all.select_nth_unstable_by_key(MAX_LISTED, |(idle, _)| *idle);
            all.truncate(MAX_LISTED);
        }
        all.sort_unstable_by_key(|(idle, _)| std::cmp::Reverse(*idle));
        self.longest_idle = all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens `count` connections, one each millisecond; the first `asked` of them have a request.
    async fn connections(slots: &mut ConnectionSlots, count: usize, asked: usize) -> Vec<Arc<Activity>> {
        let mut all = Vec::new();
        for n in 0..count {
            let activity = Arc::new(Activity::new(Arc::default()).with_slot(slots.try_acquire().unwrap()));
            slots.track(&activity);
            if n < asked {
                drop(activity.begin_request(false));
            }
            all.push(activity);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        all
    }

    fn leaving(all: &[Arc<Activity>]) -> Vec<usize> {
        (0..all.len()).filter(|n| all[*n].accept_eviction()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connections_leave_first_and_then_the_longest_idle() {
        let mut slots = ConnectionSlots::new(200);
        let mut all: Vec<_> = connections(&mut slots, 200, 150).await.into_iter().map(Some).collect();
        tokio::time::advance(FIRST_REQUEST_GRACE).await;
        // The first used connection gets one more request, so it is the last to be evicted.
        drop(all[0].as_ref().unwrap().begin_request(false));
        let mut order = Vec::new();
        while slots.evict().is_ok() {
            let leaves =
                |activity: &Option<Arc<Activity>>| activity.as_ref().is_some_and(|activity| activity.accept_eviction());
            let left = all.iter().position(leaves).unwrap();
            all[left] = None;
            order.push(left);
        }
        assert_eq!(order, (150..200).chain(1..150).chain([0]).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_connection_is_never_asked_to_leave() {
        let mut slots = ConnectionSlots::new(3);
        let all = connections(&mut slots, 3, 3).await;
        let (one, two) = (all[0].begin_request(false), all[1].begin_request(true));
        all[2].set_sending(true);
        assert_eq!(slots.evict(), Err(RECHECK_INTERVAL));
        drop(one);
        all[2].set_sending(false);
        assert_eq!((slots.evict(), leaving(&all)), (Ok(()), vec![2]));
        assert_eq!((slots.evict(), leaving(&all)), (Ok(()), vec![0]));
        drop(two);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_just_connected_is_given_time_to_ask() {
        let mut slots = ConnectionSlots::new(2);
        let all = connections(&mut slots, 2, 1).await;
        assert_eq!(
            slots.evict(),
            Err(FIRST_REQUEST_GRACE - Duration::from_millis(1)),
            "the one that asked is worth more"
        );
        tokio::time::advance(FIRST_REQUEST_GRACE).await;
        assert_eq!((slots.evict(), leaving(&all)), (Ok(()), vec![1]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_comes_first_lets_another_connection_leave() {
        let mut slots = ConnectionSlots::new(2);
        let mut all = connections(&mut slots, 2, 0).await;
        tokio::time::advance(FIRST_REQUEST_GRACE).await;
        assert_eq!(slots.evict(), Ok(()));
        // Before the connection has checked for the eviction.
        drop(all[0].begin_request(false));
        assert_eq!(leaving(&all), [0; 0], "it was answered just now");
        let taken = tokio::spawn(async move { slots.acquire().await });
        while !all[1].accept_eviction() {
            tokio::task::yield_now().await;
        }
        drop(all.pop());
        taken.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn closed_connections_are_forgotten() {
        let mut slots = ConnectionSlots::new(10);
        for n in 0..100_000 {
            connections(&mut slots, 1, n % 2).await;
        }
        assert!(slots.unused.len() + slots.used.len() <= 2 * MIN_SWEEP_ENTRIES);
        assert!(slots.unused.capacity() + slots.used.capacity() <= 8 * MIN_SWEEP_ENTRIES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closing_connection_makes_room_as_long_as_it_has_another_place() {
        let mut slots = ConnectionSlots::new(16);
        let all = connections(&mut slots, 16, 16).await;
        let left: Vec<bool> = all.iter().map(|activity| activity.try_linger()).collect();
        assert_eq!(left.iter().filter(|left| **left).count(), max_closing(16));
        assert_eq!(slots.evict(), Ok(()));
        assert_eq!(leaving(&all), [max_closing(16)], "those that are closing have no place to give");
        assert!((0..max_closing(16)).all(|_| slots.try_acquire().is_some()));
    }
}

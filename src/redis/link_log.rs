//! [`LinkLog`]: the log lines of a connection, few of them even where it flaps.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::error::ConnectError;

/// Each kind of line is logged at most this often within [`WITHIN`].
const LINES: usize = 2;
const WITHIN: Duration = Duration::from_secs(10);

/// What happens to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LinkEvent {
    Lost(ConnectError),
    /// An attempt failed, for another reason than the one before it.
    Failed(ConnectError),
    Connected {
        epoch: u64,
        /// About the server, for operators.
        warning: Option<String>,
    },
}

impl LinkEvent {
    const fn kind(&self) -> usize {
        match self {
            Self::Lost(_) => 0,
            Self::Failed(_) => 1,
            Self::Connected { .. } => 2,
        }
    }

    fn log(&self, suppressed: u64) {
        // Without the field where nothing was left out.
        let suppressed = (suppressed > 0).then_some(suppressed);
        match self {
            Self::Lost(reason) => tracing::warn!(%reason, suppressed, "lost connection to Redis"),
            Self::Failed(reason) => tracing::warn!(%reason, suppressed, "can't connect to Redis"),
            Self::Connected { epoch, warning } => tracing::info!(epoch, warning, suppressed, "connected to Redis"),
        }
    }
}

/// Logs the events of one link.
///
/// The kinds of event have a limit each, so that no flood of one hides the first of another. The latest event is never
/// lost: it is postponed, unless a later one replaces it.
#[derive(Debug, Default)]
pub(super) struct LinkLog(Mutex<EventLimiter>);

impl LinkLog {
    /// Logs an event, or counts it for a later line.
    pub(super) fn add(&self, event: LinkEvent) {
        let mut limiter = self.0.lock();
        if let Some(suppressed) = limiter.admit(&event, Instant::now()) {
            event.log(suppressed);
        }
    }

    /// Logs the latest event if it could not be logged when it happened and can be now. Called at short intervals.
    pub(super) fn add_postponed(&self) {
        let mut limiter = self.0.lock();
        if let Some((event, suppressed)) = limiter.take_postponed(Instant::now()) {
            event.log(suppressed);
        }
    }
}

#[derive(Debug, Default)]
struct EventLimiter {
    /// Times of the last lines of each kind, the older one first.
    logged: [[Option<Instant>; LINES]; 3],
    /// Events that no line shows, since the last line.
    suppressed: u64,
    /// The latest event, if no line shows it.
    postponed: Option<LinkEvent>,
}

impl EventLimiter {
    /// Returns how many events were left out before this one, or `None` if it must not be logged now.
    fn admit(&mut self, event: &LinkEvent, now: Instant) -> Option<u64> {
        let times = &mut self.logged[event.kind()];
        if times[0].is_some_and(|at| now.saturating_duration_since(at) < WITHIN) {
            self.suppressed += 1;
            self.postponed = Some(event.clone());
            return None;
        }
        times.rotate_left(1);
        times[LINES - 1] = Some(now);
        self.postponed = None;
        Some(std::mem::take(&mut self.suppressed))
    }

    fn take_postponed(&mut self, now: Instant) -> Option<(LinkEvent, u64)> {
        let event = self.postponed.take()?;
        // It counts as suppressed no longer, or once more.
        self.suppressed -= 1;
        self.admit(&event, now).map(|suppressed| (event, suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(reason: &str) -> LinkEvent {
        LinkEvent::Failed(ConnectError::Io(reason.into()))
    }

    const fn connected(epoch: u64) -> LinkEvent {
        LinkEvent::Connected { epoch, warning: None }
    }

    #[test]
    fn any_events_make_a_few_lines_and_every_event_is_counted() {
        let (start, mut limiter, mut lines, mut counted) = (Instant::now(), EventLimiter::default(), vec![], 0);
        let events = [LinkEvent::Lost(ConnectError::Timeout), failed("a"), failed("b"), connected(1)];
        for (at, event) in events.iter().cycle().take(4000).enumerate() {
            let now = start + Duration::from_millis(10) * u32::try_from(at).unwrap();
            if let Some(suppressed) = limiter.admit(event, now) {
                lines.push(now);
                counted += suppressed + 1;
            }
        }
        for begin in &lines {
            let within = lines.iter().filter(|at| **at >= *begin && at.duration_since(*begin) < WITHIN).count();
            assert!(within <= 3 * LINES, "{within} lines within {WITHIN:?}");
        }
        assert_eq!(counted + limiter.suppressed, 4000);
    }

    #[test]
    fn a_flood_of_failures_delays_neither_loss_nor_reconnect() {
        let (start, mut limiter) = (Instant::now(), EventLimiter::default());
        for (at, reason) in ["a", "b"].into_iter().cycle().take(50).enumerate() {
            let admitted = limiter.admit(&failed(reason), start);
            assert_eq!(admitted.is_some(), at < LINES, "{at}");
        }
        assert_eq!(limiter.admit(&connected(1), start), Some(48));
        assert_eq!(limiter.admit(&LinkEvent::Lost(ConnectError::Timeout), start), Some(0));
    }

    #[test]
    fn the_latest_event_is_logged_later_and_a_replaced_one_never() {
        let (start, mut limiter) = (Instant::now(), EventLimiter::default());
        let admitted: Vec<_> = (1..=5).map(|epoch| limiter.admit(&connected(epoch), start)).collect();
        assert_eq!(admitted, [Some(0), Some(0), None, None, None]);
        for _ in 0..100 {
            assert_eq!(limiter.take_postponed(start + WITHIN / 2), None);
        }
        assert_eq!(limiter.take_postponed(start + WITHIN), Some((connected(5), 2)));
        assert_eq!(limiter.take_postponed(start + WITHIN * 2), None);
        // A line of another kind that shows a later state replaces it.
        let last = (0..3).map(|epoch| limiter.admit(&connected(epoch), start + WITHIN * 3)).last();
        assert_eq!(last, Some(None));
        assert_eq!(limiter.admit(&LinkEvent::Lost(ConnectError::Timeout), start + WITHIN * 3), Some(1));
        assert_eq!(limiter.take_postponed(start + WITHIN * 5), None);
    }
}

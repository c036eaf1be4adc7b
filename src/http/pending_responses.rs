//! Responses of an HTTP/2 connection that the client has not read yet.
//!
//! hyper does not report them. Behind a closed window a response waits as long as the connection lives, and pings keep
//! the connection alive.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Knows since when each response waits. Clones share this state.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingResponses(Arc<Mutex<SendTimes>>);

#[derive(Debug, Default)]
struct SendTimes {
    /// Numbers ascend with time.
    next: u64,
    since: BTreeMap<u64, Instant>,
}

impl PendingResponses {
    /// Tracks the bytes until their last part is dropped: the socket has accepted them by then, or never will.
    pub(super) fn track(&self, bytes: Bytes) -> Bytes {
        let mut waiting = self.0.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.since.insert(number, Instant::now());
        drop(waiting);
        Bytes::from_owner(TrackedBytes { bytes, number, of: self.clone() })
    }

    /// Since when the oldest pending response waits.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.0.lock().since.first_key_value().map(|(_, since)| *since)
    }
}

struct TrackedBytes {
    bytes: Bytes,
    number: u64,
    of: PendingResponses,
}

impl AsRef<[u8]> for TrackedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for TrackedBytes {
    fn drop(&mut self) {
        self.of.0.lock().since.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_waits_until_its_last_part_is_gone() {
        let pending = PendingResponses::default();
        let mut first = pending.track(Bytes::from_static(b"first"));
        let began = pending.oldest().unwrap();
        let second = pending.track(Bytes::from_static(b"second"));
        let part = first.split_to(2);
        drop(first);
        assert_eq!(pending.oldest(), Some(began));
        drop(part);
        assert!(pending.oldest().unwrap() >= began);
        drop(second);
        assert_eq!(pending.oldest(), None);
    }
}

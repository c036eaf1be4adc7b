//! One connection's slot, and how connections rank for eviction.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long a connection has been idle. Evicted in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IdleRank {
    /// The client does not read a response; `since` is when that began.
    pub(super) stalled: bool,
    /// Whether any request was received on it.
    pub(super) was_used: bool,
    /// End of the last request, or start of the connection.
    pub(super) since: Instant,
}

/// The slot that an open connection occupies.
#[derive(Debug, Default)]
pub(super) struct ConnectionSlot {
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// Slots for connections that only wait for their clients to close.
    closing: Option<Arc<Semaphore>>,
    declined: Arc<Notify>,
}

impl ConnectionSlot {
    pub(super) fn new(permit: OwnedSemaphorePermit, closing: &Arc<Semaphore>, declined: &Arc<Notify>) -> Self {
        Self { permit: Mutex::new(Some(permit)), closing: Some(Arc::clone(closing)), declined: Arc::clone(declined) }
    }

    /// Frees the slot for the next connection and takes a closing slot instead. Returns false, and changes nothing, if
    /// none is free.
    pub(super) fn move_to_closing(&self) -> bool {
        let Some(closing) = &self.closing else { return true };
        let Ok(permit) = Arc::clone(closing).try_acquire_owned() else { return false };
        *self.permit.lock() = Some(permit);
        true
    }

    /// Declines the requested eviction, because a request has arrived.
    pub(super) fn decline_eviction(&self) {
        self.declined.notify_one();
    }
}

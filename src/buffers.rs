//! One budget for all bytes that requests hold in memory: request bodies, the working memory of batches, and responses
//! that clients have not read.
//!
//! Each holder reserves its bytes before it allocates them. Batches may use three quarters of the budget, and batch
//! announces an eighth more. So announces and single lookups continue while other batches are rejected. The last
//! sixteenth is for the telemetry listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::labels::BufferRefusal;
use crate::metrics::BufferMetrics;

/// Minimum of the bytes that batches may read from the shared cache at once: one read of a batch may return this much.
const MIN_READ_BYTES: u64 = 64 << 20;
/// Unit of those bytes: a semaphore has fewer permits than there may be bytes.
const READ_UNIT: u64 = 1 << 10;

/// Who reserves, and so how much of the budget it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Batches: bodies, working memory and responses.
    Batches,
    /// Batch announces: writers continue while lookups are rejected.
    Announces,
    /// Requests for a single key, and the admin listener.
    Single,
    /// The telemetry listener.
    Telemetry,
}

impl Share {
    const fn of(self, limit: u64) -> u64 {
        match self {
            Self::Batches => limit / 4 * 3,
            Self::Announces => limit / 8 * 7,
            Self::Single => limit / 16 * 15,
            Self::Telemetry => limit,
        }
    }
}

/// The budget, shared by all listeners.
#[derive(Debug)]
pub struct Buffers {
    limit: AtomicU64,
    reserved: AtomicU64,
    /// Kibibytes that batches may be reading from the shared cache: values are reserved only once their sizes are
    /// known.
    reads: Semaphore,
    read_units: u64,
    metrics: BufferMetrics,
}

/// The budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the budget server.max_buffered_bytes = {limit} has no room for this request; retry later")]
pub struct Overloaded {
    /// The budget in bytes.
    pub limit: u64,
}

impl Buffers {
    /// Creates a budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: u64, metrics: BufferMetrics) -> Arc<Self> {
        let read_units = ((limit / 4).max(MIN_READ_BYTES) / READ_UNIT).min(u64::from(u32::MAX >> 4));
        metrics.limit(limit);
        Arc::new(Self {
            limit: AtomicU64::new(limit),
            reserved: AtomicU64::new(0),
            reads: Semaphore::new(usize::try_from(read_units).unwrap_or(Semaphore::MAX_PERMITS)),
            read_units,
            metrics,
        })
    }

    /// The budget in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        // Relaxed, as are all of these: the numbers publish no other data.
        self.limit.load(Relaxed)
    }

    /// Changes the budget. Reservations beyond it stay until their holders release them.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
        self.metrics.limit(limit);
    }

    /// Reserved bytes.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Relaxed)
    }

    /// Counts a request or response that was rejected or cut.
    pub fn refused(&self, reason: BufferRefusal) {
        self.metrics.refused(reason);
    }

    /// Updates the gauges; called before each scrape.
    pub fn show(&self) {
        self.metrics.reserved(self.reserved());
        self.metrics.limit(self.limit());
    }

    /// Checks whether this many bytes could be reserved now.
    ///
    /// # Errors
    /// [`Overloaded`].
    pub fn has_room(&self, share: Share, bytes: u64) -> Result<(), Overloaded> {
        let limit = self.limit();
        let fits = self.reserved().checked_add(bytes).is_some_and(|sum| sum <= share.of(limit));
        if fits { Ok(()) } else { Err(Overloaded { limit }) }
    }

    /// An empty reservation that can grow.
    #[must_use]
    pub fn empty(self: &Arc<Self>, share: Share) -> Reservation {
        Reservation { buffers: Arc::clone(self), share, bytes: 0 }
    }

    /// # Errors
    /// [`Overloaded`].
    pub fn reserve(self: &Arc<Self>, share: Share, bytes: u64) -> Result<Reservation, Overloaded> {
        let mut reservation = self.empty(share);
        reservation.resize(bytes)?;
        Ok(reservation)
    }

    /// Reserves `most` bytes, or a quarter of the free bytes if that is less.
    ///
    /// # Errors
    /// [`Overloaded`] if that is less than `least`.
    pub fn reserve_some(self: &Arc<Self>, share: Share, least: u64, most: u64) -> Result<Reservation, Overloaded> {
        let free = share.of(self.limit()).saturating_sub(self.reserved());
        self.reserve(share, (free / 4).clamp(least, most.max(least)))
    }

    /// Waits until this many bytes may be read from the shared cache.
    pub async fn read(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        let units = (bytes / READ_UNIT).clamp(1, self.read_units);
        self.reads.acquire_many(u32::try_from(units).unwrap_or(u32::MAX)).await.ok()
    }

    fn take(&self, share: Share, bytes: u64) -> Result<(), Overloaded> {
        let limit = self.limit();
        let fits = |reserved: u64| reserved.checked_add(bytes).filter(|sum| *sum <= share.of(limit));
        self.reserved.fetch_update(Relaxed, Relaxed, fits).map(drop).map_err(|_| Overloaded { limit })
    }
}

/// Reserved bytes, released when dropped.
#[derive(Debug)]
pub struct Reservation {
    buffers: Arc<Buffers>,
    share: Share,
    bytes: u64,
}

impl Reservation {
    /// Its size.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The budget that it belongs to.
    #[must_use]
    pub const fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    /// Grows or shrinks to this size.
    ///
    /// # Errors
    /// [`Overloaded`]; the size is unchanged then.
    pub fn resize(&mut self, bytes: u64) -> Result<(), Overloaded> {
        match bytes.checked_sub(self.bytes) {
            // Succeeds even if the budget has shrunk below the reservations.
            Some(0) => {}
            Some(more) => self.buffers.take(self.share, more)?,
            None => drop(self.buffers.reserved.fetch_sub(self.bytes - bytes, Relaxed)),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// # Errors
    /// As [`resize`](Self::resize).
    pub fn grow(&mut self, bytes: u64) -> Result<(), Overloaded> {
        self.resize(self.bytes.saturating_add(bytes))
    }

    /// Shrinks to this size if it is larger.
    pub fn shrink(&mut self, bytes: u64) {
        // Shrinking never fails.
        let _ = self.resize(self.bytes.min(bytes));
    }

    /// Attaches the reservation to bytes. It is released when their last part is dropped: the socket has accepted them
    /// by then, or never will.
    #[must_use]
    pub fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(ReservedBytes { bytes, _reservation: self })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.buffers.reserved.fetch_sub(self.bytes, Relaxed);
    }
}

struct ReservedBytes {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn buffers(limit: u64) -> Arc<Buffers> {
        Buffers::new(limit, Metrics::new().buffers)
    }

    #[test]
    fn batches_leave_room_for_single_requests_and_those_for_probes() {
        let buffers = buffers(1600);
        let _batches = buffers.reserve(Share::Batches, 1200).unwrap();
        assert_eq!(buffers.reserve(Share::Batches, 1).unwrap_err(), Overloaded { limit: 1600 });
        let _single = buffers.reserve(Share::Single, 300).unwrap();
        assert!(buffers.reserve(Share::Single, 1).is_err());
        let _probes = buffers.reserve(Share::Telemetry, 100).unwrap();
        assert!(buffers.reserve(Share::Telemetry, 1).is_err());
    }

    #[test]
    fn what_is_refused_changes_nothing_and_what_is_dropped_returns() {
        let buffers = buffers(400);
        let mut one = buffers.reserve(Share::Batches, 100).unwrap();
        assert!(one.grow(201).is_err() && one.grow(u64::MAX).is_err());
        assert_eq!((one.bytes(), buffers.reserved()), (100, 100));
        one.grow(200).unwrap();
        one.shrink(500);
        assert_eq!(buffers.reserved(), 300);
        one.shrink(50);
        assert_eq!(buffers.reserved(), 50);
        assert_eq!(buffers.reserve_some(Share::Batches, 1, 1000).unwrap().bytes(), 250 / 4);
        assert_eq!(buffers.reserve_some(Share::Batches, 1, 7).unwrap().bytes(), 7);
        assert!(buffers.reserve_some(Share::Batches, 251, 1000).is_err());
        drop(one);
        assert_eq!(buffers.reserved(), 0);
    }

    #[test]
    fn bytes_are_reserved_until_their_last_part_is_dropped() {
        let buffers = buffers(400);
        let text = Bytes::from_static(b"text");
        let mut held = buffers.reserve(Share::Single, 4).unwrap().hold(text.clone());
        assert_eq!((&held, held.as_ptr()), (&text, text.as_ptr()), "no copy");
        let part = held.split_off(3);
        drop(held);
        assert_eq!(buffers.reserved(), 4);
        drop(part);
        assert_eq!(buffers.reserved(), 0);
    }

    #[test]
    fn a_budget_that_shrinks_takes_nothing_from_its_holders() {
        let buffers = buffers(400);
        let mut held = buffers.reserve(Share::Batches, 300).unwrap();
        buffers.set_limit(200);
        assert!(held.grow(1).is_err() && buffers.reserve(Share::Telemetry, 1).is_err());
        held.shrink(150);
        assert_eq!(buffers.reserved(), 150);
    }
}

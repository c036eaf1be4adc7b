//! What a batch reserves in the budget of buffered bytes, computed from the length of its body.

use std::sync::Arc;

use super::reader::Format;
use crate::buffers::{Buffers, Overloaded, Reservation, Share};
use crate::http::path::Resource;
use crate::http::problem::Problem;
use crate::labels::BufferRefusal;

/// The reservation of a batch while its body arrives.
pub(super) struct BatchReservation {
    reserved: Reservation,
    share: Share,
    /// How often the body's bytes are held: as a document, and in keys.
    copies: u64,
    /// Bytes per key besides the key itself.
    per_key: u64,
    max_keys: u64,
}

impl BatchReservation {
    pub(super) fn new(buffers: &Arc<Buffers>, resource: Resource, format: Format, max_keys: usize) -> Self {
        let (keeps, per_key) = match resource {
            // Measured by `a_batch_takes_memory_by_its_keys_and_not_by_their_square`.
            Resource::Lookup => (1, 1024),
            Resource::Keys | Resource::Invalidate => (1, 512),
            // A hash and a verdict.
            Resource::Check => (0, 24),
        };
        let copies = match format {
            Format::Json => 1 + keeps,
            // A line may be as long as the body.
            Format::Ndjson | Format::Text => 1,
        };
        let share = if resource == Resource::Keys { Share::Announces } else { Share::Batches };
        Self { reserved: buffers.empty(share), share, copies, per_key, max_keys: max_keys as u64 }
    }

    /// Whether a body of this many bytes would fit now. Reserves nothing for a mere declaration, because a head costs
    /// its sender nothing.
    ///
    /// # Errors
    /// The problem `overloaded`.
    pub(super) fn admit(&self, bytes: u64) -> Result<(), Problem> {
        let fits = self.reserved.buffers().has_room(self.share, self.needed(bytes));
        fits.map_err(|error| self.refusal(error))
    }

    /// Reserves for a body of at least this many bytes. In every format a key takes one byte, and one more separates it
    /// from the next.
    ///
    /// # Errors
    /// The problem `overloaded`.
    pub(super) fn expect(&mut self, bytes: u64) -> Result<(), Problem> {
        let needed = self.needed(bytes);
        if needed <= self.reserved.bytes() {
            return Ok(());
        }
        self.reserved.resize(needed).map_err(|error| self.refusal(error))
    }

    fn needed(&self, bytes: u64) -> u64 {
        let keys = (bytes / 2 + 1).min(self.max_keys);
        bytes.saturating_mul(self.copies).saturating_add(keys.saturating_mul(self.per_key))
    }

    fn refusal(&self, error: Overloaded) -> Problem {
        self.reserved.buffers().refused(BufferRefusal::Request);
        Problem::from(&error)
    }

    /// Shrinks the reservation to what the keys need once they are known.
    pub(super) fn shrink_to_keys(self, bytes: u64, keys: u64) -> Reservation {
        let mut reserved = self.reserved;
        reserved.shrink(bytes.saturating_add(keys.saturating_mul(self.per_key)));
        reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn a_batch_reserves_by_its_length_and_then_by_its_keys() {
        let buffers = Buffers::new(100_000, Metrics::new().buffers);
        let mut reservation = BatchReservation::new(&buffers, Resource::Lookup, Format::Json, 20);
        reservation.admit(1_000).unwrap();
        assert_eq!(buffers.reserved(), 0, "what was only declared holds nothing");
        reservation.expect(1_000).unwrap();
        assert_eq!(buffers.reserved(), 2 * 1_000 + 20 * 1024);
        reservation.expect(9).unwrap();
        assert_eq!(buffers.reserved(), 2 * 1_000 + 20 * 1024, "it never shrinks while the body comes");
        assert!(reservation.expect(u64::MAX).is_err());
        let reserved = reservation.shrink_to_keys(1_000, 3);
        assert_eq!((reserved.bytes(), buffers.reserved()), (1_000 + 3 * 1024, 1_000 + 3 * 1024));
        drop(reserved);
        assert_eq!(buffers.reserved(), 0);
    }
}

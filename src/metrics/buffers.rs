//! The budget of buffered bytes.

use super::Registry;
use super::series::{Counter, Gauge};
use crate::labels::BufferRefusal;

/// Recorders of buffered bytes.
#[derive(Debug, Clone)]
pub struct BufferMetrics {
    reserved: Gauge,
    limit: Gauge,
    refused: Vec<Counter>,
}

impl BufferMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let refused = |reason: &BufferRefusal| {
            registry.counter(
                "buffer_refusals_total",
                "Requests and responses rejected or cut because of their bytes in memory",
                &[("reason", reason.as_str())],
            )
        };
        Self {
            reserved: registry.gauge(
                "buffered_bytes",
                "Bytes that request bodies, batches and unsent responses hold",
                &[],
            ),
            limit: registry.gauge("buffered_bytes_limit", "Limit of buffered bytes", &[]),
            refused: BufferRefusal::ALL.iter().map(refused).collect(),
        }
    }

    /// Sets the reserved bytes.
    pub fn reserved(&self, bytes: u64) {
        self.reserved.set(bytes as f64);
    }

    /// Sets the budget.
    pub fn limit(&self, bytes: u64) {
        self.limit.set(bytes as f64);
    }

    /// Counts a rejected or cut request or response.
    pub fn refused(&self, reason: BufferRefusal) {
        self.refused[reason as usize].increment(1);
    }
}

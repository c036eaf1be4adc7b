//! The gauges of one keyspace's filter.

use super::series::Gauge;
use super::{Gauges, Registry};

#[derive(Debug)]
pub(super) struct FilterGauges {
    items: Gauge,
    capacity: Gauge,
    load_ratio: Gauge,
    fill_ratio: Gauge,
    bytes: Gauge,
    target_fpr: Gauge,
    estimated_fpr: Gauge,
    observed_fpr: Gauge,
    distinct_absent_keys: Gauge,
    distinct_inserted_keys: Gauge,
    generation: Gauge,
    age: Gauge,
    freshness_lag: Gauge,
}

impl FilterGauges {
    pub(super) fn new(registry: &Registry, keyspace: &str) -> Self {
        let gauge = |name, help| registry.gauge(name, help, &[("keyspace", keyspace)]);
        Self {
            items: gauge("filter_items", "Keys in the filter, estimated from its fill"),
            capacity: gauge("filter_capacity", "Keys for which the filter was sized"),
            load_ratio: gauge("filter_load_ratio", "Items over capacity"),
            fill_ratio: gauge("filter_fill_ratio", "Share of the filter's bits that are set"),
            bytes: gauge("filter_bytes", "Bytes of the filter"),
            target_fpr: gauge("filter_target_fpr", "Configured false-positive rate: filter.false_positive_rate"),
            estimated_fpr: gauge("filter_estimated_fpr", "False-positive rate predicted by the fill"),
            observed_fpr: gauge(
                "filter_observed_fpr",
                "False positives / (false positives + true negatives) since the swap",
            ),
            distinct_absent_keys: gauge(
                "filter_distinct_absent_keys",
                "Distinct absent keys looked up in the last five minutes (estimate)",
            ),
            distinct_inserted_keys: gauge(
                "filter_distinct_inserted_keys",
                "Distinct keys inserted by announces and polls in the last five minutes (estimate)",
            ),
            generation: gauge("filter_generation", "Generation of the active filter"),
            age: gauge("filter_age_seconds", "Seconds since the swap"),
            freshness_lag: gauge(
                "filter_freshness_lag_seconds",
                "Seconds since the start of the last complete poll, else of the filter's scan",
            ),
        }
    }

    pub(super) fn set(&self, g: &Gauges) {
        self.items.set(g.items as f64);
        self.capacity.set(g.capacity as f64);
        self.load_ratio.set(g.load_ratio);
        self.fill_ratio.set(g.fill_ratio);
        self.bytes.set(g.bytes as f64);
        self.target_fpr.set(g.target_fpr);
        self.estimated_fpr.set(g.estimated_fpr);
        self.observed_fpr.set(g.observed_fpr);
        self.distinct_absent_keys.set(g.distinct_absent_keys as f64);
        self.distinct_inserted_keys.set(g.distinct_inserted_keys as f64);
        self.generation.set(g.generation as f64);
        self.age.set(g.age_seconds);
        self.freshness_lag.set(g.freshness_lag_seconds);
    }
}

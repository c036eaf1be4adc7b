//! All series by name and labels, rendered with the formatting functions of the exporter crate.
//!
//! The crate's recorder is not used. It calibrates the processor's clock before its first series, which costs a start
//! up to 200 ms. And it keeps every duration with its time of recording until an upkeep task removes it.

use std::collections::BTreeMap;
use std::fmt::Display;

use metrics::{Key, Label};
use metrics_exporter_prometheus::LabelSet;
use metrics_exporter_prometheus::formatting::{write_help_line, write_metric_line, write_type_line};
use parking_lot::Mutex;

use super::series::{Counter, Gauge, Histogram};

/// All series. Locked only at registration and on scrape.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<BTreeMap<String, Family>>);

/// The series of one name.
#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: &'static str,
    /// By labels as text.
    series: BTreeMap<String, (LabelSet, Series)>,
}

#[derive(Debug, Clone)]
enum Series {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

impl Registry {
    pub(super) fn counter(&self, name: &str, help: &'static str, labels: &[(&'static str, &str)]) -> Counter {
        let fresh = Counter::default();
        match self.register(name, help, labels, Series::Counter(fresh.clone())) {
            Series::Counter(known) => known,
            _ => fresh,
        }
    }

    pub(super) fn gauge(&self, name: &str, help: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
        let fresh = Gauge::default();
        match self.register(name, help, labels, Series::Gauge(fresh.clone())) {
            Series::Gauge(known) => known,
            _ => fresh,
        }
    }

    pub(super) fn histogram(
        &self,
        name: &str,
        help: &'static str,
        bounds: &'static [f64],
        labels: &[(&'static str, &str)],
    ) -> Histogram {
        let fresh = Histogram::new(bounds);
        match self.register(name, help, labels, Series::Histogram(fresh.clone())) {
            Series::Histogram(known) => known,
            _ => fresh,
        }
    }

    /// Returns the registered series of that name and labels, or registers `fresh`.
    fn register(&self, name: &str, help: &'static str, labels: &[(&'static str, &str)], fresh: Series) -> Series {
        let labels: Vec<Label> = labels.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).collect();
        let name = format!("bloomguard_{name}");
        let labels = LabelSet::from_key_and_global(&Key::from_parts(name.clone(), labels), &Default::default());
        let text = labels.to_strings().collect::<Vec<_>>().join(",");
        let mut families = self.0.lock();
        let family =
            families.entry(name).or_insert_with(|| Family { help, kind: fresh.kind(), series: BTreeMap::new() });
        assert_eq!(family.kind, fresh.kind(), "a name stands for one kind of series: {text}");
        family.series.entry(text).or_insert((labels, fresh)).1.clone()
    }

    /// Renders everything, sorted by name.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for (name, Family { help, kind, series }) in &*self.0.lock() {
            write_help_line(&mut text, name, None, None, help);
            write_type_line(&mut text, name, None, None, kind);
            series.values().for_each(|(labels, series)| series.render(&mut text, name, labels));
            text.push('\n');
        }
        text
    }
}

impl Series {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }

    fn render(&self, text: &mut String, name: &str, labels: &LabelSet) {
        match self {
            Self::Counter(counter) => line(text, name, None, labels, counter.value()),
            Self::Gauge(gauge) => line(text, name, None, labels, gauge.value()),
            Self::Histogram(histogram) => {
                let (within, sum) = histogram.value();
                for (bound, count) in &within {
                    let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
                    write_metric_line(text, name, Some("bucket"), labels, Some(("le", bound)), count, None);
                }
                line(text, name, Some("sum"), labels, sum);
                line(text, name, Some("count"), labels, within.last().map_or(0, |(_, count)| *count));
            }
        }
    }
}

fn line(text: &mut String, name: &str, suffix: Option<&'static str>, labels: &LabelSet, value: impl Display) {
    write_metric_line(text, name, suffix, labels, None::<(&str, &str)>, value, None);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn series_are_written_as_prometheus_reads_them() {
        let registry = Registry::default();
        registry.counter("b_total", "Bees", &[("kind", "a \"queen\"")]).increment(3);
        registry.counter("b_total", "Bees", &[]);
        registry.gauge("a", "Ants", &[]).set(f64::NAN);
        let histogram = registry.histogram("c_seconds", "Cats", &[1e-6, 0.5], &[("x", "y")]);
        histogram.record(Duration::from_millis(500));
        histogram.record(Duration::from_secs(1));
        assert_eq!(
            registry.render(),
            r#"# HELP bloomguard_a Ants
# TYPE bloomguard_a gauge
bloomguard_a NaN

# HELP bloomguard_b_total Bees
# TYPE bloomguard_b_total counter
bloomguard_b_total 0
bloomguard_b_total{kind="a \"queen\""} 3

# HELP bloomguard_c_seconds Cats
# TYPE bloomguard_c_seconds histogram
bloomguard_c_seconds_bucket{x="y",le="0.000001"} 0
bloomguard_c_seconds_bucket{x="y",le="0.5"} 1
bloomguard_c_seconds_bucket{x="y",le="+Inf"} 2
bloomguard_c_seconds_sum{x="y"} 1.5
bloomguard_c_seconds_count{x="y"} 2

"#
        );
    }

    #[test]
    fn who_registers_a_series_again_gets_the_one_that_there_is() {
        let registry = Registry::default();
        for _ in 0..2 {
            registry.counter("a_total", "A", &[("x", "1")]).increment(1);
            registry.gauge("b", "B", &[]).add(1.0);
            registry.histogram("c", "C", &[1.0], &[]).record(Duration::ZERO);
        }
        let text = registry.render();
        for series in ["bloomguard_a_total{x=\"1\"} 2", "bloomguard_b 2", "bloomguard_c_count 2"] {
            assert!(text.lines().any(|line| line == series), "no {series} in {text}");
        }
    }
}

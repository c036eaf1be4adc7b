//! What filters cost and bring, before one is built: `bloomguard plan`.

mod count;
mod tables;

pub use self::count::{KeyCount, count};

use self::tables::{Pareto, Sizes, grouped, size};
use crate::filter::{FilterKind, FilterSpec, Footprint, SizingError, WindowedSpec};

/// Slices of the windowed filter in the table.
const SLICES: u32 = 6;

/// What to plan for.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Keys that the filter has room for.
    pub capacity: u64,
    /// False-positive rate that it keeps.
    pub rate: f64,
    /// Lookups of absent keys a second.
    pub absent_per_second: f64,
    /// Where the capacity comes from, if not from the command line.
    pub because: Option<String>,
    /// The configured choice.
    pub chosen: Option<FilterKind>,
    /// What the keyspace and the process use beside the filter.
    pub beside: Beside,
    /// Memory limit of this process's control group.
    pub limit: Option<u64>,
}

/// Bytes beside the filter, as a build counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    /// Caches, or notes of a set of keys.
    pub caches: u64,
    /// `server.max_announce_bytes`.
    pub announces: u64,
    /// The minimum that requests and responses may hold.
    pub buffers: u64,
    /// The process itself.
    pub process: u64,
}

/// A filter kind and its cost.
struct PlanRow {
    name: String,
    hashes: u32,
    bits: u64,
    bytes: u64,
    expected: f64,
    /// The layer that it grows by.
    next: Option<u64>,
}

impl Plan {
    /// The whole page.
    ///
    /// # Errors
    /// [`SizingError`]: no such filter exists.
    pub fn render(&self) -> Result<String, SizingError> {
        let rows = self.rows()?;
        Ok(format!("{}{}\n{}\n{}", self.head(&rows), self.table(&rows), Sizes, Pareto))
    }

    fn rows(&self) -> Result<Vec<PlanRow>, SizingError> {
        let mut rows = Vec::new();
        for kind in FilterKind::ALL {
            let spec = FilterSpec { kind, capacity: self.capacity, rate: self.rate };
            let Footprint { hashes, bits, bytes, expected_fpr: expected, .. } = spec.footprint()?;
            let mark = if self.chosen == Some(kind) { " *" } else { "" };
            rows.push(PlanRow {
                name: format!("{}{mark}", kind.as_str()),
                hashes,
                bits,
                bytes,
                expected,
                next: spec.growth_bytes(),
            });
        }
        let windowed =
            WindowedSpec { capacity: self.capacity, rate: self.rate, window: u64::from(SLICES), slices: SLICES };
        let (bytes, hashes, expected) = (windowed.bytes_needed()?, windowed.hashes()?, windowed.expected_fpr()?);
        rows.push(PlanRow { name: "windowed".into(), hashes, bits: bytes * 8, bytes, expected, next: None });
        Ok(rows)
    }

    fn head(&self, rows: &[PlanRow]) -> String {
        let because = self.because.as_ref().map(|text| format!(" ({text})")).unwrap_or_default();
        let mut head = format!(
            "{} keys{because} at a false-positive rate of {}; {} lookups of absent keys a second\n\n",
            grouped(self.capacity),
            self.rate,
            grouped(self.absent_per_second as u64)
        );
        let Beside { caches, announces, buffers, process } = self.beside;
        let beside = caches.saturating_add(announces).saturating_add(buffers).saturating_add(process);
        head += &format!(
            "beside the filter: {} for caches, {} for announces within their commit window, {} for requests and responses, {} for the process\n",
            size(caches),
            size(announces),
            size(buffers),
            size(process)
        );
        for row in rows {
            let needed = row.bytes.saturating_mul(2).saturating_add(beside);
            if let Some(limit) = self.limit.filter(|limit| needed > *limit) {
                let name = &row.name;
                head += &format!(
                    "{name} needs {} while it is rebuilt: more than the memory limit here, {}\n",
                    size(needed),
                    size(limit)
                );
            }
        }
        head
    }

    fn table(&self, rows: &[PlanRow]) -> String {
        let mut table = format!(
            "{:<12}{:>7}{:>20}{:>10}{:>18}{:>14}{:>12}{:>16}{:>14}\n",
            "kind", "hashes", "bits", "bits/key", "bytes", "in a rebuild", "overflow", "predicted rate", "calls/s leak"
        );
        for row in rows {
            table += &format!(
                "{:<12}{:>7}{:>20}{:>10.2}{:>18}{:>14}{:>12}{:>16}{:>14}\n",
                row.name,
                row.hashes,
                grouped(row.bits),
                row.bits as f64 / self.capacity.max(1) as f64,
                grouped(row.bytes),
                size(row.bytes.saturating_mul(2)),
                row.next.map_or("-".into(), size),
                format!("{:.3e}", row.expected),
                format!("{:.2}", row.expected * self.absent_per_second)
            );
        }
        table + LEGEND
    }
}

const LEGEND: &str = "\
\"in a rebuild\": filter and candidate. \"overflow\": what the filter may grow by, once it is full, to keep its rate until the next rebuild; a scalable
filter goes on growing. \"calls/s leak\": lookups of absent keys that pass. counting: filters whose keys can be taken out; not for keyspaces.
windowed: the last window's keys in 6 slices of time; for sets of claims, never for keyspaces. The predicted rate of a filter that is full.
";

//! All figures of a run, and their ratios.

use std::cell::RefCell;
use std::collections::BTreeMap;

const COLUMNS: [&str; 8] = ["bits/key", "rate %", "absent", "present", "hashed", "batched", "build", "insert"];
/// Row and column.
type Figure = (&'static str, &'static str);

/// Goals as ratios within one run: ours, theirs, and the highest acceptable ratio.
const GOALS: [(&str, Figure, Figure, f64); 8] = [
    ("absent, hash included: ours / floor", ("ours 1 %", "absent"), ("floor", "absent"), 1.2),
    ("absent, hash included: ours / sbbf-rs", ("ours 1 %", "absent"), ("sbbf-rs 1 %", "absent"), 1.0),
    (
        "absent, hash included: ours / sbbf-rs with our hash",
        ("ours 1 %", "absent"),
        ("sbbf-rs 1 %, our hash", "absent"),
        1.0,
    ),
    ("absent, hash done: ours / sbbf-rs", ("ours 1 %", "hashed"), ("sbbf-rs 1 %", "hashed"), 1.0),
    ("absent, hash included: ours / fastbloom", ("ours 1 %", "absent"), ("fastbloom 1 %", "absent"), 0.4),
    (
        "absent, hash included: ours / fastbloom with our hash",
        ("ours 1 %", "absent"),
        ("fastbloom 1 %, our hash", "absent"),
        0.4,
    ),
    ("absent, hash done: ours / fastbloom", ("ours 1 %", "hashed"), ("fastbloom 1 %", "hashed"), 0.4),
    ("batched, hash done: ours / floor", ("ours 1 %", "batched"), ("floor", "batched"), 1.2),
];

/// The fastest sample of each figure, because disturbances only make samples slower.
#[derive(Default)]
pub(crate) struct Table(RefCell<BTreeMap<Figure, f64>>);

impl Table {
    pub(crate) fn record(&self, row: &'static str, column: &'static str, value: f64) {
        self.0.borrow_mut().entry((row, column)).and_modify(|least| *least = least.min(value)).or_insert(value);
    }

    pub(crate) fn print(&self, keys: u64) {
        let figures = self.0.borrow();
        println!("\n{keys} keys; nanoseconds, the quickest of the samples\n");
        println!("| structure | {} |", COLUMNS.join(" | "));
        println!("|---|{}", "---|".repeat(COLUMNS.len()));
        let mut rows: Vec<_> = figures.keys().map(|(row, _)| *row).collect();
        rows.dedup();
        for row in rows {
            let cell = |column: &&'static str| {
                figures.get(&(row, *column)).map_or("–".to_owned(), |value| format!("{value:.2}"))
            };
            println!("| {row} | {} |", COLUMNS.iter().map(cell).collect::<Vec<_>>().join(" | "));
        }
        println!();
        for (what, ours, theirs, goal) in GOALS {
            // A run may be restricted to some rows.
            if let (Some(ours), Some(theirs)) = (figures.get(&ours), figures.get(&theirs)) {
                println!("{what}: {:.2} (goal: at most {goal})", ours / theirs);
            }
        }
        if let Some(build) = figures.get(&("ours 1 %", "build")) {
            println!("build of a filter that nobody reads yet, hash included: {build:.1} ns a key (goal: at most 40)");
        }
    }
}

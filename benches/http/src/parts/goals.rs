//! The goals of a run and its results: one table, which docs/benchmarks.md contains between two marks.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

const BEGIN: &str = "<!-- written by make bench-http: begin -->\n";
const END: &str = "<!-- written by make bench-http: end -->\n";

#[derive(Debug, Clone, Copy)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// Results of the parts that have run.
#[derive(Debug, Default)]
pub(super) struct Goals(Vec<(String, f64, Goal)>);

impl Goals {
    pub(super) fn reached(&mut self, what: impl Into<String>, value: f64, goal: Goal) {
        self.0.push((what.into(), value, goal));
    }

    pub(super) fn table(&self) -> String {
        let mut table = "| what | reached | goal |\n|---|---|---|\n".to_owned();
        for (what, value, goal) in &self.0 {
            // As it is told.
            let value = (value * 100.0).round() / 100.0;
            let goal = match goal {
                Goal::AtLeast(least) => format!("≥ {least}{}", if value >= *least { "" } else { ", missed" }),
                Goal::AtMost(most) => format!("≤ {most}{}", if value <= *most { "" } else { ", missed" }),
            };
            // Memory takes what is written to it.
            let _ = writeln!(table, "| {what} | {value:.2} | {goal} |");
        }
        table
    }

    /// Replaces the table of the last run, with the length of its runs.
    pub(super) fn write(&self, into: &Path, lasts: Duration) -> io::Result<()> {
        let text = fs::read_to_string(into)?;
        let table = format!("{}\nEach run lasted {} s.\n", self.table(), lasts.as_secs_f64());
        let text = between_marks(&text, &table)
            .ok_or_else(|| io::Error::other(format!("{} has no place for the table of goals", into.display())))?;
        fs::write(into, text)?;
        println!("\nThe table of goals in {} is of this run now.", into.display());
        Ok(())
    }
}

fn between_marks(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_misses_its_goal_is_told_so() {
        let mut goals = Goals::default();
        goals.reached("speed", 1.05, Goal::AtLeast(1.05));
        goals.reached("speed", f64::NAN, Goal::AtLeast(1.05));
        goals.reached("P99", 1.2, Goal::AtMost(1.1));
        let table = goals.table();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            ["| speed | 1.05 | ≥ 1.05 |", "| speed | NaN | ≥ 1.05, missed |", "| P99 | 1.20 | ≤ 1.1, missed |"]
        );
    }

    #[test]
    fn a_table_takes_the_place_of_the_last_one_and_of_nothing_else() {
        let text = format!("before\n{BEGIN}| old |\n{END}after\n");
        assert_eq!(between_marks(&text, "| new |\n"), Some(format!("before\n{BEGIN}| new |\n{END}after\n")));
        assert_eq!(between_marks("no marks\n", "| new |\n"), None);
    }
}

//! `bloomguard-model [short|deep|all|mutate] [scenario,…] [Rule …]`

use std::process::ExitCode;
use std::time::Instant;

use bloomguard_model::case::Case;
use bloomguard_model::rule::{Rule, Rules};
use bloomguard_model::search::{Found, Outcome};

/// About 3 GB.
const MOST: usize = 40_000_000;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let mode = words.next().unwrap_or_else(|| "all".into());
    let only = words.next().unwrap_or_default();
    let rules: Vec<String> = words.collect();
    let mut cases: Vec<Case> = match mode.as_str() {
        "short" => Case::short().collect(),
        "deep" => Case::deep().collect(),
        _ => Case::all().collect(),
    };
    cases.retain(|case| only.is_empty() || only.split(',').any(|name| name == case.name()));
    let removed = |name: &str| Rule::ALL.iter().find(|(_, known, _)| *known == name).map(|(rule, ..)| *rule);
    if mode == "mutate" {
        mutate(&cases, &rules);
        return ExitCode::SUCCESS;
    }
    let active = rules.iter().filter_map(|name| removed(name)).fold(Rules::ALL, Rules::without);
    let mut sound = true;
    for case in cases {
        let begun = Instant::now();
        let outcome = case.search(active, most());
        println!(
            "{:<22} {:>10} states {:>7.1} s  {}",
            case.name(),
            outcome.states,
            begun.elapsed().as_secs_f64(),
            word(&outcome)
        );
        if let Found::Counterexample(path) = &outcome.found {
            path.iter().for_each(|step| println!("    {step}"));
        }
        sound &= matches!(outcome.found, Found::Counterexample(_)) == case.window_remains();
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn most() -> usize {
    std::env::var("MODEL_STATES").ok().and_then(|text| text.parse().ok()).unwrap_or(MOST)
}

fn word(outcome: &Outcome) -> String {
    match &outcome.found {
        Found::Nothing => "holds".into(),
        Found::Counterexample(path) => format!("BROKEN in {} steps", path.len()),
        Found::Unfinished => "not finished".into(),
    }
}

/// Removes one rule at a time, and reports the first scenario that notices it.
fn mutate(cases: &[Case], only: &[String]) {
    for (rule, name, _) in
        Rule::ALL.iter().filter(|(_, name, _)| only.is_empty() || only.iter().any(|wanted| wanted == name))
    {
        let mut unfinished = Vec::new();
        let noticed = cases.iter().filter(|case| !case.window_remains()).find_map(|case| {
            let outcome = case.search(Rules::ALL.without(*rule), most());
            match outcome.found {
                Found::Counterexample(path) => {
                    Some(format!("{} ({} steps, {} states)", case.name(), path.len(), outcome.states))
                }
                Found::Nothing => None,
                Found::Unfinished => {
                    unfinished.push(case.name());
                    None
                }
            }
        });
        let unfinished =
            if unfinished.is_empty() { String::new() } else { format!(" [not finished: {}]", unfinished.join(", ")) };
        println!("{name:<28} {}{unfinished}", noticed.unwrap_or_else(|| "NOT NOTICED".into()));
    }
}

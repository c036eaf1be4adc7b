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
    let wanted = words.next().unwrap_or_default();
    let rules: Vec<String> = words.collect();
    let mut cases: Vec<Case> = match mode.as_str() {
        "short" => Case::short().collect(),
        "deep" => Case::deep().collect(),
        _ => Case::all().collect(),
    };
    cases.retain(|case| wanted.is_empty() || wanted.split(',').any(|name| name == case.name()));
    let removed = |name: &str| Rule::ALL.iter().find(|(_, known, _)| *known == name).map(|(rule, ..)| *rule);
    if mode == "mutate" {
        mutate(&cases, &rules);
        return ExitCode::SUCCESS;
    }
    let in_force = rules.iter().filter_map(|name| removed(name)).fold(Rules::ALL, Rules::without);
    let mut sound = true;
    for case in cases {
        let begun = Instant::now();
        let outcome = case.search(in_force, most());
        println!(
            "{:<22} {:>10} states {:>7.1} s  {}",
            case.name(),
            outcome.states,
            begun.elapsed().as_secs_f64(),
            word(&outcome)
        );
        if let Found::Counterexample(told) = &outcome.found {
            told.iter().for_each(|step| println!("    {step}"));
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
        Found::Counterexample(told) => format!("BROKEN in {} steps", told.len()),
        Found::Unfinished => "not finished".into(),
    }
}

/// Takes one rule away at a time, and says in which of the scenarios that is noticed first.
fn mutate(cases: &[Case], only: &[String]) {
    for (rule, name, _) in
        Rule::ALL.iter().filter(|(_, name, _)| only.is_empty() || only.iter().any(|wanted| wanted == name))
    {
        let mut unfinished = Vec::new();
        let noticed = cases.iter().filter(|case| !case.window_remains()).find_map(|case| {
            let outcome = case.search(Rules::ALL.without(*rule), most());
            match outcome.found {
                Found::Counterexample(told) => {
                    Some(format!("{} ({} steps, {} states)", case.name(), told.len(), outcome.states))
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

//! `bloomguard-model [short|deep|all|mutate] [scenario,…] [Rule …]`

use std::process::ExitCode;
use std::time::Instant;

use bloomguard_model::protocol::Protocol;
use bloomguard_model::rule::{Rule, Rules};
use bloomguard_model::scenario::{DEEP, SHORT, Scenario};
use bloomguard_model::search::{Found, Outcome, search};

/// About 3 GB.
const MOST: usize = 40_000_000;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let mode = words.next().unwrap_or_else(|| "all".into());
    let wanted = words.next().unwrap_or_default();
    let rules: Vec<String> = words.collect();
    let scenarios: Vec<&Scenario> = match mode.as_str() {
        "short" => SHORT.iter().collect(),
        "deep" => DEEP.iter().collect(),
        _ => SHORT.iter().chain(DEEP).collect(),
    };
    let scenarios = scenarios.into_iter().filter(|s| wanted.is_empty() || wanted.split(',').any(|name| name == s.name));
    let removed = |name: &str| Rule::ALL.iter().find(|(_, known, _)| *known == name).map(|(rule, ..)| *rule);
    if mode == "mutate" {
        mutate(&scenarios.collect::<Vec<_>>(), &rules);
        return ExitCode::SUCCESS;
    }
    let in_force = rules.iter().filter_map(|name| removed(name)).fold(Rules::ALL, Rules::without);
    let mut sound = true;
    for scenario in scenarios {
        let begun = Instant::now();
        let outcome = search(&Protocol { scenario: *scenario, rules: in_force }, most());
        println!("{:<22} {:>10} states {:>7.1} s  {}", scenario.name, outcome.states, begun.elapsed().as_secs_f64(), word(&outcome));
        if let Found::Counterexample(told) = &outcome.found {
            told.iter().for_each(|step| println!("    {step}"));
        }
        sound &= matches!(outcome.found, Found::Counterexample(_)) == scenario.window_remains;
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

/// Takes one rule away at a time, and says in which scenarios that is noticed.
fn mutate(scenarios: &[&Scenario], only: &[String]) {
    for (rule, name, _) in Rule::ALL.iter().filter(|(_, name, _)| only.is_empty() || only.iter().any(|wanted| wanted == name)) {
        let mut noticed = Vec::new();
        let mut unfinished = Vec::new();
        for scenario in scenarios.iter().filter(|s| !s.window_remains) {
            let outcome = search(&Protocol { scenario: **scenario, rules: Rules::ALL.without(*rule) }, most());
            match &outcome.found {
                Found::Counterexample(told) => noticed.push(format!("{} ({} steps)", scenario.name, told.len())),
                Found::Unfinished => unfinished.push(scenario.name),
                Found::Nothing => {}
            }
        }
        let noticed = if noticed.is_empty() { "NOT NOTICED".into() } else { noticed.join(", ") };
        println!("{name:<28} {noticed}{}", if unfinished.is_empty() { String::new() } else { format!(" [not finished: {}]", unfinished.join(", ")) });
    }
}

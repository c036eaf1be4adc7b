//! Every metric as a scrape shows it: type, labels with their values, help.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use bloomguard::metrics::Metrics;

use super::cell;
use super::sources::{Known, Word, labels_of, types_of};

/// Labels whose values no enum lists.
const FREE: &[&str] = &["keyspace", "version", "route", "method", "code"];

type Values = BTreeMap<String, BTreeSet<String>>;

#[derive(Default)]
struct Family {
    kind: String,
    help: String,
    labels: Values,
}

pub(super) fn page() -> String {
    let families = families(&scrape());
    let mut page = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for (name, Family { kind, help, labels }) in &families {
        let labels: Vec<String> = labels.keys().map(|label| format!("`{label}`")).collect();
        writeln!(page, "| `{name}` | {kind} | {} | {} |", labels.join(" "), cell(help)).unwrap();
    }
    page.push_str("\n## Values of labels\n");
    for (values, users) in users_of_values(&families) {
        writeln!(page, "\n{}:\n\n| value | meaning |\n|---|---|", users.join(", ")).unwrap();
        for (value, meaning) in values {
            writeln!(page, "| `{value}` | {} |", cell(&meaning)).unwrap();
        }
    }
    page
}

/// Of one keyspace: every series exists from the start.
fn scrape() -> String {
    let metrics = Metrics::new();
    let _users = metrics.keyspace("users");
    metrics.render()
}

fn families(scrape: &str) -> BTreeMap<String, Family> {
    let mut found: BTreeMap<String, Family> = BTreeMap::new();
    for line in scrape.lines().filter(|line| !line.is_empty()) {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            found.entry(name.to_owned()).or_default().help = help.to_owned();
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            found.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else {
            let (name, labels) = line.split_at(line.find(['{', ' ']).unwrap());
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            let name = base.filter(|base| found.contains_key(*base)).unwrap_or(name);
            let family = found.get_mut(name).unwrap_or_else(|| panic!("{name} has no help"));
            for (label, value) in labels_in(labels) {
                family.labels.entry(label).or_default().insert(value);
            }
        }
    }
    found
}

fn labels_in(text: &str) -> Vec<(String, String)> {
    let Some(inside) = text.strip_prefix('{').and_then(|rest| rest.split_once('}')) else { return vec![] };
    let pair =
        |part: &str| part.split_once('=').map(|(label, value)| (label.to_owned(), value.trim_matches('"').into()));
    inside.0.split(',').filter_map(pair).filter(|(label, _): &(String, String)| label != "le").collect()
}

/// The enums that label values come from.
fn enums() -> Vec<Vec<Word>> {
    let of_metrics = types_of(&["metrics"]).into_values().filter_map(|known| match known {
        Known::Words(words) => Some(words),
        _ => None,
    });
    let labels = ["labels.rs", "labels/unprotected.rs"].into_iter().flat_map(labels_of);
    labels.chain(of_metrics).collect()
}

/// Values with their meanings.
type Meanings = Vec<(String, String)>;

/// Each enum's values with their meanings, and the labels that take them.
fn users_of_values(families: &BTreeMap<String, Family>) -> Vec<(Meanings, Vec<String>)> {
    let enums = enums();
    let mut used: Vec<(Meanings, Vec<String>)> = vec![];
    for (name, family) in families {
        for (label, values) in family.labels.iter().filter(|(label, _)| !FREE.contains(&label.as_str())) {
            let is_its = |words: &&Vec<Word>| {
                words
                    .iter()
                    .map(|word| &word.text)
                    .collect::<BTreeSet<_>>()
                    .iter()
                    .eq(&values.iter().collect::<Vec<_>>())
            };
            let words =
                enums.iter().find(is_its).unwrap_or_else(|| panic!("{name}: no enum has the values of {label}"));
            let meanings: Meanings = words.iter().map(|word| (word.text.clone(), word.doc.clone())).collect();
            let user = format!("`{label}` of `{name}`");
            match used.iter_mut().find(|(known, _)| *known == meanings) {
                Some((_, users)) => users.push(user),
                None => used.push((meanings, vec![user])),
            }
        }
    }
    used
}

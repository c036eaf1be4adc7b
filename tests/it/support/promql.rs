//! PromQL against a scrape: whether a query asks for series that exist.

use std::collections::{BTreeMap, BTreeSet};

use bloomguard::labels::{
    AnnounceOutcome, BackendOutcome, CacheResult, CacheTier, LookupResult, RebuildOutcome, ShedReason, Source, State,
    Verdict,
};
use bloomguard::metrics::{Gauges, Metrics};

type Labels = BTreeMap<String, String>;

/// What `/metrics` shows once one of everything has happened.
pub struct Scrape {
    series: BTreeMap<String, Vec<Labels>>,
}

impl Scrape {
    /// Records one of everything and reads the result.
    pub fn of_everything() -> Self {
        let metrics = Metrics::new();
        let users = metrics.keyspace("users");
        let took = std::time::Duration::from_millis(1);
        Source::ALL.iter().for_each(|source| users.lookup(*source, LookupResult::Found, took));
        Verdict::ALL.iter().for_each(|verdict| users.check(*verdict));
        CacheTier::ALL.iter().for_each(|tier| users.cache(*tier, CacheResult::Hit));
        BackendOutcome::ALL.iter().for_each(|outcome| users.backend(*outcome, took));
        ShedReason::ALL.iter().for_each(|reason| users.shed(*reason));
        AnnounceOutcome::ALL.iter().for_each(|outcome| users.announces(*outcome, 1));
        RebuildOutcome::ALL.iter().for_each(|outcome| users.rebuilds.ended(*outcome, took, 1, 1.0));
        users.set_gauges(&Gauges {
            proof_remaining: 0,
            source_sample_absent_ratio: 0.0,
            state: State::Enforcing,
            items: 1,
            capacity: 1,
            load_ratio: 1.0,
            fill_ratio: 0.5,
            bytes: 64,
            target_fpr: 0.001,
            estimated_fpr: 0.001,
            observed_fpr: 0.001,
            distinct_absent_keys: 1,
            distinct_inserted_keys: 1,
            generation: 1,
            age_seconds: 1.0,
            max_staleness_seconds: 600.0,
            delta_lag_seconds: 0.1,
            set_keys: 0,
            set_bytes: 0,
            freshness_lag_seconds: 1.0,
        });
        Self::parse(&metrics.render())
    }

    /// Reads the Prometheus text format.
    pub fn parse(text: &str) -> Self {
        let mut series: BTreeMap<String, Vec<Labels>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
            let labels = rest.strip_prefix('{').map_or_else(Labels::new, |rest| {
                matchers(rest.split_once('}').unwrap().0).unwrap().into_iter().map(|m| (m.label, m.value)).collect()
            });
            series.entry(name.to_owned()).or_default().push(labels);
        }
        Self { series }
    }

    /// Metrics by name, with their labels; of a histogram the name that it was given.
    pub fn metrics(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, series) in &self.series {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            let base = base.filter(|base| self.series.contains_key(&format!("{base}_bucket"))).unwrap_or(name);
            let labels = series.iter().flat_map(|labels| labels.keys().cloned()).filter(|label| label != "le");
            found.entry(base.to_owned()).or_default().extend(labels);
        }
        found
    }

    /// What `query` asks for that isn't there.
    pub fn mistakes(&self, query: &str) -> Vec<String> {
        match Query::parse(query) {
            Ok(query) => self.judge(&query),
            Err(mistake) => vec![mistake],
        }
    }

    fn judge(&self, query: &Query) -> Vec<String> {
        let mut found = vec![];
        for Selector { metric, matchers } in &query.selectors {
            if OF_THE_KUBELET.contains(&metric.as_str()) {
                continue;
            }
            let Some(series) = self.series.get(metric) else {
                found.push(format!("unknown metric {metric}"));
                continue;
            };
            let has =
                |label: &str| OF_A_TARGET.contains(&label) || series.iter().any(|labels| labels.contains_key(label));
            for matcher in matchers {
                if !has(&matcher.label) {
                    found.push(format!("{metric} has no label {}", matcher.label));
                }
                let shown = has(&matcher.label) && !OF_A_TARGET.contains(&matcher.label.as_str());
                for value in matcher.values().filter(|value| shown && !value.starts_with('$')) {
                    if !series.iter().any(|labels| labels.get(&matcher.label).is_some_and(|v| v == value)) {
                        found.push(format!("{metric} has no {} = {value}", matcher.label));
                    }
                }
            }
            for label in query.by.iter().filter(|label| !has(label)) {
                found.push(format!("{metric} has no label {label}"));
            }
        }
        found
    }
}

/// A metric, and which of its series.
pub struct Selector {
    pub metric: String,
    matchers: Vec<Matcher>,
}

impl Selector {
    /// Whether it lets a dashboard's variable of the same name choose this label.
    pub fn follows(&self, label: &str) -> bool {
        self.matchers.iter().any(|m| m.label == label && m.operator == "=~" && m.value == format!("${label}"))
    }

    /// The selector alone, as a query.
    pub fn query(&self) -> String {
        let matchers: Vec<String> =
            self.matchers.iter().map(|m| format!("{}{}\"{}\"", m.label, m.operator, m.value)).collect();
        format!("{}{{{}}}", self.metric, matchers.join(", "))
    }
}

#[derive(Debug, PartialEq)]
struct Matcher {
    label: String,
    operator: String,
    value: String,
}

impl Matcher {
    /// The values that it names one by one.
    fn values(&self) -> impl Iterator<Item = &str> {
        let alternatives = self.operator.ends_with('~');
        self.value.split(move |c| alternatives && c == '|')
    }
}

/// What a query names. Not a parser of PromQL: it knows the words below and refuses others.
pub struct Query {
    pub selectors: Vec<Selector>,
    /// Labels of `by (…)`, `without (…)` and `on (…)`.
    pub by: Vec<String>,
}

const WORDS: &[&str] = &[
    "sum",
    "max",
    "min",
    "count",
    "by",
    "without",
    "on",
    "rate",
    "increase",
    "histogram_quantile",
    "time",
    "or",
    "and",
    "unless",
];
/// Labels that Prometheus adds to all series of a target.
const OF_A_TARGET: &[&str] = &["job", "instance", "namespace", "pod"];
/// Metrics of the container, which the kubelet has and bloomguard does not.
pub const OF_THE_KUBELET: &[&str] =
    &["container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_spec_memory_limit_bytes"];

impl Query {
    /// Reads a query, or says what can't be read.
    pub fn parse(query: &str) -> Result<Self, String> {
        let (mut selectors, mut by, mut rest, mut open) = (vec![], vec![], query, vec![]);
        while let Some(first) = rest.chars().next() {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            rest = &rest[name.len().max(first.len_utf8())..];
            match first {
                _ if name.starts_with("bloomguard_")
                    || name.starts_with("process_")
                    || OF_THE_KUBELET.contains(&name.as_str()) =>
                {
                    let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
                    let matchers = inside.map_or(Ok(vec![]), |(inside, _)| matchers(inside))?;
                    rest = inside.map_or(rest, |(_, after)| after);
                    selectors.push(Selector { metric: name, matchers });
                }
                _ if ["by", "without", "on"].contains(&name.as_str()) => {
                    let list = rest.trim_start().strip_prefix('(').and_then(|rest| rest.split_once(')'));
                    let (labels, after) = list.ok_or(format!("{name} without a list"))?;
                    by.extend(labels.split(',').map(|label| label.trim().to_owned()));
                    rest = after;
                }
                _ if first.is_ascii_digit() || WORDS.contains(&name.as_str()) => {}
                '(' => open.push(')'),
                '[' => open.push(']'),
                ')' | ']' if open.pop() == Some(first) => {}
                '$' => rest = rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'),
                ' ' | '\n' | ',' | '.' | '+' | '-' | '*' | '/' | '>' | '=' | '<' => {}
                _ if !name.is_empty() => return Err(format!("unknown word {name}")),
                other => return Err(format!("unexpected {other:?}")),
            }
        }
        match (open.is_empty(), selectors.is_empty()) {
            (false, _) => Err("a bracket is not closed".into()),
            (_, true) => Err("names no metric".into()),
            _ => Ok(Self { selectors, by }),
        }
    }
}

/// Reads `a="b", c=~"d|e"`. No value of ours holds a quote, a brace or a comma.
fn matchers(inside: &str) -> Result<Vec<Matcher>, String> {
    let read = |part: &str| {
        let (label, rest) = part.trim().split_at_checked(part.trim().find(['=', '!'])?)?;
        let (operator, value) = rest.split_once('"')?;
        let known = ["=", "!=", "=~", "!~"].contains(&operator);
        let matcher =
            Matcher { label: label.trim().into(), operator: operator.into(), value: value.strip_suffix('"')?.into() };
        known.then_some(matcher)
    };
    inside.split(',').map(|part| read(part).ok_or(format!("{part:?} is no matcher"))).collect()
}

#[test]
fn a_query_for_what_is_not_there_is_told_from_one_for_what_is() {
    let scrape = Scrape::of_everything();
    for (query, mistake) in [
        ("rate(bloomguard_lookup_total[5m])", "unknown metric bloomguard_lookup_total"),
        ("rate(bloomguard_lookups_total{tier=\"hot\"}[5m])", "bloomguard_lookups_total has no label tier"),
        ("rate(bloomguard_lookups_total{source=\"filtre\"}[5m])", "bloomguard_lookups_total has no source = filtre"),
        ("rate(bloomguard_lookups_total{source=~\"hot|warm\"}[5m])", "bloomguard_lookups_total has no source = warm"),
        ("sum by (tier) (rate(bloomguard_lookups_total[5m]))", "bloomguard_lookups_total has no label tier"),
        ("sum(rate(bloomguard_lookups_total[5m])", "a bracket is not closed"),
        ("rate(lookups_total[5m])", "unknown word lookups_total"),
        (
            "histogram_quantile(0.5, rate(bloomguard_lookup_duration_seconds[5m]))",
            "unknown metric bloomguard_lookup_duration_seconds",
        ),
    ] {
        assert_eq!(scrape.mistakes(query), [mistake], "{query}");
    }
    for query in [
        "sum by (keyspace) (rate(bloomguard_lookups_total{keyspace=~\"$keyspace\", source=~\"hot|redis\"}[$__rate_interval])) > 0.5",
        "histogram_quantile(0.99, sum by (le, source) (rate(bloomguard_lookup_duration_seconds_bucket[5m])))",
        "bloomguard_build_info",
    ] {
        assert!(scrape.mistakes(query).is_empty(), "{query}: {:?}", scrape.mistakes(query));
    }
}

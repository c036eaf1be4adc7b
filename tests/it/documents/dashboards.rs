//! The dashboards and alerts ask only for what `/metrics` shows, all of it is on a panel, and panels can be drawn.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::support::promql::{OF_THE_KUBELET, Query, Scrape};

/// Metrics that need no panel, each with its reason.
const WITHOUT_A_PANEL: &[&str] = &[];

pub fn dashboards() -> Vec<(String, Value)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| {
        (path.display().to_string(), serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    };
    let found: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "json")).map(read).collect();
    assert!(!found.is_empty());
    found
}

/// The panels that show something, and not the titles of rows.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    list(dashboard, "panels").iter().filter(|panel| panel["type"] != "row")
}

/// The queries of a dashboard's panels, each with the name of its place.
pub fn queries<'a>(file: &'a str, dashboard: &'a Value) -> impl Iterator<Item = (String, &'a str)> {
    panels(dashboard).flat_map(move |panel| {
        list(panel, "targets")
            .iter()
            .map(move |target| (format!("{file}: {}: {}", panel["title"], target["refId"]), text(target, "expr")))
    })
}

/// The expressions of the alert rules, each on a line of its own.
pub fn alerts() -> Vec<String> {
    let rules =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("helm/bloomguard/files/alerts.yaml"))
            .unwrap();
    let found: Vec<String> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).map(str::to_owned).collect();
    assert_eq!(found.len(), rules.matches("- alert: ").count(), "each expression is one line");
    found
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// `{{label}}` of a legend.
fn legend_labels(legend: &str) -> impl Iterator<Item = &str> {
    legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap().trim())
}

#[test]
fn every_query_uses_existing_series_and_the_variables() {
    let scrape = Scrape::of_everything();
    let metrics = scrape.metrics();
    let has_keyspace = |metric: &str| {
        let base =
            ["_bucket", "_sum", "_count"].iter().find_map(|suffix| metric.strip_suffix(suffix)).unwrap_or(metric);
        metrics.get(base).or_else(|| metrics.get(metric)).is_some_and(|labels| labels.contains("keyspace"))
    };
    let mut count = 0;
    for (file, dashboard) in dashboards() {
        for (place, query) in queries(&file, &dashboard) {
            assert!(scrape.mistakes(query).is_empty(), "{place}: {:?}", scrape.mistakes(query));
            for selector in Query::parse(query).unwrap().selectors {
                let mut variables = vec!["namespace", "pod"];
                // The kubelet is another job.
                variables.extend((!OF_THE_KUBELET.contains(&selector.metric.as_str())).then_some("job"));
                variables.extend(has_keyspace(&selector.metric).then_some("keyspace"));
                for variable in variables {
                    assert!(
                        selector.follows(variable),
                        "{place}: {} ignores the choice of {variable}",
                        selector.metric
                    );
                }
            }
            count += 1;
        }
        for target in panels(&dashboard).flat_map(|panel| list(panel, "targets")) {
            let kept = Query::parse(text(target, "expr")).unwrap().by;
            for label in legend_labels(text(target, "legendFormat")) {
                assert!(
                    kept.iter().any(|l| l == label),
                    "{file}: {target}: the legend shows {label}, which the query drops"
                );
            }
        }
        for variable in list(&dashboard["templating"], "list").iter().filter(|v| v["type"] == "query") {
            let definition = text(variable, "definition");
            let (metric, label) =
                definition.trim_start_matches("label_values(").trim_end_matches(')').rsplit_once(", ").unwrap();
            let query = format!("sum by ({label}) ({metric})");
            assert!(scrape.mistakes(&query).is_empty(), "{file}: {definition}: {:?}", scrape.mistakes(&query));
        }
    }
    assert!(count > 40, "only {count} queries found");
}

#[test]
fn every_alert_asks_for_series_that_exist() {
    let scrape = Scrape::of_everything();
    for alert in alerts() {
        assert!(scrape.mistakes(&alert).is_empty(), "{alert}: {:?}", scrape.mistakes(&alert));
    }
}

#[test]
fn every_metric_is_on_a_panel() {
    let all: String = dashboards()
        .iter()
        .flat_map(|(file, d)| queries(file, d).map(|(_, query)| query.to_owned()).collect::<Vec<_>>())
        .collect();
    for metric in Scrape::of_everything().metrics().keys() {
        let shown = ["", "_bucket", "_sum", "_count"].iter().any(|suffix| all.contains(&format!("{metric}{suffix}{{")));
        assert_eq!(
            !shown,
            WITHOUT_A_PANEL.contains(&metric.as_str()),
            "{metric}: add a panel to dashboards/generate.py"
        );
    }
}

#[test]
fn dashboards_keep_their_names_and_lead_to_each_other() {
    let names = ["overview", "filter", "dependencies"];
    let dashboards = dashboards();
    assert_eq!(dashboards.len(), names.len());
    for name in names {
        let (_, dashboard) = dashboards.iter().find(|(file, _)| file.ends_with(&format!("/{name}.json"))).unwrap();
        assert_eq!(dashboard["uid"], format!("bloomguard-{name}"));
        let link = &dashboard["links"][0];
        assert_eq!(
            (&link["tags"], &link["includeVars"], &link["keepTime"]),
            (&dashboard["tags"], &Value::Bool(true), &Value::Bool(true))
        );
        let variables: Vec<&str> = list(&dashboard["templating"], "list").iter().map(|v| text(v, "name")).collect();
        assert_eq!(variables, ["datasource", "job", "namespace", "pod", "keyspace"]);
        if name == "overview" {
            assert_eq!(dashboard["panels"][0]["title"], "Hits, Misses, False positives");
        }
    }
}

#[test]
fn panels_fill_the_grid_without_overlap_and_say_what_they_show() {
    for (file, dashboard) in dashboards() {
        assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 39, "{file}");
        let (mut cells, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for panel in list(&dashboard, "panels") {
            let place = format!("{file}: {}", panel["title"]);
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
            assert!(w > 0 && h > 0 && x + w <= 24, "{place}: does not fit 24 columns");
            for cell in (y..y + h).flat_map(|row| (x..x + w).map(move |column| (row, column))) {
                assert!(cells.insert(cell), "{place}: overlaps another panel at row {}, column {}", cell.0, cell.1);
            }
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{place}: its id is taken");
            if panel["type"] == "row" {
                continue;
            }
            assert!(!text(panel, "description").is_empty(), "{place}: no description");
            assert!(!text(&panel["fieldConfig"]["defaults"], "unit").is_empty(), "{place}: no unit");
            for source in
                std::iter::once(&panel["datasource"]).chain(list(panel, "targets").iter().map(|t| &t["datasource"]))
            {
                assert_eq!(source["uid"], "${datasource}", "{place}");
            }
        }
        let rows = cells.iter().map(|(row, _)| row + 1).max().unwrap_or(0);
        assert_eq!(cells.len() as u64, rows * 24, "{file}: the grid has holes");
    }
}

//! The dashboards ask only for what `/metrics` shows, and can be drawn.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::support::app::TestApp;
use crate::support::database::Site;
use crate::support::promql::{Query, Scrape};

fn dashboards() -> Vec<(String, Value)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let read =
        |path: std::path::PathBuf| (path.display().to_string(), serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap());
    let found: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "json")).map(read).collect();
    assert!(!found.is_empty());
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
fn every_query_asks_for_series_that_exist() {
    let scrape = Scrape::of_everything();
    let mut queries = 0;
    for (file, dashboard) in dashboards() {
        for panel in list(&dashboard, "panels") {
            for target in list(panel, "targets") {
                let (query, place) = (text(target, "expr"), format!("{file}: {}: {}", panel["title"], target["refId"]));
                assert!(scrape.mistakes(query).is_empty(), "{place}: {:?}", scrape.mistakes(query));
                assert!(query.contains("keyspace=~\"$keyspace\""), "{place}: ignores the choice of keyspaces");
                let kept = Query::parse(query).unwrap().by;
                for label in legend_labels(text(target, "legendFormat")) {
                    assert!(kept.iter().any(|l| l == label), "{place}: the legend shows {label}, which the query drops");
                }
                queries += 1;
            }
        }
        for variable in list(&dashboard["templating"], "list").iter().filter(|v| v["type"] == "query") {
            let definition = text(variable, "definition");
            let (metric, label) = definition.trim_start_matches("label_values(").trim_end_matches(')').split_once(", ").unwrap();
            let query = format!("sum by ({label}) ({metric})");
            assert!(scrape.mistakes(&query).is_empty(), "{file}: {definition}: {:?}", scrape.mistakes(&query));
        }
    }
    assert!(queries > 10, "only {queries} queries found");
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
            assert!(!text(panel, "description").is_empty(), "{place}: no description");
            assert!(!text(&panel["fieldConfig"]["defaults"], "unit").is_empty(), "{place}: no unit");
            for source in std::iter::once(&panel["datasource"]).chain(list(panel, "targets").iter().map(|t| &t["datasource"])) {
                assert_eq!(source["uid"], "${datasource}", "{place}");
            }
        }
        let rows = cells.iter().map(|(row, _)| row + 1).max().unwrap_or(0);
        assert_eq!(cells.len() as u64, rows * 24, "{file}: the grid has holes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_finds_its_series_at_an_instance_that_serves() {
    let site = Site::sqlite();
    site.run(
        "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, at DATETIME DEFAULT CURRENT_TIMESTAMP); INSERT INTO users (id) VALUES (1)",
    )
    .await;
    let app = TestApp::enforcing(&format!(
        "[keyspaces.users]\nmax_staleness = \"1h\"\n[keyspaces.users.backend]\nurl = \"{}\"\n\
         query = \"SELECT name FROM users WHERE id = $1\"\n[keyspaces.users.source]\nquery = \"SELECT id FROM users\"\n\
         incremental.query = \"SELECT id, at FROM users WHERE at >= $1\"\n",
        site.url()
    ))
    .await;
    assert_eq!(app.get("/v1/keys/users/1").await.told(), "200 backend");
    let scrape = Scrape::parse(app.telemetry("/metrics").await.text());
    for (file, dashboard) in dashboards() {
        for target in list(&dashboard, "panels").iter().flat_map(|panel| list(panel, "targets")) {
            let query = text(target, "expr");
            assert!(scrape.mistakes(query).is_empty(), "{file}: {query}: {:?}", scrape.mistakes(query));
        }
    }
}

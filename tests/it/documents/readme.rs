//! What the README and the pages show works.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use bloomguard::config;

use crate::support::promql::Scrape;

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// The code blocks of one language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn its_configuration_is_valid() {
    let blocks = blocks(&readme(), "toml");
    assert!(!blocks.is_empty());
    for block in blocks {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("bloomguard.toml");
        std::fs::write(&file, &block).unwrap();
        let config = config::load(&[file], std::iter::empty()).unwrap_or_else(|e| panic!("{e}\n{block}"));
        assert!(config.redis.is_some() && !config.keyspaces.is_empty());
    }
}

#[test]
fn its_queries_ask_for_series_that_exist() {
    let scrape = Scrape::of_everything();
    let text = readme() + &page("metrics.md");
    let queries: Vec<String> =
        blocks(&text, "promql").iter().flat_map(|b| b.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let queries: Vec<&str> =
        queries.iter().map(|line| line.split('#').next().unwrap().trim()).filter(|q| !q.is_empty()).collect();
    assert!(queries.len() >= 4, "{queries:?}");
    for query in queries {
        assert!(scrape.mistakes(query).is_empty(), "{query}: {:?}", scrape.mistakes(query));
    }
}

#[test]
fn metrics_that_pages_name_exist() {
    let scrape = Scrape::of_everything();
    let mut named = 0;
    // The metrics page names histograms, and another test compares it whole.
    for page in pages().into_iter().filter(|page| !page.ends_with("metrics.md")) {
        let text = std::fs::read_to_string(&page).unwrap();
        for quoted in text.split('`').skip(1).step_by(2).filter(|quoted| quoted.starts_with("bloomguard_")) {
            assert!(scrape.mistakes(quoted).is_empty(), "{}: {quoted}: {:?}", page.display(), scrape.mistakes(quoted));
            named += 1;
        }
    }
    assert!(named > 5, "only {named} metrics named");
}

#[test]
fn tests_that_pages_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = vec![];
    ["src", "tests"].iter().for_each(|dir| crate::house::architecture::rust_files(&root.join(dir), &mut paths));
    let all: String = paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let is_name = |word: &&str| {
        word.matches('_').count() >= 5 && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let mut named = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let names = text.split('`').skip(1).step_by(2).filter(is_name);
        for name in names.filter(|name| !name.starts_with("bloomguard_") && !name.starts_with("process_")) {
            let exists = ["(", "<"].iter().any(|next| all.contains(&format!("fn {name}{next}")));
            assert!(exists, "{}: no test {name}", page.display());
            named += 1;
        }
    }
    assert!(named > 60, "only {named} tests named");
}

/// Every page of the repository.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<PathBuf> = ["", "docs", "docs/decisions", "helm/bloomguard"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    assert!(pages.len() > 20, "{pages:?}");
    pages
}

#[test]
fn its_links_lead_somewhere() {
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            if link.starts_with("http") {
                continue;
            }
            let target = if path.is_empty() { page.clone() } else { page.with_file_name(path) };
            assert!(target.exists(), "{}: {link}", page.display());
            let leads = anchor.is_empty() || anchors(&std::fs::read_to_string(&target).unwrap()).contains(anchor);
            assert!(leads, "{}: no heading for {link}", page.display());
        }
    }
}

/// What headings are called in links.
fn anchors(text: &str) -> BTreeSet<String> {
    let plain = |heading: &str| {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
    };
    text.lines().filter(|line| line.starts_with('#')).map(|line| plain(line.trim_start_matches('#').trim())).collect()
}

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name)).unwrap()
}

#[test]
fn the_figure_is_what_the_benchmarks_say() {
    let figures = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/figures");
    let drawn = Command::new("python3").arg(figures.join("draw.py")).arg("--stdout").output().unwrap();
    assert!(drawn.status.success(), "{}", String::from_utf8_lossy(&drawn.stderr));
    let stands = std::fs::read(figures.join("absent-keys.svg")).unwrap();
    assert!(drawn.stdout == stands, "run docs/figures/draw.py");
}

#[test]
fn the_page_of_the_http_api_lists_every_type_of_problem() {
    let mut made = BTreeSet::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http");
    let mut paths = vec![];
    crate::house::architecture::rust_files(&src, &mut paths);
    for path in paths {
        let text = std::fs::read_to_string(path).unwrap();
        let code: String = text.split("#[cfg(test)]").next().unwrap().split_whitespace().collect();
        for (at, _) in code.match_indices(",\"").chain(code.match_indices("(\"")) {
            let called = &code[..at];
            let status = called
                .rsplit_once("StatusCode::")
                .is_some_and(|(_, word)| word.chars().all(|c| c.is_uppercase() || c == '_'));
            let name = code[at + 2..].split('"').next().unwrap();
            let is_name = name.chars().all(|c| c.is_lowercase() || c == '-');
            if is_name
                && (status || ["new(status", "unavailable", "bad_request"].iter().any(|maker| called.ends_with(maker)))
            {
                made.insert(format!("/problems/{name}"));
            }
        }
    }
    let page = page("http-api.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `/problems/"));
    let listed: BTreeSet<_> = rows.map(|row| format!("/problems/{}", row.split('`').next().unwrap())).collect();
    assert_eq!(listed, made);
}

#[test]
fn the_metrics_page_lists_every_metric_with_its_labels() {
    let page = page("metrics.md");
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let rows = page.lines().filter(|line| line.starts_with("| `bloomguard_") || line.starts_with("| `process_"));
    let listed: BTreeMap<_, _> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
            assert_eq!(cells.len(), 4, "{row}");
            (words(cells[0]).pop_first().unwrap(), words(cells[2]))
        })
        .collect();
    assert_eq!(listed, Scrape::of_everything().metrics());
}

//! Copies of the product's `filter/active.rs` and `filter/filling.rs`: one as it is, and some with a fault that must be
//! found out.

use std::path::Path;
use std::{env, fs};

const SOURCES: &str = "../../src/filter";
const FILES: [&str; 2] = ["active.rs", "filling.rs"];

/// In all of them, so that two announces meet a list that is full, and three keys are as many locks.
const SMALL: [Edit; 2] = [
    ("const KEYS_PER_LOCK: usize = 1024;", "const KEYS_PER_LOCK: usize = 1;"),
    ("const MAX_WAITING_KEYS: usize = 16_384;", "const MAX_WAITING_KEYS: usize = 1;"),
];

/// What stands in one of the files once, and what is put in its place.
type Edit = (&'static str, &'static str);

const DRAIN: &str = "rest.unwrap_or_default().iter().for_each(|hash| shared.insert(*hash));";
const PEEK: &str = "impl Filling {
    pub(super) fn peek(&self) -> Arc<Filter> {
        Arc::clone(&self.filter.lock())
    }
";

const VARIANTS: [(&str, &[Edit]); 5] = [
    ("as_built", &[]),
    ("drain_forgotten", &[(DRAIN, "drop(rest);")]),
    ("list_left_open", &[("self.waiting.lock().take())", "self.waiting.lock().clone())")]),
    (
        "full_list_drops",
        &[(
            "} else if !self.enqueue(hash) {\n            self.filter.lock().insert(hash);",
            "} else {\n            self.enqueue(hash);",
        )],
    ),
    (
        "swap_before_drain",
        &[
            ("impl Filling {\n", PEEK),
            ("let filter = Arc::clone(self.filter());", "let filter = self.filling.peek();"),
            ("self.swapped = true;", "let _ = self.filling.share(); self.swapped = true;"),
        ],
    ),
];

fn main() {
    let out = env::var("OUT_DIR").unwrap();
    let sources = FILES.map(|file| {
        let path = Path::new(SOURCES).join(file);
        println!("cargo::rerun-if-changed={}", path.display());
        fs::read_to_string(path).unwrap()
    });
    for (name, edits) in VARIANTS {
        let mut sources = sources.clone();
        for (from, to) in SMALL.iter().chain(edits) {
            let places: usize = sources.iter().map(|source| source.matches(from).count()).sum();
            assert_eq!(places, 1, "the product has changed, and {name} is to follow: {from:?}");
            sources = sources.map(|source| source.replace(from, to));
        }
        let folder = Path::new(&out).join(name);
        fs::create_dir_all(&folder).unwrap();
        for (file, source) in FILES.iter().zip(sources) {
            // `include!` takes no documentation of a module.
            let source: Vec<&str> = source.lines().filter(|line| !line.starts_with("//!")).collect();
            fs::write(folder.join(file), source.join("\n")).unwrap();
        }
    }
}

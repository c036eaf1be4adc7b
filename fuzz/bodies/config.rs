//! Any file is a configuration that can be shown, or has errors of one line each.

use std::path::PathBuf;
use std::sync::LazyLock;

use tempfile::TempDir;

static PLACE: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().unwrap());

pub fn run(data: &[u8]) {
    let file: PathBuf = PLACE.path().join("bloomguard.toml");
    std::fs::write(&file, data).unwrap();
    match bloomguard::config::load(&[file], std::iter::empty()) {
        Ok(config) => assert!(config.document().is_object()),
        Err(errors) => {
            assert!(!errors.errors().is_empty());
            for mistake in errors.errors() {
                assert!(!mistake.to_string().contains(['\n', '\r', '\u{1b}']), "{mistake:?}");
            }
        }
    }
}

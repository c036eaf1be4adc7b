//! Absences that outlive the row: the journal of a process that was killed.

use std::path::{Path, PathBuf};

use crate::product::users::config;
use crate::support::app::Http;
use crate::support::assert_eventually;
use crate::support::database::Site;
use crate::support::process::Process;

struct Killed {
    dir: tempfile::TempDir,
    site: Site,
    http: Http,
}

impl Killed {
    async fn new() -> Self {
        let site = Site::sqlite();
        site.run("CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT); INSERT INTO users VALUES (1, 'first')").await;
        let dir = tempfile::tempdir().unwrap();
        config(&site.url())
            .set("log.format", "json")
            .server("data_dir", "data")
            .users(|k| k.set("key", "integer").set("commit_window", "10m"))
            .write(dir.path());
        Self { dir, site, http: Http::default() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("data").join(name)
    }

    fn start(&self) -> Process {
        Process::start(self.dir.path(), &["serve", "--config", "bloomguard.toml"])
    }

    async fn announce(&self, process: &mut Process, id: u32) {
        let url = format!("http://{}/v1/keys/users/{id}", process.addresses().0);
        assert_eq!(self.http.send("PUT", &url, &[], "").await.status, 204);
    }

    async fn status(&self, process: &mut Process) -> serde_json::Value {
        let all = self.http.get(&format!("http://{}/status", process.addresses().1)).await.json();
        all["keyspaces"]["users"].clone()
    }

    /// Waits until the keyspace enforces, or says that it does not for its journal; which of the two.
    async fn enforces(&self, process: &mut Process) -> bool {
        let mut status;
        let mut enforces;
        assert_eventually!(
            {
                status = self.status(process).await;
                let damaged = status["reason"].as_str().unwrap_or_default().contains("journal was damaged");
                enforces = match status["state"].as_str() {
                    Some("enforcing") => Some(true),
                    Some("degraded") if damaged => Some(false),
                    _ => None,
                };
                enforces.is_some()
            },
            "{status}"
        );
        enforces.unwrap()
    }

    async fn told(&self, process: &mut Process, id: u32) -> String {
        self.http.get(&format!("http://{}/v1/keys/users/{id}", process.addresses().0)).await.told()
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Invariant: damaged-journal-degrades
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_cut_after_a_kill_ends_the_rejecting_for_its_window() {
    let killed = Killed::new().await;
    let (data, older, newest) = (killed.file(""), killed.dir.path().join("older"), killed.dir.path().join("newest"));
    let mut process = killed.start();
    assert!(killed.enforces(&mut process).await);
    let before = std::fs::read(killed.file("users.journal")).unwrap();
    let mut ends = Vec::new();
    for id in 2..=4 {
        ends.push(std::fs::metadata(killed.file("users.journal")).unwrap().len());
        killed.announce(&mut process, id).await;
    }
    process.signal("KILL");
    process.ended();
    copy(&data, &newest);
    let whole = std::fs::read(killed.file("users.journal")).unwrap();

    // Whole, it is believed, and what was announced is never 404 from the filter.
    let mut process = killed.start();
    assert!(killed.enforces(&mut process).await);
    assert_eq!(killed.told(&mut process, 4).await, "404 backend");
    // It ends in good order, and its snapshot knows of all announces.
    process.signal("TERM");
    process.ended();
    copy(&data, &older);

    // Cut at each boundary, as after the kill, and to nothing.
    for cut in ends.iter().copied().chain([0]) {
        std::fs::remove_dir_all(&data).unwrap();
        copy(&newest, &data);
        std::fs::write(killed.file("users.journal"), &whole[..cut as usize]).unwrap();
        let mut process = killed.start();
        assert!(!killed.enforces(&mut process).await, "cut to {cut} bytes");
        killed.site.run("INSERT OR REPLACE INTO users VALUES (4, 'late')").await;
        assert_eq!(killed.told(&mut process, 4).await, "200 backend");
        killed.site.run("DELETE FROM users WHERE id = 4").await;
    }

    // Gone, or copied back from before: the snapshot knows of more.
    for journal in [None, Some(&before)] {
        std::fs::remove_dir_all(&data).unwrap();
        copy(&older, &data);
        std::fs::remove_file(killed.file("users.journal")).unwrap();
        journal.map_or(Ok(()), |bytes| std::fs::write(killed.file("users.journal"), bytes)).unwrap();
        let mut process = killed.start();
        assert!(!killed.enforces(&mut process).await, "copied back: {}", journal.is_some());
    }
}

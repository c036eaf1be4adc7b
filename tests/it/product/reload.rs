//! A configuration that changes while the binary serves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::process::enforces;
use super::users::{USERS, config, site};
use crate::support::app::{Answer, Http, TestApp};
use crate::support::assert_eventually;
use crate::support::config::{Config, Edit, Keyspace};
use crate::support::database::Site;
use crate::support::process::Process;

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// No lookup fails because a machine is busy.
fn patient(url: &str) -> Config {
    config(url).users(|k| k.set("deadline", "2m").set("backend.timeout", "1m"))
}

/// The binary, its files, and its listeners.
struct Served {
    process: Process,
    dir: TempDir,
    /// Whose files the tests change.
    site: Site,
    http: Http,
    data: String,
    telemetry: String,
    admin: String,
}

impl Served {
    async fn enforcing() -> Self {
        let (dir, site) = (TempDir::new().unwrap(), site(Site::sqlite()).await);
        let file = patient(&site.url()).write(dir.path());
        Self::start(dir, site, &file).await
    }

    async fn start(dir: TempDir, site: Site, file: &str) -> Self {
        let mut process = Process::start(dir.path(), &["--config", file]);
        let ((data, telemetry), admin) = (process.addresses(), process.admin());
        let http = Http::default();
        enforces(&http, &telemetry).await;
        Self { process, dir, site, http, data, telemetry, admin }
    }

    /// Writes the file anew, as an editor does.
    fn write(&self, config: impl ToString) {
        let new = self.dir.path().join("new");
        std::fs::write(&new, config.to_string()).unwrap();
        std::fs::rename(new, self.dir.path().join("bloomguard.toml")).unwrap();
    }

    fn rewrite(&self, edit: impl FnOnce(Keyspace) -> Keyspace) {
        self.write(patient(&self.site.url()).users(edit));
    }

    async fn status(&self) -> Value {
        self.http.get(&format!("http://{}/status", self.telemetry)).await.json()["keyspaces"]["users"].clone()
    }

    async fn metric(&self, line: &str) -> f64 {
        crate::support::metric(self.http.get(&format!("http://{}/metrics", self.telemetry)).await.text(), line)
    }

    async fn reloads(&self, outcome: &str) -> f64 {
        self.metric(&format!("bloomguard_config_reloads_total{{outcome=\"{outcome}\"}}")).await
    }

    async fn until_reloads(&self, outcome: &str, count: f64) {
        assert_eventually!(self.reloads(outcome).await >= count, "no reload is {outcome}:\n{}", self.process.log());
    }

    async fn admin(&self, method: &str, path: &str, body: &str) -> Answer {
        self.http.send(method, &format!("http://{}{path}", self.admin), JSON, body).await
    }

    async fn reload(&self) -> Answer {
        self.admin("POST", "/admin/reload", "").await
    }

    async fn in_force(&self) -> Value {
        self.admin("GET", "/admin/config", "").await.json()["config"].clone()
    }

    async fn lookup(&self, id: u32) -> String {
        self.http.get(&format!("http://{}/v1/keys/users/{id}", self.data)).await.told()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_active_within_seconds_and_costs_no_lookup() {
    let served = Arc::new(Served::enforcing().await);
    let (done, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = (0..4).map(|client| {
        let (served, done, asked) = (Arc::clone(&served), Arc::clone(&done), Arc::clone(&asked));
        tokio::spawn(async move {
            let mut id = client;
            while !done.load(Relaxed) {
                id = (id + 4) % (2 * USERS) + 1;
                let told = served.lookup(id).await;
                let expected = if id <= USERS { "200" } else { "404" };
                assert!(told.starts_with(expected), "{id}: {told}");
                asked.fetch_add(1, Relaxed);
            }
        })
    });
    let load: Vec<_> = load.collect();
    let changes: [(Edit, &str); 3] = [
        (|k| k.set("enforcement", "shadow"), "shadow"),
        (|k| k.set("enforce_percent", 7), "enforcing"),
        (|k| k, "enforcing"),
    ];
    for (round, (edit, state)) in changes.iter().enumerate() {
        let before = asked.load(Relaxed);
        served.rewrite(edit);
        served.until_reloads("applied", (round + 1) as f64).await;
        assert_eq!(served.status().await["state"], *state);
        assert!(asked.load(Relaxed) > before, "lookups went on");
    }
    done.store(true, Relaxed);
    for client in load {
        client.await.unwrap();
    }
    assert_eq!(served.reloads("failed").await + served.reloads("needs_restart").await, 0.0);
}

/// Invariant: bad-input-changes-nothing
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_configuration_changes_only_a_counter_and_a_log_line() {
    let mut served = Served::enforcing().await;
    assert_eq!(served.metric("bloomguard_config_last_reload_successful").await, 1.0);
    served.rewrite(|k| k.set("enforcement", "shadow").set("enforce_percent", 101).set("max_stalenes", "1h"));
    served.until_reloads("failed", 1.0).await;
    served.process.logged("reload rejected: invalid configuration");
    let refused = served.reload().await;
    assert_eq!((refused.status, &refused.json()["type"]), (422, &json!("/problems/bad-configuration")));
    let mistakes: Vec<String> = serde_json::from_value(refused.json()["mistakes"].clone()).unwrap();
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
    for mistake in &mistakes {
        let told = serde_json::to_string(mistake).unwrap();
        assert!(served.process.log().contains(told.trim_matches('"')), "{mistake} is not in\n{}", served.process.log());
    }
    assert_eq!(
        (served.status().await["state"].clone(), served.lookup(1).await),
        (json!("enforcing"), "200 backend".to_owned())
    );
    assert_eq!(served.in_force().await["keyspaces"]["users"]["enforcement"], "enforce");
    assert_eq!(served.metric("bloomguard_config_last_reload_successful").await, 0.0);
    assert_eq!(served.reloads("failed").await, 2.0, "once a change, and once more when asked");
    served.write("[keyspaces.users");
    served.until_reloads("failed", 3.0).await;
    served.rewrite(|k| k);
    served.until_reloads("unchanged", 1.0).await;
    assert_eq!(served.metric("bloomguard_config_last_reload_successful").await, 1.0);
    assert_eq!(served.reloads("applied").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_reloads_the_configuration_and_ends_no_request() {
    let mut served = Served::enforcing().await;
    served.process.signal("HUP");
    // The files have not changed: nothing else would have read them.
    served.until_reloads("unchanged", 1.0).await;
    served.process.logged("SIGHUP");
    assert_eq!(served.lookup(1).await, "200 backend");
}

/// As the kubelet writes a volume: a new folder, and one rename of the link to it.
fn swap_volume(volume: &Path, version: &str, config: &Config) -> PathBuf {
    let folder = volume.join(version);
    std::fs::create_dir(&folder).unwrap();
    config.write(&folder);
    std::os::unix::fs::symlink(version, volume.join("..data_tmp")).unwrap();
    std::fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_the_kubelet_swaps_is_noticed() {
    let (dir, site) = (TempDir::new().unwrap(), site(Site::sqlite()).await);
    let volume = dir.path().join("volume");
    std::fs::create_dir(&volume).unwrap();
    let first = swap_volume(&volume, "..2026_01", &config(&site.url()));
    std::os::unix::fs::symlink("..data/bloomguard.toml", volume.join("bloomguard.toml")).unwrap();
    let served = Served::start(dir, site, volume.join("bloomguard.toml").to_str().unwrap()).await;
    swap_volume(&volume, "..2026_02", &config(&served.site.url()).users(|k| k.set("enforcement", "shadow")));
    std::fs::remove_dir_all(first).unwrap();
    served.until_reloads("applied", 1.0).await;
    assert_eq!((served.status().await["state"].clone(), served.reloads("failed").await), (json!("shadow"), 0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_has_switched_outlives_reloads_until_it_is_given_back() {
    const SWITCH: &str = "/admin/keyspaces/users/enforcement";
    let mut served = Served::enforcing().await;
    served.admin("POST", SWITCH, "{\"mode\":\"shadow\"}").await;
    served.rewrite(|k| k.set("enforce_percent", 50));
    assert_eq!(served.reload().await.status, 200);
    served.process.logged("\"applied\":\"keyspaces.users.enforce_percent\"");
    let configured = json!({"mode": "enforce", "percent": 50});
    let switched = served.admin("GET", SWITCH, "").await.json();
    assert_eq!(switched, json!({"mode": "shadow", "percent": 100, "origin": "instance", "configured": configured}));
    assert_eq!(served.status().await["state"], "shadow");
    let given_back = served.admin("POST", SWITCH, "{\"mode\":\"config\"}").await.json();
    assert_eq!(given_back, json!({"mode": "enforce", "percent": 50, "origin": "config", "configured": configured}));
}

/// Invariant: bad-input-changes-nothing
#[tokio::test(flavor = "multi_thread")]
async fn settings_that_need_a_restart_are_named_and_the_others_applied() {
    let (dir, site) = (TempDir::new().unwrap(), site(Site::sqlite()).await);
    let secret = dir.path().join("database");
    std::fs::write(&secret, format!("{}\n", site.url())).unwrap();
    let with_file = config("").users(|k| k.unset("backend.url").set("backend.url_file", secret.to_str().unwrap()));
    let file = with_file.write(dir.path());
    let mut served = Served::start(dir, site, &file).await;
    // Another key, so that the file that it names is not the only change.
    std::fs::write(&secret, format!("{}?mode=rw", served.site.url())).unwrap();
    served.write(with_file.users(|k| {
        k.set("enforce_percent", 50).set("max_staleness", "1h").set("cache.ttl", "7m").set("cache.hot_capacity", "1MiB")
    }));
    let told = served.reload().await.json();
    let waiting = json!([
        "keyspaces.users.backend.url_file",
        "keyspaces.users.cache.hot_capacity",
        "keyspaces.users.max_staleness"
    ]);
    let applied = json!(["keyspaces.users.cache.ttl", "keyspaces.users.enforce_percent"]);
    let again = json!({"outcome": "unchanged", "applied": [], "needs_restart": waiting});
    // Unless the change had been noticed before it was asked for.
    let first = json!({"outcome": "needs_restart", "applied": applied, "needs_restart": waiting});
    assert!(told == first || told == again, "{told}");
    served.process.logged("\"applied\":\"keyspaces.users.cache.ttl, keyspaces.users.enforce_percent\"");
    served
        .process
        .logged("\"restart needed for changed settings\",\"settings\":\"keyspaces.users.backend.url_file, keyspaces.users.cache.hot_capacity, keyspaces.users.max_staleness\"");
    assert_eq!(served.metric("bloomguard_config_settings_awaiting_restart").await, 3.0);
    let shown = served.admin("GET", "/admin/config", "").await.json();
    assert_eq!(shown["needs_restart"], waiting);
    let users = &shown["config"]["keyspaces"]["users"];
    assert_eq!((&users["enforce_percent"], &users["cache"]["ttl"]), (&json!(50), &json!("7m")));
    assert_eq!((&users["max_staleness"], &users["cache"]["hot_capacity"]), (&json!("10m"), &json!(64 << 20)));
    assert_eq!(served.status().await["enforcement"]["percent"], 50);
    assert_eq!(served.reload().await.json(), again);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schedule_and_the_level_of_the_log_change_while_it_serves() {
    let mut served = Served::enforcing().await;
    let swapped = "bloomguard_rebuilds_total{keyspace=\"users\",outcome=\"swapped\"}";
    assert!(!served.process.log().contains("\"DEBUG\""));
    let every_second = |k: Keyspace| k.set("rebuild.schedule", "* * * * * *").set("rebuild.jitter", "0s");
    served.write(config(&served.site.url()).users(every_second).set("log.level", "debug"));
    assert_eq!(served.reload().await.status, 200);
    // One of them is that of the start.
    assert_eventually!(served.metric(swapped).await >= 3.0, "the schedule is not followed:\n{}", served.process.log());
    served.process.logged("\"DEBUG\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_needs_json_and_a_process_with_files() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let url = format!("http://{}/admin/reload", app.admin);
    assert_eq!(app.http.send("POST", &url, &[], "").await.status, 415);
    assert_eq!(app.admin("GET", "/admin/reload", "").await.status, 405);
    let refused = app.admin("POST", "/admin/reload", "").await;
    assert_eq!((refused.status, &refused.json()["type"]), (503, &json!("/problems/not-reloadable")));
    assert_eq!(app.admin("GET", "/admin/config", "").await.json()["config"]["keyspaces"]["users"]["key"], Value::Null);
}

//! Whose absences the filter answers: the percentage, the switch at run time, and what shadow mode finds.

use serde_json::{Value, json};

use super::users::{absent, config, false_positive, site};
use crate::support::app::{Answer, TestApp};
use crate::support::assert_eventually;
use crate::support::database::Site;
use crate::support::redis::RedisServer;

const SWITCH: &str = "/admin/keyspaces/users/enforcement";

/// Ids that don't exist and that none of these filters lets pass.
fn strangers(apps: &[&TestApp], count: usize) -> Vec<u32> {
    use bloomguard::labels::Verdict;
    let rejects = |app: &&TestApp, id: u32| {
        let keyspace = app.keyspace("users");
        keyspace.peek(&keyspace.key(id.to_string().as_bytes()).unwrap()).verdict == Verdict::Absent
    };
    (1_000_000..).filter(|id| apps.iter().all(|app| rejects(app, *id))).take(count).collect()
}

fn path(id: u32) -> String {
    format!("/v1/keys/users/{id}")
}

async fn switch(app: &TestApp, body: Value) -> Answer {
    app.admin("POST", SWITCH, &body.to_string()).await
}

/// Waits until `app` answers the lookup of an absent key like this.
async fn answers(app: &TestApp, expected: &str) {
    let path = path(absent(app));
    assert_eventually!(app.get(&path).await.told() == expected, "never {expected}: {}", app.status("users").await);
}

/// Invariant: same-share-at-every-instance
#[tokio::test(flavor = "multi_thread")]
async fn enforce_percent_covers_the_same_keys_at_every_instance() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let config = config(&site.url()).redis(&redis).users(|k| k.set("enforce_percent", 50));
    let (one, other) = (TestApp::enforcing(&config).await, TestApp::enforcing(&config).await);
    let ids = strangers(&[&one, &other], 200);
    let mut covered = vec![];
    for id in &ids {
        let answer = one.get(&path(*id)).await;
        assert_eq!((answer.header("bloomguard-verdict"), answer.header("bloomguard-state")), ("absent", "enforcing"));
        assert_eq!(other.get(&path(*id)).await.told(), answer.told(), "{id}");
        match answer.told().as_str() {
            "404 filter" => covered.push(*id),
            told => assert_eq!(
                (told, one.get(&path(*id)).await.told().as_str()),
                ("404 backend", "404 backend"),
                "nothing is remembered"
            ),
        }
    }
    // 8 standard deviations.
    assert!((43..=157).contains(&covered.len()), "{} of 200", covered.len());
    let batch = one
        .http
        .send("POST", &one.url("/v1/check/users"), &[("content-type", "application/json")], &json!(ids).to_string())
        .await;
    let expected: Vec<usize> = (0..ids.len()).filter(|at| covered.contains(&ids[*at])).collect();
    assert_eq!(batch.json()["absent"], json!(expected));
    let single = |told: &Answer| told.status;
    assert_eq!(single(&one.get(&format!("/v1/check/users/{}", covered[0])).await), 404);
    let outside = ids.iter().find(|id| !covered.contains(id)).unwrap();
    assert_eq!(single(&one.get(&format!("/v1/check/users/{outside}")).await), 204);
    let status = one.status("users").await;
    assert_eq!(status["reason"], "the filter is as fresh as promised; enforce_percent = 50");
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_mode_lists_what_enforcing_would_have_got_wrong() {
    let site = site(Site::sqlite()).await;
    for reveal in [false, true] {
        let shadow = config(&site.url()).users(|k| k.set("enforcement", "shadow").set("reveal_keys", reveal));
        let app = TestApp::start(&shadow).await;
        app.wait_for("shadow").await;
        let (row, stranger) = (absent(&app), false_positive(&app));
        site.run(&format!("INSERT INTO users VALUES ({row}, 'behind the keyspace')")).await;
        assert_eq!(app.get(&path(row)).await.told(), "200 backend", "shadow rejects no key");
        assert_eq!(app.get(&path(stranger)).await.told(), "404 backend");
        crate::support::eventually("the row is judged", || app.keyspace("users").status().false_negatives == 1).await;
        let told = app.admin("GET", "/admin/keyspaces/users/mismatches", "").await.json();
        let (negatives, positives) = (&told["false_negatives"], &told["false_positives"]);
        assert_eq!((negatives.as_array().unwrap().len(), positives.as_array().unwrap().len()), (1, 1), "{told}");
        for (mismatch, kind, id) in
            [(&negatives[0], "false_negative", row), (&positives[0], "false_positive", stranger)]
        {
            assert_eq!(mismatch["kind"], kind);
            assert_eq!(
                (&mismatch["state"], &mismatch["found_by"], &mismatch["generation"]),
                (&json!("shadow"), &json!("lookup"), &json!(1))
            );
            assert_eq!(mismatch["key_hash"].as_str().unwrap().len(), 32);
            assert_eq!(mismatch.get("key"), reveal.then(|| json!(id.to_string())).as_ref(), "{mismatch}");
        }
        assert_eq!(app.metric("bloomguard_filter_false_negatives_total{keyspace=\"users\"}").await, 1.0);
        site.run(&format!("DELETE FROM users WHERE id = {row}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_instance_is_switched_at_run_time_and_back() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    answers(&app, "404 filter").await;
    let told = switch(&app, json!({"mode": "shadow"})).await;
    let configured = json!({"mode": "enforce", "percent": 100});
    let expected = json!({"mode": "shadow", "percent": 100, "origin": "instance", "configured": configured});
    assert_eq!((told.status, told.json()), (200, expected.clone()));
    assert_eq!(app.get(&path(absent(&app))).await.told(), "404 backend");
    let status = app.status("users").await;
    assert_eq!((&status["state"], &status["enforcement"]), (&json!("shadow"), &expected));
    assert_eq!(status["reason"], "enforcement = \"shadow\", switched for this instance by the admin API");
    assert_eq!(app.admin("GET", SWITCH, "").await.json(), expected);
    switch(&app, json!({"mode": "enforce", "percent": 0})).await;
    assert_eq!(app.get(&path(absent(&app))).await.told(), "404 backend");
    let told = switch(&app, json!({"mode": "config", "scope": "instance"})).await.json();
    assert_eq!(told, json!({"mode": "enforce", "percent": 100, "origin": "config", "configured": configured}));
    assert_eq!(app.get(&path(absent(&app))).await.told(), "404 filter");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_there_is_no_fleet_to_switch() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let refused = switch(&app, json!({"mode": "shadow", "scope": "fleet"})).await;
    assert_eq!((refused.status, &refused.json()["type"]), (409, &json!("/problems/no-fleet")));
    assert_eq!(app.status("users").await["state"], "enforcing");
    for body in ["", "{}", "{\"mode\":\"off\"}", "{\"mode\":\"enforce\",\"percent\":101}"] {
        assert_eq!(app.admin("POST", SWITCH, body).await.status, 400, "{body}");
    }
    assert_eq!(app.admin("POST", "/admin/keyspaces/strangers/enforcement", "{\"mode\":\"shadow\"}").await.status, 404);
}

/// Invariant: fleet-switch-lasts
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_switch_reaches_newcomers_and_survives_a_redis_restart() {
    let (mut redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let config = config(&site.url()).redis(&redis).users(|k| k.set("commit_window", "1s"));
    let (one, other) = (TestApp::enforcing(&config).await, TestApp::enforcing(&config).await);
    assert_eq!(switch(&other, json!({"mode": "enforce", "percent": 0})).await.status, 200);
    let told = switch(&one, json!({"mode": "shadow", "scope": "fleet"})).await;
    assert_eq!((told.status, &told.json()["origin"]), (200, &json!("fleet")));
    assert_eq!(one.status("users").await["state"], "shadow", "here at once");
    other.wait_for("shadow").await;
    let newcomer = TestApp::start(&config).await;
    newcomer.wait_for("shadow").await;
    answers(&newcomer, "404 backend").await;
    assert_eq!(
        newcomer.metric("bloomguard_lookups_total{keyspace=\"users\",source=\"filter\",result=\"absent\"}").await,
        0.0
    );
    assert_eq!(
        newcomer.metric("bloomguard_keyspace_state_changes_total{keyspace=\"users\",state=\"enforcing\"}").await,
        0.0
    );
    drop(newcomer);
    // An empty server: the instances that know put it back.
    redis.kill();
    redis.restart();
    assert_eventually!(
        redis::cmd("EXISTS").arg("bloomguard:enforcement:users").query::<bool>(&mut redis.connection()).ok()
            == Some(true),
        "nobody puts it back"
    );
    for app in [&one, &other] {
        assert_eq!(app.status("users").await["enforcement"]["origin"], "fleet");
    }
    let newcomer = TestApp::start(&config).await;
    newcomer.wait_for("shadow").await;
    let told = switch(&newcomer, json!({"mode": "config", "scope": "fleet"})).await;
    assert_eq!((told.status, &told.json()["origin"]), (200, &json!("config")));
    for app in [&one, &other, &newcomer] {
        answers(app, "404 filter").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_may_not_have_been_told_is_an_error() {
    let (mut redis, site) = (RedisServer::start(), site(Site::sqlite()).await);
    let app = TestApp::enforcing(&config(&site.url()).redis(&redis)).await;
    redis.kill();
    let refused = switch(&app, json!({"mode": "shadow", "scope": "fleet"})).await;
    assert_eq!((refused.status, &refused.json()["type"]), (503, &json!("/problems/not-switched")));
    assert_eq!(app.admin("GET", SWITCH, "").await.json()["origin"], "config");
}

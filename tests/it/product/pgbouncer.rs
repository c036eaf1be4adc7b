//! Behind a pooler in transaction mode, where each statement may meet another server connection.

use super::users::{USERS, absent, config, site};
use crate::support::app::TestApp;
use crate::support::database::Site;
use crate::support::pgbouncer::PgBouncer;

#[tokio::test(flavor = "multi_thread")]
async fn without_a_statement_cache_a_transaction_mode_pooler_is_no_obstacle() {
    let site = site(Site::postgres()).await;
    let Site::Postgres(database) = &site else { unreachable!("it is on PostgreSQL") };
    let pooler = PgBouncer::start(&database.address(), 2);
    let url = pooler.url(database.url().rsplit('/').next().unwrap());
    let config = config(&url)
        .users(|k| k.times("60s", "5s", "60s").set("backend.statement_cache", 0).set("backend.max_concurrency", 16));
    let app = TestApp::enforcing(&config).await;
    // More callers than the pooler has connections, so that they are handed from one to another.
    let readers = (0..16u32).map(|reader| {
        let app = &app;
        async move {
            for id in (reader + 1..=USERS / 4).step_by(16) {
                let answer = app.get(&format!("/v1/keys/users/{id}")).await;
                assert_eq!(
                    (answer.told().as_str(), answer.json()["id"].as_u64()),
                    ("200 backend", Some(u64::from(id))),
                    "{}",
                    answer.text()
                );
            }
        }
    });
    futures_util::future::join_all(readers).await;
    let batch = format!("{:?}", (USERS / 4 + 1..=USERS / 2).collect::<Vec<_>>());
    let json = [("content-type", "application/json")];
    let batch = app.http.send("POST", &app.url("/v1/lookup/users"), &json, &batch).await.json();
    assert!(batch["results"].as_array().unwrap().iter().all(|one| one["status"] == 200), "{batch}");
    assert_eq!(app.get(&format!("/v1/keys/users/{}", absent(&app))).await.told(), "404 filter");
    assert_eq!(app.rebuild("users").await, "swapped", "the scan goes through it too");
    assert_eq!(app.metric("bloomguard_breaker_state{dependency=\"backend\",state=\"closed\"}").await, 1.0);
}

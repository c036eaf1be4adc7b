//! Absences that outlive the row: polls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::Connection;

use crate::product::polls::{found, long_transaction, polled, polled_again, polls, site};
use crate::product::users::{absent, false_positive};
use crate::support::app::TestApp;
use crate::support::database::Site;
use crate::support::http_server::{HttpServer, ok, status};
use crate::support::redis::RedisServer;
use crate::support::{eventually, eventually_blocking};

/// Kinds of the entries in Redis, as their fifth byte tells.
fn kinds(redis: &RedisServer, id: u32) -> Vec<char> {
    let mut connection = redis.connection();
    let names: Vec<Vec<u8>> = redis::cmd("KEYS").arg(format!("*{id}")).query(&mut connection).unwrap();
    let entries = names.iter().filter_map(|name| redis::cmd("GET").arg(name).query::<Vec<u8>>(&mut connection).ok());
    entries.filter(|bytes| bytes.starts_with(b"BGe")).map(|bytes| char::from(bytes[4])).collect()
}

/// Lets those go that wait for it, also where the test fails.
struct Release(Arc<AtomicBool>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Invariant: polled-rows-outlive-builds
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_absence_that_a_dead_instance_stores_late_is_turned_away() {
    let (redis, table) = (RedisServer::start(), site(Site::sqlite()).await);
    let (asked, released) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let api = {
        let (asked, released) = (Arc::clone(&asked), Arc::clone(&released));
        // The first request for a row that is still to come gets its answer late.
        HttpServer::start(move |request| {
            let id: u32 = request.target().trim_start_matches("/users/").parse().unwrap();
            if id <= 1000 {
                return ok("application/json", "{}");
            }
            if asked.swap(true, Ordering::SeqCst) {
                return ok("application/json", "{}");
            }
            tokio::task::block_in_place(|| {
                eventually_blocking("the test lets it go", || released.load(Ordering::SeqCst));
            });
            status("404 Not Found", "", "")
        })
        .await
    };
    let config = polled(&table.url(), "updated_at").redis(&redis).users(|k| {
        k.set("filter.false_positive_rate", 0.05)
            .set("source.url", table.url())
            .unset("backend.query")
            .set("backend.kind", "http")
            .set("backend.url", api.url("/users/{key}"))
            .set("backend.timeout", "9s")
    });
    // The one that will die does not poll any more.
    let dying = TestApp::enforcing(&config.clone().users(|k| k.set("source.incremental.interval", "30m"))).await;
    let living = TestApp::enforcing(&config).await;
    let id = false_positive(&dying);
    let release = Release(released);
    let lookup = tokio::spawn({
        let (http, url) = (dying.http.clone(), dying.url(&format!("/v1/keys/users/{id}")));
        async move { http.get(&url).await.told() }
    });
    eventually("the backend is asked", || asked.load(Ordering::SeqCst)).await;
    table.run(&format!("INSERT INTO users (id, name) VALUES ({id}, 'new')")).await;
    polled_again(&living, 3.0).await;
    assert_eq!(kinds(&redis, id), ['M'], "a mark where nothing was");
    drop(release);
    assert_eq!(lookup.await.unwrap(), "404 backend");
    assert_eq!(kinds(&redis, id), ['M'], "the absence came too late");
    drop(dying);
    assert_eq!(living.get(&format!("/v1/keys/users/{id}")).await.status, 200);
    // And the mark keeps no value from being cached, which later polls leave alone.
    polled_again(&living, 3.0).await;
    assert_eq!(kinds(&redis, id), ['V']);
}

/// Invariant: polled-rows-outlive-builds
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_deleted_and_inserted_anew_between_two_polls_is_found() {
    for with_redis in [false, true] {
        let (redis, table) = (RedisServer::start(), site(Site::sqlite()).await);
        let config = polled(&table.url(), "version")
            .users(|k| k.times("1s", "100ms", "900ms").set("source.incremental.interval", "3s"));
        let config = if with_redis { config.redis(&redis).set("redis.timeout", "1s") } else { config };
        let app = TestApp::enforcing(&config).await;
        let id = absent(&app);
        let insert = format!("INSERT INTO users (id, name, version) VALUES ({id}, 'new', 8)");
        table.run(&insert).await;
        found(&app, id).await;
        // Its window is over by then, and it is listed by each poll, for it has the highest number.
        polled_again(&app, 2.0).await;
        let path = format!("/v1/keys/users/{id}");
        let mut whole = false;
        for _ in 0..10 {
            polled_again(&app, 1.0).await;
            let before = polls(&app).await;
            table.run(&format!("DELETE FROM users WHERE id = {id}")).await;
            let headers = [("bloomguard-bypass", "1")];
            assert_eq!(app.send("GET", &path, &headers).await.status, 404);
            let cached = app.get(&path).await.told();
            table.run(&insert).await;
            if polls(&app).await == before {
                assert_eq!(cached, "404 backend", "a row that polls have found lately");
                whole = true;
                break;
            }
        }
        assert!(whole, "no three steps came between two polls");
        polled_again(&app, 1.0).await;
        let told = app.get(&path).await.told();
        assert!(told.starts_with("200"), "{told}");
    }
}

/// Invariant: polls-find-every-row
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_a_session_that_tracks_nothing_is_waited_for() {
    for column in ["updated_at", "version"] {
        let site = site(Site::postgres()).await;
        let name = site.url().rsplit('/').next().unwrap().to_owned();
        site.run(&format!("ALTER DATABASE {name} SET track_activities = off")).await;
        let writer = sqlx::PgConnection::connect(&site.url()).await.unwrap();
        long_transaction(&site, writer, column, "COMMIT").await;
    }
}

/// Invariant: polls-find-every-row
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_is_waited_for() {
    for column in ["updated_at", "version"] {
        let site = site(Site::postgres()).await;
        let writer = sqlx::PgConnection::connect(&site.url()).await.unwrap();
        long_transaction(&site, writer, column, &format!("COMMIT PREPARED 'late {column}'")).await;
    }
}

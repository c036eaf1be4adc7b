//! The database hangs, is cut off, or is far away: each outage and its recovery, on PostgreSQL behind a network that
//! can be made bad.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::users::{USERS, absent, config, false_positive, site};
use crate::support::app::{Answer, TestApp};
use crate::support::assert_eventually;
use crate::support::chaos_proxy::{ChaosProxy, Weather};
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::redis::RedisServer;

const INFLIGHT: &str = "bloomguard_backend_inflight_requests{keyspace=\"users\"}";
const CLOSED: &str = "bloomguard_breaker_state{dependency=\"backend\",state=\"closed\"}";
const STALE: &str = "bloomguard_stale_answers_total{keyspace=\"users\"}";
const BLACK_HOLE: Weather = Weather { round_trip: Duration::ZERO, loss: 0.0, unanswered: 0.0, black_hole: true };

/// Connections that are open before the first request.
const WARM: u32 = 8;

/// Users in a database that is reached through the proxy.
struct Far {
    site: Site,
    proxy: ChaosProxy,
}

impl Far {
    async fn away() -> Self {
        let site = site(Site::postgres()).await;
        let port = site.url().rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap();
        Self { site, proxy: ChaosProxy::start(port, 7, |_| false).await }
    }

    fn url(&self) -> String {
        let (_, database) = self.site.url().rsplit_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.proxy.port())
    }

    fn config(&self) -> Config {
        config(&self.url()).users(|k| k.set("backend.min_connections", WARM))
    }

    /// An instance with this deadline and this timeout of the backend.
    async fn guarded(&self, config: Config, deadline: &str, timeout: &str) -> TestApp {
        let app = TestApp::enforcing(&config.users(|k| k.times(deadline, "5s", timeout))).await;
        // Those that are open hang for as long as the network does; one that is opened would be given up after a while.
        self.warmed().await;
        app
    }

    async fn warmed(&self) {
        assert_eventually!(self.connections() >= WARM, "connections are not warmed");
    }

    fn connections(&self) -> u32 {
        let Site::Postgres(database) = &self.site else { unreachable!("they are on PostgreSQL") };
        let ours = "datname = current_database() AND pid <> pg_backend_pid()";
        database.psql(&format!("SELECT count(*) FROM pg_stat_activity WHERE {ours}")).parse().unwrap()
    }
}

/// Asks until `done`; every answer on the way is judged.
async fn asks(
    app: &TestApp,
    what: &str,
    path: &str,
    headers: &[(&str, &str)],
    mut done: impl FnMut(&Answer) -> bool,
) -> Answer {
    let mut answer;
    assert_eventually!(
        {
            answer = app.send("GET", path, headers).await;
            done(&answer)
        },
        "{what}: {} {}",
        answer.told(),
        answer.text()
    );
    answer
}

async fn until(what: &str, app: &TestApp, line: &str, holds: impl Fn(f64) -> bool) {
    assert_eventually!(holds(app.metric(line).await), "{what}: {line} {}", app.metric(line).await);
}

fn kind(answer: &Answer) -> String {
    answer.json()["type"].as_str().unwrap_or_default().trim_start_matches("/problems/").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_warmed_in_the_background_and_readiness_waits_for_none() {
    let far = Far::away().await;
    far.proxy.set(BLACK_HOLE);
    let app = TestApp::start(&far.config().users(|k| k.set("key", "integer"))).await;
    assert_eq!(app.telemetry("/readyz").await.status, 200, "no connection can be made");
    far.proxy.heal();
    far.warmed().await;
    assert_eq!(
        app.metric("bloomguard_backend_requests_total{keyspace=\"users\",outcome=\"found\"}").await,
        0.0,
        "nobody has asked"
    );
}

/// Invariant: deadline-ends-a-lookup
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_database_is_answered_by_the_deadline_and_leaves_nothing_behind() {
    let far = Far::away().await;
    // The call itself would wait for longer than this test does.
    let app = far.guarded(far.config(), "500ms", "10m").await;
    asks(&app, "it is read", "/v1/keys/users/1", &[], |answer| answer.status == 200).await;
    far.proxy.set(BLACK_HOLE);
    let mut hung = 0;
    asks(&app, "nobody is told that it hangs", "/v1/keys/users/2", &[], |answer| {
        assert_eq!(answer.status, 503, "{}", answer.told());
        hung += u32::from(kind(answer) == "deadline");
        hung == 3
    })
    .await;
    until("a task is left", &app, INFLIGHT, |calls| calls == 0.0).await;
    assert_eq!(app.get(&format!("/v1/keys/users/{}", absent(&app))).await.told(), "404 filter");
    far.proxy.heal();
    asks(&app, "it is asked again", "/v1/keys/users/2", &[], |answer| answer.status == 200).await;
    until("a task is left", &app, INFLIGHT, |calls| calls == 0.0).await;
}

/// Invariant: deadline-ends-a-lookup
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_or_has_little_time_cancels_its_own_work_only() {
    let far = Far::away().await;
    let app = far.guarded(far.config(), "10m", "10m").await;
    assert_eq!(app.get("/v1/keys/users/1").await.told(), "200 backend");
    far.proxy.set(BLACK_HOLE);
    let answer = app.send("GET", "/v1/keys/users/2", &[("bloomguard-timeout", "50ms")]).await;
    assert_eq!((answer.status, kind(&answer).as_str()), (503, "deadline"), "{}", answer.text());
    // It may come back for what is loaded; a client that disconnects does not.
    let mut one = TcpStream::connect(app.data).await.unwrap();
    one.write_all(b"GET /v1/keys/users/3 HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    until("the load does not begin", &app, INFLIGHT, |calls| calls == 2.0).await;
    drop(one);
    until("what nobody waits for goes on", &app, INFLIGHT, |calls| calls == 1.0).await;
    // Two who share a load: the first leaves, and the other is answered.
    let mut one = TcpStream::connect(app.data).await.unwrap();
    one.write_all(b"GET /v1/keys/users/4 HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    until("the load does not begin", &app, INFLIGHT, |calls| calls == 2.0).await;
    let other = app.get("/v1/keys/users/4");
    let leave = async {
        until("the other does not join", &app, "bloomguard_coalesced_lookups_total{keyspace=\"users\"}", |joined| {
            joined == 1.0
        })
        .await;
        drop(one);
        far.proxy.heal();
    };
    let (other, ()) = tokio::join!(other, leave);
    assert_eq!(other.told(), "200 backend");
    until("a task is left", &app, INFLIGHT, |calls| calls == 0.0).await;
    assert!(app.get("/v1/keys/users/2").await.told().starts_with("200"));
}

/// Invariant: backend-outage-one-call
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_cut_off_is_a_503_with_retry_after_and_never_a_404() {
    let far = Far::away().await;
    let app = far.guarded(far.config(), "10s", "300ms").await;
    let (stranger, passing) = (absent(&app), false_positive(&app));
    let port: u16 = far.site.url().rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap();
    asks(&app, "it is read", "/v1/keys/users/1", &[], |answer| answer.status == 200).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hung = || far.proxy.set(BLACK_HOLE);
    let cut_off = || far.proxy.switch(nobody);
    let back = || {
        far.proxy.switch(port);
        far.proxy.heal();
    };
    for (outage, begin) in [("hung", &hung as &dyn Fn()), ("cut off", &cut_off)] {
        begin();
        let mut id = 100;
        // Users that exist and one that does not but passes the filter: none of them is absent while the backend gives
        // no answer.
        let open = loop {
            id = id % USERS + 1;
            for path in [format!("/v1/keys/users/{id}"), format!("/v1/keys/users/{passing}")] {
                let answer = app.send("GET", &path, &[("bloomguard-bypass", "1")]).await;
                assert_eq!(answer.status, 503, "{outage}: {path} {}", answer.told());
                assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1, "{outage}");
            }
            let answer = app.send("GET", &format!("/v1/keys/users/{passing}"), &[("bloomguard-bypass", "1")]).await;
            if answer.json()["reason"] == "breaker_open" {
                break answer;
            }
        };
        assert_eq!((open.status, kind(&open).as_str()), (503, "backend-unavailable"));
        assert_eq!(app.metric(CLOSED).await, 0.0, "{outage}");
        assert!(app.metric("bloomguard_shed_total{keyspace=\"users\",reason=\"breaker_open\"}").await > 0.0);
        assert_eq!(app.status("users").await["backend"]["breaker"].as_str().map(|state| state != "closed"), Some(true));
        assert_eq!(
            app.get(&format!("/v1/keys/users/{stranger}")).await.told(),
            "404 filter",
            "{outage}: the filter needs no database"
        );
        assert_eq!(app.telemetry("/readyz").await.status, 200);
        back();
        let bypass = [("bloomguard-bypass", "1")];
        asks(&app, "it is asked again", "/v1/keys/users/5", &bypass, |answer| answer.status == 200).await;
        asks(&app, "it is believed again", &format!("/v1/keys/users/{passing}"), &bypass, |answer| {
            answer.told() == "404 backend"
        })
        .await;
        until("the breaker stays open", &app, CLOSED, |closed| closed == 1.0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_far_away_is_slower_and_never_wrong() {
    let far = Far::away().await;
    let brief = far.config().users(|k| k.set("cache.hot_ttl", "1ms").set("cache.ttl", "1ms"));
    let app = far.guarded(brief, "2m", "1m").await;
    far.proxy.set(Weather { round_trip: Duration::from_millis(40), loss: 0.1, ..Weather::default() });
    let stranger = absent(&app);
    let readers = (0..8u32).map(|reader| {
        let app = &app;
        async move {
            for i in 0..5 {
                let id = reader * 100 + i + 1;
                let answer = app.get(&format!("/v1/keys/users/{id}")).await;
                assert_eq!(
                    (answer.status, answer.json()["id"].as_u64()),
                    (200, Some(u64::from(id))),
                    "{}",
                    answer.text()
                );
            }
        }
    });
    futures_util::future::join_all(readers).await;
    assert_eq!(app.get(&format!("/v1/keys/users/{stranger}")).await.told(), "404 filter");
    assert_eq!(app.metric(CLOSED).await, 1.0);
}

/// Invariant: expired-values-only-in-outages
#[tokio::test(flavor = "multi_thread")]
async fn the_last_value_is_served_while_the_database_is_cut_off_and_says_so() {
    let (far, redis) = (Far::away().await, RedisServer::start());
    let config = far.config().redis(&redis).users(|k| {
        k.set("cache.ttl", "1ms")
            .set("cache.hot_ttl", "1ms")
            .set("cache.hot_capacity", 0)
            .set("cache.stale_if_error", "1h")
    });
    let one = far.guarded(config.clone(), "1m", "500ms").await;
    let other = far.guarded(config, "1m", "500ms").await;
    for id in 1..=3 {
        asks(&one, "it is read", &format!("/v1/keys/users/{id}"), &[], |answer| answer.told() == "200 backend").await;
    }
    far.proxy.set(BLACK_HOLE);
    // The instance that has never read it has it from Redis.
    for app in [&one, &other] {
        for status in ["bloomguard; fwd=stale; ttl=-", "bloomguard; hit; ttl=-"] {
            asks(app, status, "/v1/keys/users/1", &[], |answer| {
                assert_eq!((answer.told().as_str(), answer.text()), ("200 redis", r#"{"id":1,"name":"User 1"}"#));
                answer.header("cache-status").starts_with(status)
            })
            .await;
        }
        assert!(app.metric(STALE).await >= 2.0);
    }
    let batch = other
        .http
        .send("POST", &other.url("/v1/lookup/users"), &[("content-type", "application/json")], "[1, 900]")
        .await
        .json();
    assert_eq!((&batch["results"][0]["status"], &batch["results"][0]["stale"]), (&200.into(), &true.into()), "{batch}");
    assert_eq!(
        (&batch["results"][1]["status"], &batch["results"][1]["stale"]),
        (&503.into(), &serde_json::Value::Null),
        "{batch}"
    );
    assert_eq!(one.get("/v1/keys/users/900").await.status, 503, "which no lookup has read");
    // What an acknowledged change has taken away stays away, at both.
    assert_eq!(one.send("DELETE", "/v1/keys/users/2", &[]).await.status, 202);
    let invalidated =
        one.http.send("POST", &one.url("/v1/invalidate/users"), &[("content-type", "application/json")], "[3]").await;
    assert_eq!(invalidated.status, 204, "{}", invalidated.text());
    for app in [&one, &other] {
        for path in ["/v1/keys/users/2", "/v1/keys/users/3"] {
            assert_eq!(app.get(path).await.status, 503, "{path}");
        }
        assert_eq!(app.send("GET", "/v1/keys/users/1", &[("bloomguard-bypass", "1")]).await.status, 503);
        assert_eq!(app.send("GET", "/v1/keys/users/1", &[("bloomguard-min-version", "v1.unknown")]).await.status, 503);
    }
    far.proxy.heal();
    for app in [&one, &other] {
        let answer =
            asks(app, "it is asked again", "/v1/keys/users/1", &[], |answer| answer.told() == "200 backend").await;
        assert_eq!(answer.header("cache-status"), "bloomguard; fwd=miss; detail=backend");
    }
}

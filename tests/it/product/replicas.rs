//! Announces that replicas must have before they are acknowledged.

use super::users::{config, site, table};
use crate::support::app::{Answer, TestApp};
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::redis::RedisServer;

/// A primary and its replica.
fn pair() -> (RedisServer, RedisServer) {
    let primary = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let port = primary.url().rsplit(':').next().unwrap().to_owned();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    (primary, replica)
}

/// An announce is acknowledged once the replica has it.
fn replicated(config: Config, primary: &RedisServer) -> Config {
    config.redis(primary).set("redis.timeout", "2s").set("redis.min_replicas_acked", 1)
}

async fn guarded(site: &Site, primary: &RedisServer) -> TestApp {
    let config = config(&site.url()).users(|k| k.set("commit_window", "1s"));
    TestApp::enforcing(&replicated(config, primary)).await
}

/// Announces until the replica, which may be at its first copy or have been stopped, has it.
async fn announced(app: &TestApp, path: &str) {
    let mut answer;
    assert_eventually!(
        {
            answer = app.send("PUT", path, &[]).await;
            answer.status == 204
        },
        "{}",
        answer.text()
    );
}

fn has(server: &RedisServer, command: &str, name: &str) -> bool {
    redis::cmd(command).arg(name).query::<u64>(&mut server.connection()).unwrap() > 0
}

fn assert_unreplicated(answer: &Answer, problem: &str) {
    let document = answer.json();
    assert_eq!((answer.status, document["type"].as_str()), (503, Some(problem)), "{document}");
    assert_eq!(
        (document["replicas_acked"].as_u64(), document["replicas_wanted"].as_u64()),
        (Some(0), Some(1)),
        "{document}"
    );
}

/// Invariant: acknowledged-is-durable
#[tokio::test(flavor = "multi_thread")]
async fn an_announce_that_replicas_acknowledged_survives_the_primary() {
    let ((mut primary, replica), site) = (pair(), site(Site::sqlite()).await);
    let app = guarded(&site, &primary).await;
    announced(&app, "/v1/keys/users/5000001").await;
    // From here on the replica has nothing but what it has by now.
    primary.kill();
    assert!(has(&replica, "EXISTS", "bloomguard:entry:users:5000001"), "the marker");
    assert!(has(&replica, "XLEN", "bloomguard:deltas:users"), "the entry");
}

/// Invariant: acknowledged-is-durable
#[tokio::test(flavor = "multi_thread")]
async fn what_no_replica_has_is_not_acknowledged_and_holds_up_no_lookup() {
    let ((primary, replica), site) = (pair(), site(Site::sqlite()).await);
    let app = guarded(&site, &primary).await;
    announced(&app, "/v1/keys/users/5000001").await;
    replica.pause();
    let path = "/v1/keys/users/5000002";
    let (refused, found) = tokio::join!(app.send("PUT", path, &[]), app.get("/v1/keys/users/1"));
    assert_eq!(found.told(), "200 backend");
    assert_eq!(
        app.metric("bloomguard_cache_requests_total{keyspace=\"users\",tier=\"redis\",result=\"error\"}").await,
        0.0
    );
    assert_unreplicated(&refused, "/problems/not-durable");
    assert_unreplicated(&app.send("DELETE", "/v1/keys/users/1", &[]).await, "/problems/not-dropped");
    assert!(
        has(&primary, "EXISTS", "bloomguard:entry:users:5000002"),
        "nothing is taken back: the row may be committed all the same"
    );
    assert_eq!(app.get(path).await.told(), "404 backend", "its bits stay, too");
    let dependency = "bloomguard_breaker_state{dependency=\"redis_announces\",state=\"closed\"}";
    assert_eq!(app.metric(dependency).await, 1.0, "an answer is no failure");
    replica.resume();
    announced(&app, path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyspace_that_waits_for_replicas_holds_up_no_other() {
    let ((primary, replica), site) = (pair(), site(Site::sqlite()).await);
    let five =
        (2..=5).fold(config(&site.url()), |config, n| config.keyspace(&format!("users{n}"), |k| table(k, &site.url())));
    let app = TestApp::enforcing(&replicated(five, &primary)).await;
    for n in 2..=5 {
        announced(&app, &format!("/v1/keys/users{n}/5000001")).await;
    }
    replica.pause();
    // Behind one another the third would have no answer in time, and the breaker would open.
    let paths: Vec<String> = (2..=5).map(|n| format!("/v1/keys/users{n}/5000002")).collect();
    for refused in futures_util::future::join_all(paths.iter().map(|path| app.send("PUT", path, &[]))).await {
        assert_unreplicated(&refused, "/problems/not-durable");
    }
    assert_eq!(app.metric("bloomguard_breaker_state{dependency=\"redis_announces\",state=\"closed\"}").await, 1.0);
    replica.resume();
}

//! Batches over HTTP, on real servers.

use super::users::{USERS, absent, config, false_positive, site};
use crate::support::app::{Answer, TestApp};
use crate::support::database::Site;
use crate::support::redis::RedisServer;

async fn post(app: &TestApp, path: &str, content_type: &str, body: &str) -> Answer {
    app.http.send("POST", &app.url(path), &[("content-type", content_type)], body).await
}

async fn guarded(redis: &RedisServer, site: &Site) -> TestApp {
    TestApp::enforcing(&config(&site.url()).redis(redis)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_check_tells_which_keys_are_absent_in_every_format() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let missing = absent(&app);
    for (content_type, body) in [
        ("application/json", format!("[1, \"{missing}\", \"042\"]")),
        ("application/x-ndjson", format!("1\n{{\"key\":{missing}}}\n\"042\"")),
        ("text/plain; charset=utf-8", format!("1\r\n{missing}\r\n\r\n042\r\n")),
    ] {
        let answer = post(&app, "/v1/check/users", content_type, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(
            answer.json(),
            serde_json::json!({"absent": [1], "checked": 3, "generation": 1, "state": "enforcing"})
        );
        let url = app.url("/v1/check/users");
        let headers = [("content-type", content_type), ("accept", "application/octet-stream")];
        let bits = app.http.send("POST", &url, &headers, &body).await;
        assert_eq!(
            (bits.header("content-type"), bits.body.as_ref()),
            ("application/octet-stream", [0b101u8].as_slice())
        );
        assert_eq!(bits.header("bloomguard-generation"), "1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_lookup_answers_each_key_for_itself() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let app = guarded(&redis, &site).await;
    assert_eq!(app.get("/v1/keys/users/1").await.told(), "200 backend");
    let (missing, stranger) = (absent(&app), false_positive(&app));
    let body = format!("[1, 2, {missing}, {stranger}, \"x\", 2]");
    let answer = post(&app, "/v1/lookup/users", "application/json", &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let document = answer.json();
    let results = document["results"].as_array().unwrap();
    let told: Vec<String> =
        results.iter().map(|r| format!("{} {}", r["status"], r["source"].as_str().unwrap_or("-"))).collect();
    assert_eq!(told, ["200 hot", "200 backend", "404 filter", "404 backend", "400 -", "200 backend"]);
    assert_eq!(results[1]["value"], serde_json::json!({"id": 2, "name": "User 2"}));
    assert_eq!(results[4]["type"], "/problems/bad-key");
    // Another instance finds in Redis what this one has read, in one round trip.
    let other = guarded(&redis, &site).await;
    let answer = post(&other, "/v1/lookup/users", "text/plain", "1\n2\n3").await.json();
    let sources: Vec<&str> =
        answer["results"].as_array().unwrap().iter().map(|r| r["source"].as_str().unwrap()).collect();
    assert_eq!(sources, ["redis", "redis", "backend"]);
    let batch = "bloomguard_lookups_total{keyspace=\"users\",source=\"redis\",result=\"found\"}";
    assert_eq!(other.metric(batch).await, 2.0, "batch keys count one each");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_batch_lookup_finds_every_row() {
    let site = site(Site::postgres()).await;
    let app = TestApp::enforcing(&config(&site.url()).users(|k| k.set("deadline", "20s"))).await;
    let keys: Vec<u32> = (1..=USERS).chain(5_000_000..5_001_000).collect();
    let answer =
        post(&app, "/v1/lookup/users", "application/json", &serde_json::to_string(&keys).unwrap()).await.json();
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 2000);
    for (id, result) in keys.iter().zip(results) {
        if *id <= USERS {
            assert_eq!(
                (&result["status"], &result["value"]["id"]),
                (&serde_json::json!(200), &serde_json::json!(id)),
                "{result}"
            );
        } else {
            assert_eq!(result["status"], 404, "{result}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_values_are_base64() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(
        &config(&site.url()).users(|k| k.set("backend.query", "SELECT name AS value FROM users WHERE id = $1")),
    )
    .await;
    let answer = post(&app, "/v1/lookup/users", "application/json", "[42]").await.json();
    assert_eq!(
        answer["results"][0],
        serde_json::json!({"status": 200, "source": "backend", "value_base64": "VXNlciA0Mg=="})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_announce_is_all_or_nothing() {
    let (mut redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let app = guarded(&redis, &site).await;
    let refused = post(&app, "/v1/keys/users", "application/json", "[7000001, \"x\", 7000002]").await;
    assert_eq!((refused.status, refused.json()["index"].as_u64()), (400, Some(1)), "{refused:?}");
    assert_eq!(app.get("/v1/check/users/7000001").await.status, 404, "none of it was taken");
    assert_eq!(post(&app, "/v1/keys/users", "text/plain", "7000001\n7000002\n").await.status, 204);
    site.run("INSERT INTO users VALUES (7000001, 'a'), (7000002, 'b')").await;
    for id in [7_000_001, 7_000_002] {
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "200 backend");
    }
    assert_eq!(app.metric("bloomguard_announces_total{keyspace=\"users\",outcome=\"accepted\"}").await, 2.0);
    redis.kill();
    assert_eq!(post(&app, "/v1/keys/users", "application/json", "[7000003]").await.status, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalidate_drops_values_and_absences() {
    let (mut redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let app = guarded(&redis, &site).await;
    let stranger = false_positive(&app);
    assert_eq!(app.get("/v1/keys/users/1").await.told(), "200 backend");
    assert_eq!(app.get(&format!("/v1/keys/users/{stranger}")).await.told(), "404 backend");
    site.run(&format!("UPDATE users SET name = 'changed' WHERE id = 1; INSERT INTO users VALUES ({stranger}, 'new')"))
        .await;
    assert_eq!(app.get("/v1/keys/users/1").await.told(), "200 hot", "no drop was sent yet");
    assert_eq!(post(&app, "/v1/invalidate/users", "application/json", &format!("[1, {stranger}]")).await.status, 204);
    let answer = app.get("/v1/keys/users/1").await;
    assert_eq!((answer.told().as_str(), &answer.json()["name"]), ("200 backend", &serde_json::json!("changed")));
    assert_eq!(app.get(&format!("/v1/keys/users/{stranger}")).await.told(), "200 backend");
    redis.kill();
    assert_eq!(post(&app, "/v1/invalidate/users", "application/json", "[1]").await.status, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_batch_is_refused_with_the_limit() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let many = format!("[{}1]", "1,".repeat(10_000));
    let long = format!("[\"{}\"]", "1".repeat(1025));
    for (path, content_type, body, status, says) in [
        ("/v1/check/users", "application/json", "[1", 400, "bad-body"),
        ("/v1/check/users", "application/json", "[1.5]", 400, "bad-body"),
        ("/v1/check/users", "application/json", "[\"x\"]", 400, "\"index\":0"),
        ("/v1/check/users", "application/json", "[\"\"]", 400, "empty"),
        ("/v1/check/users", "application/xml", "[1]", 415, "text/plain"),
        ("/v1/check/users", "application/json", many.as_str(), 413, "10000"),
        ("/v1/check/users", "application/json", long.as_str(), 414, "1024"),
        ("/v1/lookup/orders", "application/json", "[1]", 400, "orders"),
        ("/v1/lookup/users/1", "application/json", "[1]", 400, "unknown-route"),
    ] {
        let answer = post(&app, path, content_type, body).await;
        assert_eq!(answer.status, status, "{path} {answer:?}");
        assert!(
            answer.header("content-type") == "application/problem+json" && answer.text().contains(says),
            "{}",
            answer.text()
        );
    }
    assert_eq!(app.get("/v1/lookup/users").await.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_batch_is_refused_and_never_taken_for_keys() {
    let site = site(Site::sqlite()).await;
    // Whose keys may be any bytes, those of a compressed body too.
    let app = TestApp::start(&config(&site.url()).users(|k| k.set("key", "bytes"))).await;
    let announce = async |header: &'static str, coding: &'static str| {
        let headers = [("content-type", "text/plain"), (header, coding)];
        app.http.send("POST", &app.url("/v1/keys/users"), &headers, "1\n2").await
    };
    for (header, coding) in
        [("content-encoding", "gzip"), ("content-encoding", "identity, gzip"), ("transfer-encoding", "gzip, chunked")]
    {
        let answer = announce(header, coding).await;
        assert_eq!((answer.status, answer.header("accept-encoding")), (415, "identity"), "{answer:?}");
        assert!(answer.text().contains("not-a-batch"), "{}", answer.text());
    }
    assert_eq!(announce("content-encoding", "Identity").await.status, 204);
    assert_eq!(announce("transfer-encoding", "chunked").await.status, 204);
}

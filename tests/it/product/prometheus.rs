//! The dashboards' and alerts' queries, asked of a real Prometheus that scrapes a real instance under traffic.

use std::time::{Duration, Instant};

use super::users::{absent, false_positive};
use crate::documents::dashboards;
use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::http_server::{HttpServer, ok};
use crate::support::prometheus::Prometheus;
use crate::support::promql::Query;
use crate::support::redis::RedisServer;

/// What the kubelet shows of a container.
const KUBELET: &str = "container_cpu_usage_seconds_total{namespace=\"shop\",pod=\"keyspace-1\",container=\"bloomguard\"} 12\n\
    container_memory_working_set_bytes{namespace=\"shop\",pod=\"keyspace-1\",container=\"bloomguard\"} 1e8\n\
    container_spec_memory_limit_bytes{namespace=\"shop\",pod=\"keyspace-1\",container=\"bloomguard\"} 2e8\n";

/// Users 1 to 1000, polled, behind Redis.
async fn guarded(site: &Site, redis: &RedisServer) -> TestApp {
    let users = "CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL, at DATETIME NOT NULL DEFAULT \
        CURRENT_TIMESTAMP)";
    site.run(&format!("{users}; INSERT INTO users (id, name) SELECT i, 'User ' || i FROM ({})", site.series(1000)))
        .await;
    let config = Config::new().redis(redis).users(|k| {
        k.set("max_staleness", "1h")
            .backend(&site.url(), "SELECT id, name FROM users WHERE id = $1")
            .times("10s", "1s", "5s")
            .source_sql("SELECT id FROM users")
            .set("source.incremental.query", "SELECT id, at FROM users WHERE at >= $1")
            .set("source.incremental.interval", "50ms")
            .set("source.incremental.overlap", "1s")
            .set("filter.false_positive_rate", 0.1)
            .set("canary.sample_rate", 1)
    });
    TestApp::enforcing(&config).await
}

/// One of each thing that a client can do, and some that fail.
async fn traffic(app: &TestApp) {
    for id in 1..20 {
        app.get(&format!("/v1/keys/users/{id}")).await;
    }
    for path in [
        format!("/v1/keys/users/{}", absent(app)),
        format!("/v1/keys/users/{}", false_positive(app)),
        "/v1/check/users/1".to_owned(),
    ] {
        app.get(&path).await;
    }
    app.get("/v1/keys/users/nobody").await;
    app.send("GET", "/v1/keys/users/7", &[("bloomguard-bypass", "1")]).await;
    app.send("PUT", "/v1/keys/users/2000000", &[]).await;
    app.send("DELETE", "/v1/keys/users/8", &[]).await;
    let json = [("content-type", "application/json")];
    app.http.send("POST", &app.url("/v1/invalidate/users"), &json, "[9]").await;
    app.http.send("POST", &app.url("/v1/lookup/users"), &json, "[1, 2, 3000000]").await;
}

/// A panel's query as Grafana asks it when everything is chosen.
fn filled_in(query: &str) -> String {
    // A longer interval than any pause between two scrapes of a busy machine.
    ["job", "namespace", "pod", "keyspace"]
        .iter()
        .fold(query.replace("$__rate_interval", "1m"), |query, name| query.replace(&format!("\"${name}\""), "\".*\""))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_panel_and_alert_finds_data_at_an_instance_under_traffic() {
    let (mut redis, site) = (RedisServer::start(), Site::sqlite());
    let app = guarded(&site, &redis).await;
    let kubelet = HttpServer::start(|_| ok("text/plain", KUBELET)).await;
    let labels = "namespace: shop, pod: keyspace-1";
    let prometheus =
        Prometheus::scraping(&[("keyspace", app.telemetry, labels), ("kubelet", kubelet.address, "")]).await;

    // A rate takes two scrapes, the first of which sees how it was before.
    let serves = "bloomguard_build_info{pod=\"keyspace-1\"}";
    assert_eventually!(!prometheus.query(serves).await.is_empty(), "nothing is scraped");
    traffic(&app).await;
    assert_eq!(app.rebuild("users").await, "swapped");
    redis.kill();
    traffic(&app).await;
    redis.restart();
    traffic(&app).await;

    let mut asked = vec![];
    for (file, dashboard) in dashboards::dashboards() {
        asked.extend(dashboards::queries(&file, &dashboard).map(|(place, query)| (place, filled_in(query))));
    }
    for alert in dashboards::alerts() {
        // Its answer is empty while all is well, but it is an answer; what it looks at must be there.
        prometheus.query(&alert).await;
        asked.extend(Query::parse(&alert).unwrap().selectors.iter().map(|selector| (alert.clone(), selector.query())));
    }
    let start = Instant::now();
    while !asked.is_empty() {
        traffic(&app).await;
        let mut without = vec![];
        for (place, query) in asked {
            if prometheus.query(&query).await.is_empty() {
                without.push((place, query));
            }
        }
        asked = without;
        assert!(start.elapsed() < Duration::from_secs(60), "without data: {asked:#?}");
    }
}

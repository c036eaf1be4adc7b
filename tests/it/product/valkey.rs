//! The whole program on Valkey. Everything else that is tested on Redis can be run on it too:
//! `BLOOMGUARD_TEST_REDIS=valkey-server cargo test`.

use super::users::{absent, config, site};
use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::certificates::text;
use crate::support::database::Site;
use crate::support::redis::RedisServer;
use crate::support::redis_tls::{HERE, TlsRedis};

const VALKEY: &str = "valkey-server";

/// What is announced at one is found at the other, and strangers are rejected.
async fn hear_from_each_other(writer: &TestApp, reader: &TestApp, site: &Site) {
    let id = absent(reader);
    let path = format!("/v1/keys/users/{id}");
    assert_eq!(reader.get(&path).await.told(), "404 filter");
    assert_eventually!(writer.send("PUT", &path, &[]).await.status == 204, "no announce is taken");
    site.run(&format!("INSERT INTO users VALUES ({id}, 'new')")).await;
    assert_eventually!(reader.get(&path).await.status == 200, "{path} is not found");
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_hear_from_each_other_by_valkey_and_notice_its_restart() {
    let (mut valkey, site) = (RedisServer::start_program(VALKEY, &[]), site(Site::sqlite()).await);
    let config = config(&site.url()).redis(&valkey).users(|k| k.set("commit_window", "1s"));
    let (writer, reader) = (TestApp::enforcing(&config).await, TestApp::enforcing(&config).await);
    hear_from_each_other(&writer, &reader, &site).await;
    valkey.kill();
    valkey.restart();
    let replaced = "bloomguard_delta_resyncs_total{keyspace=\"users\",reason=\"replaced\"}";
    for app in [&writer, &reader] {
        assert_eventually!(app.metric(replaced).await > 0.0, "a new log is not noticed");
        assert_eventually!(app.status("users").await["state"] == "enforcing", "{}", app.status("users").await);
    }
    hear_from_each_other(&writer, &reader, &site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valkey_is_used_over_tls_with_a_client_certificate() {
    let valkey = TlsRedis::start_program(Some(VALKEY), HERE, &["--tls-auth-clients", "yes"]);
    let (client, site) = (valkey.authority.issue("DNS:client"), site(Site::sqlite()).await);
    let config = config(&site.url())
        .redis_at(&valkey.url())
        .set("redis.ca_file", text(&valkey.authority.pem()))
        .set("redis.cert_file", text(&client.chain))
        .set("redis.key_file", text(&client.key))
        .users(|k| k.set("commit_window", "1s"));
    let (writer, reader) = (TestApp::enforcing(&config).await, TestApp::enforcing(&config).await);
    hear_from_each_other(&writer, &reader, &site).await;
    assert_eq!(valkey.secure_clients(), 2);
}

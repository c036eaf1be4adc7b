//! Redis over TLS: who is trusted, what each fault is called, and files that change under a running process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bloomguard::cache::{Entry, RedisCache, SharedCache};
use bloomguard::config::{RedisConfig, SecretUrl, SourceConfig, SourceKind};
use bloomguard::key::KeyForm;
use bloomguard::redis::RedisLink;
use bloomguard::source::RedisSource;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::cache::contract::{LONG, entry, key, redis_config};
use crate::support::assert_eventually;
use crate::support::certificates::{Authority, Certificate};
use crate::support::redis::RedisServer;
use crate::support::redis_tls::{HERE, TlsRedis, TlsSentinel};
use crate::support::scan::scan;

/// However busy the machine is.
const PATIENT: Duration = Duration::from_secs(5);
const NO_CLIENT_CERTIFICATES: &[&str] = &["--tls-auth-clients", "no"];

fn config(url: &str, ca: PathBuf) -> RedisConfig {
    RedisConfig { ca_file: Some(ca), ..redis_config(url, PATIENT) }
}

fn link(config: &RedisConfig) -> Arc<RedisLink> {
    RedisLink::connect_keyspace(config, "users", |_| {}).unwrap()
}

fn cache(link: &Arc<RedisLink>) -> RedisCache {
    RedisCache::new(Arc::clone(link), "users", 1).storing_within(LONG)
}

async fn connects(config: &RedisConfig) -> RedisCache {
    let cache = cache(&link(config));
    works(&cache).await;
    cache
}

async fn works(cache: &RedisCache) {
    assert_eventually!(cache.status().reachable, "{:?}", cache.status());
    assert_eventually!(cache.get(&key("1")).await.is_ok(), "{:?}", cache.status());
    assert_eq!(entry(cache, &key("1")).await, Entry::Nothing);
}

/// Waits until the status gives this reason.
async fn is_told(cache: &RedisCache, reason: &str) {
    let told = || cache.status().warning.unwrap_or_default();
    assert_eventually!(told().contains(reason), "{:?} in place of {reason:?}", told());
    assert!(!cache.status().reachable);
}

async fn fails(config: &RedisConfig, reason: &str) {
    is_told(&cache(&link(config)), reason).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_a_known_authority_is_used_over_tls() {
    let redis = TlsRedis::start();
    let _by_address = connects(&config(&redis.url(), redis.authority.pem())).await;
    assert_eq!(redis.secure_clients(), 1);
    connects(&config(&format!("rediss://localhost:{}/3", redis.port()), redis.authority.pem())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_server_certificate_is_told_by_its_name() {
    let redis = TlsRedis::start();
    let (ours, url) = (config(&redis.url(), redis.authority.pem()), redis.url());
    fails(&config(&url, Authority::new().pem()), "is from an authority that ca_file does not hold").await;
    fails(&redis_config(&url, PATIENT), "an authority that this system does not trust; ca_file names others").await;
    let present = |certificate: Certificate| redis.present(&certificate);
    present(redis.authority.issue_expired(HERE));
    fails(&ours, "its certificate has expired, on 2021-02-03 04:05 UTC").await;
    present(redis.authority.issue_for_later(HERE));
    fails(&ours, "its certificate is not valid before 2098-03-04 05:06 UTC").await;
    present(redis.authority.issue("DNS:cache.internal,DNS:cache.other"));
    let name = "is not for 127.0.0.1 but for cache.internal, cache.other; server_name sets the name";
    fails(&ours, name).await;
    connects(&RedisConfig { server_name: Some("cache.internal".into()), ..ours.clone() }).await;
    present(redis.authority.issue(HERE));
    connects(&ours).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_a_certificate_tells_what_it_thinks_of_ours() {
    for versions in ["TLSv1.2", "TLSv1.3"] {
        let redis = TlsRedis::start_with(HERE, &["--tls-auth-clients", "yes", "--tls-protocols", versions]);
        let ours = config(&redis.url(), redis.authority.pem());
        let with = |certificate: Certificate| RedisConfig {
            cert_file: Some(certificate.chain),
            key_file: Some(certificate.key),
            ..ours.clone()
        };
        connects(&with(redis.authority.issue("DNS:client"))).await;
        fails(&ours, "it asks for a client certificate: set cert_file and key_file").await;
        let refused = "it does not accept our certificate (cert_file)";
        fails(&with(Authority::new().issue("DNS:client")), refused).await;
        fails(&with(redis.authority.issue_expired("DNS:client")), refused).await;
    }
    let redis = TlsRedis::start_with(HERE, &["--tls-auth-clients", "optional"]);
    connects(&config(&redis.url(), redis.authority.pem())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_and_a_tls_port_that_are_mixed_up_are_told_of() {
    let redis = TlsRedis::start();
    let swapped = format!("redis://127.0.0.1:{}", redis.port());
    fails(&redis_config(&swapped, PATIENT), "a TLS port does so (rediss://)").await;
    // Others send an alert before they close.
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", other.local_addr().unwrap());
    let answering = tokio::spawn(async move {
        while let Ok((mut client, _)) = other.accept().await {
            client.read_u8().await.unwrap();
            client.write_all(b"\x15\x03\x01\x00\x02\x02\x46").await.unwrap();
        }
    });
    fails(&redis_config(&url, PATIENT), "not as Redis does: a TLS port may do so (rediss://)").await;
    answering.abort();
    let swapped = redis.server.url().replace("redis://", "rediss://");
    fails(&config(&swapped, redis.authority.pem()), "a plain port does so (redis://)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_read_again_at_each_connect() {
    let redis = TlsRedis::start_with(HERE, &["--tls-auth-clients", "yes"]);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let install = |authority: &Authority, client: &Certificate| {
        for (from, to) in [(&authority.pem(), "ca"), (&client.chain, "chain"), (&client.key, "key")] {
            std::fs::copy(from, at(to)).unwrap();
        }
    };
    install(&redis.authority, &redis.authority.issue("DNS:client"));
    let cache = connects(&RedisConfig {
        cert_file: Some(at("chain")),
        key_file: Some(at("key")),
        ..config(&redis.url(), at("ca"))
    })
    .await;
    // The server moves to another authority; it trusts no client of the old one any more.
    let next = Authority::new();
    redis.present(&next.issue(HERE));
    let _: String = redis.command(&["CONFIG", "SET", "tls-ca-cert-file", next.pem().to_str().unwrap()]);
    works(&cache).await;
    redis.drop_clients();
    is_told(&cache, "its certificate is from an authority that ca_file does not hold").await;
    install(&next, &redis.authority.issue("DNS:client"));
    is_told(&cache, "it does not accept our certificate (cert_file)").await;
    install(&next, &next.issue("DNS:client"));
    works(&cache).await;
    std::fs::remove_file(at("key")).unwrap();
    redis.drop_clients();
    is_told(&cache, "key_file must be a readable file").await;
    install(&next, &next.issue("DNS:client"));
    works(&cache).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_read_again_at_each_connect() {
    let redis = RedisServer::start();
    let command = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).exec(&mut redis.connection()).unwrap();
    let allow = |password: &str| {
        command(&["ACL", "SETUSER", "app", "on", "resetpass", &format!(">{password}"), "~*", "&*", "+@all"]);
        command(&["CLIENT", "KILL", "USER", "app"]);
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    allow("first-hunter2");
    std::fs::write(&file, "first-hunter2\n").unwrap();
    let url = format!("redis://app@127.0.0.1:{}", redis.port());
    let link = link(&RedisConfig { password_file: Some(file.clone()), ..redis_config(&url, PATIENT) });
    let cache = cache(&link);
    works(&cache).await;
    allow("second-hunter2");
    is_told(&cache, "it does not accept the user or the password").await;
    std::fs::write(&file, "second-hunter2\n").unwrap();
    works(&cache).await;
    std::fs::write(&file, "").unwrap();
    command(&["CLIENT", "KILL", "USER", "app"]);
    is_told(&cache, "password_file must be a file that is not empty").await;
    assert!(!format!("{link:?} {:?}", cache.status()).contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn white_space_of_a_password_belongs_to_it_but_for_one_line_end() {
    let redis = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let url = format!("redis://app@127.0.0.1:{}", redis.port());
    let config = RedisConfig { password_file: Some(file.clone()), ..redis_config(&url, PATIENT) };
    for (password, line_end) in
        [(" before", "\n"), ("behind\t", ""), (" on both \u{a0}", "\r\n"), ("within pass wörd", "\r")]
    {
        let allow = ["ACL", "SETUSER", "app", "on", "resetpass", &format!(">{password}"), "~*", "&*", "+@all"];
        redis::cmd(allow[0]).arg(&allow[1..]).exec(&mut redis.connection()).unwrap();
        std::fs::write(&file, format!("{password}{line_end}")).unwrap();
        connects(&config).await;
    }
}

/// A pipe would occupy one thread of the process for each attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_file_that_becomes_a_pipe_is_refused_and_not_waited_for() {
    let redis = RedisServer::start_with(&["--requirepass", "right"]);
    let folder = tempfile::tempdir().unwrap();
    let (file, pipe) = (folder.path().join("password"), folder.path().join("pipe"));
    std::fs::write(&file, "right\n").unwrap();
    let url = format!("redis://127.0.0.1:{}", redis.port());
    let cache = connects(&RedisConfig { password_file: Some(file.clone()), ..redis_config(&url, PATIENT) }).await;
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&pipe, &file).unwrap();
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut redis.connection()).unwrap();
    is_told(&cache, "password_file must be a readable file").await;
    is_told(&cache, "it is a pipe, not a regular file").await;
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, "right\n").unwrap();
    works(&cache).await;
}

/// Accepts TLS connections, reads a login and writes `answer`, if there is one, and closes.
async fn closing_after_the_handshake(
    certificate: &Certificate,
    answer: Option<&'static [u8]>,
) -> (String, AbortHandle) {
    let chain = CertificateDer::pem_file_iter(&certificate.chain).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("rediss://{}", listener.local_addr().unwrap());
    let accepting = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(mut client) = acceptor.accept(client).await else { continue };
            let Some(answer) = answer else { continue };
            let _ = client.read(&mut [0; 1024]).await;
            let _ = client.write_all(answer).await;
            let _ = client.shutdown().await;
        }
    });
    (url, accepting.abort_handle())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_after_the_tls_handshake_is_explained() {
    let authority = Authority::new();
    let certificate = authority.issue(HERE);
    for (answer, reason) in [
        (None, "it closed the connection after the TLS handshake, without an answer: a proxy without a server"),
        // To the two commands of the login.
        (Some(&b"+OK\r\n+OK\r\n"[..]), "it closed the connection right after the login: it may be stopping"),
    ] {
        let (url, accepting) = closing_after_the_handshake(&certificate, answer).await;
        fails(&config(&url, authority.pem()), reason).await;
        accepting.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_their_primary_are_used_over_tls() {
    let redis = TlsRedis::start_with(HERE, &[NO_CLIENT_CERTIFICATES, &["--requirepass", "of-servers"]].concat());
    let sentinel = TlsSentinel::start(&redis, ["of-servers", "of-sentinels"]);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        Some(folder.path().join(name))
    };
    let config = RedisConfig {
        password_file: file("server", "of-servers"),
        sentinel_password_file: file("sentinel", "of-sentinels"),
        ..config(&sentinel.url(), redis.authority.pem())
    };
    let _kept = connects(&config).await;
    assert_eventually!(redis.secure_clients() == 1, "{} connections", redis.secure_clients());
    let reason = "none of its sentinels answers: its certificate is from an authority that ca_file does not hold";
    fails(&RedisConfig { ca_file: Some(Authority::new().pem()), ..config.clone() }, reason).await;
    let plain = config.url.expose().replace("rediss+", "redis+");
    let plain = RedisConfig { url: SecretUrl::new(plain), ca_file: None, ..config };
    fails(&plain, "none of its sentinels answers: it closed the connection without an answer: a TLS port does so")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_used_over_tls() {
    let bus = crate::support::redis::free_port().to_string();
    let of_cluster = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", &bus];
    let redis = TlsRedis::start_with("DNS:node.cluster", &[NO_CLIENT_CERTIFICATES, &of_cluster].concat());
    let _: String = redis.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    assert_eventually!(redis.command::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok"), "no cluster");
    let url = redis.url().replace("rediss:", "rediss+cluster:");
    let ours = config(&url, redis.authority.pem());
    let _kept = connects(&RedisConfig { server_name: Some("node.cluster".into()), ..ours.clone() }).await;
    assert_eq!(redis.secure_clients(), 1);
    fails(&ours, "its certificate is not for 127.0.0.1 but for node.cluster").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_scanned_over_tls() {
    let redis = TlsRedis::start();
    let _: u32 = redis.command(&["SADD", "users", "1", "2"]);
    let set = || SourceConfig { kind: SourceKind::Redis, set: Some("users".into()), ..SourceConfig::default() };
    let own = SourceConfig { url: SecretUrl::new(redis.url()), ca_file: Some(redis.authority.pem()), ..set() };
    for source in [
        RedisSource::new(&set(), Some(&config(&redis.url(), redis.authority.pem()))).unwrap(),
        RedisSource::new(&own, None).unwrap(),
    ] {
        assert_eq!(scan(&source, KeyForm::Integer).await.unwrap().len(), 2);
    }
    let other = Authority::new();
    let strange = SourceConfig { ca_file: Some(other.pem()), ..own };
    let error = scan(&RedisSource::new(&strange, None).unwrap(), KeyForm::Integer).await.unwrap_err();
    assert!(error.to_string().contains("an authority that ca_file does not hold"), "{error}");
}

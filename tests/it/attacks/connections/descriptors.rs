//! File descriptors never run out: what the process needs itself is set aside, and each listener has a cap of its own.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

use tempfile::TempDir;

use crate::product::process::enforces;
use crate::product::users::{config, site};
use crate::support::app::Http;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::process::Process;
use crate::support::redis::RedisServer;

const DESCRIPTORS: u32 = 256;
const CONNECTIONS: usize = 600;

fn limited(dir: &Path, config: &Config) -> Process {
    Process::start_limited(dir, &["--config", &config.write(dir)], DESCRIPTORS)
}

/// Silent, with half a head, kept alive after a request, or of HTTP/2.
fn member(address: &str, n: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let said: [&[u8]; 4] = [
        b"",
        b"GET /half",
        b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ];
    // It may be closed already, for the next.
    let _ = stream.write_all(said[n % 4]);
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_connections_take_no_listener_and_no_dependency_down() {
    let (dir, site, redis) = (TempDir::new().unwrap(), site(Site::postgres()).await, RedisServer::start());
    // Nothing is answered from this process alone.
    let config =
        config(&site.url()).redis(&redis).server("header_timeout", "10m").users(|k| k.set("cache.hot_capacity", 0));
    let mut process = limited(dir.path(), &config);
    let (data, telemetry) = process.addresses();
    let admin = process.admin();
    process.logged("server.max_connections clamped");
    enforces(&Http::default(), &telemetry).await;
    for (round, address) in [&data, &telemetry, &admin].into_iter().enumerate() {
        let crowd: Vec<TcpStream> = (0..CONNECTIONS).map(|n| member(address, n)).collect();
        let http = Http::default();
        // A load through Redis, calls to the database at once, an announce, and what stands on the other listeners.
        let ids = (1..=16).map(|n| round * 100 + n);
        let calls = ids.map(|id| {
            let (http, url) = (http.clone(), format!("http://{data}/v1/keys/users/{id}"));
            async move { http.get(&url).await.told() }
        });
        assert_eq!(futures_util::future::join_all(calls).await, ["200 backend"; 16]);
        assert_eq!(http.get(&format!("http://{data}/v1/keys/users/{}", round * 100 + 1)).await.told(), "200 redis");
        assert_eq!(
            http.send("PUT", &format!("http://{data}/v1/keys/users/{}", 5_000_000 + round), &[], "").await.status,
            204
        );
        for probe in ["livez", "readyz", "status", "metrics"] {
            assert_eq!(http.get(&format!("http://{telemetry}/{probe}")).await.status, 200, "{probe}");
        }
        assert_eq!(http.get(&format!("http://{admin}/admin/config")).await.status, 200);
        let open = std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap().count();
        assert!(open < DESCRIPTORS as usize, "{open} descriptors");
        drop(crowd);
    }
    let log = process.log();
    assert!(!log.contains("accept failed") && !log.contains("Too many open files"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_can_not_be_enough_is_said_at_the_start() {
    let (dir, site) = (TempDir::new().unwrap(), site(Site::postgres()).await);
    let config = config(&site.url()).users(|k| k.set("backend.max_concurrency", 300));
    let mut process = limited(dir.path(), &config);
    process.logged("open file limit too low");
    let line = process.log().lines().find(|line| line.contains("open file limit too low")).unwrap().to_owned();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (line["limit"].as_u64(), line["level"].as_str()),
        (Some(u64::from(DESCRIPTORS)), Some("ERROR")),
        "{line}"
    );
    assert!(line["needed"].as_u64() > Some(10_300), "{line}");
    let (_, telemetry) = process.addresses();
    enforces(&Http::default(), &telemetry).await;
}

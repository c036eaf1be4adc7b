//! Values of a megabyte, on real servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use tempfile::TempDir;

use super::process::enforces;
use crate::support::app::Http;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::process::Process;

const BYTES: usize = 1 << 20;

/// Asks for the row, and reads all of the answer.
fn ask(stream: &mut TcpStream, more: &str) {
    stream.write_all(format!("GET /v1/keys/users/1 HTTP/1.1\r\nhost: localhost\r\n{more}").as_bytes()).unwrap();
    let (mut reader, mut head, mut length) = (BufReader::new(stream), String::new(), 0);
    while reader.read_line(&mut head).unwrap() > 2 {
        let line = head.lines().last().unwrap().to_lowercase();
        length = line.strip_prefix("content-length: ").map_or(length, |length| length.parse().unwrap());
    }
    assert!(head.starts_with("HTTP/1.1 200 ") && length == BYTES, "{head}");
    reader.read_exact(&mut vec![0; length]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_were_sent_a_large_value_hold_no_copy_of_it() {
    const CONNECTIONS: usize = 64;
    let (dir, site) = (TempDir::new().unwrap(), Site::sqlite());
    site.run(&format!(
        "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO users VALUES (1, \
        printf('%.{BYTES}c', 'n'))"
    ))
    .await;
    let config = Config::new().users(|k| {
        k.set("freshness", "static")
            .set("deadline", "100s")
            .set("cache.hot_ttl", "1h")
            .set("cache.ttl", "1h")
            .set("cache.max_value_bytes", "2MiB")
            .backend(&site.url(), "SELECT name AS value FROM users WHERE id = $1")
            .set("backend.timeout", "90s")
            .source_sql("SELECT id FROM users")
    });
    let mut process = Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())]);
    let (data, telemetry) = process.addresses();
    enforces(&Http::default(), &telemetry).await;
    // What a value takes by itself, and what is answered at once from then on.
    for way in ["\r\n", "content-length: 1\r\n\r\n1"] {
        (0..2).for_each(|_| ask(&mut TcpStream::connect(&data).unwrap(), way));
        let before = process.resident_bytes();
        let mut clients: Vec<TcpStream> = (0..CONNECTIONS).map(|_| TcpStream::connect(&data).unwrap()).collect();
        clients.iter_mut().for_each(|client| ask(client, way));
        let grown = process.resident_bytes().saturating_sub(before);
        assert!(grown < (CONNECTIONS * BYTES / 4) as u64, "{grown} bytes for {CONNECTIONS} connections, {way:?}");
    }
}

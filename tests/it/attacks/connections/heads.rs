//! A head that can't become a request is refused at once, and the refusal arrives.

use std::io::{Read, Write};

use tempfile::TempDir;

use super::{connect, sent_until_closed};
use crate::product::process::enforces;
use crate::product::users::{config, site};
use crate::support::app::Http;
use crate::support::database::Site;
use crate::support::process::Process;

const GOOD: &[u8] = b"GET /v1/keys/users/5000000 HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// A process that takes its time for heads, and its data, telemetry and admin listeners.
async fn process(dir: &TempDir) -> (Process, [String; 3]) {
    let site = site(Site::sqlite()).await;
    // Longer than the test may take: nothing here is a timeout.
    let config = config(&site.url()).server("header_timeout", "10m");
    let mut process = Process::start(dir.path(), &["--config", &config.write(dir.path())]);
    let (data, telemetry) = process.addresses();
    enforces(&Http::default(), &telemetry).await;
    let admin = process.admin();
    (process, [data, telemetry, admin])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_head_is_answered_400_at_its_first_bad_byte() {
    let dir = TempDir::new().unwrap();
    let (_process, listeners) = process(&dir).await;
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[b'x'; 512]].concat();
    // None of them ever ends.
    let heads: &[&[&[u8]]] = &[
        &[b"rubbish\r\n"],
        &[b"GET /v1/keys/users/42 HTTP/1.1\r\n folded: x\r\n"],
        &[b"GET /v1/keys/users/42 HTTP/1.1\r\nhost: a\0b"],
        &[b"GET /v1/keys/users/42 HTTP/9.9\r\nhost: x\r\n"],
        &[b"PRI * HTTP/2.0\r\n\r\nXX"],
        &[&hello],
        &[b"\r\n\r\n{"],
        &[b"GE", b"T", b" ", b"/", b"\0"],
        &[b"GET /v1/keys/users/42 HTTP/1.1\r\nhost: localhost\r\na b", b": c\r\n"],
    ];
    for (address, head) in listeners.iter().flat_map(|address| heads.iter().map(move |head| (address, head))) {
        let (told, ended) = sent_until_closed(address, head);
        assert!(
            told.starts_with("HTTP/1.1 400 Bad Request\r\n") && told.matches("HTTP/1.1 ").count() == 1,
            "{head:?}: {told}"
        );
        assert!(ended.is_ok(), "{head:?}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_head_after_good_requests_costs_none_of_their_answers() {
    let dir = TempDir::new().unwrap();
    let (_process, listeners) = process(&dir).await;
    // More than a socket holds, and all of it unread when the server knows enough.
    let rubbish = [&b"GET / HTTP/1.1\r\nhost: a\0b\r\n"[..], &vec![b'x'; 8 << 20]].concat();
    for address in &listeners {
        let many = GOOD.repeat(100);
        for pieces in [&[many.as_slice(), &rubbish][..], &[&[many.as_slice(), &rubbish].concat()]] {
            let (told, ended) = sent_until_closed(address, pieces);
            assert_eq!(told.matches("HTTP/1.1 404 Not Found\r\n").count(), 100);
            assert_eq!(told.matches("HTTP/1.1 400 Bad Request\r\n").count(), 1);
            assert!(ended.is_ok(), "{ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_are_too_large_are_answered_although_the_client_sends_on() {
    let dir = TempDir::new().unwrap();
    let (_process, listeners) = process(&dir).await;
    let huge = [&b"GET / HTTP/1.1\r\nhost: localhost\r\nx: "[..], &vec![b'a'; 4 << 20]].concat();
    let many = ["GET / HTTP/1.1\r\nhost: localhost\r\n", &"a: b\r\n".repeat(101), "\r\n"].concat();
    let body = [
        &b"POST /v1/check/users HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20000000\r\n\r\n"[..],
        &vec![b'1'; 20_000_000],
    ]
    .concat();
    for address in &listeners {
        for (bytes, status) in [(huge.as_slice(), "431"), (many.as_bytes(), "431"), (&body, "413")] {
            let (told, ended) = sent_until_closed(address, &[bytes]);
            assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{told}");
            assert!(ended.is_ok(), "{status}: {ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_names_its_host_exactly_once() {
    let dir = TempDir::new().unwrap();
    let (_process, [data, telemetry, admin]) = process(&dir).await;
    let paths = [(&data, "/v1/keys/users/42"), (&telemetry, "/livez"), (&admin, "/admin/config")];
    // The second goes past what is answered at once.
    for (address, path) in paths {
        for more in ["", "bloomguard-bypass: 0\r\n"] {
            for (version, hosts, good) in [
                ("1.1", "", false),
                ("1.1", "host: localhost\r\n", true),
                ("1.1", "host: localhost\r\nHost: localhost\r\n", false),
                ("1.0", "host: localhost\r\n", true),
            ] {
                let request = format!("GET {path} HTTP/{version}\r\n{hosts}{more}connection: close\r\n\r\n");
                let (told, _) = sent_until_closed(address, &[request.as_bytes()]);
                assert!(
                    told.starts_with(&format!("HTTP/{version} {}", if good { "200" } else { "400" })),
                    "{request}{told}"
                );
                assert_eq!(told.contains("/problems/host"), !good, "{told}");
            }
        }
    }
    let (told, _) = sent_until_closed(&data, &[b"GET /v1/keys/users/42 HTTP/1.0\r\n\r\n"]);
    assert!(told.starts_with("HTTP/1.0 200 "), "{told}");
    // Where the request ends is no question: the connection goes on.
    let mut stream = connect(&data);
    stream.write_all(&[b"GET /v1/keys/users/5000000 HTTP/1.1\r\n\r\n", GOOD].concat()).unwrap();
    let mut told = Vec::new();
    while !String::from_utf8_lossy(&told).contains("HTTP/1.1 404 ") {
        let mut piece = [0; 1000];
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&told));
        told.extend_from_slice(&piece[..length]);
    }
    assert!(told.starts_with(b"HTTP/1.1 400 "));
}

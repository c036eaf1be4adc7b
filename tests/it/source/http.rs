//! Lists of keys over HTTP: whole or none.

use std::time::Duration;

use bloomguard::config::{KeyListFormat, SecretUrl, SourceConfig, SourceKind};
use bloomguard::key::{KeyBatch, KeyForm};
use bloomguard::source::{BATCH_KEYS, HttpSource, KeySource, SourceError};
use tokio::sync::mpsc;

use crate::support::http_server::{HttpServer, Reply, ok, status};

fn config(url: &str) -> SourceConfig {
    SourceConfig { kind: SourceKind::Http, url: SecretUrl::new(url.to_owned()), ..Default::default() }
}

fn at(server: &HttpServer) -> HttpSource {
    HttpSource::new(&config(&server.url("/keys")), 1024).unwrap()
}

async fn answering(reply: Reply) -> (HttpServer, HttpSource) {
    let server = HttpServer::start(move |_| reply.clone()).await;
    let source = at(&server);
    (server, source)
}

async fn scan(source: &HttpSource, form: KeyForm) -> Result<Vec<String>, SourceError> {
    let (sender, mut receiver) = mpsc::channel::<KeyBatch>(2);
    let collected = tokio::spawn(async move {
        let mut keys = Vec::new();
        while let Some(batch) = receiver.recv().await {
            assert!((1..=BATCH_KEYS).contains(&batch.len()));
            keys.extend(batch.into_iter().map(|key| key.as_str().unwrap().to_owned()));
        }
        keys
    });
    let sent = source.scan(form, sender).await;
    let keys = collected.await.unwrap();
    assert_eq!(sent?, keys.len() as u64);
    Ok(keys)
}

fn raw(text: &str) -> Reply {
    Reply::Close(text.as_bytes().to_vec())
}

#[tokio::test]
async fn every_key_arrives_once_in_bounded_batches() {
    let count = BATCH_KEYS * 3 + 5;
    let list: String = (1..=count).map(|i| format!("{i}\r\n")).collect();
    let (_server, source) = answering(ok("text/plain; charset=utf-8", &list)).await;
    let keys = scan(&source, KeyForm::Integer).await.unwrap();
    assert!(keys.iter().map(|key| key.parse::<usize>().unwrap()).eq(1..=count));
}

#[tokio::test]
async fn chunks_may_cut_a_line_anywhere() {
    let chunks = "4\r\na\r\nb\r\n2\r\nc\n\r\n1\r\nd\r\n0\r\n\r\n";
    let (_server, source) = answering(raw(&format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"
    )))
    .await;
    assert_eq!(scan(&source, KeyForm::Text).await.unwrap(), ["a", "bc", "d"]);
}

#[tokio::test]
async fn the_format_is_told_by_the_content_type_or_by_configuration() {
    let ndjson = "\"a\"\n42\n{\"key\":\"b\"}\n";
    for written in ["application/x-ndjson", "application/jsonl; charset=utf-8"] {
        let (_server, source) = answering(ok(written, ndjson)).await;
        assert_eq!(scan(&source, KeyForm::Text).await.unwrap(), ["a", "42", "b"], "{written}");
    }
    for written in ["text/plain", "application/octet-stream"] {
        let (_server, source) = answering(ok(written, ndjson)).await;
        assert_eq!(scan(&source, KeyForm::Text).await.unwrap().len(), 3);
        assert_eq!(scan(&source, KeyForm::Text).await.unwrap()[1], "42", "{written}");
    }
    for written in ["application/json", "text/csv", "text/html; charset=utf-8"] {
        let (server, source) = answering(ok(written, ndjson)).await;
        let error = scan(&source, KeyForm::Text).await.unwrap_err();
        assert!(
            matches!(&error, SourceError::Invalid(why) if why.contains(written.split(';').next().unwrap())),
            "{error}"
        );
        let told = SourceConfig { format: Some(KeyListFormat::Ndjson), ..config(&server.url("/keys")) };
        let scanned = scan(&HttpSource::new(&told, 1024).unwrap(), KeyForm::Text).await;
        assert_eq!(scanned.is_ok(), !written.contains("html"), "a page is not a list, for any configured format");
    }
}

#[tokio::test]
async fn a_body_that_ends_short_is_a_failed_scan() {
    let many: String = (0..BATCH_KEYS * 2).map(|i| format!("{i}\n")).collect();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n";
    for reply in [
        raw(&format!("{head}content-length: {}\r\n\r\n{many}", many.len() + 1)),
        raw(&format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{many}\r\n", many.len())),
        raw(&format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{many}", many.len() + 1)),
        Reply::Reset(format!("{head}content-length: {}\r\n\r\n{many}", many.len() * 2).into_bytes()),
        // By closing only: the same bytes as from a server that died in the middle.
        raw(&format!("{head}\r\n{many}")),
        // As by closing: only chunks end a body of a transfer coding.
        raw(&format!("{head}transfer-encoding: identity\r\n\r\n{many}")),
        raw(&format!("{head}transfer-encoding: chunked, identity\r\ncontent-length: {}\r\n\r\n{many}", many.len() + 1)),
        raw(&format!("{head}content-le")),
        raw(""),
    ] {
        let (_server, source) = answering(reply).await;
        assert!(scan(&source, KeyForm::Integer).await.is_err());
    }
}

#[tokio::test]
async fn fewer_keys_than_announced_are_a_failed_scan() {
    for header in ["Bloomguard-Count: 3", "X-Total-Count: 3"] {
        let (_server, source) =
            answering(status("200 OK", &format!("content-type: text/plain\r\n{header}\r\n"), "1\n2\n")).await;
        let error = scan(&source, KeyForm::Integer).await.unwrap_err();
        assert!(matches!(&error, SourceError::Invalid(why) if why.contains("2 keys of 3")), "{error}");
        assert_eq!(source.count().await.unwrap(), Some(3));
    }
    let page = "content-type: text/plain\r\nlink: </keys?page=2>; rel=\"next\"\r\n";
    let (_server, source) = answering(status("200 OK", page, "1\n2\n")).await;
    let error = scan(&source, KeyForm::Integer).await.unwrap_err();
    assert!(matches!(&error, SourceError::Invalid(why) if why.contains("one page of several")), "{error}");
    // With a count even an end by closing is one.
    let (_server, source) =
        answering(raw("HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\nbloomguard-count: 2\r\n\r\n1\n2\n")).await;
    assert_eq!(scan(&source, KeyForm::Integer).await.unwrap(), ["1", "2"]);
}

#[tokio::test]
async fn what_is_no_list_is_a_failed_scan() {
    for (reply, unavailable) in [
        (status("404 Not Found", "", "1\n"), false),
        (status("204 No Content", "", ""), false),
        (status("206 Partial Content", "", "1\n"), false),
        (status("302 Found", "location: /other\r\n", ""), false),
        (status("401 Unauthorized", "", ""), false),
        (status("429 Too Many Requests", "", ""), true),
        (status("502 Bad Gateway", "", ""), true),
        (status("200 OK", "content-encoding: gzip\r\n", "1"), false),
        (status("200 OK", "content-encoding: identity\r\ncontent-encoding: gzip\r\n", "1"), false),
        (raw("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n"), false),
    ] {
        let (server, source) = answering(reply).await;
        let error = scan(&source, KeyForm::Integer).await.unwrap_err();
        assert_eq!(matches!(error, SourceError::Unavailable(_)), unavailable, "{error}");
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_key_without_the_form_fails_with_its_row() {
    let (_server, source) = answering(ok("text/plain", "1\n\nx\n")).await;
    assert!(matches!(scan(&source, KeyForm::Integer).await, Err(SourceError::Key { row: 3, .. })));
    let (_server, source) = answering(ok("application/x-ndjson", "1\n{\"id\":2}\n")).await;
    let error = scan(&source, KeyForm::Integer).await.unwrap_err();
    assert!(
        matches!(&error, SourceError::Invalid(why) if why.starts_with("row 2: ") && why.contains("key")),
        "{error}"
    );
}

#[tokio::test]
async fn the_count_is_asked_for_without_the_list_and_may_be_unknown() {
    let server = HttpServer::start(|request| match request.line.split(' ').next().unwrap() {
        "HEAD" => status("200 OK", "bloomguard-count: 42\r\nx-total-count: 7\r\n", ""),
        _ => ok("text/plain", ""),
    })
    .await;
    assert_eq!(at(&server).count().await.unwrap(), Some(42));
    assert_eq!(server.seen()[0].line, "HEAD /keys HTTP/1.1");
    for reply in [
        ok("text/plain", "1\n"),
        status("405 Method Not Allowed", "", ""),
        status("200 OK", "x-total-count: many\r\n", ""),
    ] {
        let (_server, source) = answering(reply).await;
        assert_eq!(source.count().await.unwrap(), None);
        assert_eq!(source.key_form().await.unwrap(), None);
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = HttpSource::new(&config(&format!("http://127.0.0.1:{free}/keys")), 1024).unwrap();
    assert!(matches!(nobody.count().await, Err(SourceError::Unavailable(_))));
    assert!(matches!(scan(&nobody, KeyForm::Integer).await, Err(SourceError::Unavailable(_))));
}

#[tokio::test]
async fn an_empty_list_has_no_keys() {
    let (_server, source) = answering(ok("text/plain", "")).await;
    assert!(scan(&source, KeyForm::Integer).await.unwrap().is_empty());
}

#[tokio::test]
async fn reader_that_left_cancels_the_scan_also_of_a_silent_server() {
    let (_server, source) = answering(Reply::Hang).await;
    let (sender, receiver) = mpsc::channel::<KeyBatch>(1);
    drop(receiver);
    let scanned = tokio::time::timeout(Duration::from_secs(20), source.scan(KeyForm::Integer, sender)).await.unwrap();
    assert!(matches!(scanned, Err(SourceError::Cancelled)));
}

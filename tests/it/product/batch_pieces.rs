//! Batches whose bodies arrive in pieces, on a real server.

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::fast_path::read_answer;
use super::users::{absent, config, site};
use crate::support::app::TestApp;
use crate::support::database::Site;

const TEXT: &str = "text/plain";
const NDJSON: &str = "application/x-ndjson";

struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(app: &TestApp) -> Self {
        Self(BufReader::new(TcpStream::connect(app.data).await.unwrap()))
    }

    /// Each piece is a chunk, and so reaches the reader of the body by itself.
    async fn send(&mut self, path: &str, content_type: &str, pieces: &[&str]) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\ntransfer-encoding: \
                chunked\r\n\r\n"
        );
        let chunks: String = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len())).collect();
        self.0.write_all((head + &chunks).as_bytes()).await.unwrap();
    }

    /// Status and body.
    async fn post(&mut self, path: &str, content_type: &str, pieces: &[&str]) -> String {
        self.send(path, content_type, pieces).await;
        self.0.write_all(b"0\r\n\r\n").await.unwrap();
        let (status, body) = read_answer(&mut self.0, false).await;
        format!("{status} {body}")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_an_early_piece_is_answered_at_the_end() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let (missing, many) = (absent(&app).to_string(), "1\n".repeat(4_000));
    let mut client = Client::connect(&app).await;
    for (path, content_type, pieces, status, says) in [
        (
            "/v1/check/users",
            TEXT,
            &["1\r", "\n", &missing, "\r\n", "\n4", "2"][..],
            "200",
            "\"absent\":[1],\"checked\":3,",
        ),
        ("/v1/check/users", NDJSON, &["{\"key\"", ":1}\n\"", &missing, "\"\n"], "200", "\"absent\":[1],\"checked\":2,"),
        ("/v1/check/users", NDJSON, &["1\n", "\n2.", "5\n", "3\n", "4"], "400", "line 3: "),
        ("/v1/check/users", TEXT, &["1\nx\n", "2\n", "y\n"], "400", "\"index\":1"),
        // What is none of its format comes before a key that is none.
        ("/v1/check/users", NDJSON, &["\"x\"\n", "1\n", "{\n", "2\n"], "400", "line 3: "),
        ("/v1/keys/users", TEXT, &[&missing, "\n", "x"], "400", "\"index\":1"),
        ("/v1/lookup/users", TEXT, &[&many, &many, &many, &many], "413", "too-many-keys"),
        ("/v1/lookup/orders", TEXT, &["1\n", "2\n"], "400", "orders"),
    ] {
        let answer = client.post(path, content_type, pieces).await;
        assert!(answer.starts_with(status) && answer.contains(says), "{pieces:.80?}: {answer}");
    }
    assert_eq!(
        app.get(&format!("/v1/check/users/{missing}")).await.status,
        404,
        "nothing of what was refused is announced"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_long_is_told_before_what_is_wrong_in_it() {
    let site = site(Site::sqlite()).await;
    let app =
        TestApp::enforcing(&config(&site.url()).server("max_body_bytes", "1KiB").server("max_batch_keys", 3)).await;
    let lines = "1\n".repeat(400);
    let answer = Client::connect(&app).await.post("/v1/check/users", TEXT, &["1\n2\n", "3\n4\n", &lines, &lines]).await;
    assert!(answer.starts_with("413") && answer.contains("body-too-large"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_announce_that_breaks_off_announces_nothing() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let missing = absent(&app).to_string();
    let mut client = Client::connect(&app).await;
    client.send("/v1/keys/users", TEXT, &[&missing, "\n", "5"]).await;
    client.0.shutdown().await.unwrap();
    // It may be told so or not: it has hung up.
    let _ = client.0.read_to_end(&mut Vec::new()).await;
    assert_eq!(app.get(&format!("/v1/check/users/{missing}")).await.status, 404);
    assert_eq!(app.metric("bloomguard_announces_total{keyspace=\"users\",outcome=\"accepted\"}").await, 0.0);
}

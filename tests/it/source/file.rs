//! Keys from files: what counts as a key, and what fails a scan.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bloomguard::config::{SourceConfig, SourceKind};
use bloomguard::key::{KeyError, KeyForm};
use bloomguard::source::{BATCH_KEYS, FileSource, KeySource, SourceError};
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::support::app::TestApp;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::scan::{scan, sorted};

const MAX_KEY_BYTES: usize = 16;

fn at(path: &Path) -> FileSource {
    let config = SourceConfig { kind: SourceKind::File, path: path.to_owned(), ..SourceConfig::default() };
    FileSource::new(&config, MAX_KEY_BYTES)
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> FileSource {
        std::fs::write(self.path(name), bytes).unwrap();
        at(&self.path(name))
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn lines(count: usize) -> String {
    (1..=count).map(|i| format!("{i}\n")).collect()
}

#[tokio::test]
async fn every_line_is_a_key_with_any_line_ending() {
    let folder = Folder::new();
    for (text, keys) in [
        ("b\na\n", &["a", "b"][..]),
        ("b\r\na\r\n", &["a", "b"]),
        ("b\na", &["a", "b"]),
        ("\n\r\n\nb\n\na\r", &["a", "b"]),
        ("\u{feff}b\na", &["a", "b"]),
        ("a b\n a\n", &[" a", "a b"]),
        ("0123456789abcdef\r\nx", &["0123456789abcdef", "x"]),
        ("\u{feff}0123456789abcdef\r\nx", &["0123456789abcdef", "x"]),
        ("", &[]),
        ("\r\n", &[]),
    ] {
        assert_eq!(sorted(&folder.file("keys", text.as_bytes()), KeyForm::Text).await, keys, "{text:?}");
    }
    assert_eq!(sorted(&folder.file("keys", b"\xef\xbb\xbfa\n"), KeyForm::Bytes).await, [r"\xef\xbb\xbfa"]);
}

#[tokio::test]
async fn lines_have_no_form_of_their_own_and_only_plain_ones_are_counted() {
    let folder = Folder::new();
    for (text, count) in [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2)] {
        assert_eq!(folder.file("keys", text.as_bytes()).count().await.unwrap(), Some(count), "{text:?}");
    }
    let packed = folder.file("keys.gz", &gzip(b"a\n"));
    assert_eq!((packed.count().await.unwrap(), packed.key_form().await.unwrap()), (None, None));
    assert_eq!(folder.file("keys.ZST", &zstd(b"a\n")).count().await.unwrap(), None);
}

#[tokio::test]
async fn every_key_arrives_in_bounded_batches() {
    let folder = Folder::new();
    let count = BATCH_KEYS * 3 + 5;
    let text = lines(count);
    for source in [
        folder.file("keys.txt", text.as_bytes()),
        folder.file("keys.txt.gz", &gzip(text.as_bytes())),
        folder.file("keys.ZST", &zstd(text.as_bytes())),
    ] {
        let mut keys: Vec<u64> = scan(&source, KeyForm::Integer)
            .await
            .unwrap()
            .iter()
            .map(|key| key.as_str().unwrap().parse().unwrap())
            .collect();
        keys.sort_unstable();
        assert!(keys.iter().copied().eq(1..=count as u64));
    }
}

#[tokio::test]
async fn several_members_and_frames_are_read_to_the_last() {
    let folder = Folder::new();
    for (name, parts) in [("keys.gz", [gzip(b"a\nb"), gzip(b"c\nd\n")]), ("keys.zst", [zstd(b"a\nb"), zstd(b"c\nd\n")])]
    {
        assert_eq!(sorted(&folder.file(name, &parts.concat()), KeyForm::Text).await, ["a", "bc", "d"], "{name}");
    }
}

#[tokio::test]
async fn a_compressed_file_that_is_cut_anywhere_is_a_failed_scan() {
    let folder = Folder::new();
    let text = lines(50);
    for (name, whole) in [("keys.gz", gzip(text.as_bytes())), ("keys.zst", zstd(text.as_bytes()))] {
        assert_eq!(scan(&folder.file(name, &whole), KeyForm::Integer).await.unwrap().len(), 50);
        for end in 0..whole.len() {
            let error = scan(&folder.file(name, &whole[..end]), KeyForm::Integer).await.expect_err(name);
            assert!(matches!(error, SourceError::Invalid(_)), "{name} cut at {end}: {error}");
        }
        let second = [&whole[..], &whole[..whole.len() - 1]].concat();
        scan(&folder.file(name, &second), KeyForm::Integer).await.expect_err("the second part is cut");
    }
}

#[tokio::test]
async fn a_damaged_file_is_a_failed_scan() {
    let folder = Folder::new();
    let text = lines(5000);
    for (name, mut bytes) in [("keys.gz", gzip(text.as_bytes())), ("keys.zst", zstd(text.as_bytes()))] {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        let error = scan(&folder.file(name, &bytes), KeyForm::Bytes).await.expect_err(name);
        assert!(matches!(error, SourceError::Invalid(_)), "{error}");
        let plain = scan(&folder.file(name, b"1\n2\n"), KeyForm::Integer).await.expect_err("not compressed at all");
        assert!(matches!(plain, SourceError::Invalid(_)), "{plain}");
    }
}

#[tokio::test]
async fn a_line_that_is_no_key_fails_with_its_number() {
    let folder = Folder::new();
    let error = scan(&folder.file("keys", b"1\n\nthree\n"), KeyForm::Integer).await.unwrap_err();
    assert!(matches!(error, SourceError::Key { row: 3, error: KeyError::NotAnInteger }), "{error}");
    for long in ["x".repeat(MAX_KEY_BYTES + 1), "x".repeat(100_000), format!("{}\r\r", "x".repeat(MAX_KEY_BYTES))] {
        let error =
            scan(&folder.file("keys", format!("1\n{long}\n").as_bytes()), KeyForm::Text).await.unwrap_err().to_string();
        assert!(error.contains("number 2, that is longer than server.max_key_bytes = 16"), "{error}");
    }
}

#[tokio::test]
async fn what_can_not_be_read_is_a_failed_scan() {
    let folder = Folder::new();
    let missing = at(&folder.path("missing"));
    for error in [scan(&missing, KeyForm::Text).await.unwrap_err(), missing.count().await.unwrap_err()] {
        assert!(matches!(&error, SourceError::Unavailable(why) if why.contains("missing: No such file")), "{error}");
    }
    let error = scan(&at(folder.0.path()), KeyForm::Text).await.unwrap_err();
    assert!(matches!(&error, SourceError::Invalid(why) if why.contains("is not a regular file")), "{error}");
}

/// A scan under way: its first batch has arrived, and there is more than it may hold.
struct UnderWay {
    batches: mpsc::Receiver<bloomguard::key::KeyBatch>,
    scan: tokio::task::JoinHandle<Result<u64, SourceError>>,
    keys: usize,
}

impl UnderWay {
    async fn start(source: FileSource) -> Self {
        let (sender, mut batches) = mpsc::channel(1);
        let scan = tokio::spawn(async move { source.scan(KeyForm::Integer, sender).await });
        let keys = batches.recv().await.unwrap().len();
        Self { batches, scan, keys }
    }

    async fn end(mut self) -> Result<u64, SourceError> {
        while let Some(batch) = self.batches.recv().await {
            self.keys += batch.len();
        }
        self.scan.await.unwrap().inspect(|sent| assert_eq!(*sent, self.keys as u64))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_replaced_meanwhile_is_read_as_it_was() {
    let folder = Folder::new();
    let scan = UnderWay::start(folder.file("keys", lines(200_000).as_bytes())).await;
    folder.file("new", b"1\n");
    std::fs::rename(folder.path("new"), folder.path("keys")).unwrap();
    assert_eq!(scan.end().await.unwrap(), 200_000);
    assert_eq!(sorted(&at(&folder.path("keys")), KeyForm::Integer).await, ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_written_to_meanwhile_is_a_failed_scan() {
    let folder = Folder::new();
    type Change = fn(&std::fs::File);
    let changes: [(&str, Change); 3] = [
        ("it grows", |mut file| file.write_all(b"200001\n").unwrap()),
        ("it shrinks", |file| file.set_len(600_000).unwrap()),
        ("a line changes", |file| std::os::unix::fs::FileExt::write_all_at(file, b"9", 0).unwrap()),
    ];
    for (what, change) in changes {
        let source = folder.file("keys", lines(200_000).as_bytes());
        // So long ago that a change can't fall into the same tick of the file system's clock.
        let then = std::time::SystemTime::now() - Duration::from_secs(60);
        std::fs::File::options().write(true).open(folder.path("keys")).unwrap().set_modified(then).unwrap();
        let scan = UnderWay::start(source).await;
        // Positional writes ignore their position on a file that is opened to append.
        let file =
            std::fs::OpenOptions::new().write(true).append(what == "it grows").open(folder.path("keys")).unwrap();
        change(&file);
        let error = scan.end().await.expect_err(what);
        assert!(error.to_string().contains("was written to while it was read"), "{what}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_that_is_given_up_does_not_read_on() {
    let folder = Folder::new();
    let mut scan = UnderWay::start(folder.file("keys", lines(200_000).as_bytes())).await;
    scan.scan.abort();
    assert!((&mut scan.scan).await.unwrap_err().is_cancelled());
    while let Some(batch) = scan.batches.recv().await {
        scan.keys += batch.len();
    }
    assert!(scan.keys < 100_000, "{}", scan.keys);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyspace_is_guarded_by_the_keys_of_a_file() {
    let (folder, site) = (Folder::new(), Site::sqlite());
    site.run("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO users VALUES (1, 'one'), (2, 'two')")
        .await;
    folder.file("ids.zst", &zstd(b"1\r\n2\r\n"));
    let config = Config::new().users(|k| {
        k.set("key", "integer")
            .set("freshness", "static")
            .set("deadline", "2s")
            .set("filter.expected_keys", 1000)
            .set("rebuild.min_keys_ratio", 0.0)
            .backend(&site.url(), "SELECT name FROM users WHERE id = ?")
            .source_file(&folder.path("ids.zst"))
    });
    let app = TestApp::enforcing(&config).await;
    assert_eq!(app.get("/v1/keys/users/2").await.told(), "200 backend");
    assert_eq!(app.get("/v1/keys/users/3").await.told(), "404 filter");
    let longer = zstd(b"1\n2\n3\n");
    folder.file("ids.zst", &longer[..longer.len() - 1]);
    assert_eq!(app.rebuild("users").await, "source_failed");
    assert_eq!(app.get("/v1/keys/users/3").await.told(), "404 filter", "a failed scan changes nothing");
}

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;

fn header() -> Header {
    Header {
        keyspace: "users".into(),
        written_by: "test".into(),
        hash: HASH.into(),
        secret: Hex([7; 192]),
        key_form: "text".into(),
        basis: Hex([1; 8]),
        kind: "bloom".into(),
        capacity: 1000,
        rate: 0.001,
        generation: 3,
        items: 5,
        counted: vec![5],
        taken: Taken { unix_nanos: 1, boot_id: String::new(), boot_nanos: 2 },
        scan_age: 3,
        log: Some(LogMark { identity: Hex([2; 16]), millis: 4, sequence: 5, made: 6 }),
        polls: Some(vec![PollMark { watermark: WatermarkText::Text("ä\"".into()), age: 1, open_for: 2 }]),
        journal: JournalMark { id: Hex([3; 16]), next: 9 },
        proven: true,
        layers: Vec::new(),
    }
}

fn layer(words: &[AtomicU64]) -> LayerView<'_> {
    let entry = LayerEntry {
        kind: "split_block".into(),
        capacity: 1000,
        rate: 0.1 + 0.2,
        salt: [Hex([4; 8]); 4],
        hashes: 8,
        bits: words.len() as u64 * 64,
        words: 0,
        checksum: Hex([0; 16]),
    };
    LayerView { header: entry, words }
}

fn words(count: u64) -> Vec<AtomicU64> {
    (0..count).map(|i| AtomicU64::new(i.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect()
}

/// Writes a file with two layers.
fn written(dir: &Path) -> std::path::PathBuf {
    of_layers(dir, 100, 700)
}

fn of_layers(dir: &Path, first: u64, second: u64) -> std::path::PathBuf {
    let (first, second, place) = (words(first), words(second), dir.join("users.snapshot"));
    stage_snapshot(&place, header(), &[layer(&first), layer(&second)], || false).unwrap().publish().unwrap();
    place
}

fn decoded(bytes: &[u8]) -> Result<Snapshot, ReadError> {
    decode(bytes, bytes.len() as u64)?.load()
}

#[test]
fn what_was_written_is_read_and_belongs_to_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    // Left by a killed process, readable by all.
    std::fs::write(dir.path().join("users.snapshot.new"), "rubbish").unwrap();
    let place = of_layers(dir.path(), 1000, 40_000);
    assert_eq!(std::fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    let opened = open(&place).unwrap();
    assert_eq!(opened.sizes(), [8_000, 320_000]);
    let snapshot = opened.load().unwrap();
    assert_eq!(Header { layers: Vec::new(), ..snapshot.header.clone() }, header());
    for (layer, count) in snapshot.layers.iter().zip([1000, 40_000]) {
        let (read, written) = (layer.memory.words(), words(count));
        assert!(
            read.iter()
                .zip(&written)
                .all(|(a, b)| a.load(std::sync::atomic::Ordering::Relaxed)
                    == b.load(std::sync::atomic::Ordering::Relaxed))
        );
        assert_eq!((read.len(), layer.header.rate), (written.len(), 0.1 + 0.2));
    }
    assert!(!format!("{:?}", snapshot.header).contains("0707"), "the secret is not shown");
}

#[test]
fn no_byte_can_be_changed_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(written(dir.path())).unwrap();
    decoded(&whole).unwrap();
    let end = whole.len();
    // Every meaningful byte, and some of the padding.
    for position in (0..2500).chain((2500..end).step_by(61)).chain([end - 1]) {
        let mut flipped = whole.clone();
        flipped[position] ^= 1 << (position % 8);
        assert!(decoded(&flipped).is_err(), "flipped at {position}");
    }
}

#[test]
fn no_file_of_another_length_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(written(dir.path())).unwrap();
    for length in (0..100).chain((100..whole.len()).step_by(509)).chain([whole.len() - 1]) {
        assert!(decoded(&whole[..length]).is_err(), "cut to {length}");
        // Also if the length is wrong, as for a file that is truncated while it is read.
        assert!(
            decode(&whole[..length], whole.len() as u64).and_then(OpenedSnapshot::load).is_err(),
            "ends at {length}"
        );
    }
    let longer = [whole.as_slice(), &[0]].concat();
    assert!(matches!(decoded(&longer), Err(ReadError::Length { .. })));
}

/// Gives a changed header a valid checksum, as an attacker would.
fn sealed(whole: &[u8], change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let length = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
    let mut json = serde_json::from_slice(&bytes[PREAMBLE..length]).unwrap();
    change(&mut json);
    let text = serde_json::to_vec(&json).unwrap();
    bytes[PREAMBLE..length].fill(b' ');
    bytes[PREAMBLE..PREAMBLE + text.len()].copy_from_slice(&text);
    let sum = header_sum(&bytes[..length]);
    bytes[16..32].copy_from_slice(&sum);
    bytes
}

#[test]
fn a_header_that_asks_for_more_than_there_is_gets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(written(dir.path())).unwrap();
    for asked in [u64::MAX, u64::MAX / 8, 1 << 60, 1 << 40, 2000, 0] {
        let greedy = sealed(&whole, |json| json["layers"][0]["words"] = asked.into());
        let error = decode(greedy.as_slice(), greedy.len() as u64).unwrap_err();
        assert!(matches!(error, ReadError::Length { .. } | ReadError::Meaning(_)), "{asked}: {error}");
    }
    decoded(&sealed(&whole, |_| {})).unwrap();
    for field in ["unknown", "secret", "rate", "layers"] {
        let strange = sealed(&whole, |json| json[field] = "ff".into());
        assert!(matches!(decoded(&strange), Err(ReadError::Meaning(_))), "{field}");
    }
}

#[test]
fn a_sealed_header_gets_as_far_as_a_filter() {
    use super::super::{Filter, FilterKind, FilterSpec};
    for kind in FilterKind::ALL {
        let filter = Filter::new(FilterSpec { kind, capacity: 1000, rate: 0.001 }).unwrap();
        let entry = |view: LayerView<'_>| LayerEntry { words: view.words.len() as u64, ..view.header };
        let layers = views(&filter).into_iter().map(entry).collect();
        let seed = serde_json::to_vec(&Header { kind: kind.as_str().into(), layers, ..header() }).unwrap();
        let sealed = super::seal(&seed);
        let again = decoded(&sealed).unwrap().into_filter(Box::new(|_| Some(Box::new(())))).unwrap();
        again.insert(1);
        assert!(again.contains(1), "{kind:?}");
    }
}

#[test]
fn another_version_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(written(dir.path())).unwrap();
    bytes[8] = 2;
    assert!(matches!(decoded(&bytes), Err(ReadError::Version(2))));
    assert!(matches!(decoded(b"{}"), Err(ReadError::Foreign)));
    assert!(matches!(decoded(&[b'x'; 5000]), Err(ReadError::Foreign)));
}

#[test]
fn what_nobody_waits_for_leaves_the_old_file_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let place = written(dir.path());
    let before = std::fs::read(&place).unwrap();
    let words = words(100_000);
    assert!(matches!(stage_snapshot(&place, header(), &[layer(&words)], || true), Err(WriteError::Abandoned)));
    drop(stage_snapshot(&place, header(), &[layer(&words)], || false).unwrap());
    assert_eq!(std::fs::read(&place).unwrap(), before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_copy_holds_at_least_what_was_there_when_it_began() {
    let dir = tempfile::tempdir().unwrap();
    let (words, place) = (words(300_000), dir.path().join("users.snapshot"));
    words.iter().for_each(|word| word.store(1, std::sync::atomic::Ordering::Relaxed));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for bit in (1..64).cycle().take_while(|_| !done.load(std::sync::atomic::Ordering::Relaxed)) {
                words
                    .iter()
                    .step_by(97)
                    .for_each(|word| _ = word.fetch_or(1 << bit, std::sync::atomic::Ordering::Relaxed));
            }
        });
        stage_snapshot(&place, header(), &[layer(&words)], || false).unwrap().publish().unwrap();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let read = open(&place).unwrap().load().unwrap();
    assert!(read.layers[0].memory.words().iter().all(|word| word.load(std::sync::atomic::Ordering::Relaxed) & 1 == 1));
}

proptest! {
    /// The fuzz target's check, for machines where fuzzing can't run.
    #[test]
    fn no_bytes_make_the_reader_panic(noise in prop::collection::vec(any::<u8>(), 0..300), edits in prop::collection::vec((0..12_000usize, any::<u8>()), 0..8), seal in any::<bool>()) {
        static WHOLE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
            let dir = tempfile::tempdir().unwrap();
            std::fs::read(written(dir.path())).unwrap()
        });
        let _ = decoded(&noise);
        let _ = decoded(&super::seal(&noise));
        let mut bytes = WHOLE.clone();
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        if seal {
            let length = 4096;
            let sum = header_sum(&bytes[..length]);
            bytes[16..32].copy_from_slice(&sum);
        }
        let _ = decoded(&bytes);
    }
}

//! Any journal file opens with the keys of complete records. What is announced then is there when it opens again.

use std::sync::LazyLock;
use std::time::Duration;

use bloomguard::key::KeyForm;
use bloomguard::keyspace::Journal;
use tempfile::TempDir;

static PLACE: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().unwrap());
const LIFE: Duration = Duration::from_secs(60);

pub fn run(data: &[u8]) {
    let dir = PLACE.path();
    let _ = std::fs::remove_file(dir.join("users.journal.old"));
    std::fs::write(dir.join("users.journal"), data).unwrap();
    let (journal, replayed) = Journal::open_in_place(dir, "users", LIFE, Duration::ZERO).unwrap();
    assert!(replayed.keys.iter().map(|key| key.as_bytes().len()).sum::<usize>() <= data.len());
    let announced = KeyForm::Text.canonical(b"announced").unwrap();
    let appended = futures_util::FutureExt::now_or_never(journal.append(std::slice::from_ref(&announced)));
    appended.expect("it is written in place").unwrap();
    drop(journal);
    let (_, again) = Journal::open_in_place(dir, "users", LIFE, Duration::ZERO).unwrap();
    assert!(again.keys.contains(&announced) && replayed.keys.iter().all(|key| again.keys.contains(key)));
}

//! The announce journal: keys within their commit window survive a crash of the process.
//!
//! A file of records `length: u32 LE · canonical key · XXH3-64 of both: u64 LE`. A thread of its own writes what has come in together and syncs
//! it once (group commit) before it acknowledges. A record matters for one window only, so two files are enough: when the younger is older
//! than a window, the elder is overwritten.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use xxhash_rust::xxh3::xxh3_64;

use crate::clock::Moment;
use crate::key::Key;

/// Announces that may wait for the next sync; further ones are refused, not queued.
const QUEUE: usize = 8192;
/// Bytes of a record's length.
const LENGTH: usize = size_of::<u32>();
/// Bytes of its checksum.
const SUM: usize = size_of::<u64>();

/// The writing end of a keyspace's journal.
#[derive(Debug)]
pub struct Journal(Way);

/// Where the writing is done.
#[derive(Debug)]
enum Way {
    Thread(SyncSender<Append>),
    InPlace(Mutex<Writer>),
}

/// What a journal held when it was opened.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Keys whose window may still be open.
    pub keys: Vec<Key>,
    /// A file does not end with a whole record: acknowledged ones may be lost.
    pub damaged: bool,
}

/// Why an announce is not in the journal.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// More announces wait for the disk than may.
    #[error("{QUEUE} announces wait for the disk already")]
    Full,
    /// The disk refused.
    #[error("{0}")]
    Io(String),
}

struct Append {
    records: Vec<u8>,
    done: oneshot::Sender<Result<(), JournalError>>,
}

impl Journal {
    /// Opens the journal of `keyspace` in `dir` and returns the keys it held. `life` is how long a record matters.
    ///
    /// # Errors
    /// Where the files can't be read or written.
    pub fn open(dir: &Path, keyspace: &str, life: Duration) -> io::Result<(Self, Replayed)> {
        let (writer, replayed) = open(dir, keyspace, life)?;
        let (appends, queue) = sync_channel(QUEUE);
        std::thread::Builder::new().name(format!("journal-{keyspace}")).spawn(move || writer.run(&queue))?;
        Ok((Self(Way::Thread(appends)), replayed))
    }

    /// As [`Journal::open`], but each append is written where it is made: for a simulation, whose clock would run on while it waits for a thread.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_in_place(dir: &Path, keyspace: &str, life: Duration) -> io::Result<(Self, Replayed)> {
        let (writer, replayed) = open(dir, keyspace, life)?;
        Ok((Self(Way::InPlace(Mutex::new(writer))), replayed))
    }

    /// Returns once the keys are on disk.
    ///
    /// # Errors
    /// [`JournalError`]: they may or may not be there.
    pub async fn append(&self, keys: &[Key]) -> Result<(), JournalError> {
        let (done, written) = oneshot::channel();
        let append = Append { records: keys.iter().flat_map(encode).collect(), done };
        let appends = match &self.0 {
            Way::Thread(appends) => appends,
            Way::InPlace(writer) => return writer.lock().write(&[append]).map_err(|e| JournalError::Io(e.to_string())),
        };
        appends.try_send(append).map_err(|e| match e {
            TrySendError::Full(_) => JournalError::Full,
            TrySendError::Disconnected(_) => JournalError::Io("the journal's writer has stopped".into()),
        })?;
        written.await.unwrap_or_else(|_| Err(JournalError::Io("the journal's writer has stopped".into())))
    }
}

fn open(dir: &Path, keyspace: &str, life: Duration) -> io::Result<(Writer, Replayed)> {
    let files = Files { young: dir.join(format!("{keyspace}.journal")), old: dir.join(format!("{keyspace}.journal.old")) };
    let mut replayed = Replayed::default();
    read_records(&files.old, &mut replayed)?;
    read_records(&files.young, &mut replayed)?;
    let writer = Writer::start(files, &replayed.keys, life)?;
    Ok((writer, replayed))
}

fn encode(key: &Key) -> Vec<u8> {
    let bytes = key.as_bytes();
    // The configuration allows keys of at most 65,536 bytes, and no key form makes them four times as long.
    let mut record = Vec::with_capacity(bytes.len() + LENGTH + SUM);
    record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    record.extend_from_slice(bytes);
    record.extend_from_slice(&xxh3_64(&record).to_le_bytes());
    record
}

/// Reads a file to its end, or to the first record that does not add up. What follows that can't be told from a record that was torn by the
/// crash and never acknowledged, so it counts as damage: one window without rejecting costs less than one false 404.
fn read_records(path: &Path, into: &mut Replayed) -> io::Result<()> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(mut file) => file.read_to_end(&mut bytes)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let Some((key, after)) = first_record(rest) else {
            into.damaged = true;
            return Ok(());
        };
        into.keys.push(Key::from_canonical(Bytes::copy_from_slice(key)));
        rest = after;
    }
    Ok(())
}

/// The key of the first record, and what follows it.
fn first_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<LENGTH>()?) as usize;
    let (record, after) = bytes.split_at_checked(length.checked_add(LENGTH + SUM)?)?;
    let (body, sum) = record.split_at(LENGTH + length);
    (length > 0 && xxh3_64(body).to_le_bytes() == *sum).then_some((&body[LENGTH..], after))
}

#[derive(Debug)]
struct Files {
    young: PathBuf,
    old: PathBuf,
}

impl Files {
    fn sync_dir(&self) -> io::Result<()> {
        self.young.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    }
}

#[derive(Debug)]
struct Writer {
    files: Files,
    file: File,
    length: u64,
    since: Moment,
    life: Duration,
}

impl Writer {
    /// Begins a young file that holds what was replayed, so that a second crash loses nothing either.
    fn start(files: Files, replayed: &[Key], life: Duration) -> io::Result<Self> {
        let fresh = files.young.with_extension("journal.new");
        let mut file = File::create(&fresh)?;
        let records: Vec<u8> = replayed.iter().flat_map(encode).collect();
        file.write_all(&records)?;
        file.sync_data()?;
        fs::rename(&fresh, &files.young)?;
        match fs::remove_file(&files.old) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => files.sync_dir()?,
        }
        Ok(Self { files, file, length: records.len() as u64, since: Moment::now(), life })
    }

    fn run(mut self, queue: &Receiver<Append>) {
        while let Ok(first) = queue.recv() {
            let mut batch = vec![first];
            batch.extend(queue.try_iter().take(QUEUE));
            let result = self.write(&batch).map_err(|e| JournalError::Io(e.to_string()));
            if let Err(error) = &result {
                tracing::error!(%error, file = %self.files.young.display(), "announces could not be written to the journal");
            }
            for append in batch {
                // Who hung up does not want to know.
                let _ = append.done.send(result.clone());
            }
        }
    }

    fn write(&mut self, batch: &[Append]) -> io::Result<()> {
        if Moment::now().since(self.since) >= self.life {
            self.rotate()?;
        }
        let bytes: Vec<u8> = batch.iter().flat_map(|a| a.records.iter().copied()).collect();
        // After a failed write the file is cut back, so that no torn record stands before later ones.
        self.file.set_len(self.length)?;
        io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.length))?;
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// The young file becomes the old one; what the old one held is past its window.
    ///
    /// The next file is made before the names change, so that a failure leaves a young file behind at every step.
    fn rotate(&mut self) -> io::Result<()> {
        let fresh = self.files.young.with_extension("journal.new");
        let file = File::create(&fresh)?;
        match fs::rename(&self.files.young, &self.files.old) {
            // A rotation that failed below has renamed it already.
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => fs::rename(&fresh, &self.files.young)?,
        }
        (self.file, self.length, self.since) = (file, 0, Moment::now());
        self.files.sync_dir()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyForm;

    fn key(text: &str) -> Key {
        KeyForm::Text.canonical(text.as_bytes()).unwrap()
    }

    fn open(dir: &Path, life: Duration) -> (Journal, Vec<Key>) {
        let (journal, replayed) = Journal::open(dir, "users", life).unwrap();
        assert!(!replayed.damaged);
        (journal, replayed.keys)
    }

    #[tokio::test]
    async fn what_was_acknowledged_is_there_after_a_crash_and_after_a_second_one() {
        let dir = tempfile::tempdir().unwrap();
        let life = Duration::from_secs(60);
        let (journal, replayed) = open(dir.path(), life);
        assert!(replayed.is_empty());
        journal.append(&[key("a")]).await.unwrap();
        journal.append(&[key("b")]).await.unwrap();
        drop(journal);
        assert_eq!(open(dir.path(), life).1, [key("a"), key("b")]);
        assert_eq!(open(dir.path(), life).1, [key("a"), key("b")]);
    }

    #[tokio::test]
    async fn records_past_two_windows_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = open(dir.path(), Duration::ZERO);
        for text in ["a", "b", "c"] {
            journal.append(&[key(text)]).await.unwrap();
        }
        drop(journal);
        assert_eq!(open(dir.path(), Duration::ZERO).1, [key("b"), key("c")]);
    }

    #[tokio::test]
    async fn what_is_not_on_disk_is_not_acknowledged() {
        let dir = tempfile::tempdir().unwrap();
        // A journal that rotates with every write, in a folder that is gone.
        let (journal, _) = open(dir.path(), Duration::ZERO);
        journal.append(&[key("a")]).await.unwrap();
        fs::remove_dir_all(dir.path()).unwrap();
        assert!(matches!(journal.append(&[key("b")]).await, Err(JournalError::Io(_))));
        fs::create_dir(dir.path()).unwrap();
        journal.append(&[key("c")]).await.unwrap();
        drop(journal);
        assert_eq!(open(dir.path(), Duration::ZERO).1, [key("c")]);
    }

    #[tokio::test]
    async fn what_can_not_be_read_to_its_end_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let life = Duration::from_secs(60);
        let (journal, _) = open(dir.path(), life);
        for text in ["first", "second"] {
            journal.append(&[key(text)]).await.unwrap();
        }
        drop(journal);
        let file = dir.path().join("users.journal");
        let whole = fs::read(&file).unwrap();
        let damaged = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            let (_, replayed) = Journal::open(dir.path(), "users", life).unwrap();
            (replayed.damaged, replayed.keys.len())
        };
        assert_eq!(damaged(&whole), (false, 2));
        assert_eq!(damaged(&whole[..whole.len() - 3]), (true, 1), "cut off");
        for (position, left) in [(0, 0), (3, 0), (6, 0), (whole.len() - 1, 1)] {
            let mut flipped = whole.clone();
            flipped[position] ^= 0x80;
            assert_eq!(damaged(&flipped), (true, left), "flipped at {position}");
        }
        assert_eq!(damaged(&[0xa5; 500]), (true, 0), "overwritten");
    }
}

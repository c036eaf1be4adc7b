//! The announce journal: keys within their commit window, and those that no snapshot holds yet, survive a crash of the
//! process.
//!
//! Two files of records `length: u32 LE · canonical key · XXH3-64 of both: u64 LE`. Each file begins with a head: which
//! journal, the number of the first record, and for how long its records matter (so that a restart with a shorter
//! window does not forget them sooner). Two claims follow, each saying how many records are acknowledged, so that a
//! file cut between two records is noticed too. A claim is written once its records are on disk, and reaches the disk
//! with the next ones. So one cut stays unnoticed: one that takes only what was acknowledged last before the *machine*
//! crashed.
//!
//! A writer thread collects the waiting announces, writes and syncs them once (group commit), and then acknowledges. A
//! record matters for one window, and until a snapshot holds it from which the next process can start. So two files are
//! enough: the writer overwrites the older file once the younger one is older than a window and a snapshot holds the
//! records of the older. The journal holds a bounded number of records for a snapshot. Beyond that the writer drops the
//! older file anyway; the snapshot says which records it needs, so the next start rejects it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

mod format;

pub use self::format::Extent;
use self::format::{ANY, Claims, Contents, JournalWindows, MIXED, encode, longer};
use crate::clock::Moment;
use crate::filter::snapshot::{Hex, JournalMark};
use crate::key::Key;

/// Announces that may wait for the next sync; further ones are rejected.
const QUEUE: usize = 8192;
/// Records held for a snapshot; from half as many on, the journal requests a new one. Two files of this many records
/// fit the memory of recent announces.
const HELD: u64 = 1 << 17;

/// The writing end of a keyspace's journal.
#[derive(Debug)]
pub struct Journal {
    mode: WriteMode,
    id: [u8; 16],
    shared: Arc<Shared>,
}

/// Which thread writes.
#[derive(Debug)]
enum WriteMode {
    /// The keyspace takes no announces: there is no file.
    Off,
    Thread(SyncSender<Append>),
    InPlace(Mutex<JournalWriter>),
}

/// State shared by the journal's writer and the snapshot writer.
#[derive(Debug)]
struct Shared {
    /// Number of the next record.
    next: AtomicU64,
    /// The writer keeps records from this number on, however old they are.
    needed_from: AtomicU64,
    /// Too many records are held: a snapshot is needed.
    snapshot_due: Notify,
}

/// What a journal held when it was opened.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Keys whose window may still be open.
    pub keys: Vec<Key>,
    /// A file does not end with a complete record, or ends before the last acknowledged one, or the two files do not
    /// follow each other: records may be lost.
    pub damaged: bool,
    /// Numbers of the records; `None`: unknown.
    pub extent: Option<Extent>,
    /// The longest `commit_window` and `deadline` under which the records were written; `None`: an earlier release,
    /// which did not store them.
    pub windows: Option<(Duration, Duration)>,
    /// They were written under another key form, source or backend: their hashes may be wrong here.
    pub foreign: bool,
}

/// Why an announce is not in the journal.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// Too many announces wait for the disk.
    #[error("{QUEUE} announces already wait for the disk")]
    Full,
    /// The write failed.
    #[error("{0}")]
    Io(String),
}

struct Append {
    records: Vec<u8>,
    count: u64,
    done: oneshot::Sender<Result<(), JournalError>>,
}

impl Journal {
    /// Opens the journal of `keyspace` in `dir` and returns the keys it held. A record matters for `window` plus
    /// `deadline`.
    ///
    /// # Errors
    /// Where the files can't be read or written.
    pub fn open(dir: &Path, keyspace: &str, window: Duration, deadline: Duration) -> io::Result<(Self, Replayed)> {
        Self::open_of(dir, keyspace, window, deadline, ANY)
    }

    /// As [`Journal::open`]; `meaning` is a fingerprint of the configuration that gives the keys their meaning.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_of(
        dir: &Path,
        keyspace: &str,
        window: Duration,
        deadline: Duration,
        meaning: u64,
    ) -> io::Result<(Self, Replayed)> {
        let (writer, replayed) = open(dir, keyspace, (window, deadline), meaning)?;
        let (id, shared) = (writer.young.id, Arc::clone(&writer.shared));
        let (appends, queue) = sync_channel(QUEUE);
        std::thread::Builder::new().name(format!("journal-{keyspace}")).spawn(move || writer.run(&queue))?;
        Ok((Self { mode: WriteMode::Thread(appends), id, shared }, replayed))
    }

    /// Returns true if `dir` holds a journal of `keyspace`.
    ///
    /// # Errors
    /// Where that can't be found out.
    pub fn exists(dir: &Path, keyspace: &str) -> io::Result<bool> {
        let files = Files::of(dir, keyspace);
        for file in [&files.young, &files.old, &files.fresh()] {
            if file.try_exists()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The journal of a keyspace that takes no announces: there is none.
    #[must_use]
    pub fn off() -> (Self, Replayed) {
        let shared = Shared { next: 0.into(), needed_from: u64::MAX.into(), snapshot_due: Notify::new() };
        (Self { mode: WriteMode::Off, id: [0; 16], shared: Arc::new(shared) }, Replayed::default())
    }

    /// As [`Journal::open`], but each append is written by the calling thread. For simulations: their clock would
    /// advance while they wait for another thread.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_in_place(
        dir: &Path,
        keyspace: &str,
        window: Duration,
        deadline: Duration,
    ) -> io::Result<(Self, Replayed)> {
        let (writer, replayed) = open(dir, keyspace, (window, deadline), ANY)?;
        let (id, shared) = (writer.young.id, Arc::clone(&writer.shared));
        Ok((Self { mode: WriteMode::InPlace(Mutex::new(writer)), id, shared }, replayed))
    }

    /// The journal's id and the number of its next record. The bits of all earlier records were set before this call.
    #[must_use]
    pub fn mark(&self) -> JournalMark {
        // Acquire: pairs with the release in `write`, so that the bits of every record counted as written are visible.
        JournalMark { id: Hex(self.id), next: self.shared.next.load(Ordering::Acquire) }
    }

    /// Keeps records from this number on; `None`: only those within their window.
    pub fn hold_from(&self, number: Option<u64>) {
        // Relaxed: a stale value may drop records, which the snapshot notices by their numbers.
        self.shared.needed_from.store(number.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns when so many records are held that a snapshot is due.
    pub async fn snapshot_wanted(&self) {
        self.shared.snapshot_due.notified().await;
    }

    /// Returns once the keys are on disk.
    ///
    /// # Errors
    /// [`JournalError`]: the keys may or may not be on disk.
    pub async fn append(&self, keys: &[Key]) -> Result<(), JournalError> {
        let (done, written) = oneshot::channel();
        let append = Append { records: keys.iter().flat_map(encode).collect(), count: keys.len() as u64, done };
        let appends = match &self.mode {
            WriteMode::Off => return Err(JournalError::Io("the keyspace takes no announces".into())),
            WriteMode::Thread(appends) => appends,
            WriteMode::InPlace(writer) => {
                return writer.lock().write(&[append]).map_err(|e| JournalError::Io(e.to_string()));
            }
        };
        appends.try_send(append).map_err(|e| match e {
            TrySendError::Full(_) => JournalError::Full,
            TrySendError::Disconnected(_) => JournalError::Io("the journal's writer has stopped".into()),
        })?;
        written.await.unwrap_or_else(|_| Err(JournalError::Io("the journal's writer has stopped".into())))
    }
}

fn open(dir: &Path, keyspace: &str, windows: JournalWindows, meaning: u64) -> io::Result<(JournalWriter, Replayed)> {
    let files = Files::of(dir, keyspace);
    let has_fresh = files.fresh().try_exists()?;
    let replayed = Replayed::of(Contents::read(&files.old)?, Contents::read(&files.young)?, has_fresh, meaning);
    // If the records can't be numbered to the end, the journal gets a new id: old numbers must not match new ones.
    let extent =
        replayed.extent.unwrap_or_else(|| Extent { id: rand::random(), first: 0, next: replayed.keys.len() as u64 });
    let shared =
        Arc::new(Shared { next: extent.next.into(), needed_from: u64::MAX.into(), snapshot_due: Notify::new() });
    let writer = JournalWriter::start(files, &replayed, windows, meaning, extent, shared)?;
    Ok((writer, replayed))
}

#[derive(Debug)]
struct Files {
    young: PathBuf,
    old: PathBuf,
}

impl Files {
    fn of(dir: &Path, keyspace: &str) -> Self {
        Self { young: dir.join(format!("{keyspace}.journal")), old: dir.join(format!("{keyspace}.journal.old")) }
    }

    /// The next young file, before it is renamed.
    fn fresh(&self) -> PathBuf {
        self.young.with_extension("journal.new")
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.young.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    }
}

/// An empty file that only this user can read: keys may be confidential.
fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

#[derive(Debug)]
struct JournalWriter {
    files: Files,
    file: File,
    length: u64,
    claims: Claims,
    since: Moment,
    /// `commit_window` and `deadline`.
    windows: JournalWindows,
    /// Fingerprint of the configuration that gives the keys their meaning.
    meaning: u64,
    /// How long records of the young file matter: longer than new ones while it holds records from before a restart.
    life: Duration,
    /// Which journal, and the numbers of the young file's records.
    young: Extent,
    /// True if the directory, and so the names of the files, is synced.
    dir_synced: bool,
    shared: Arc<Shared>,
}

impl JournalWriter {
    /// Begins a young file that holds the replayed records, so that a second crash loses none of them.
    fn start(
        files: Files,
        replayed: &Replayed,
        windows: JournalWindows,
        meaning: u64,
        extent: Extent,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let longest = replayed.windows.map_or(windows, |before| longer(before, windows));
        let fresh = files.fresh();
        let mut file = create(&fresh)?;
        let records: Vec<u8> = replayed.keys.iter().flat_map(encode).collect();
        // While the file holds keys of another meaning, the next start must notice them too.
        let meant = if replayed.foreign { MIXED } else { meaning };
        let (bytes, claims) = extent.file(extent.first, None, longest, meant, &records);
        file.write_all(&bytes)?;
        file.sync_data()?;
        fs::rename(&fresh, &files.young)?;
        match fs::remove_file(&files.old) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => files.sync_dir()?,
        }
        Ok(Self {
            files,
            file,
            length: bytes.len() as u64,
            claims: Claims::new(claims),
            since: Moment::now(),
            windows,
            meaning,
            life: longest.0.saturating_add(longest.1),
            young: extent,
            dir_synced: true,
            shared,
        })
    }

    fn run(mut self, queue: &Receiver<Append>) {
        while let Ok(first) = queue.recv() {
            let mut batch = vec![first];
            batch.extend(queue.try_iter().take(QUEUE));
            let result = self.write(&batch).map_err(|e| JournalError::Io(e.to_string()));
            if let Err(error) = &result {
                tracing::error!(%error, file = %self.files.young.display(), "journal write failed");
            }
            for append in batch {
                // The caller may be gone.
                let _ = append.done.send(result.clone());
            }
        }
    }

    fn write(&mut self, batch: &[Append]) -> io::Result<()> {
        let before = self.young.held();
        if Moment::now().since(self.since) >= self.life && self.may_rotate() {
            self.rotate()?;
        }
        // Also after a rotation that failed here: a restart must find acknowledged records under the file's name.
        if !self.dir_synced {
            self.files.sync_dir()?;
            self.dir_synced = true;
        }
        let bytes: Vec<u8> = batch.iter().flat_map(|a| a.records.iter().copied()).collect();
        // After a failed write, cut the file back, so that no torn record precedes later ones.
        self.file.set_len(self.length)?;
        io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.length))?;
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.length += bytes.len() as u64;
        self.young.next += batch.iter().map(|append| append.count).sum::<u64>();
        // Release: pairs with the acquire in `mark`.
        self.shared.next.store(self.young.next, Ordering::Release);
        self.claims.write(&self.file, &self.young)?;
        // Repeated every `HELD / 8` records, because a snapshot may fail.
        let held = self.young.held();
        if held >= HELD / 2 && before / (HELD / 8) < held / (HELD / 8) {
            self.shared.snapshot_due.notify_one();
        }
        Ok(())
    }

    /// Returns true if the old file may be overwritten: no snapshot needs it, or too many records are held for one.
    fn may_rotate(&self) -> bool {
        self.young.first <= self.shared.needed_from.load(Ordering::Relaxed) || self.young.held() > HELD
    }

    /// Makes the young file the old one. The records of the previous old file are past their window.
    ///
    /// The next file is created before the renames, so that a failure at any step leaves a young file behind. The
    /// directory is synced later.
    fn rotate(&mut self) -> io::Result<()> {
        let fresh = self.files.fresh();
        let mut file = create(&fresh)?;
        let (bytes, claims) = self.young.file(self.young.next, Some(self.young.first), self.windows, self.meaning, &[]);
        file.write_all(&bytes)?;
        // Before the rename: an empty file under that name would belong to no journal.
        file.sync_data()?;
        self.dir_synced = false;
        match fs::rename(&self.files.young, &self.files.old) {
            // An earlier rotation that failed below has renamed it already.
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => fs::rename(&fresh, &self.files.young)?,
        }
        (self.file, self.length, self.claims, self.since) =
            (file, bytes.len() as u64, Claims::new(claims), Moment::now());
        self.young.first = self.young.next;
        // Records that needed a longer life are now in the old file, and have had it.
        self.life = self.windows.0.saturating_add(self.windows.1);
        Ok(())
    }
}

#[cfg(test)]
mod tests;

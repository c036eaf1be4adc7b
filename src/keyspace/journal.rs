//! The announce journal: keys within their commit window, and those that no snapshot holds yet, survive a crash of the process.
//!
//! A file of records `length: u32 LE · canonical key · XXH3-64 of both: u64 LE` behind a head that says which journal it is of and the number of its
//! first record, for how long its records matter (so that a restart with a shorter window does not forget them sooner), and two claims of how many records
//! have been acknowledged: so a file that was cut between two records is noticed too. A claim is written once its records are on disk, and reaches the
//! disk with the next ones: a cut that only takes what was acknowledged last before the *machine* crashed is not noticed. A thread of its own writes what
//! has come in together and syncs it once (group commit) before it acknowledges. A record matters for
//! one window, and until a snapshot holds it from which the next process can start, so two files are enough: when the younger is older than a window,
//! and a snapshot holds what the elder does, the elder is overwritten. So many are held for the sake of a snapshot and no more: beyond that the
//! elder goes all the same, and the snapshot, which says which records it needs, is worth nothing any more.

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
use self::format::{ANY, Claims, Contents, MIXED, Windows, encode, longer};
use crate::clock::Moment;
use crate::filter::snapshot::{Hex, JournalMark};
use crate::key::Key;

/// Announces that may wait for the next sync; further ones are refused, not queued.
const QUEUE: usize = 8192;
/// Records that are held for the sake of a snapshot; from half as many on a new one is wanted. Two files of so many fit the memory of recent announces.
const HELD: u64 = 1 << 17;

/// The writing end of a keyspace's journal.
#[derive(Debug)]
pub struct Journal {
    way: Way,
    id: [u8; 16],
    shared: Arc<Shared>,
}

/// Where the writing is done.
#[derive(Debug)]
enum Way {
    Thread(SyncSender<Append>),
    InPlace(Mutex<Writer>),
}

/// What the writer and those who write snapshots tell each other.
#[derive(Debug)]
struct Shared {
    /// Number of the next record.
    next: AtomicU64,
    /// Records from this one on are to be held, however old they are.
    needed_from: AtomicU64,
    /// More are held than should be: a snapshot is wanted.
    wanted: Notify,
}

/// What a journal held when it was opened.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Keys whose window may still be open.
    pub keys: Vec<Key>,
    /// A file does not end with a whole record, or before the last one that was acknowledged, or the two don't follow each other: records may be lost.
    pub damaged: bool,
    /// Which records those are; `None`: that is not known.
    pub extent: Option<Extent>,
    /// `commit_window` and `deadline` under which they were written, the longest of each; `None`: a release of before does not tell.
    pub windows: Option<(Duration, Duration)>,
    /// They were written under another key form, source or backend: their hashes may mean nothing here.
    pub foreign: bool,
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
    count: u64,
    done: oneshot::Sender<Result<(), JournalError>>,
}

impl Journal {
    /// Opens the journal of `keyspace` in `dir` and returns the keys it held. A record matters for `window` and `deadline` together.
    ///
    /// # Errors
    /// Where the files can't be read or written.
    pub fn open(dir: &Path, keyspace: &str, window: Duration, deadline: Duration) -> io::Result<(Self, Replayed)> {
        Self::open_of(dir, keyspace, window, deadline, ANY)
    }

    /// As [`Journal::open`], of keys that mean what this fingerprint of the configuration says.
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
        Ok((Self { way: Way::Thread(appends), id, shared }, replayed))
    }

    /// As [`Journal::open`], but each append is written where it is made: for a simulation, whose clock would run on while it waits for a thread.
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
        Ok((Self { way: Way::InPlace(Mutex::new(writer)), id, shared }, replayed))
    }

    /// Which journal it is, and the number of its next record: those before it are of announces whose bits were set before this was asked.
    #[must_use]
    pub fn mark(&self) -> JournalMark {
        // Acquire: pairs with the release in `write`; whose record counts as written, its bits are seen.
        JournalMark { id: Hex(self.id), next: self.shared.next.load(Ordering::Acquire) }
    }

    /// Records from this number on are held; `None`: those within their window only.
    pub fn hold_from(&self, number: Option<u64>) {
        // Relaxed: too late a sight of it drops records, which the snapshot notices by their numbers.
        self.shared.needed_from.store(number.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns when so many records are held that a snapshot is wanted.
    pub async fn snapshot_wanted(&self) {
        self.shared.wanted.notified().await;
    }

    /// Returns once the keys are on disk.
    ///
    /// # Errors
    /// [`JournalError`]: they may or may not be there.
    pub async fn append(&self, keys: &[Key]) -> Result<(), JournalError> {
        let (done, written) = oneshot::channel();
        let append = Append { records: keys.iter().flat_map(encode).collect(), count: keys.len() as u64, done };
        let appends = match &self.way {
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

fn open(dir: &Path, keyspace: &str, windows: Windows, meaning: u64) -> io::Result<(Writer, Replayed)> {
    let files =
        Files { young: dir.join(format!("{keyspace}.journal")), old: dir.join(format!("{keyspace}.journal.old")) };
    let between = files.fresh().try_exists()?;
    let replayed = Replayed::of(Contents::read(&files.old)?, Contents::read(&files.young)?, between, meaning);
    // Numbers of a journal that can't be followed to its end say nothing of the next one.
    let extent =
        replayed.extent.unwrap_or_else(|| Extent { id: rand::random(), first: 0, next: replayed.keys.len() as u64 });
    let shared = Arc::new(Shared { next: extent.next.into(), needed_from: u64::MAX.into(), wanted: Notify::new() });
    let writer = Writer::start(files, &replayed, windows, meaning, extent, shared)?;
    Ok((writer, replayed))
}

#[derive(Debug)]
struct Files {
    young: PathBuf,
    old: PathBuf,
}

impl Files {
    /// The next young file, until it has its name.
    fn fresh(&self) -> PathBuf {
        self.young.with_extension("journal.new")
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.young.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    }
}

/// An empty file that nobody else may read: keys may say more than their owners like.
fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

#[derive(Debug)]
struct Writer {
    files: Files,
    file: File,
    length: u64,
    claims: Claims,
    since: Moment,
    /// `commit_window` and `deadline`.
    windows: Windows,
    /// Fingerprint of what its keys mean.
    meaning: u64,
    /// How long records of the young file matter: longer than new ones, while it holds some of before a restart.
    life: Duration,
    /// Which journal, and the numbers of the young file's records.
    young: Extent,
    /// The names of the files are on disk.
    dir_synced: bool,
    shared: Arc<Shared>,
}

impl Writer {
    /// Begins a young file that holds what was replayed, so that a second crash loses nothing either.
    fn start(
        files: Files,
        replayed: &Replayed,
        windows: Windows,
        meaning: u64,
        extent: Extent,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let held = replayed.windows.map_or(windows, |before| longer(before, windows));
        let fresh = files.fresh();
        let mut file = create(&fresh)?;
        let records: Vec<u8> = replayed.keys.iter().flat_map(encode).collect();
        // While it holds keys of another meaning, the next start must notice it too.
        let meant = if replayed.foreign { MIXED } else { meaning };
        let (bytes, claims) = extent.file(extent.first, None, held, meant, &records);
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
            life: held.0.saturating_add(held.1),
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
                tracing::error!(%error, file = %self.files.young.display(), "announces could not be written to the journal");
            }
            for append in batch {
                // Who hung up does not want to know.
                let _ = append.done.send(result.clone());
            }
        }
    }

    fn write(&mut self, batch: &[Append]) -> io::Result<()> {
        let before = self.young.held();
        if Moment::now().since(self.since) >= self.life && self.may_rotate() {
            self.rotate()?;
        }
        // Also after a rotation that failed here: what is acknowledged must be found under its name.
        if !self.dir_synced {
            self.files.sync_dir()?;
            self.dir_synced = true;
        }
        let bytes: Vec<u8> = batch.iter().flat_map(|a| a.records.iter().copied()).collect();
        // After a failed write the file is cut back, so that no torn record stands before later ones.
        self.file.set_len(self.length)?;
        io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.length))?;
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.length += bytes.len() as u64;
        self.young.next += batch.iter().map(|append| append.count).sum::<u64>();
        // Release: pairs with the acquire in `mark`.
        self.shared.next.store(self.young.next, Ordering::Release);
        self.claims.write(&self.file, &self.young)?;
        // Again now and then, for a snapshot may fail.
        let held = self.young.held();
        if held >= HELD / 2 && before / (HELD / 8) < held / (HELD / 8) {
            self.shared.wanted.notify_one();
        }
        Ok(())
    }

    /// Whether the old file may go: no snapshot needs it, or too much is held for one.
    fn may_rotate(&self) -> bool {
        self.young.first <= self.shared.needed_from.load(Ordering::Relaxed) || self.young.held() > HELD
    }

    /// The young file becomes the old one; what the old one held is past its window.
    ///
    /// The next file is made before the names change, so that a failure leaves a young file behind at every step. The names are not on disk yet.
    fn rotate(&mut self) -> io::Result<()> {
        let fresh = self.files.fresh();
        let mut file = create(&fresh)?;
        let (bytes, claims) = self.young.file(self.young.next, Some(self.young.first), self.windows, self.meaning, &[]);
        file.write_all(&bytes)?;
        // Before it has its name: an empty file under it would be one of no journal.
        file.sync_data()?;
        self.dir_synced = false;
        match fs::rename(&self.files.young, &self.files.old) {
            // A rotation that failed below has renamed it already.
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => fs::rename(&fresh, &self.files.young)?,
        }
        (self.file, self.length, self.claims, self.since) =
            (file, bytes.len() as u64, Claims::new(claims), Moment::now());
        self.young.first = self.young.next;
        // What was held for longer has been so long in the file that is now the old one.
        self.life = self.windows.0.saturating_add(self.windows.1);
        Ok(())
    }
}

#[cfg(test)]
mod tests;

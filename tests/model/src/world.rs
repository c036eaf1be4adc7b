//! The state of the model: everything that can affect later steps, in bytes. One key, `k`; times are ticks.

mod ask;

pub use self::ask::{Ask, AskStep};

/// The instance that announces.
pub const A: usize = 0;
/// The server that holds entries and marks.
pub const CACHE: usize = 0;
/// Entries that a log of the model can hold.
pub const LOG_ROOM: usize = 5;

/// Two instances, one or two servers, a database row, and the promises about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct World {
    pub nodes: [Node; 2],
    /// Lookups in progress, two per instance.
    pub asks: [[Ask; 2]; 2],
    /// The cache server, and the log server if it is another one.
    pub servers: [Server; 2],
    pub row: Row,
    pub put: Put,
    pub change: Change,
    /// The third instance's last entry, and in which log.
    pub third: (u8, u8),
    /// The last entry's number in any log.
    pub last_entry: u8,
    pub left: Left,
}

/// How many events may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Left {
    pub faults: u8,
    pub crashes: [u8; 2],
    pub builds: [u8; 2],
    /// Further builds, which a loss requests.
    pub repairs: u8,
    /// Announces of other keys by a third instance.
    pub others: u8,
    pub snapshots: u8,
    /// Announces that do not fit B's memory.
    pub full: u8,
}

/// k's row in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Row {
    #[default]
    None,
    Old,
    New,
}

/// The announce of k at A, and its promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Put {
    pub at: PutStep,
    /// Ticks until its deadline.
    pub left: u8,
    /// The filter pair that it loaded.
    pub pair: Pair,
    /// The connections over which it set its mark.
    pub links: [u8; 2],
    /// Secret that k was hashed under.
    pub secret: u8,
    /// Ticks within which the row must become visible.
    pub window: u8,
    /// Ticks until other instances must know of it.
    pub spread: u8,
    /// The place of its entry in the log: the version.
    pub version: (u8, u8),
}

/// The step of an announce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd)]
pub enum PutStep {
    #[default]
    NotBegun,
    Begun,
    Remembered,
    PairLoaded,
    FilterSet,
    CandidateSet,
    Marked,
    Appended,
    Acknowledged,
    /// It promises nothing any more.
    Failed,
}

/// A filter pair, as it was when it was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Pair {
    pub generation: u8,
    pub candidate: bool,
}

/// A DELETE or invalidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Change {
    /// Steps taken; 9: done, 10: failed.
    pub step: u8,
    pub left: u8,
}

/// An instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Node {
    /// The filter, if there is one: true if k is in it.
    pub filter: Option<bool>,
    pub generation: u8,
    /// The candidate of a build: true if k is in it.
    pub candidate: Option<bool>,
    pub hot: Hot,
    /// Ticks for which k is still remembered.
    pub memory: u8,
    /// … but not by name: a build can't put it into its candidate.
    pub unheld: bool,
    /// k is in the journal.
    pub journal: bool,
    /// After a loss: ticks until a scan may begin that fixes it. `Some(0)`: now.
    pub lost: Option<u8>,
    /// The same after a change of the log, which the roll call fixes too.
    pub pending: Option<u8>,
    /// Ticks since the last page that was complete and not pending.
    pub seen: u8,
    /// It was restarted: its earlier announces are another writer's.
    pub reborn: bool,
    /// Drops have taken effect here.
    pub dropped: bool,
    pub follower: Follower,
    pub read: Read,
    /// Ticks since the sending of the last read that left nothing unread.
    pub lag: u8,
    /// The run of each server that the link is connected to.
    pub links: [u8; 2],
    pub again: Again,
    pub build: Build,
    pub snapshot: Snapshot,
    pub secret: u8,
    /// The run under which the secret was agreed on.
    pub agreed: u8,
    /// Its own `commit_window`, and the longest that it knows of.
    pub window: u8,
    pub longest: u8,
    /// How many builds have begun, and which of them the filter is from.
    pub scans: u8,
    pub scan: u8,
}

/// What the hot tier holds of k.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Hot {
    #[default]
    Nothing,
    Absence,
    Value(Row),
}

/// An instance's position in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Follower {
    /// The log's identity; 0: none was read yet.
    pub log: u8,
    pub cursor: u8,
    /// The last entry that the log has reported.
    pub last: u8,
    /// Entries ever appended at the cursor, if known.
    pub made: Option<u8>,
    /// Ticks since the first page, while counting has not begun.
    pub uncounted: u8,
    /// From here on chains must be complete.
    pub start: u8,
    /// It starts from a snapshot's place; the first page must reach a window back.
    pub restored: bool,
    /// The last entry seen of A and of the third instance.
    pub seen: [u8; 2],
}

/// A read of the log in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Read {
    pub at: ReadStep,
    /// Ticks since it was sent.
    pub age: u8,
    pub page: Page,
    pub pair: Pair,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadStep {
    #[default]
    None,
    Sent,
    Answered,
    Remembered,
    Inserted,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Page {
    pub follower: Follower,
    pub announces: bool,
    pub drops: bool,
    /// After a loss: ticks until a scan can begin that fixes it.
    pub loss: Option<u8>,
    /// The longest window known after it.
    pub longest: u8,
    /// Nothing is left unread.
    pub complete: bool,
    /// Another log: the roll call decides.
    pub pends: bool,
    /// A has told that all is there.
    pub told: bool,
}

/// Setting marks and appending again after a reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Again {
    #[default]
    No,
    Wanted,
    Marked,
    /// It has yet to tell that all is there.
    Appended,
}

/// A build in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Build {
    pub at: BuildStep,
    /// It began late enough to fix the loss.
    pub fixes_loss: bool,
    pub secret: u8,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BuildStep {
    #[default]
    None,
    Begun,
    Replayed,
    Scanned,
}

/// A node's snapshot of its filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Snapshot {
    pub at: SnapshotStep,
    pub place: Follower,
    pub holds: bool,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SnapshotStep {
    #[default]
    None,
    /// The place or the bits are recorded, whichever comes first.
    Half,
    Written,
}

/// A Redis server, its replica, and the effects of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Server {
    /// Number of the process that is primary: each has a log identity of its own.
    pub run: u8,
    /// Ticks since its identity was made.
    pub age: u8,
    pub data: Data,
    pub replica: Data,
    /// What connections from before the last fault can still do.
    pub before: Before,
    /// The data of a primary that was cut off.
    pub cut_off: Data,
}

/// What connections from before a fault can still do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Before {
    /// Nothing.
    #[default]
    Dead,
    /// Read, from a primary that has become a replica of the new one.
    Demoted,
    /// Everything but the log, on a server that was emptied.
    Flushed,
    /// Everything, for this instance, on a primary that is cut off from its replicas.
    CutOffWith(u8),
}

/// What a server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Data {
    pub entry: Entry,
    /// Ticks that a mark still lives.
    pub left: u8,
    pub log: [Delta; LOG_ROOM],
    pub len: u8,
    /// Entries ever appended.
    pub made: u8,
    pub last: u8,
    /// Entries below this one were trimmed for lack of room, and the age of that entry.
    pub floor: u8,
    pub floor_age: u8,
    /// A has told that all its announces are in this log.
    pub told: bool,
    /// The keyspace's secret; 0: none.
    pub secret: u8,
    /// The longest window that is registered.
    pub window: u8,
}

/// Redis's entry of k.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Entry {
    #[default]
    Nothing,
    /// Under these identities.
    Absence {
        cache: u8,
        log: u8,
        /// Builds that its instance had begun when its lookup began.
        scans: u8,
    },
    Value(Row),
    Announced,
    AnnouncedAgain,
    Tombstone,
}

impl Entry {
    /// Marks expire by themselves.
    #[must_use]
    pub const fn is_mark(self) -> bool {
        matches!(self, Self::Announced | Self::AnnouncedAgain | Self::Tombstone)
    }
}

/// An entry of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Delta {
    pub number: u8,
    pub kind: Kind,
    /// Its writer's previous acknowledged entry.
    pub previous: u8,
    pub age: u8,
    pub secret: u8,
    /// Its writer's window.
    pub window: u8,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// k is announced.
    #[default]
    Announce,
    /// k is dropped.
    Drop,
    /// Another key, by a third instance.
    Other,
}

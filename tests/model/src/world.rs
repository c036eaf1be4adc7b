//! The state: everything that may make a difference later, in bytes. One key, `k`; times are ticks.

mod ask;

pub use self::ask::{Ask, AskStep};

/// The instance that announces.
pub const A: usize = 0;
/// The server that holds entries and marks.
pub const CACHE: usize = 0;
/// Entries that a log of the model can hold.
pub const LOG_ROOM: usize = 5;

/// Two instances, one or two servers, a database row, and what is promised of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct World {
    pub nodes: [Node; 2],
    /// Lookups under way, two an instance.
    pub asks: [[Ask; 2]; 2],
    /// The cache server, and the log's where it is another one.
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

/// How much may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Left {
    pub faults: u8,
    pub crashes: [u8; 2],
    pub builds: [u8; 2],
    /// Builds beyond that, which a loss asks for.
    pub mending: u8,
    /// Announces of other keys by a third instance.
    pub others: u8,
    pub snapshots: u8,
    /// Announces that find B's memory full.
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

/// The announce of k at A, and what it promises.
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
    /// Ticks within which the row is to become visible.
    pub window: u8,
    /// Ticks until other instances must know of it.
    pub spread: u8,
    /// Where its entry stands: the version.
    pub version: (u8, u8),
}

/// How far an announce is.
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
    /// Nothing is promised any more.
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
    /// Whether there is a filter, and k in it.
    pub filter: Option<bool>,
    pub generation: u8,
    /// The candidate of a build, and k in it.
    pub candidate: Option<bool>,
    pub hot: Hot,
    /// Ticks that k is still remembered for.
    pub memory: u8,
    /// … but not by name: a build can't put it into its candidate.
    pub unheld: bool,
    /// k is in the journal.
    pub journal: bool,
    /// Something was lost that only a scan which begins in so many ticks mends: `Some(0)`, one that begins now.
    pub lost: Option<u8>,
    /// It was restarted: what it had announced before is another writer's.
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

/// Where an instance stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Follower {
    /// The log's identity; 0: none was read yet.
    pub log: u8,
    pub cursor: u8,
    /// The last entry the log has told of.
    pub last: u8,
    /// Entries ever made at the cursor, where known.
    pub made: Option<u8>,
    /// Ticks since the first page, while nothing is counted.
    pub uncounted: u8,
    /// From here on chains must be whole.
    pub start: u8,
    /// It starts from a snapshot's place, and the first page is to reach a window back.
    pub restored: bool,
    /// The last entry seen of A and of the third instance.
    pub seen: [u8; 2],
}

/// A read of the log under way.
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

/// What it brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Page {
    pub follower: Follower,
    pub announces: bool,
    pub drops: bool,
    /// Ticks until a scan can begin that mends what was lost.
    pub loss: Option<u8>,
    /// The longest window known after it.
    pub longest: u8,
    /// Nothing is left unread.
    pub complete: bool,
}

/// Setting marks and appending again after a reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Again {
    #[default]
    No,
    Wanted,
    Marked,
}

/// A build under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Build {
    pub at: BuildStep,
    /// It began late enough to mend what is lost.
    pub mends: bool,
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

/// What a node has written down of its filter.
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
    /// Place or bits are noted, whichever comes first.
    Half,
    Written,
}

/// A Redis server, its replica, and what a fault has left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Server {
    /// Number of the process that is primary: each has a log identity of its own.
    pub run: u8,
    /// Ticks since its identity was made.
    pub age: u8,
    pub data: Data,
    pub replica: Data,
    /// What connections of before the last fault still do.
    pub before: Before,
    /// What a primary holds that was cut off.
    pub cut_off: Data,
}

/// What connections of before a fault still do.
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
    /// Entries ever made.
    pub made: u8,
    pub last: u8,
    /// Entries below this one were trimmed for want of room, and how long ago it was made.
    pub floor: u8,
    pub floor_age: u8,
    /// The keyspace's secret; 0: none.
    pub secret: u8,
    /// The longest window that is registered.
    pub window: u8,
}

/// What Redis holds of k.
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

/// What an entry tells.
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

//! What instances share: the delta log of announces and drops, and the permit to scan.
//!
//! One log a keyspace. An announce is appended to it before it is acknowledged, and every instance reads it. A scan
//! replaces anything that is lost from it. An instance that can't show that nothing was lost stops rejecting until that
//! scan.

mod committer;
mod enrolment;
mod entry;
mod follower;
mod log;
mod permit;
mod redis;
mod roll_call;
mod roster;
mod switch;
mod terms;
mod version;
mod writer;

pub use self::committer::Committer;
pub use self::enrolment::{Enrolling, Enrolment, RosterPage};
#[doc(hidden)]
pub use self::entry::try_entry;
pub use self::entry::{Delta, EntryId, LogEntry, LogEntryKind};
pub use self::follower::{Follower, LogPlace, Loss, PageOutcome};
pub use self::log::{DeltaLog, LogError, LogPage};
pub use self::permit::{RedisScanPermit, ScanHolder, ScanPermit};
pub use self::redis::{RedisDeltaLog, Retention};
pub use self::roll_call::{RollCall, RollCallState};
pub use self::roster::{Enrolled, Member, RollCallTerms, Roster, RosterChange};
pub use self::switch::Switch;
pub use self::terms::{Peer, Terms};
pub use self::version::Version;
pub use self::writer::WriterId;

//! What instances tell each other: the delta log of announces and drops, and whose turn it is to scan.
//!
//! One log a keyspace, appended to before an announce is acknowledged and read by every instance. It says nothing that can't be said again: what
//! is lost of it is found by a scan, and whoever can't show that nothing was lost stops rejecting until then.

mod committer;
mod entry;
mod follower;
mod log;
mod permit;
mod redis;
mod switch;
mod terms;
mod version;

pub use self::committer::Committer;
#[doc(hidden)]
pub use self::entry::try_entry;
pub use self::entry::{Delta, Entry, EntryId, Kind, WriterId};
pub use self::follower::{Follower, LogPlace, Loss, Step};
pub use self::log::{DeltaLog, LogError, Page};
pub use self::permit::{RedisScanPermit, ScanHolder, ScanPermit};
pub use self::redis::{RedisDeltaLog, Retention};
pub use self::switch::Switch;
pub use self::terms::{Peer, Terms};
pub use self::version::Version;

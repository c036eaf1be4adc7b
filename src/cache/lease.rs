//! The lease to load a key for the whole fleet, for a short time.
//!
//! A lease saves calls of the backend, and nothing depends on it: an instance that can't get one loads without it, and
//! comparing entries keeps two loads apart as always. So it may be lost, outlived or ignored at any moment.

use super::Seen;

/// The identity of one load's claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease(pub(super) [u8; 16]);

impl Lease {
    /// A random one.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }
}

/// Who holds the lease of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// The caller: it must release the lease after the load.
    Ours,
    /// Another load at present.
    Theirs,
    /// No load: the last one stored nothing, so waiting for the next one is useless.
    Free,
}

/// Result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who holds the lease.
    pub state: LeaseState,
    /// The entry, read after that was decided: it includes what the last holder stored.
    pub seen: Seen,
}

/// How a load under a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The entry holds its answer, which waiting loads find there.
    Stored,
    /// It stored nothing: waiting loads call the backend.
    NotStored,
}

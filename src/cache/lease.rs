//! The right to load a key for the whole fleet, held for a short while.
//!
//! A lease saves calls of the backend and protects nothing: whoever can't ask for one loads without it, and two who load at once are kept
//! apart by comparing entries, as ever. So it may be lost, outlived or ignored at any moment.

use super::Seen;

/// What one load claims with, and by which its claims are told from everybody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease(pub(super) [u8; 16]);

impl Lease {
    /// A fresh one.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }
}

/// Who may load a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Whoever claimed: it must release the lease when it has loaded.
    Ours,
    /// Another one, at present.
    Theirs,
    /// Everybody: the last load stored nothing, so nothing is gained by waiting for the next.
    Free,
}

/// Result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who may load the key.
    pub turn: Turn,
    /// The entry as it was once that was decided: what the last holder stored is in it.
    pub seen: Seen,
}

/// What became of a load under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The entry holds its answer: whoever waits finds it there.
    Stored,
    /// It stored nothing: whoever waits has to load.
    NotStored,
}

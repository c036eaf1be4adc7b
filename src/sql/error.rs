//! What a driver's error means to the caller.

/// Why a statement gave no answer. Callers act on the variant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// The database can't be reached or accepts no statements now. The connection can't be used again.
    #[error("{0}")]
    Unavailable(String),
    /// The database itself cancelled the statement: its statement timeout or a lock.
    #[error("{0}")]
    Timeout(String),
    /// The statement does not fit the database, or the key does not fit the statement.
    #[error("{message}")]
    Invalid {
        /// The database's message, with the SQL state.
        message: String,
        /// The statement may fit after a new description: tables change under a running process.
        stale: bool,
    },
}

impl SqlError {
    /// An error that a new description of the statement would not fix.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), stale: false }
    }

    /// Returns true if the connection is lost.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    /// Returns true if a new description of the statement may help.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        matches!(self, Self::Invalid { stale: true, .. })
    }
}

//! Why there is no connection, in words that are safe to show: no URL, no password, no text that Redis made up.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::cache::CacheError;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Trouble {
    #[error("not connected yet")]
    NotYet,
    #[error("it does not answer in time")]
    Timeout,
    #[error("{0}")]
    Io(String),
    #[error("it does not accept the user or the password")]
    Credentials,
    #[error("it answered {0}")]
    Answered(String),
    #[error("it is a replica; the url must name the primary")]
    Replica,
    #[error("it is not what it was when the connection was made: {0}")]
    Changed(&'static str),
    #[error("its answer to {0} can't be understood")]
    Strange(&'static str),
}

impl From<&RedisError> for Trouble {
    fn from(error: &RedisError) -> Self {
        match error.kind() {
            _ if error.is_timeout() => Self::Timeout,
            ErrorKind::Io => Self::Io(error.to_string()),
            ErrorKind::AuthenticationFailed => Self::Credentials,
            _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) => Self::Credentials,
            _ => Self::Answered(error.code().unwrap_or_else(|| error.category()).to_owned()),
        }
    }
}

/// What a failed command says of the connection it went over.
#[derive(Debug)]
pub(super) enum Failure {
    /// No answer in time: the connection may be hung.
    Timeout,
    /// The connection is of no use any more.
    Lost(Trouble),
    /// Redis is well and did not like the command.
    Refused(String),
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        if error.is_timeout() {
            return Self::Timeout;
        }
        let lost = match error.kind() {
            ErrorKind::Io | ErrorKind::Parse | ErrorKind::AuthenticationFailed => true,
            // It has become a replica, or is starting: another connection may lead to one that answers.
            ErrorKind::Server(kind) => {
                matches!(kind, ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading)
            }
            _ => error.code() == Some("NOAUTH"),
        };
        if lost { Self::Lost(Trouble::from(&error)) } else { Self::Refused(error.to_string()) }
    }
}

impl Failure {
    /// What the caller of the cache is told.
    pub(super) fn into_error(self, timeout: Duration) -> CacheError {
        match self {
            Self::Timeout => CacheError::Timeout(timeout),
            Self::Lost(trouble) => CacheError::Unavailable(trouble.to_string()),
            Self::Refused(why) => CacheError::Refused(why),
        }
    }
}

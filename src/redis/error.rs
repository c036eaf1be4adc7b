//! Why there is no connection, in text that is safe to show: no URL, no password, no text from Redis.

use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::config::RedisFileError;

/// Why a command was not carried out, for its callers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// No answer in time: Redis may have carried it out or not.
    #[error("Redis gave no answer within {0:?}")]
    Timeout(Duration),
    /// Not connected, or the breaker is open.
    #[error("Redis can't be reached: {0}")]
    Unavailable(String),
    /// Redis rejected the command.
    #[error("Redis refused: {0}")]
    Refused(String),
    /// Redis carried it out, but fewer replicas than required have it.
    #[error(transparent)]
    Unreplicated(#[from] Unreplicated),
}

/// A write that the primary has, and fewer replicas than required: a failover could lose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{acked} of the {wanted} replicas that redis.min_replicas_acked asks for have acknowledged it")]
pub struct Unreplicated {
    /// Replicas that have it.
    pub acked: u32,
    /// Replicas that must have it.
    pub wanted: u32,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectError {
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
    #[error("the server changed since the connection was made: {0}")]
    Changed(&'static str),
    #[error("its answer to {0} can't be understood")]
    Strange(&'static str),
    #[error("{0}")]
    Nowhere(&'static str),
    #[error("none of its sentinels answers: {0}")]
    NoSentinel(Box<ConnectError>),
    /// A file of `[redis]` can't be used.
    #[error("{0}")]
    File(String),
    /// The certificate or the handshake.
    #[error("{0}")]
    Tls(String),
    #[error("it answers, but not in TLS: a plain port does so (redis://)")]
    NotTls,
    #[error("it does not answer the TLS handshake: a plain port does so (redis://)")]
    NoHandshake,
    #[error(
        "it closed the connection without an answer: a TLS port does so (rediss://), or a proxy without a server \
         behind it"
    )]
    Unanswered,
    #[error("it answers, but not as Redis does: a TLS port may do so (rediss://)")]
    NotRedis,
    #[error("it closed the connection right after the login: it may be stopping, or a proxy has lost it")]
    Closed,
}

impl ConnectError {
    pub(super) fn of_io(error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::TimedOut { Self::Timeout } else { Self::Io(error.to_string()) }
    }

    pub(super) fn of_files(wrong: &[RedisFileError]) -> Self {
        Self::File(wrong.first().map(ToString::to_string).unwrap_or_default())
    }

    /// Of the commands before the first use of a connection whose login was answered.
    pub(super) fn from_first_commands(error: &RedisError) -> Self {
        match Self::from(error) {
            Self::Io(_) => Self::Closed,
            other => other,
        }
    }

    /// The one of several servers' errors to show. Always the same one, so that it is logged once.
    pub(super) fn of_several(errors: Vec<Self>) -> Option<Self> {
        let rank = |error: &Self| match error {
            Self::Io(_) | Self::Closed | Self::Timeout => 2,
            Self::Answered(_) | Self::Replica | Self::Strange(_) | Self::Nowhere(_) => 1,
            _ => 0,
        };
        errors.into_iter().min_by_key(|error| (rank(error), error.to_string()))
    }
}

impl From<&RedisError> for ConnectError {
    fn from(error: &RedisError) -> Self {
        match error.kind() {
            _ if error.is_timeout() => Self::Timeout,
            ErrorKind::Io => Self::Io(error.to_string()),
            ErrorKind::AuthenticationFailed => Self::Credentials,
            _ => match code(error) {
                Some(code) if ["NOAUTH", "WRONGPASS"].contains(&code.as_str()) => Self::Credentials,
                Some(code) => Self::Answered(code),
                None => Self::Answered(error.category().to_owned()),
            },
        }
    }
}

/// The first word of Redis' answer, such as `READONLY`. For a pipeline, that of the first failed command.
fn code(error: &RedisError) -> Option<String> {
    let errors = error.clone().into_server_errors()?;
    errors.first().map(|(_, error)| error.code().to_owned())
}

/// First words of answers after which the connection can't be used again.
const LOST: [&str; 6] = ["READONLY", "MASTERDOWN", "LOADING", "NOAUTH", "MOVED", "CLUSTERDOWN"];

/// What a failed command says about its connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// No answer in time: the connection may be hung.
    Timeout,
    /// The connection can't be used again.
    Lost(ConnectError),
    /// Redis works and rejected the command.
    Refused(String),
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        if error.is_timeout() {
            return Self::Timeout;
        }
        let lost = match error.kind() {
            ErrorKind::Io | ErrorKind::Parse | ErrorKind::AuthenticationFailed => true,
            // The server became a replica, is starting, requires a password, or its cluster has another owner or none:
            // another connection may reach a server that answers.
            _ => code(&error).is_some_and(|code| LOST.contains(&code.as_str())),
        };
        if lost { Self::Lost(ConnectError::from(&error)) } else { Self::Refused(error.to_string()) }
    }
}

impl Failure {
    /// The error for the caller.
    pub(super) fn into_error(self, timeout: Duration) -> LinkError {
        match self {
            Self::Timeout => LinkError::Timeout(timeout),
            Self::Lost(connect_error) => LinkError::Unavailable(connect_error.to_string()),
            Self::Refused(why) => LinkError::Refused(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: &str) -> RedisError {
        redis::make_extension_error(code.to_owned(), Some("some text".to_owned()))
    }

    #[test]
    fn connection_is_given_up_only_where_another_may_help() {
        for code in LOST {
            assert!(matches!(Failure::from(answered(code)), Failure::Lost(_)), "{code}");
        }
        for code in ["OOM", "WRONGTYPE", "MISCONF", "NOPERM", "ERR", "ASK", "TRYAGAIN"] {
            assert!(matches!(Failure::from(answered(code)), Failure::Refused(_)), "{code}");
        }
        let closed = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(matches!(Failure::from(closed), Failure::Lost(ConnectError::Io(_))));
        let late = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        assert!(matches!(Failure::from(late), Failure::Timeout));
    }

    #[test]
    fn of_several_errors_the_telling_one_is_shown_in_any_order() {
        let refused = || ConnectError::Io("Connection refused".into());
        let expired = || ConnectError::Tls("its certificate has expired".into());
        for errors in [vec![refused(), expired(), ConnectError::Timeout], vec![ConnectError::Timeout, expired()]] {
            assert_eq!(ConnectError::of_several(errors), Some(expired()));
        }
        assert_eq!(ConnectError::of_several(vec![ConnectError::Timeout, refused()]), Some(refused()));
    }

    #[test]
    fn what_redis_wrote_is_not_repeated_in_the_reason() {
        assert_eq!(ConnectError::from(&answered("OOM")).to_string(), "it answered OOM");
        assert_eq!(ConnectError::from(&answered("WRONGPASS")), ConnectError::Credentials);
    }
}

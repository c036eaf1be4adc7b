//! Why a request got no usable answer.

use std::error::Error;

use super::connect::NoAnswer;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Not reachable, or the connection broke before the answer's end.
    #[error("{0}")]
    Unavailable(String),
    /// It answered, but not with usable HTTP.
    #[error("{0}")]
    Invalid(String),
}

impl ClientError {
    /// The connection to `origin` could not be made, or broke.
    pub(super) fn unavailable(origin: &str, error: &(dyn Error + 'static)) -> Self {
        Self::Unavailable(format!("{origin}: {}", with_causes(error)))
    }

    /// A request to `origin` was not answered.
    pub(super) fn without_answer(origin: &str, error: &NoAnswer) -> Self {
        match error {
            NoAnswer::Broke(error) => Self::of(origin, error),
            NoAnswer::Ended => Self::unavailable(origin, error),
        }
    }

    /// An error of hyper on a connection to `origin`.
    pub(super) fn of(origin: &str, error: &hyper::Error) -> Self {
        if error.is_parse() {
            Self::Invalid(format!("{origin}: {}", with_causes(error)))
        } else {
            Self::unavailable(origin, error)
        }
    }
}

/// An error and its causes, each once.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

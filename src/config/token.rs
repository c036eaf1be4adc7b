//! `[[server.tokens]]`

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::SecretText;

/// A file of bearer tokens, and their scopes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenConfig {
    /// A file with one token per line; all are accepted. Required.
    pub file: PathBuf,
    /// `read`, `write` and `admin`, as many as apply. Required.
    pub scopes: Vec<Scope>,
    /// Content of `file`.
    #[serde(skip)]
    pub tokens: Vec<SecretText>,
}

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Lookups and checks.
    Read,
    /// Announces, deletes and invalidations, and lookups that bypass filter and caches.
    Write,
    /// The admin listener.
    Admin,
}

impl Scope {
    /// The spelling in the configuration and in problems.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

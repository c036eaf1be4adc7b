//! `[[server.tokens]]`

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{SecretText, ServerConfig};

/// A file of bearer tokens and what they allow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenConfig {
    /// A file that holds one token a line; each of them is accepted. Required.
    pub file: PathBuf,
    /// `read`, `write` and `admin`, as many as apply. Required.
    pub scopes: Vec<Scope>,
    /// What `file` held when the configuration was loaded.
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
    /// As it is written in a configuration and in problems.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

impl ServerConfig {
    /// Every token with its scopes. `token_file` is one for `read` and `write`, `admin_token_file` one for `admin`.
    pub fn all_tokens(&self) -> impl Iterator<Item = (&SecretText, &[Scope])> {
        let data = self.token.iter().map(|token| (token, &[Scope::Read, Scope::Write][..]));
        let admin = self.admin_token.iter().map(|token| (token, &[Scope::Admin][..]));
        let further = self.tokens.iter().flat_map(|file| file.tokens.iter().map(|token| (token, &file.scopes[..])));
        data.chain(admin).chain(further)
    }

    /// Whether the data listener demands a token: a file names some that read or write.
    #[must_use]
    pub fn data_demands_token(&self) -> bool {
        self.token_file.is_some()
            || self.tokens.iter().any(|file| file.scopes.iter().any(|scope| *scope != Scope::Admin))
    }

    /// Whether the admin listener demands a token instead of a loopback `Host`.
    #[must_use]
    pub fn admin_demands_token(&self) -> bool {
        self.admin_token_file.is_some() || self.tokens.iter().any(|file| file.scopes.contains(&Scope::Admin))
    }

    /// With the tokens of `new`. Whether a listener demands one at all changes with a restart only: a configuration that was judged with its listeners
    /// elsewhere must not open these.
    pub(super) fn with_tokens_of(&self, new: &Self) -> Self {
        let demands = |server: &Self| (server.data_demands_token(), server.admin_demands_token());
        if demands(self) != demands(new) {
            return self.clone();
        }
        Self {
            token_file: new.token_file.clone(),
            token: new.token.clone(),
            admin_token_file: new.admin_token_file.clone(),
            admin_token: new.admin_token.clone(),
            tokens: new.tokens.clone(),
            ..self.clone()
        }
    }
}

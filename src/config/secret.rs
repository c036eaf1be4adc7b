//! URLs that may hold a password, which no log, error or status page shows.

use std::fmt;

use serde::Deserialize;

/// A connection URL. `Debug` and `Display` replace the password.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// Wraps a URL.
    #[must_use]
    pub const fn new(url: String) -> Self {
        Self(url)
    }

    /// The URL with its password, for whoever connects.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// No URL was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The scheme, `postgres` of `postgres://…`; empty where there is none.
    #[must_use]
    pub fn scheme(&self) -> &str {
        self.0.split_once(':').map_or("", |(scheme, _)| scheme)
    }

    /// The URL without its password, and without query values that could be one.
    #[must_use]
    pub fn redacted(&self) -> String {
        let Ok(mut url) = url::Url::parse(&self.0) else {
            return if self.0.contains('@') { "<redacted>".to_owned() } else { self.0.clone() };
        };
        if url.password().is_some() && url.set_password(Some("redacted")).is_err() {
            return "<redacted>".to_owned();
        }
        let secret = |name: &str| name.contains("pass") || name.contains("secret") || name.contains("token");
        if url.query_pairs().any(|(name, _)| secret(&name)) {
            let pairs: Vec<(String, String)> =
                url.query_pairs().map(|(n, v)| (n.to_string(), if secret(&n) { "redacted".to_owned() } else { v.to_string() })).collect();
            url.query_pairs_mut().clear().extend_pairs(pairs);
        }
        url.to_string()
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted())
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted())
    }
}

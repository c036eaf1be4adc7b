//! Text that no log, error or status page may show.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use super::redaction::{REDACTED, is_secret};
use super::url_text::{UrlText, for_driver, redacted_sqlite};

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

    /// The URL with its password, for connecting.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// No URL was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The scheme, `postgres` of `postgres://…`; empty if there is none.
    #[must_use]
    pub fn scheme(&self) -> &str {
        self.0.split_once(':').map_or("", |(scheme, _)| scheme)
    }

    /// The URL as the driver gets it.
    #[must_use]
    pub fn for_driver(&self) -> Cow<'_, str> {
        for_driver(&self.0)
    }

    /// The URL without its password and without parameter values that may be secret. Text that is not a URL is hidden
    /// completely.
    #[must_use]
    pub fn redacted(&self) -> String {
        if self.scheme() == "sqlite" {
            return redacted_sqlite(&self.0);
        }
        UrlText::split(&self.0).map_or_else(|_| format!("<{REDACTED}>"), |url| url.redacted())
    }

    fn is_several_redis(&self) -> bool {
        self.scheme().starts_with("redis+") || self.scheme().starts_with("rediss+")
    }

    /// Identifies the data that a URL leads to, for fingerprints. Excludes the password and includes every other
    /// parameter. Must not be shown.
    #[must_use]
    pub fn identity(&self) -> String {
        if self.scheme() == "sqlite" {
            return self.0.clone();
        }
        let Ok(mut url) = url::Url::parse(&self.0) else {
            return match self.0.rsplit_once('@') {
                None if !is_secret(&self.0) => self.0.clone(),
                // Several hosts, which the parser rejects. No host contains an '@'.
                Some((_, hosts)) if self.is_several_redis() && !is_secret(&self.0) => {
                    format!("{}://{REDACTED}@{hosts}", self.scheme())
                }
                _ => format!("<{REDACTED}>"),
            };
        };
        let stray_at = url.username().is_empty() && url.password().is_none() && self.0.contains('@');
        if stray_at || (url.password().is_some() && url.set_password(Some(REDACTED)).is_err()) {
            return format!("{}:<{REDACTED}>", self.scheme());
        }
        if url.query_pairs().any(|(name, _)| is_secret(&name)) {
            let shown = |name: &str, value: &str| if is_secret(name) { REDACTED.to_owned() } else { value.to_owned() };
            let pairs: Vec<(String, String)> = url.query_pairs().map(|(n, v)| (n.to_string(), shown(&n, &v))).collect();
            url.query_pairs_mut().clear().extend_pairs(pairs);
        }
        url.to_string().replace("%7Bkey%7D", "{key}")
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

/// Serializes the redacted URL.
impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.redacted())
    }
}

/// A token. `Debug` hides it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps a token.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The token, for comparison.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_of_writing_a_password_is_shown() {
        for url in [
            "postgres://u:hunter2@db:5432/app?sslmode=require",
            "postgres://u@db/app?password=hunter2",
            "redis://:hunter2@cache/0",
            "unix:///run/redis.sock?pass=hunter2",
            "postgres://u:x#hunter2@db/app",
            "postgres://u:12#hunter2@db/app",
            "postgres://u:12?hunter2@db/app",
            "postgres://u:12/hunter2@db/app",
            "host=db password=hunter2",
            "u:hunter2@db",
            "http://u:hunter2@api/users/{key}",
            "https://api/users/{key}?api_key=hunter2",
            "https://hunter2@api/users/{key}",
            "https://api/users/{key}?hunter2",
            "https://api/users/{key}?v=hunter2&by={key}#hunter2",
            "postgres://u:hunter2/app",
            "postgres://u:x@hunter2/y@db/app",
            "postgres://u:x@db/app?sslpassword=hunter2",
            "postgres://u:x@db/app?sslkey=hunter2&hunter2",
            "mysql://u:x@db/app?ssl-key=hunter2&hunter2%20=1",
            "redis://hunter2@cache/0",
            "redis+sentinel://u:x@a,b/m?sentinel_password=hunter2",
            "redis+cluster://u:hunter2,b",
            "rediss://app:hunter2@cache/0",
            "rediss+cluster://u:hunter2,b",
            "sqlite:data/x.db?key=hunter2",
            "hunter2",
            "hunter2:x",
            "postgres://u:x\thunter2@db",
        ] {
            let shown = format!("{:?}", SecretUrl::new(url.into()));
            assert!(!shown.contains("hunter2"), "{url} is shown as {shown}");
        }
        assert_eq!(format!("{:?}", SecretText::new("hunter2".into())), "redacted");
    }

    #[test]
    fn what_is_no_secret_is_shown() {
        assert_eq!(SecretUrl::new("postgres://app@db/users".into()).redacted(), "postgres://app@db/users");
        for url in [
            "http://api/users/{key}?by={key}",
            "sqlite:data/demo.db?mode=ro",
            "postgres://app@%2Frun%2Fpostgresql/users?sslmode=disable&application_name=x",
            "redis+cluster://a:1,[::1]:2",
            "unix:///run/redis.sock?db=2",
        ] {
            assert_eq!(SecretUrl::new(url.into()).redacted(), url);
        }
    }
}

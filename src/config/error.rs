//! Configuration errors: key path, rule, offending value.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Write as _};

use toml::Value;

use super::SecretUrl;
use super::redaction::{REDACTED, is_secret};

/// Longer values are truncated: an error is one line.
const SHOWN_CHARS: usize = 80;

/// One error, printed as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The key path, such as `keyspaces.users.filter.false_positive_rate`, or a file name.
    pub path: String,
    /// The rule and the offending value; secrets are redacted.
    pub rule: String,
    /// The environment variable that set the value, if one did.
    pub variable: Option<String>,
}

impl Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.rule)?;
        match &self.variable {
            Some(variable) => write!(f, " (set by {variable})"),
            None => Ok(()),
        }
    }
}

impl ConfigError {
    /// An error of the configuration as a whole.
    #[must_use]
    pub fn general(rule: impl Into<String>) -> Self {
        Self { path: "configuration".into(), rule: rule.into(), variable: None }
    }
}

/// All errors of a configuration; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The errors, ordered by path.
    #[must_use]
    pub fn errors(&self) -> &[ConfigError] {
        &self.0
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(only: ConfigError) -> Self {
        Self(vec![only])
    }
}

impl Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            let line_end = if i == 0 { "" } else { "\n" };
            write!(f, "{line_end}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects errors while a configuration is read and validated.
#[derive(Debug, Default)]
pub(super) struct ErrorCollector {
    found: Vec<(String, String)>,
    /// Paths whose values were removed. What is there now is a default that the user did not write.
    rejected: BTreeSet<String>,
}

impl ErrorCollector {
    /// Adds an error, unless it only follows from a rejected value.
    pub(super) fn add(&mut self, path: impl Into<String>, rule: impl Into<String>) {
        let path = path.into();
        if !self.was_rejected(&path) {
            self.found.push((path, one_line(&rule.into())));
        }
    }

    /// Adds an error whose value is removed, so that errors that follow from it are not reported.
    pub(super) fn reject(&mut self, path: impl Into<String>, rule: impl Into<String>) {
        let path = path.into();
        self.add(path.clone(), rule);
        self.rejected.insert(path);
    }

    /// Whether the value at `path`, or a table around it, was rejected.
    pub(super) fn was_rejected(&self, path: &str) -> bool {
        let parents = path.match_indices(['.', '[']).map(|(end, _)| &path[..end]);
        self.rejected.contains(path) || parents.into_iter().any(|parent| self.rejected.contains(parent))
    }

    /// All errors in order, each with the variable that `variables` names for its path; `None` if there are none.
    pub(super) fn into_errors(self, variables: &BTreeMap<String, String>) -> Option<ConfigErrors> {
        let mut found = self.found;
        found.sort();
        found.dedup();
        let with_variable =
            |(path, rule): (String, String)| ConfigError { variable: variables.get(&path).cloned(), path, rule };
        (!found.is_empty()).then(|| ConfigErrors(found.into_iter().map(with_variable).collect()))
    }
}

/// `a.b."c d"`: quotes segments as TOML does, which also keeps control characters off the terminal.
pub(super) fn key_path<S: AsRef<str>>(segments: impl IntoIterator<Item = S>) -> String {
    let mut path = String::new();
    for segment in segments {
        push_key(&mut path, segment.as_ref());
    }
    path
}

/// Appends a key to a path.
pub(super) fn push_key(path: &mut String, key: &str) {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !path.is_empty() {
        path.push('.');
    }
    if bare {
        path.push_str(key);
    } else if key.contains("://") {
        path.push_str(REDACTED);
    } else {
        // Writing to a String can't fail.
        let _ = write!(path, "{key:?}");
    }
}

/// A value for an error message: short and without passwords.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => shown_text(text),
        Value::Table(_) => "a table".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        other => other.to_string(),
    }
}

/// Text for an error message; see [`shown`].
pub(super) fn shown_text(text: &str) -> String {
    // `password=…` is the connection string syntax of PostgreSQL clients.
    let is_suspect = text.contains("://") || (text.contains('=') && is_secret(text));
    let text = if is_suspect { SecretUrl::new(text.to_owned()).redacted() } else { text.to_owned() };
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn mistakes_below_a_rejected_table_are_not_reported() {
        let mut errors = ErrorCollector::default();
        errors.reject("keyspaces.users.source", "not supported yet");
        errors.add("keyspaces.users.source.query", "is required");
        errors.add("keyspaces.users.sources", "unknown key");
        let errors = errors.into_errors(&BTreeMap::new()).unwrap();
        let paths: Vec<&str> = errors.errors().iter().map(|m| m.path.as_str()).collect();
        assert_eq!(paths, ["keyspaces.users.source", "keyspaces.users.sources"]);
    }

    #[test]
    fn paths_quote_what_is_no_bare_key() {
        assert_eq!(key_path(["keyspaces", "my users", "key"]), "keyspaces.\"my users\".key");
    }

    #[test]
    fn a_password_is_not_shown_whatever_key_holds_it() {
        let text = shown_text("postgres://u:hunter2@db/app");
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("@db/app"), "{text}");
    }
}

//! The files that `[redis]` names: read on every load, to report errors early, and again for each new connection, so
//! that a rotated password or certificate needs no restart.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::shown_text;
use super::files::{read, read_password};
use super::{RedisConfig, SecretText};
use crate::client::{ClientIdentity, IdentityError, Trust};

/// What the files hold at present.
#[derive(Debug, Default)]
pub(crate) struct RedisFiles {
    /// Of `password_file`.
    pub(crate) password: Option<SecretText>,
    /// Of `sentinel_password_file`.
    pub(crate) sentinel_password: Option<SecretText>,
    /// Of `ca_file`; `None`: the system's authorities.
    pub(crate) trust: Option<Trust>,
    /// Of `cert_file` and `key_file`.
    pub(crate) identity: Option<ClientIdentity>,
}

/// A file that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} {rule}")]
pub(crate) struct RedisFileError {
    /// The key that names it.
    pub(crate) key: &'static str,
    /// What it must be, and what it is.
    pub(crate) rule: String,
}

impl RedisConfig {
    /// The files that are set, and their keys.
    pub(crate) fn named_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let files = [
            ("password_file", &self.password_file),
            ("sentinel_password_file", &self.sentinel_password_file),
            ("ca_file", &self.ca_file),
            ("cert_file", &self.cert_file),
            ("key_file", &self.key_file),
        ];
        files.into_iter().filter_map(|(key, file)| Some((key, file.as_deref()?)))
    }

    /// Reads one of them; the error is the rule that it breaks. Blocks.
    pub(crate) fn read_file(key: &str, file: &Path) -> Result<String, String> {
        if key.ends_with("password_file") { read_password(file) } else { read(file) }
    }

    /// Reads all files, and returns what is wrong with each that can't be used. Blocks.
    pub(crate) fn read_files(&self) -> Result<RedisFiles, Vec<RedisFileError>> {
        self.parse_files(self.named_files().map(|(key, file)| (key, Self::read_file(key, file))))
    }

    /// Parses what was read of [`RedisConfig::named_files`].
    pub(crate) fn parse_files(
        &self,
        texts: impl IntoIterator<Item = (&'static str, Result<String, String>)>,
    ) -> Result<RedisFiles, Vec<RedisFileError>> {
        let (mut wrong, mut read) = (Vec::new(), BTreeMap::new());
        for (key, text) in texts {
            match text {
                Ok(text) => drop(read.insert(key, text)),
                Err(rule) => wrong.push(RedisFileError { key, rule }),
            }
        }
        let mut text = |key| read.remove(key);
        let password = text("password_file").map(SecretText::new);
        let sentinel_password = text("sentinel_password_file").map(SecretText::new);
        let authorities = text("ca_file");
        let pair = text("cert_file").zip(text("key_file"));
        let trust = authorities.and_then(|pem| {
            let trust = Trust::from_pem(pem.as_bytes());
            let of = |error| unusable("ca_file", self.ca_file.as_deref(), "PEM certificates", &format!("it {error}"));
            trust.map_err(|error| wrong.push(of(error))).ok()
        });
        let identity = pair.and_then(|(chain, key)| {
            let identity = ClientIdentity::from_pem(chain.as_bytes(), key.as_bytes());
            let of = |error| match error {
                IdentityError::Certificate => {
                    unusable("cert_file", self.cert_file.as_deref(), "PEM certificates", &error.to_string())
                }
                IdentityError::Key | IdentityError::Mismatch => {
                    unusable("key_file", self.key_file.as_deref(), "the private key of cert_file", &error.to_string())
                }
            };
            identity.map_err(|error| wrong.push(of(error))).ok()
        });
        if wrong.is_empty() { Ok(RedisFiles { password, sentinel_password, trust, identity }) } else { Err(wrong) }
    }
}

fn unusable(key: &'static str, file: Option<&Path>, what: &str, why: &str) -> RedisFileError {
    let shown = shown_text(&file.unwrap_or(Path::new("")).display().to_string());
    RedisFileError { key, rule: format!("must be a file of {what}, is {shown}: {why}") }
}

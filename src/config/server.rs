//! `[server]`

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Scope, SecretText, TokenConfig, units};

/// Listeners and limits of the process.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// The data listener, `host:port` or `unix:/path`. Default `127.0.0.1:4040`.
    pub listen: String,
    /// Mode of the data listener's Unix socket, octal. Default `0660`.
    pub unix_mode: String,
    /// The telemetry listener. Default `0.0.0.0:4041`.
    pub telemetry_listen: String,
    /// The admin listener. Default `127.0.0.1:4042`.
    pub admin_listen: String,
    /// Worker threads; 0 = what the cgroup allows, at most 4. Default 0.
    pub workers: usize,
    /// Open connections of the data listener, as far as the open file limit allows. Beyond it the longest-idle
    /// connection is closed. Default 10,000.
    pub max_connections: usize,
    /// Longest key in bytes, after percent-decoding. Default 1024.
    pub max_key_bytes: usize,
    /// Keys per batch, at most. Default 10,000.
    pub max_batch_keys: usize,
    /// Bytes of values in the response to a batch lookup, at most; further keys fail. Default 64 MiB.
    #[serde(with = "units::size")]
    pub max_batch_bytes: u64,
    /// Longest request body in bytes. Default 16 MiB.
    #[serde(with = "units::size")]
    pub max_body_bytes: u64,
    /// Bytes of request bodies, batches and unsent responses together, at most; 0 = a quarter of the memory limit, at
    /// least 64 MiB. Default 0.
    #[serde(with = "units::size")]
    pub max_buffered_bytes: u64,
    /// Announced keys per second and keyspace, at most; a whole batch may come at once. Default 10,000.
    pub max_announces_per_second: u32,
    /// Bytes of one keyspace's announces within their commit window, at most. Default 32 MiB.
    #[serde(with = "units::size")]
    pub max_announce_bytes: u64,
    /// Time for requests in flight after SIGTERM. Default 25 s.
    #[serde(with = "units::duration")]
    pub drain_timeout: Duration,
    /// Time for a client to send a request's headers. Default 10 s.
    #[serde(with = "units::duration")]
    pub header_timeout: Duration,
    /// Time for a client to receive a response. Default 30 s.
    #[serde(with = "units::duration")]
    pub send_timeout: Duration,
    /// Folder of journals and snapshots. Default `data`.
    pub data_dir: PathBuf,
    /// Whether `Cache-Control: no-cache` bypasses filter and caches. Default off.
    pub honor_no_cache: bool,
    /// Whether `Bloomguard-Bypass: 1` may skip filter and caches; otherwise it is rejected with 403. Default on.
    pub allow_bypass: bool,
    /// Host names that data and telemetry listeners on loopback accept in `Host`, besides `localhost` and IP addresses;
    /// and in `Origin` if a request changes something. Default none.
    pub allowed_hosts: Vec<String>,
    /// Whether responses carry `Cache-Status` (RFC 9211). Default on.
    pub cache_status: bool,
    /// Allows a data listener off loopback without a token. Default off.
    pub allow_unauthenticated: bool,
    /// File of bearer tokens, one per line; they read and write. With it the data listener requires a token. Default
    /// none.
    pub token_file: Option<PathBuf>,
    /// File of bearer tokens, one per line. With it the admin listener requires a token instead of a loopback `Host`.
    /// Default none.
    pub admin_token_file: Option<PathBuf>,
    /// `[[server.tokens]]`: further token files, each with the scopes of its tokens. Default none.
    pub tokens: Vec<TokenConfig>,
    /// Content of `token_file`.
    #[serde(skip)]
    pub token: Vec<SecretText>,
    /// Content of `admin_token_file`.
    #[serde(skip)]
    pub admin_token: Vec<SecretText>,
}

/// Smallest default budget of buffered bytes.
const MIN_BUFFERED_BYTES: u64 = 64 << 20;
/// A batch holds its body and its keys, and gets three quarters of the budget. With fewer bodies the longest one would
/// never fit.
const MIN_BUFFERED_BODIES: u64 = 4;

impl ServerConfig {
    /// The smallest and the largest budget of buffered bytes for a process with this much memory. They are equal if the
    /// budget is configured.
    #[must_use]
    pub fn buffered_bytes(&self, memory: Option<u64>) -> (u64, u64) {
        if self.max_buffered_bytes > 0 {
            return (self.max_buffered_bytes, self.max_buffered_bytes);
        }
        let least = MIN_BUFFERED_BYTES.max(self.min_buffered_bytes());
        (least, least.max(memory.unwrap_or(0) / 4))
    }

    /// The budget below which the longest body or the largest batch would never fit. Batches get three quarters of it,
    /// and a lookup needs its body twice plus 1 KiB per key.
    #[must_use]
    pub fn min_buffered_bytes(&self) -> u64 {
        let batch =
            (self.max_batch_keys as u64).saturating_mul(1024).saturating_add(self.max_body_bytes.saturating_mul(2));
        self.max_body_bytes.saturating_mul(MIN_BUFFERED_BODIES).max((batch / 3).saturating_mul(4))
    }

    /// The bits of `unix_mode`; `None` if it is not 3 or 4 octal digits, which validation rejects.
    #[must_use]
    pub fn socket_mode(&self) -> Option<u32> {
        let digits = &self.unix_mode;
        let mode = u32::from_str_radix(digits, 8).ok()?;
        ((3..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit()) && mode <= 0o777).then_some(mode)
    }
}

impl ServerConfig {
    /// Every token with its scopes. `token_file` has `read` and `write`, `admin_token_file` has `admin`.
    pub fn all_tokens(&self) -> impl Iterator<Item = (&SecretText, &[Scope])> {
        let data = self.token.iter().map(|token| (token, &[Scope::Read, Scope::Write][..]));
        let admin = self.admin_token.iter().map(|token| (token, &[Scope::Admin][..]));
        let further = self.tokens.iter().flat_map(|file| file.tokens.iter().map(|token| (token, &file.scopes[..])));
        data.chain(admin).chain(further)
    }

    /// Whether the data listener requires a token: some file has tokens that read or write.
    #[must_use]
    pub fn data_requires_token(&self) -> bool {
        self.token_file.is_some()
            || self.tokens.iter().any(|file| file.scopes.iter().any(|scope| *scope != Scope::Admin))
    }

    /// Whether the admin listener requires a token instead of a loopback `Host`.
    #[must_use]
    pub fn admin_requires_token(&self) -> bool {
        self.admin_token_file.is_some() || self.tokens.iter().any(|file| file.scopes.contains(&Scope::Admin))
    }

    /// This configuration with the tokens of `new`. Only a restart changes whether a listener requires a token: a
    /// configuration that was validated with other listeners must not open these.
    pub(super) fn with_tokens_of(&self, new: &Self) -> Self {
        let demands = |server: &Self| (server.data_requires_token(), server.admin_requires_token());
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

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:4040".into(),
            unix_mode: "0660".into(),
            telemetry_listen: "0.0.0.0:4041".into(),
            admin_listen: "127.0.0.1:4042".into(),
            workers: 0,
            max_connections: 10_000,
            max_key_bytes: 1024,
            max_batch_keys: 10_000,
            max_batch_bytes: 64 << 20,
            max_body_bytes: 16 << 20,
            max_buffered_bytes: 0,
            max_announces_per_second: 10_000,
            max_announce_bytes: 32 << 20,
            drain_timeout: Duration::from_secs(25),
            header_timeout: Duration::from_secs(10),
            send_timeout: Duration::from_secs(30),
            data_dir: "data".into(),
            honor_no_cache: false,
            allow_bypass: true,
            allowed_hosts: vec![],
            cache_status: true,
            allow_unauthenticated: false,
            token_file: None,
            admin_token_file: None,
            tokens: vec![],
            token: vec![],
            admin_token: vec![],
        }
    }
}

//! Keys that Redis holds: [`RedisSource`].

mod server;

use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use redis::{AsyncConnectionConfig, Cmd, ConnectionInfo, ErrorKind, FromRedisValue, RedisError};

use self::server::Server;
use super::batch::Batcher;
use super::{KeyBatches, KeySource, SourceError};
use crate::config::{RedisConfig, RedisPlace, SourceConfig};
use crate::key::KeyForm;
use crate::redis::{ConnectError, Connection, Dialer, ServerKind};

/// How long connecting, the TLS handshake and the login may each take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one answer may take. A page of a scan is small; a busy server may delay it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Keys that Redis examines for one page: enough to make round trips cheap, and few enough not to delay its other
/// clients.
const PAGE: u32 = 1000;
/// A set that loses more than this share of its members during a scan counts as emptied and filled again.
const LARGEST_LOSS: u64 = 10;

/// Reads keys from Redis: the names of its keys that match a pattern (`SCAN`), or the members of one set (`SSCAN`).
///
/// A scan uses one connection of its own: any loss of it fails the scan. Redis lists every element that exists from the
/// scan's start to its end, some of them more than once. That holds for one dataset, so the scan also fails if the
/// server at its end is another one, or a replica. A set that is emptied and filled again meanwhile would end the scan
/// early or hide members that are not back yet: so members are counted with each page.
#[derive(Debug)]
pub struct RedisSource {
    place: ConnectionInfo,
    dialer: Dialer,
    /// Where it connects, without the password.
    target: String,
    keys: ScanTarget,
    /// What the last scan found that endangers the key set.
    warning: Mutex<Option<String>>,
}

#[derive(Debug)]
enum ScanTarget {
    /// Names that match `pattern`, without the `prefix`.
    Names { pattern: String, prefix: String },
    /// Members of the set of this name.
    Members { set: String },
}

/// One step of a scan.
struct ScanPage {
    /// The next cursor; 0 at the end.
    next: u64,
    found: Vec<Vec<u8>>,
    /// How many members the set had after it.
    members: u64,
}

impl RedisSource {
    /// Reads the configuration and connects to nothing. `shared` is `[redis]`: a source without a URL of its own, or
    /// with the same one, connects as it says.
    ///
    /// # Errors
    /// [`SourceError::Invalid`] if the URL can never be used.
    pub fn new(config: &SourceConfig, shared: Option<&RedisConfig>) -> Result<Self, SourceError> {
        let own = || RedisConfig { url: config.url.clone(), ca_file: config.ca_file.clone(), ..RedisConfig::default() };
        let shared = shared.filter(|shared| config.url.is_empty() || config.url == shared.url);
        let server = shared.cloned().unwrap_or_else(own);
        let target = server.url.redacted();
        let Ok(RedisPlace::Server(place)) = RedisPlace::parse(&server.url) else {
            return Err(SourceError::Invalid(format!("{target} is not a Redis URL that can be used")));
        };
        let settings = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_TIMEOUT));
        let dialer = Dialer::new(&server, CONNECT_TIMEOUT, settings);
        let keys = match &config.pattern {
            Some(pattern) => ScanTarget::Names { pattern: pattern.clone(), prefix: config.strip_prefix.clone() },
            None => ScanTarget::Members { set: config.set.clone().unwrap_or_default() },
        };
        Ok(Self { place, dialer, target, keys, warning: Mutex::default() })
    }

    async fn connect(&self) -> Result<Connection, SourceError> {
        self.dialer.dial(&self.place, ServerKind::Redis).await.map_err(|error| {
            let text = format!("{}: {error}", self.target);
            match error {
                ConnectError::Answered(_) => SourceError::Invalid(text),
                _ => SourceError::Unavailable(text),
            }
        })
    }

    async fn ask<T: FromRedisValue>(&self, connection: &mut Connection, command: &Cmd) -> Result<T, SourceError> {
        command.query_async(connection).await.map_err(|error| self.failed(&error))
    }

    async fn server(&self, connection: &mut Connection) -> Result<Server, SourceError> {
        let info: String = self.ask(connection, redis::cmd("INFO").arg("default")).await?;
        let server = Server::read(&info)
            .ok_or_else(|| SourceError::Invalid(format!("{}: its answer to INFO can't be understood", self.target)))?;
        match self.keys {
            _ if !server.is_primary => {
                Err(SourceError::Invalid(format!("{} is a replica; the url must name the primary", self.target)))
            }
            ScanTarget::Names { .. } if server.is_clustered => Err(SourceError::Invalid(format!(
                "{} is part of a cluster, and a pattern finds only the keys of one node",
                self.target
            ))),
            _ => Ok(server),
        }
    }

    /// Returns true if the set has an expiry.
    async fn expires(&self, connection: &mut Connection) -> Result<bool, SourceError> {
        match &self.keys {
            ScanTarget::Names { .. } => Ok(false),
            ScanTarget::Members { set } => Ok(self.ask::<i64>(connection, redis::cmd("PTTL").arg(set)).await? >= 0),
        }
    }

    async fn read_pages(&self, connection: &mut Connection, batcher: &mut Batcher) -> Result<(), SourceError> {
        let mut cursor = 0_u64;
        let mut most_members = self.members(connection).await?;
        loop {
            let page = tokio::select! {
                biased;
                page = self.page(connection, cursor) => page?,
                () = batcher.closed() => return Err(SourceError::Cancelled),
            };
            most_members = most_members.max(page.members);
            // A single page has seen the set at one moment.
            let is_only = cursor == 0 && page.next == 0;
            if !is_only && page.members < most_members - most_members / LARGEST_LOSS {
                return Err(self.lost_members(most_members, page.members));
            }
            for name in page.found {
                self.keys.push(&name, batcher).await?;
            }
            if page.next == 0 {
                return Ok(());
            }
            cursor = page.next;
        }
    }

    async fn page(&self, connection: &mut Connection, cursor: u64) -> Result<ScanPage, SourceError> {
        let command = self.keys.page(cursor);
        let ((next, found), members) = match &self.keys {
            ScanTarget::Names { .. } => (self.ask(connection, &command).await?, 0),
            ScanTarget::Members { set } => {
                // Counted behind the page: to SSCAN, a deleted set has simply ended.
                let mut both = redis::pipe();
                both.add_command(command).cmd("SCARD").arg(set);
                both.query_async(connection).await.map_err(|error| self.failed(&error))?
            }
        };
        Ok(ScanPage { next, found, members })
    }

    /// Members of the set; 0 when names are read.
    async fn members(&self, connection: &mut Connection) -> Result<u64, SourceError> {
        match &self.keys {
            ScanTarget::Names { .. } => Ok(0),
            ScanTarget::Members { set } => self.ask(connection, redis::cmd("SCARD").arg(set)).await,
        }
    }

    fn lost_members(&self, most: u64, left: u64) -> SourceError {
        let target = &self.target;
        SourceError::Invalid(format!(
            "{target}: the set had {most} members and then {left} while it was read; fill a new set under another \
             name and RENAME it over this one"
        ))
    }

    /// Shows no password: the driver's message has only addresses and Redis' own answers.
    fn failed(&self, error: &RedisError) -> SourceError {
        let passing = error.is_timeout()
            || matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse | ErrorKind::AuthenticationFailed);
        let code = error.code().unwrap_or_default();
        let text = format!("{}: {error}", self.target);
        if passing || ["LOADING", "MASTERDOWN", "BUSY", "NOAUTH", "WRONGPASS"].contains(&code) {
            SourceError::Unavailable(text)
        } else {
            SourceError::Invalid(text)
        }
    }
}

#[async_trait]
impl KeySource for RedisSource {
    async fn key_form(&self) -> Result<Option<KeyForm>, SourceError> {
        Ok(None)
    }

    /// Members of the set. Only a scan can tell how many names match a pattern.
    async fn count(&self) -> Result<Option<u64>, SourceError> {
        match &self.keys {
            ScanTarget::Names { .. } => Ok(None),
            ScanTarget::Members { .. } => {
                let mut connection = self.connect().await?;
                self.members(&mut connection).await.map(Some)
            }
        }
    }

    async fn scan(&self, form: KeyForm, batches: KeyBatches) -> Result<u64, SourceError> {
        let mut batcher = Batcher::new(form, batches);
        let mut connection = self.connect().await?;
        let before = self.server(&mut connection).await?;
        let expires = self.expires(&mut connection).await?;
        self.read_pages(&mut connection, &mut batcher).await?;
        let after = self.server(&mut connection).await?;
        if after.dataset != before.dataset {
            return Err(SourceError::Unavailable(format!(
                "{}: another server answered at the end of the scan",
                self.target
            )));
        }
        *self.warning.lock() = after.warning(expires);
        batcher.finish().await
    }

    fn warning(&self) -> Option<String> {
        self.warning.lock().clone()
    }
}

impl ScanTarget {
    fn page(&self, cursor: u64) -> Cmd {
        let mut command = match self {
            Self::Names { .. } => redis::cmd("SCAN"),
            Self::Members { .. } => redis::cmd("SSCAN"),
        };
        match self {
            Self::Names { pattern, .. } => command.arg(cursor).arg("MATCH").arg(pattern),
            Self::Members { set } => command.arg(set).arg(cursor),
        };
        command.arg("COUNT").arg(PAGE);
        command
    }

    /// Adds the key of `name`. Errors name the key, because Redis lists keys in no order.
    async fn push(&self, name: &[u8], batcher: &mut Batcher) -> Result<(), SourceError> {
        batcher.begin_row();
        let of_no_use = |why: &dyn std::fmt::Display| {
            SourceError::Invalid(format!("the element \"{}\": {why}", name.escape_ascii()))
        };
        let raw = match self {
            Self::Names { prefix, .. } => name
                .strip_prefix(prefix.as_bytes())
                .ok_or_else(|| of_no_use(&format!("it does not begin with {prefix:?}")))?,
            Self::Members { .. } => name,
        };
        match batcher.push(raw).await {
            Err(SourceError::Key { error, .. }) => Err(of_no_use(&error)),
            other => other,
        }
    }
}

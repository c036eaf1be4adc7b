//! [`Connection`]: one connection to one server, and [`Dialer`], which makes them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_ok;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, Pipeline, RedisConnectionInfo, RedisError,
    RedisFuture, RedisResult, Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::task::AbortOnDropHandle;

use super::error::ConnectError;
use super::files;
use super::tls::Tls;
use crate::config::{RedisConfig, RedisPlace};

/// A connection. Its task ends with its last clone, even if the server hangs.
#[derive(Clone)]
pub(crate) struct Connection {
    commands: MultiplexedConnection,
    _task: Arc<AbortOnDropHandle<()>>,
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        self.commands.req_packed_command(cmd)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.commands.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.commands.get_db()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// What a connection leads to, which selects its password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerKind {
    Redis,
    Sentinel,
}

/// Opens connections as `[redis]` says.
///
/// Each attempt resolves the name and reads the files again: a failover may move the name to another server, and
/// passwords and certificates are rotated.
#[derive(Debug)]
pub(crate) struct Dialer {
    config: Arc<RedisConfig>,
    /// Time limit of each phase: reading a file, connecting, the TLS handshake, the login.
    phase: Duration,
    settings: AsyncConnectionConfig,
}

impl Dialer {
    /// `settings` apply to the connection once it is made.
    pub(crate) fn new(config: &RedisConfig, phase: Duration, settings: AsyncConnectionConfig) -> Self {
        Self { config: Arc::new(config.clone()), phase, settings }
    }

    /// Connects and logs in.
    pub(crate) async fn dial(&self, to: &ConnectionInfo, kind: ServerKind) -> Result<Connection, ConnectError> {
        let (host, port) = match to.addr() {
            ConnectionAddr::Tcp(host, port) => (host, *port),
            ConnectionAddr::Unix(path) => {
                let login = self.prepare(to, kind, None).await?.0;
                let stream = self.in_time(UnixStream::connect(path)).await?.map_err(|e| ConnectError::of_io(&e))?;
                return self.log_in(&login, stream).await?.map_err(|error| ConnectError::from(&error));
            }
            _ => return Err(ConnectError::Nowhere("its address is of a kind that is not supported")),
        };
        let secure = RedisPlace::is_secure(&self.config.url).then_some(host.as_str());
        let (login, tls) = self.prepare(to, kind, secure).await?;
        let stream = self.in_time(connect_tcp(host, port)).await?.map_err(|e| ConnectError::of_io(&e))?;
        let Some(tls) = tls else {
            return self.log_in(&login, stream).await?.map_err(|error| of_plain(&error));
        };
        let handshake = tokio::time::timeout(self.phase, tls.handshake(stream)).await;
        let (stream, fault) = handshake.unwrap_or(Err(ConnectError::NoHandshake))?;
        self.log_in(&login, stream).await?.map_err(|error| match ConnectError::from(&error) {
            ConnectError::Io(_) => tls.explain_silence(fault.get()),
            other => other,
        })
    }

    /// Reads the files. `secure`: the host, if the connection uses TLS.
    async fn prepare(
        &self,
        to: &ConnectionInfo,
        kind: ServerKind,
        secure: Option<&str>,
    ) -> Result<(RedisConnectionInfo, Option<Tls>), ConnectError> {
        let login = to.redis_settings().clone();
        if secure.is_none() && self.config.named_files().next().is_none() {
            return Ok((login, None));
        }
        let (files, tls) = files::read(&self.config, secure.map(str::to_owned), self.phase).await?;
        let password = match kind {
            ServerKind::Redis => &files.password,
            ServerKind::Sentinel => &files.sentinel_password,
        };
        let login = match password {
            Some(password) => login.set_password(password.expose()),
            None => login,
        };
        Ok((login, tls))
    }

    async fn log_in(
        &self,
        login: &RedisConnectionInfo,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<RedisResult<Connection>, ConnectError> {
        let made = self.in_time(MultiplexedConnection::new_with_config(login, stream, self.settings.clone())).await?;
        Ok(made.map(|(commands, driver)| {
            let task = AbortOnDropHandle::new(tokio::spawn(driver));
            Connection { commands, _task: Arc::new(task) }
        }))
    }

    async fn in_time<T>(&self, phase: impl Future<Output = T>) -> Result<T, ConnectError> {
        tokio::time::timeout(self.phase, phase).await.map_err(|_| ConnectError::Timeout)
    }
}

/// Resolves the name, and takes the first of its addresses that answers.
async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "its name has no address"));
    }
    let (stream, _) = select_ok(addresses.into_iter().map(|address| TcpStream::connect(address).boxed())).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A TLS port drops a client that does not speak TLS, or answers with an alert.
fn of_plain(error: &RedisError) -> ConnectError {
    match error.kind() {
        ErrorKind::Io if !error.is_timeout() => ConnectError::Unanswered,
        ErrorKind::Parse => ConnectError::NotRedis,
        _ => ConnectError::from(error),
    }
}

//! [`Call`]: one command, and the scripts that are commands of ours.

use std::sync::Arc;

use redis::{Cmd, FromRedisValue, RedisResult, ScriptInvocation};

use super::connection::Connection;
use super::error::{ConnectError, LinkError};
use super::identity::LogIdentity;
use super::link::LinkState;
use super::session::{self, ServerInfo, Session};
use crate::clock::Moment;

/// One command over the session that was active when it began.
pub(crate) struct Call<'a> {
    link: &'a LinkState,
    session: Arc<Session>,
}

impl<'a> Call<'a> {
    pub(super) const fn new(link: &'a LinkState, session: Arc<Session>) -> Self {
        Self { link, session }
    }
}

impl Call<'_> {
    /// Number of its connection.
    pub(crate) fn epoch(&self) -> u64 {
        self.session.epoch
    }

    /// The log that the server holds.
    pub(crate) fn log_identity(&self) -> LogIdentity {
        self.session.server.identity
    }

    /// Name of the key that holds the log's identity.
    pub(crate) fn log_name(&self) -> &str {
        &self.session.server.log
    }

    /// The server's time, Unix milliseconds.
    pub(crate) fn server_millis(&self) -> u64 {
        self.session.clock.now()
    }

    /// The latest time that the server may have had at this moment of ours.
    pub(crate) fn server_millis_at_most(&self, moment: Moment) -> u64 {
        self.session.clock.at_most(moment)
    }

    pub(crate) async fn script<T: FromRedisValue>(&self, invocation: &ScriptInvocation<'_>) -> Result<T, LinkError> {
        self.report(invocation.invoke_async(&mut self.connection()).await)
    }

    pub(crate) fn server(&self) -> &ServerInfo {
        &self.session.server
    }

    pub(crate) async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, LinkError> {
        self.report(command.query_async(&mut self.connection()).await)
    }

    pub(crate) async fn pipeline<T: FromRedisValue>(&self, commands: &redis::Pipeline) -> Result<T, LinkError> {
        self.report(commands.query_async(&mut self.connection()).await)
    }

    pub(super) async fn get_or_set<T: FromRedisValue>(&self, name: &str, fresh: &[u8]) -> Result<T, LinkError> {
        self.report(session::get_or_set(&mut self.connection(), name, fresh).await)
    }

    /// Stores `entry` under `name` for `millis` if the stored entry begins with `head`, or, if that is shorter than
    /// `len`, equals `head`. Rejected under another log than this connection's: a wipe removes marks, and this
    /// connection does not notice it at once.
    pub(crate) async fn compare_and_set(
        &self,
        name: &[u8],
        head: &[u8],
        len: usize,
        entry: &[u8],
        millis: u64,
    ) -> Result<bool, LinkError> {
        let mut script = self.link.opener.compare_and_set.key(name);
        script.key(self.log_name()).arg(head).arg(entry).arg(millis).arg(len).arg(self.log_identity().to_string());
        self.report(script.invoke_async(&mut self.connection()).await)
    }

    /// Stores `entry` under `name` for `millis` if nothing is stored there and the server's clock is not past `latest`:
    /// an old connection may still deliver what was sent over it. Rejected under another log, as in
    /// [`Call::compare_and_set`].
    pub(crate) async fn set_in_time(
        &self,
        name: &[u8],
        entry: &[u8],
        millis: u64,
        latest: u64,
    ) -> Result<bool, LinkError> {
        let mut script = self.link.opener.set_in_time.key(name);
        script.key(self.log_name()).arg(entry).arg(millis).arg(latest).arg(self.log_identity().to_string());
        self.report(script.invoke_async(&mut self.connection()).await)
    }

    /// Sets a mark over each entry that is an absence, or no value, in one step. Returns how many it set.
    pub(crate) async fn mark_over(
        &self,
        marks: impl Iterator<Item = (Vec<u8>, [u8; 48])>,
        all_but_values: bool,
        millis: u64,
    ) -> Result<u64, LinkError> {
        let mut script = self.link.opener.mark_over.prepare_invoke();
        script.arg(millis).arg(u8::from(all_but_values));
        for (name, mark) in marks {
            script.key(name).arg(&mark[..]);
        }
        self.report(script.invoke_async(&mut self.connection()).await)
    }

    /// Releases the lease `name` if `token` still holds it. `note` replaces it for `millis`; an empty note leaves
    /// nothing.
    pub(crate) async fn release(&self, name: &[u8], token: &[u8], note: &[u8], millis: u64) -> Result<(), LinkError> {
        let mut script = self.link.opener.release.key(name);
        script.arg(token).arg(note).arg(millis);
        self.report(script.invoke_async(&mut self.connection()).await)
    }

    /// The server has said that it holds another log than this connection's.
    pub(crate) fn lose_log(&self) {
        self.link.lose(&self.session, ConnectError::Changed("its log identity is gone, as after a wipe or a failover"));
    }

    fn connection(&self) -> Connection {
        self.session.connection.clone()
    }

    fn report<T>(&self, result: RedisResult<T>) -> Result<T, LinkError> {
        self.link.report(&self.session, result).map_err(|failure| failure.into_error(self.link.timeout))
    }
}

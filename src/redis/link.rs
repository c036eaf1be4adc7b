//! [`RedisLink`]: the process's one connection to Redis, made anew in the background whenever it is lost.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisResult, ScriptInvocation};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::identity::LogIdentity;
use super::names::Names;
use super::session::{self, Facts, Opened, Opener, Session};
use super::trouble::{Failure, LinkError, Trouble};
use crate::breaker::{Breaker, BreakerPolicy, Permit};
use crate::clock::Moment;
use crate::config::RedisConfig;
use crate::key::KeySecret;
use crate::labels::BreakerState;

/// Five commands in a row without an answer are no accident.
const BREAKER: BreakerPolicy =
    BreakerPolicy { failures: 5, first_pause: Duration::from_millis(50), longest_pause: Duration::from_secs(2) };
/// How often the connection is looked at, so that an idle process notices a loss, a failover or a wipe, and says so.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The process's one connection to Redis, shared by its keyspaces; in a cluster one a keyspace, to the node that has all of it.
///
/// A command never waits for a connection: while there is none it fails at once. A background task connects, with growing pauses,
/// and ends with the link. There is a connection only while the breaker is closed: what opens the breaker drops the connection, and
/// the breaker's trial is the connecting itself, with all that is asked over a new connection before its first use.
pub struct RedisLink {
    shared: Arc<Shared>,
    keeper: AbortHandle,
}

struct Shared {
    opener: Opener,
    timeout: Duration,
    breaker: Breaker,
    session: ArcSwapOption<Session>,
    /// Why there is no session, where there is none.
    trouble: ArcSwap<Trouble>,
    /// Number of the latest session; 0 before the first.
    epochs: watch::Sender<u64>,
    /// Wakes the keeper when a session was dropped.
    lost: Notify,
}

impl RedisLink {
    /// Starts to connect in the background and returns at once, whether or not Redis is there. `on_breaker` hears of every change of
    /// the breaker's state; it must not block.
    ///
    /// Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// [`LinkError::Refused`] where the URL is none that can be connected to, which no waiting would mend.
    pub fn connect(
        config: &RedisConfig,
        on_breaker: impl Fn(BreakerState) + Send + Sync + 'static,
    ) -> Result<Arc<Self>, LinkError> {
        Self::start(config, None, on_breaker)
    }

    /// As [`RedisLink::connect`], for one keyspace only, which a cluster demands.
    ///
    /// # Errors
    /// As [`RedisLink::connect`].
    pub fn connect_keyspace(
        config: &RedisConfig,
        keyspace: &str,
        on_breaker: impl Fn(BreakerState) + Send + Sync + 'static,
    ) -> Result<Arc<Self>, LinkError> {
        Self::start(config, Some(keyspace), on_breaker)
    }

    fn start(
        config: &RedisConfig,
        keyspace: Option<&str>,
        on_breaker: impl Fn(BreakerState) + Send + Sync + 'static,
    ) -> Result<Arc<Self>, LinkError> {
        let opener = Opener::new(config, keyspace).map_err(|why| {
            LinkError::Refused(format!(
                "redis.url = {} is not a Redis URL that can be used: {why}",
                config.url.redacted()
            ))
        })?;
        let shared = Arc::new(Shared {
            opener,
            timeout: config.timeout,
            breaker: Breaker::new(BREAKER, on_breaker),
            session: ArcSwapOption::empty(),
            trouble: ArcSwap::from_pointee(Trouble::NotYet),
            epochs: watch::Sender::new(0),
            lost: Notify::new(),
        });
        let keeper = tokio::spawn(keep(Arc::clone(&shared))).abort_handle();
        Ok(Arc::new(Self { shared, keeper }))
    }

    /// The hash secret of a keyspace, the same for all instances: `proposal` where there is none yet.
    ///
    /// # Errors
    /// [`LinkError`]; `Refused` where what is stored is no secret.
    pub async fn secret(&self, keyspace: &str, proposal: &KeySecret) -> Result<KeySecret, LinkError> {
        let name = self.shared.opener.names.secret(keyspace);
        let stored: Vec<u8> = self.call()?.get_or_set(&name, proposal.as_bytes()).await?;
        let bytes = stored.try_into().map_err(|other: Vec<u8>| {
            LinkError::Refused(format!("{name} holds {} bytes where a secret has {}", other.len(), KeySecret::LEN))
        })?;
        Ok(KeySecret::new(bytes))
    }

    /// Waits until there is a connection, at most `within`; says whether there is.
    pub async fn wait_connected(&self, within: Duration) -> bool {
        let mut epochs = self.epochs();
        let connected = async {
            while self.shared.session.load().is_none() {
                if epochs.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(within, connected).await.is_ok()
    }

    /// Number of the latest connection, 0 before the first: changes each time one was made.
    #[must_use]
    pub fn epochs(&self) -> watch::Receiver<u64> {
        self.shared.epochs.subscribe()
    }

    /// Begins a command, or says at once that there is no connection.
    pub(crate) fn call(&self) -> Result<Call<'_>, LinkError> {
        let session = self.shared.session.load_full().ok_or_else(|| LinkError::Unavailable(self.trouble()))?;
        Ok(Call { shared: &self.shared, session })
    }

    /// What is known of the connection; `Err` says why there is none.
    pub(crate) fn facts(&self) -> Result<Facts, String> {
        self.shared.session.load().as_ref().map(|session| session.facts.clone()).ok_or_else(|| self.trouble())
    }

    pub(crate) fn names(&self) -> &Names {
        &self.shared.opener.names
    }

    /// Names of a keyspace's delta log, of its floor, of what the fleet is told to enforce, and of the register of instances.
    pub(crate) fn log_names(&self, keyspace: &str) -> [String; 4] {
        let names = &self.shared.opener.names;
        [names.deltas(keyspace), names.floor(keyspace), names.enforcement(keyspace), names.instances(keyspace)]
    }

    fn trouble(&self) -> String {
        self.shared.trouble.load().to_string()
    }
}

impl Drop for RedisLink {
    fn drop(&mut self) {
        // The connection goes with the task, which holds the last reference.
        self.keeper.abort();
    }
}

impl fmt::Debug for RedisLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLink")
            .field("breaker", &self.shared.breaker)
            .field("trouble", &self.shared.trouble)
            .finish_non_exhaustive()
    }
}

/// One command over the session that was there when it began.
pub(crate) struct Call<'a> {
    shared: &'a Shared,
    session: Arc<Session>,
}

impl Call<'_> {
    /// Number of the connection it goes over.
    pub(crate) fn epoch(&self) -> u64 {
        self.session.epoch
    }

    /// Which log the server holds.
    pub(crate) fn log_identity(&self) -> LogIdentity {
        self.session.facts.identity
    }

    /// Name of the key that holds the log's identity.
    pub(crate) fn log_name(&self) -> &str {
        &self.session.facts.log
    }

    /// What time it is at the server, Unix milliseconds.
    pub(crate) fn server_millis(&self) -> u64 {
        self.session.clock.now()
    }

    /// The latest that it may have been at the server at this moment of ours.
    pub(crate) fn server_millis_at_most(&self, moment: Moment) -> u64 {
        self.session.clock.at_most(moment)
    }

    pub(crate) async fn script<T: FromRedisValue>(&self, invocation: &ScriptInvocation<'_>) -> Result<T, LinkError> {
        self.report(invocation.invoke_async(&mut self.connection()).await)
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.session.facts
    }

    pub(crate) async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, LinkError> {
        self.report(command.query_async(&mut self.connection()).await)
    }

    pub(crate) async fn pipeline<T: FromRedisValue>(&self, commands: &redis::Pipeline) -> Result<T, LinkError> {
        self.report(commands.query_async(&mut self.connection()).await)
    }

    async fn get_or_set<T: FromRedisValue>(&self, name: &str, fresh: &[u8]) -> Result<T, LinkError> {
        self.report(session::get_or_set(&mut self.connection(), name, fresh).await)
    }

    /// Stores `entry` under `name` for `millis` if what is there begins with `head`, or, where that is shorter than `len`, is `head`. Refused under
    /// another log than this session's: a wipe takes marks, and this connection does not notice it at once.
    pub(crate) async fn compare_and_set(
        &self,
        name: &[u8],
        head: &[u8],
        len: usize,
        entry: &[u8],
        millis: u64,
    ) -> Result<bool, LinkError> {
        let mut script = self.shared.opener.compare_and_set.key(name);
        script.key(self.log_name()).arg(head).arg(entry).arg(millis).arg(len).arg(self.log_identity().to_string());
        self.report(script.invoke_async(&mut self.connection()).await)
    }

    /// Stores `entry` under `name` for `millis` if there is nothing, and by the server's clock it is no later than `latest`: a connection that was
    /// given up long ago may still deliver what was sent over it. Refused under another log, as [`Call::compare_and_set`].
    pub(crate) async fn set_in_time(
        &self,
        name: &[u8],
        entry: &[u8],
        millis: u64,
        latest: u64,
    ) -> Result<bool, LinkError> {
        let mut script = self.shared.opener.set_in_time.key(name);
        script.key(self.log_name()).arg(entry).arg(millis).arg(latest).arg(self.log_identity().to_string());
        self.report(script.invoke_async(&mut self.connection()).await)
    }

    /// Sets a mark over each entry that is an absence, or that is no value, in one step; returns how many.
    pub(crate) async fn mark_over(
        &self,
        marks: impl Iterator<Item = (Vec<u8>, [u8; 48])>,
        all_but_values: bool,
        millis: u64,
    ) -> Result<u64, LinkError> {
        let mut script = self.shared.opener.mark_over.prepare_invoke();
        script.arg(millis).arg(u8::from(all_but_values));
        for (name, mark) in marks {
            script.key(name).arg(&mark[..]);
        }
        self.report(script.invoke_async(&mut self.connection()).await)
    }

    /// Gives the lease `name` back if `token` still holds it; `note` takes its place for `millis`, an empty one leaves nothing.
    pub(crate) async fn release(&self, name: &[u8], token: &[u8], note: &[u8], millis: u64) -> Result<(), LinkError> {
        let mut script = self.shared.opener.release.key(name);
        script.arg(token).arg(note).arg(millis);
        self.report(script.invoke_async(&mut self.connection()).await)
    }

    fn connection(&self) -> MultiplexedConnection {
        self.session.connection.clone()
    }

    fn report<T>(&self, result: RedisResult<T>) -> Result<T, LinkError> {
        self.shared.report(&self.session, result).map_err(|failure| failure.into_error(self.shared.timeout))
    }
}

impl Shared {
    /// Tells the breaker how a command went, and drops the session where that opened it.
    fn report<T>(&self, session: &Session, result: RedisResult<T>) -> Result<T, Failure> {
        let failure = match result {
            Ok(answer) => {
                self.breaker.succeed(session.permit);
                return Ok(answer);
            }
            Err(error) => Failure::from(error),
        };
        match &failure {
            Failure::Timeout if self.breaker.fail(session.permit, Instant::now()) => {
                self.drop_session(Trouble::Timeout)
            }
            Failure::Lost(trouble) => self.lose(session, trouble.clone()),
            Failure::Refused(_) => {
                self.breaker.succeed(session.permit);
            }
            Failure::Timeout => {}
        }
        Err(failure)
    }

    fn lose(&self, session: &Session, trouble: Trouble) {
        if self.breaker.trip(session.permit, Instant::now()) {
            self.drop_session(trouble);
        }
    }

    /// Only for whoever opened the breaker. The session in place is then the one that was reported on: the keeper puts a new one in
    /// place only after it has seen none.
    fn drop_session(&self, trouble: Trouble) {
        tracing::warn!(reason = %trouble, "lost the connection to Redis");
        self.trouble.store(Arc::new(trouble));
        self.session.store(None);
        self.lost.notify_one();
    }

    /// Connects as often as it takes.
    async fn reconnect(&self) {
        loop {
            match self.breaker.try_call(Instant::now()) {
                // Instances that lost the same Redis must not all come back at the same moment.
                Err(rejected) => tokio::time::sleep(rejected.retry_in.mul_f64(rand::random_range(1.0..1.5))).await,
                Ok(trial) => match self.opener.open().await {
                    Ok(opened) => {
                        self.breaker.succeed(trial);
                        // Closed again: this permit is of the period that the new session lives in.
                        if let Ok(permit) = self.breaker.try_call(Instant::now()) {
                            return self.install(opened, permit);
                        }
                    }
                    Err(trouble) => self.note_failure(trial, trouble),
                },
            }
        }
    }

    fn note_failure(&self, trial: Permit, trouble: Trouble) {
        self.breaker.trip(trial, Instant::now());
        let before = self.trouble.swap(Arc::new(trouble.clone()));
        // Once for each reason, not once for each attempt.
        if *before != trouble {
            tracing::warn!(reason = %trouble, "can't connect to Redis");
        }
    }

    fn install(&self, opened: Opened, permit: Permit) {
        let epoch = *self.epochs.borrow() + 1;
        tracing::info!(epoch, warning = opened.facts.warning(), "connected to Redis");
        self.session.store(Some(Arc::new(opened.into_session(epoch, permit))));
        // After the session is in place: whoever is woken finds it.
        self.epochs.send_replace(epoch);
    }

    /// Looks at the session now and then, until there is none.
    async fn watch_over(&self) {
        while let Some(session) = self.session.load_full() {
            let check = async {
                tokio::time::sleep(CHECK_EVERY).await;
                self.check(&session).await;
            };
            tokio::select! {
                () = self.lost.notified() => {}
                () = check => {}
            }
        }
    }

    async fn check(&self, session: &Session) {
        match self.report(session, session.check().await) {
            Ok(Err(trouble)) => self.lose(session, trouble),
            Ok(Ok(())) if self.opener.place.has_moved_from(&session.address).await => {
                self.lose(session, Trouble::Changed("its sentinels name another primary"));
            }
            Ok(Ok(())) | Err(_) => {}
        }
    }
}

/// The background task: it ends only by being aborted.
async fn keep(shared: Arc<Shared>) {
    loop {
        shared.reconnect().await;
        shared.watch_over().await;
    }
}

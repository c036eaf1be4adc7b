//! [`RedisLink`]: the process's one connection to Redis, restored in the background after a loss.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use redis::RedisResult;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::call::Call;
use super::error::{ConnectError, Failure, LinkError};
use super::link_log::{LinkEvent, LinkLog};
use super::names::Names;
use super::session::{NewSession, Opener, ServerInfo, Session};
use crate::breaker::{Breaker, BreakerPolicy, CallGuard, Permit};
use crate::config::RedisConfig;
use crate::labels::BreakerState;

/// Five commands in a row without an answer are not chance.
const BREAKER: BreakerPolicy =
    BreakerPolicy { failures: 5, first_pause: Duration::from_millis(50), longest_pause: Duration::from_millis(250) };
/// How often the connection is checked, so that an idle process notices a loss, a failover or a wipe, and logs it.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The process's one connection to Redis, shared by its keyspaces. In a cluster each keyspace has its own, to the node
/// that owns it.
///
/// A command never waits for a connection: without one it fails at once. A background task connects, with growing
/// pauses, and ends with the link. A connection exists only while the breaker is closed: opening the breaker drops the
/// connection, and the breaker's trial is the new connection, with all requests that precede its first use.
pub struct RedisLink {
    shared: Arc<LinkState>,
    keeper: AbortHandle,
}

pub(super) struct LinkState {
    pub(super) opener: Opener,
    pub(super) timeout: Duration,
    breaker: Breaker,
    session: ArcSwapOption<Session>,
    /// Why there is no session, if there is none.
    connect_error: ArcSwap<ConnectError>,
    /// Number of the latest session; 0 before the first.
    epochs: watch::Sender<u64>,
    /// Wakes the keeper after a session was dropped.
    lost: Notify,
    log: LinkLog,
}

impl RedisLink {
    /// Starts to connect in the background and returns at once. `on_breaker` is called with every new state of the
    /// breaker; it must not block. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// [`LinkError::Refused`] if the URL can never be connected to.
    pub fn connect(
        config: &RedisConfig,
        on_breaker: impl Fn(BreakerState) + Send + Sync + 'static,
    ) -> Result<Arc<Self>, LinkError> {
        Self::start(config, None, on_breaker)
    }

    /// Like [`RedisLink::connect`], for one keyspace only. A cluster requires this.
    ///
    /// # Errors
    /// As for [`RedisLink::connect`].
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
        let shared = Arc::new(LinkState {
            opener,
            timeout: config.timeout,
            breaker: Breaker::new(BREAKER, on_breaker),
            session: ArcSwapOption::empty(),
            connect_error: ArcSwap::from_pointee(ConnectError::NotYet),
            epochs: watch::Sender::new(0),
            lost: Notify::new(),
            log: LinkLog::default(),
        });
        let keeper = tokio::spawn(keep(Arc::clone(&shared))).abort_handle();
        Ok(Arc::new(Self { shared, keeper }))
    }

    /// Waits for a connection, at most `within`. Returns true if there is one.
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

    /// Number of the latest connection, 0 before the first. Changes with each new connection.
    #[must_use]
    pub fn epochs(&self) -> watch::Receiver<u64> {
        self.shared.epochs.subscribe()
    }

    /// Begins a command. Fails at once without a connection.
    pub(crate) fn call(&self) -> Result<Call<'_>, LinkError> {
        let session = self.shared.session.load_full().ok_or_else(|| LinkError::Unavailable(self.connect_error()))?;
        Ok(Call::new(&self.shared, session))
    }

    /// What is known about the server; `Err` is the reason why there is no connection.
    pub(crate) fn server(&self) -> Result<ServerInfo, String> {
        self.shared.session.load().as_ref().map(|session| session.server.clone()).ok_or_else(|| self.connect_error())
    }

    pub(crate) fn names(&self) -> &Names {
        &self.shared.opener.names
    }

    /// Names of a keyspace's delta log, its floor, the fleet's enforcement setting, the register of instances, and the
    /// roster.
    pub(crate) fn log_names(&self, keyspace: &str) -> [String; 5] {
        let names = &self.shared.opener.names;
        [
            names.deltas(keyspace),
            names.floor(keyspace),
            names.enforcement(keyspace),
            names.instances(keyspace),
            names.roster(keyspace),
        ]
    }

    fn connect_error(&self) -> String {
        self.shared.connect_error.load().to_string()
    }
}

impl Drop for RedisLink {
    fn drop(&mut self) {
        // The task holds the last reference to the connection.
        self.keeper.abort();
    }
}

impl fmt::Debug for RedisLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLink")
            .field("breaker", &self.shared.breaker)
            .field("connect_error", &self.shared.connect_error)
            .finish_non_exhaustive()
    }
}

impl LinkState {
    /// Reports to the breaker how a command ended, and drops the session if that opened it.
    pub(super) fn report<T>(&self, session: &Session, result: RedisResult<T>) -> Result<T, Failure> {
        let call = self.breaker.begin_under(session.permit);
        let failure = match result {
            Ok(answer) => {
                call.succeed();
                return Ok(answer);
            }
            Err(error) => Failure::from(error),
        };
        let (opened, why) = match &failure {
            Failure::Timeout => (call.fail(), ConnectError::Timeout),
            Failure::Lost(connect_error) => (call.trip(), connect_error.clone()),
            // Redis answered: the breaker counts that as a success.
            Failure::Refused(_) => {
                call.succeed();
                return Err(failure);
            }
        };
        if opened {
            self.drop_session(why);
        }
        Err(failure)
    }

    pub(super) fn lose(&self, session: &Session, connect_error: ConnectError) {
        if self.breaker.begin_under(session.permit).trip() {
            self.drop_session(connect_error);
        }
    }

    /// Called only after the breaker was opened. The active session is then the one that was reported on: the keeper
    /// installs a new one only after it has seen none.
    fn drop_session(&self, connect_error: ConnectError) {
        self.log.add(LinkEvent::Lost(connect_error.clone()));
        self.connect_error.store(Arc::new(connect_error));
        self.session.store(None);
        self.lost.notify_one();
    }

    /// Tries to connect until it succeeds.
    async fn reconnect(&self) {
        loop {
            match self.breaker.begin() {
                // Spread, so that instances that lost the same Redis do not all come back at once.
                Err(rejected) => tokio::time::sleep(rejected.retry_in.mul_f64(rand::random_range(1.0..1.5))).await,
                Ok(trial) => match self.opener.open().await {
                    Ok(opened) => {
                        trial.succeed();
                        // The breaker is closed again: this permit belongs to the period of the new session.
                        if let Ok(permit) = self.breaker.try_call(Instant::now()) {
                            return self.install(opened, permit);
                        }
                    }
                    Err(connect_error) => self.note_failure(trial, connect_error),
                },
            }
        }
    }

    fn note_failure(&self, trial: CallGuard<'_>, connect_error: ConnectError) {
        trial.trip();
        let before = self.connect_error.swap(Arc::new(connect_error.clone()));
        // Once for each reason, not once for each attempt.
        if *before == connect_error {
            self.log.add_postponed();
        } else {
            self.log.add(LinkEvent::Failed(connect_error));
        }
    }

    fn install(&self, opened: NewSession, permit: Permit) {
        let epoch = *self.epochs.borrow() + 1;
        self.log.add(LinkEvent::Connected { epoch, warning: opened.server.warning() });
        self.session.store(Some(Arc::new(opened.into_session(epoch, permit))));
        // After the session is stored: receivers that wake up find it.
        self.epochs.send_replace(epoch);
    }

    /// Checks the session at intervals, until there is none.
    async fn watch_over(&self) {
        while let Some(session) = self.session.load_full() {
            let check = async {
                tokio::time::sleep(CHECK_EVERY).await;
                self.log.add_postponed();
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
            Ok(Err(connect_error)) => self.lose(session, connect_error),
            Ok(Ok(())) if self.opener.place.has_moved_from(&session.address).await => {
                self.lose(session, ConnectError::Changed("its sentinels name another primary"));
            }
            Ok(Ok(())) | Err(_) => {}
        }
    }
}

/// The background task. Ends only when it is aborted.
async fn keep(shared: Arc<LinkState>) {
    loop {
        shared.reconnect().await;
        shared.watch_over().await;
    }
}

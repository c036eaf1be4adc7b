//! What lies between the instances and their one Redis: delays, lost answers, partitions, and the connection of each
//! instance.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bloomguard::cache::CacheError;
use bloomguard::key::KeySecret;
use bloomguard::redis::LogIdentity;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::server::Server;

/// `redis.timeout`.
const TIMEOUT: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(70);
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Timeouts in a row after which a connection is given up.
const FAILURES: u32 = 5;

/// The server and the ways to it.
pub struct Network {
    pub server: Mutex<Server>,
    random: Mutex<StdRng>,
    /// Of a hundred commands so many are late, and as many are carried out without an answer.
    trouble: u32,
    /// Until when each instance is cut off.
    cut: Vec<Mutex<Instant>>,
    /// A command that is under way for longer than this is lost: what TCP may deliver even later is not simulated.
    pub latest: Duration,
}

impl Network {
    pub fn new(instances: usize, seed: u64, trouble: u32, latest: Duration) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            server: Mutex::new(Server::new()),
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            trouble,
            cut: (0..instances).map(|_| Mutex::new(now)).collect(),
            latest,
        })
    }

    /// A number below `bound`, the next of the run's seed.
    pub fn below(&self, bound: u32) -> u32 {
        self.random.lock().random_range(0..bound)
    }

    pub fn partition(&self, instance: usize, lasts: Duration) {
        *self.cut[instance].lock() = Instant::now() + lasts;
    }

    pub fn heal(&self) {
        self.cut.iter().for_each(|until| *until.lock() = Instant::now());
    }

    fn cut_until(&self, instance: usize) -> Option<Instant> {
        Some(*self.cut[instance].lock()).filter(|until| *until > Instant::now())
    }

    /// What a process that starts is told of the secret, where Redis answers it.
    pub fn secret(&self, instance: usize, proposal: KeySecret) -> Option<KeySecret> {
        let mut server = self.server.lock();
        (server.up && self.cut_until(instance).is_none()).then(|| server.secret(proposal))
    }

    fn is_troubled(&self) -> bool {
        self.below(100) < self.trouble
    }
}

/// The connection of one incarnation of an instance, kept up by a task.
pub struct Link {
    network: Arc<Network>,
    instance: usize,
    /// The process lives: of a dead one nothing is sent any more, and nothing comes back.
    alive: AtomicBool,
    session: Mutex<Option<Arc<Session>>>,
    epochs: watch::Sender<u64>,
}

/// What was learnt over a connection.
pub struct Session {
    pub epoch: u64,
    pub identity: LogIdentity,
    run: u64,
    timeouts: AtomicU32,
    /// Commands of one connection arrive in their order.
    arrived: Mutex<Instant>,
}

impl Link {
    pub fn new(network: Arc<Network>, instance: usize) -> Arc<Self> {
        let (session, epochs) = (Mutex::default(), watch::Sender::new(0));
        Arc::new(Self { network, instance, alive: AtomicBool::new(true), session, epochs })
    }

    pub fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }

    pub fn kill(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }

    pub fn session(&self) -> Result<Arc<Session>, CacheError> {
        self.session.lock().clone().ok_or_else(|| CacheError::Unavailable("not connected".into()))
    }

    /// Connects again and again, and looks at the connection now and then.
    pub async fn keep(self: Arc<Self>) {
        loop {
            while !self.connect() {
                sleep(PAUSE).await;
            }
            while let Ok(session) = self.session() {
                sleep(CHECK_EVERY).await;
                if let Ok(identity) = self.execute(&session, |server| server.identity()).await
                    && identity != Some(session.identity)
                {
                    self.lose(&session);
                }
            }
        }
    }

    fn connect(&self) -> bool {
        if self.network.cut_until(self.instance).is_some() {
            return false;
        }
        let mut server = self.network.server.lock();
        if !server.up {
            return false;
        }
        let epoch = *self.epochs.borrow() + 1;
        let (identity, run, arrived) = (server.introduce(), server.run, Mutex::new(Instant::now()));
        drop(server);
        *self.session.lock() = Some(Arc::new(Session { epoch, identity, run, timeouts: AtomicU32::new(0), arrived }));
        self.epochs.send_replace(epoch);
        true
    }

    fn lose(&self, session: &Session) {
        let mut held = self.session.lock();
        if held.as_ref().is_some_and(|held| held.epoch == session.epoch) {
            *held = None;
        }
    }

    /// Sends a command. It arrives also if no task waits for its answer any more.
    pub async fn execute<T: Send + 'static>(
        &self,
        session: &Arc<Session>,
        command: impl FnOnce(&mut Server) -> T + Send + 'static,
    ) -> Result<T, CacheError> {
        self.while_alive().await;
        let (answer, answered) = oneshot::channel();
        let network = Arc::clone(&self.network);
        let (instance, run, sent) = (self.instance, session.run, Instant::now());
        let late = if network.is_troubled() {
            20 + network.below(network.latest.as_millis() as u32)
        } else {
            network.below(3)
        };
        let mute = network.is_troubled();
        let arrives = {
            let mut arrived = session.arrived.lock();
            let healed = network.cut_until(instance).unwrap_or(sent);
            *arrived = (*arrived).max(healed).max(sent + Duration::from_millis(late.into()));
            *arrived
        };
        tokio::spawn(async move {
            sleep_until(arrives).await;
            let lost = arrives - sent > network.latest;
            let done = {
                let mut server = network.server.lock();
                if server.up && server.run == run { Some((!lost).then(|| command(&mut server))) } else { None }
            };
            sleep(Duration::from_millis(1)).await;
            if let Some(until) = network.cut_until(instance) {
                sleep_until(until).await;
            }
            match done {
                Some(Some(_)) | Some(None) if mute || lost => sleep(Duration::from_secs(3600)).await,
                Some(done) => drop(answer.send(Ok(done))),
                None => drop(answer.send(Err(()))),
            }
        });
        let outcome = timeout(TIMEOUT, answered).await;
        self.while_alive().await;
        match outcome {
            Ok(Ok(Ok(Some(done)))) => {
                session.timeouts.store(0, Ordering::Relaxed);
                Ok(done)
            }
            Ok(_) => {
                self.lose(session);
                Err(CacheError::Unavailable("the connection was reset".into()))
            }
            Err(_) => {
                if session.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES {
                    self.lose(session);
                }
                Err(CacheError::Timeout(TIMEOUT))
            }
        }
    }

    async fn while_alive(&self) {
        if !self.alive.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

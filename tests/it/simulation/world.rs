//! One run of a script: the instances, what happens to them, and what they answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bloomguard::fleet::Version;
use bloomguard::key::Key;
use bloomguard::keyspace::{Keyspace, LookupOptions};
use bloomguard::labels::{Source, State};
use bloomguard::rebuild::RebuildRequest;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::time::{Instant, sleep, sleep_until};

use super::database::{Database, key};
use super::instance::{Instance, KEYSPACE, MAX_LAG, WINDOW};
use super::network::Network;
use super::operation::{INSTANCES, KEYS, Operation, Script};
use super::promise::{Announced, Dropped, Promises};

/// Keys that one `Grow` announces.
const STRAYS: usize = 30;
/// Attempts of a client to have a drop acknowledged.
const ATTEMPTS: usize = 5;
/// Within this time after the last fault everybody must reject again: failed builds are tried again after a minute at
/// the most.
const RECOVERY: Duration = Duration::from_secs(150);

/// How often each thing happened.
pub type Counts = BTreeMap<String, u64>;

pub struct World {
    network: Arc<Network>,
    database: Arc<Database>,
    promises: Promises,
    instances: Vec<Mutex<Option<Instance>>>,
    disks: Vec<TempDir>,
    began: Instant,
    told: Mutex<Vec<String>>,
    broken: AtomicBool,
    pub counts: Mutex<Counts>,
}

impl World {
    pub fn new(script: &Script) -> Arc<Self> {
        let network = Network::new(INSTANCES, script.seed, script.trouble, super::LATEST);
        let bits = |mask: u8| (0..KEYS).filter(move |n| mask >> n & 1 == 1).map(key);
        let database = Database::new(Arc::clone(&network), bits(script.phantoms).collect());
        for key in bits(script.rows) {
            database.write(&key);
        }
        let world = Self {
            network,
            database,
            promises: Promises::default(),
            instances: (0..INSTANCES).map(|_| Mutex::default()).collect(),
            disks: (0..INSTANCES).map(|_| disk()).collect(),
            began: Instant::now(),
            told: Mutex::default(),
            broken: AtomicBool::new(false),
            counts: Mutex::default(),
        };
        (0..INSTANCES).for_each(|number| world.start(number));
        Arc::new(world)
    }

    fn start(&self, number: usize) {
        let disk = self.disks[number].path();
        let instance = Instance::start(number, &self.network, &self.database, disk, self.began);
        if instance.from_snapshot {
            self.count("started from a snapshot".into());
        }
        *self.instances[number].lock() = Some(instance);
    }

    /// Everything that happened, once a promise was broken.
    pub fn verdict(&self) -> Result<(), String> {
        if self.broken.load(Ordering::Relaxed) { Err(self.told.lock().join("\n")) } else { Ok(()) }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        self.told.lock().push(format!("{:>7} {}", self.began.elapsed().as_millis(), what()));
    }

    fn count(&self, what: String) {
        *self.counts.lock().entry(what).or_default() += 1;
    }

    fn broken(&self, why: &str) {
        self.broken.store(true, Ordering::Relaxed);
        self.tell(|| format!("BROKEN: {why}"));
    }

    fn keyspace(&self, instance: usize) -> Option<Arc<Keyspace>> {
        self.instances[instance].lock().as_ref().map(|instance| Arc::clone(&instance.keyspace))
    }

    /// Copies the primary's data to its replica, again and again, and looks where drops have been applied.
    pub async fn replicate(self: Arc<Self>, every: Duration) {
        loop {
            self.network.server.lock().replicate();
            for instance in 0..INSTANCES {
                if let Some(keyspace) = self.keyspace(instance) {
                    self.look(instance, &keyspace);
                }
            }
            sleep(every).await;
        }
    }

    pub async fn perform(self: Arc<Self>, operation: Operation) {
        self.tell(|| format!("{operation:?}"));
        match operation {
            Operation::Insert { instance, key: number, commit, asks } => {
                self.insert(instance, &key(number), commit, asks).await
            }
            Operation::Change { instance, key: number } => {
                let key = key(number);
                self.race(&key).await;
                let Some(upto) = self.database.version(&key) else { return };
                self.database.write(&key);
                self.drop_key(instance, &key, upto, false).await;
            }
            Operation::Delete { instance, key: number } => {
                let key = key(number);
                self.race(&key).await;
                let Some(upto) = self.database.version(&key) else { return };
                self.database.remove(&key);
                self.drop_key(instance, &key, upto, true).await;
            }
            Operation::Read { instance, key: number, bypass } => self.read(instance, &key(number), None, bypass).await,
            Operation::Look { key: number } => self.read_everywhere(&key(number), None).await,
            Operation::Build { instance, takes, fails } => {
                if let Some(instance) = self.instances[instance].lock().as_ref() {
                    *instance.source.next.lock() = (takes, fails);
                    let _ = instance.rebuild.request(RebuildRequest::default());
                }
            }
            Operation::Grow { instance } => {
                if let Some(keyspace) = self.keyspace(instance) {
                    let _ = keyspace.announce(&(0..STRAYS).map(|n| key(1_000 + n)).collect::<Vec<_>>()).await;
                }
            }
            Operation::Crash { instance, down } => {
                let Some(crashed) = self.instances[instance].lock().take() else { return };
                crashed.crash();
                sleep(down).await;
                self.start(instance);
            }
            Operation::Wipe => {
                self.network.server.lock().wipe();
                self.promises.redis_lost(Instant::now() - MAX_LAG);
            }
            Operation::Kill { down } => {
                self.network.server.lock().kill();
                sleep(down).await;
                self.network.server.lock().up = true;
            }
            Operation::FailOver { down, skew } => {
                let received = self.network.server.lock().fail_over(skew.as_millis() as u64);
                self.promises.redis_lost(received);
                sleep(down).await;
                self.network.server.lock().up = true;
            }
            Operation::Recover => self.recover().await,
            Operation::Trim { keep } => self.network.server.lock().trim(keep),
            Operation::Partition { instance, lasts } => self.network.partition(instance, lasts),
        }
    }

    async fn insert(self: &Arc<Self>, instance: usize, key: &Key, commit: Option<Duration>, asks: [bool; 3]) {
        let Some(keyspace) = self.keyspace(instance) else { return };
        self.race(key).await;
        let sent = Instant::now();
        let announced = keyspace.announce(std::slice::from_ref(key)).await;
        self.count(if announced.is_ok() { "announced".into() } else { "announce refused".into() });
        let version = match announced {
            Ok(version) => version,
            Err(error) => return self.tell(|| format!("{key:?} refused at {instance}: {error}")),
        };
        let acknowledged = Instant::now();
        self.tell(|| format!("{key:?} announced at {instance}"));
        let Some(commit) = commit else { return };
        sleep_until(sent + commit.min(WINDOW - Duration::from_millis(1))).await;
        // Another one was first: the transaction fails.
        if self.database.version(key).is_some() {
            return;
        }
        let row = self.database.write(key);
        self.promises.announced(row, Announced { instance, acknowledged });
        self.tell(|| format!("{key:?} committed as {row}"));
        self.count("committed".into());
        let moments = [Instant::now(), acknowledged + MAX_LAG, sent + WINDOW + Duration::from_millis(500)];
        for (number, (moment, _)) in moments.into_iter().zip(asks).enumerate().filter(|(_, (_, asked))| *asked) {
            sleep_until(moment).await;
            self.read_everywhere(key, version.as_ref().filter(|_| number == 0)).await;
        }
    }

    async fn drop_key(self: &Arc<Self>, instance: usize, key: &Key, upto: u64, removed: bool) {
        for _ in 0..ATTEMPTS {
            let Some(keyspace) = self.keyspace(instance) else { return };
            let done =
                if removed { keyspace.delete(key).await } else { keyspace.invalidate(std::slice::from_ref(key)).await };
            let place = {
                let server = self.network.server.lock();
                server.identity().map(|identity| Version {
                    identity,
                    keyspace: KEYSPACE.into(),
                    position: server.last(),
                })
            };
            if done.is_ok() {
                self.tell(|| format!("{key:?} dropped up to {upto} at {instance}"));
                self.count("dropped".into());
                let acknowledged = Instant::now();
                self.promises.dropped(Dropped { key: key.clone(), upto, acknowledged, place, at: vec![instance] });
                sleep(Duration::from_millis(300)).await;
                return self.read_everywhere(key, None).await;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn read_everywhere(self: &Arc<Self>, key: &Key, version: Option<&Version>) {
        let reads = (0..INSTANCES).map(|instance| self.read(instance, key, version, false));
        futures_util::future::join_all(reads).await;
    }

    /// Where something was lost, as entries under another secret, drops may be among it.
    fn look(&self, instance: usize, keyspace: &Keyspace) {
        let lost_nothing = keyspace.state() == State::Enforcing;
        self.promises.look(instance, |place| lost_nothing && keyspace.has_applied(place));
    }

    /// Asks everybody, and goes on while they are at it: what they read now, they store after what comes next.
    async fn race(self: &Arc<Self>, key: &Key) {
        let (world, key) = (Arc::clone(self), key.clone());
        tokio::spawn(async move { world.read_everywhere(&key, None).await });
        sleep(Duration::from_millis(self.network.below(60).into())).await;
    }

    async fn read(&self, instance: usize, key: &Key, version: Option<&Version>, bypass: bool) {
        let Some(keyspace) = self.keyspace(instance) else { return };
        let unapplied_version = version.is_some_and(|version| !keyspace.has_applied(version));
        self.look(instance, &keyspace);
        let asked = self.promises.ask(&self.database, key, instance, version.is_some() || bypass);
        let lookup =
            keyspace.lookup(key.clone(), LookupOptions { bypass, unapplied_version, ..LookupOptions::default() }).await;
        // A process that died gives no answer.
        if !self.keyspace(instance).is_some_and(|now| Arc::ptr_eq(&now, &keyspace)) {
            return;
        }
        let Ok(answer) = &lookup.answer else { return self.count("no answer".into()) };
        let value = answer.value.as_ref().map(|value| std::str::from_utf8(&value.body).unwrap().parse().unwrap());
        let source: Source = answer.source;
        self.count(format!("{} from {source}", if value.is_some() { "found" } else { "absent" }));
        self.tell(|| {
            format!(
                "{key:?} at {instance}: {value:?} from {source}, {} since {:?}",
                lookup.probe.state,
                asked.at - self.began
            )
        });
        if let Err(why) = self.promises.judge(&self.database, &asked, value, source) {
            self.broken(&format!("{key:?} at {instance}: {why}; asked {asked:?}"));
        }
    }

    /// Waits until everybody rejects again; they must where no more faults happen.
    pub async fn recover(&self) {
        let began = Instant::now();
        let rejects =
            |instance: usize| self.keyspace(instance).is_some_and(|keyspace| keyspace.state() == State::Enforcing);
        while !(0..INSTANCES).all(rejects) {
            if began.elapsed() > RECOVERY {
                let states: Vec<_> =
                    (0..INSTANCES).map(|n| self.keyspace(n).map(|keyspace| keyspace.status().reason)).collect();
                return self.broken(&format!("not everybody rejects again: {states:?}"));
            }
            sleep(Duration::from_millis(200)).await;
        }
        self.tell(|| "everybody rejects".into());
    }

    /// All faults end: everybody must know every key.
    pub async fn end(self: Arc<Self>) {
        self.network.heal();
        self.network.server.lock().up = true;
        self.recover().await;
        for number in 0..KEYS {
            self.read_everywhere(&key(number), None).await;
        }
    }
}

/// In memory where there is such a folder: each announce is synced to it.
fn disk() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

//! A TCP proxy whose network can be made bad: slow, lossy, dead, or leading elsewhere.
//!
//! - **Delay** holds what is read for half a round trip, each way.
//! - **Loss** is what TCP makes of it: the reader of a connection sees no hole, but waits. A lost segment and all
//!   behind it come one
//!   retransmission timeout later, which doubles while the segment is lost again.
//! - **A dropped reply** can't be taken out of a stream whose replies are told apart by their order alone. Either the
//!   connection is cut before
//!   the request goes out, or nothing comes back over it any more: the client's timeout must end that.
//! - **A black hole** keeps what was sent until it heals, as retransmissions do: a command may arrive long after its
//!   sender has given up and gone.
//! - **Cutting** resets connections both ways. The **upstream** can be switched for connections to come: with a cut, a
//!   failover behind a
//!   virtual address.

mod commands;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use commands::Commands;

/// The shortest time after which TCP sends again what was not acknowledged, beside the round trip.
const RETRANSMISSION: Duration = Duration::from_millis(200);
/// Chunks on their way, each way of a connection.
const ON_THE_WAY: usize = 1024;

/// How the network is. By default it is well.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Weather {
    /// There and back.
    pub round_trip: Duration,
    /// Share of the segments that are lost and sent again.
    pub loss: f64,
    /// Share of the requests that the proxy [knows](ChaosProxy::start) whose replies never come.
    pub unanswered: f64,
    /// Nothing passes.
    pub black_hole: bool,
}

type Knows = Box<dyn Fn(&[&[u8]]) -> bool + Send + Sync>;

/// A proxy before a server of this machine. Dropped, it ends with its connections.
pub struct ChaosProxy {
    port: u16,
    network: Arc<Network>,
    accepting: AbortHandle,
}

struct Network {
    upstream: AtomicU16,
    weather: watch::Sender<Weather>,
    /// Connections end when it changes.
    cuts: watch::Sender<u64>,
    knows: Knows,
    known: AtomicU64,
    unanswered: AtomicU64,
    dice: Mutex<StdRng>,
}

impl ChaosProxy {
    /// Starts before the server at `upstream`. `knows` picks the Redis commands that [`Weather::unanswered`] is about.
    pub async fn start(upstream: u16, seed: u64, knows: impl Fn(&[&[u8]]) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let network = Arc::new(Network {
            upstream: AtomicU16::new(upstream),
            weather: watch::Sender::default(),
            cuts: watch::Sender::default(),
            knows: Box::new(knows),
            known: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            dice: Mutex::new(StdRng::seed_from_u64(seed)),
        });
        let port = listener.local_addr().unwrap().port();
        Self { port, accepting: tokio::spawn(accept(listener, Arc::clone(&network))).abort_handle(), network }
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn set(&self, weather: Weather) {
        self.network.weather.send_replace(weather);
    }

    /// All is well again; what a black hole held arrives.
    pub fn heal(&self) {
        self.set(Weather::default());
    }

    /// Resets every connection.
    pub fn cut(&self) {
        self.network.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// From now on each client reaches another server: open connections are cut.
    pub fn switch(&self, upstream: u16) {
        self.network.upstream.store(upstream, Ordering::SeqCst);
        self.cut();
    }

    /// How many requests it knew, and how many of them were never answered.
    pub fn known(&self) -> (u64, u64) {
        (self.network.known.load(Ordering::Relaxed), self.network.unanswered.load(Ordering::Relaxed))
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, network: Arc<Network>) {
    // Its connections end with it.
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        connections.spawn(connect(client, Arc::clone(&network)));
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(mut client: TcpStream, network: Arc<Network>) {
    // Before the upstream is read: a switch between the two ends this connection.
    let mut cuts = network.cuts.subscribe();
    let upstream = network.upstream.load(Ordering::SeqCst);
    // No server: the client sees the end of its connection.
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, upstream)).await else { return };
    for end in [&client, &server] {
        end.set_nodelay(true).unwrap();
    }
    let is_over = tokio::select! {
        () = carry(&mut client, &mut server, &network) => true,
        _ = cuts.changed() => false,
    };
    if !is_over {
        for end in [&client, &server] {
            // Reset and not closed: what is still unread is lost.
            let _ = SockRef::from(end).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Both ways, until both have ended.
async fn carry(client: &mut TcpStream, server: &mut TcpStream, network: &Network) {
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    let mute = AtomicBool::new(false);
    let requests = async {
        let mut commands = Commands::default();
        pump(network, from_client, to_server, |chunk| network.judge(&mut commands, chunk, &mute)).await
    };
    let replies =
        pump(network, from_server, to_client, |_| if mute.load(Ordering::Relaxed) { Fate::Hang } else { Fate::Pass });
    tokio::pin!(requests, replies);
    tokio::select! {
        // Of one that is mute, only the client's end is ever seen; after a cut no task waits for the other half.
        cut = &mut requests => if !cut && !mute.load(Ordering::Relaxed) { replies.await; },
        _ = &mut replies => { requests.await; }
    }
}

/// What becomes of a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Pass,
    /// The connection ends.
    Cut,
    /// It is swallowed, and so is all behind it.
    Hang,
}

impl Network {
    fn judge(&self, commands: &mut Commands, chunk: &[u8], mute: &AtomicBool) -> Fate {
        let (mut fate, share) = (Fate::Pass, self.weather.borrow().unanswered);
        commands.feed(chunk, |command| {
            if !(self.knows)(command) {
                return;
            }
            self.known.fetch_add(1, Ordering::Relaxed);
            if share > 0.0 && self.dice.lock().random_bool(share) {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                if self.dice.lock().random_bool(0.5) {
                    fate = Fate::Cut;
                } else {
                    mute.store(true, Ordering::Relaxed);
                }
            }
        });
        fate
    }

    /// How long a segment that is sent now is on its way.
    fn delay(&self) -> Duration {
        let weather = *self.weather.borrow();
        let (mut delay, mut timeout) = (weather.round_trip / 2, weather.round_trip + RETRANSMISSION);
        while weather.loss > 0.0 && self.dice.lock().random_bool(weather.loss) {
            delay += timeout;
            timeout *= 2;
        }
        delay
    }

    async fn passable(&self) {
        // It ends with the network, which this borrows.
        let _ = self.weather.subscribe().wait_for(|weather| !weather.black_hole).await;
    }
}

/// One way of a connection, until its sender ends it; says whether it was cut.
async fn pump(
    network: &Network,
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut judge: impl FnMut(&[u8]) -> Fate,
) -> bool {
    let (queue, mut due) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
    let reading = async move {
        let (mut buffer, mut arrival) = (vec![0; 64 * 1024], Instant::now());
        loop {
            let Ok(length @ 1..) = from.read(&mut buffer).await else { return false };
            match judge(&buffer[..length]) {
                Fate::Pass => {}
                Fate::Hang => continue,
                Fate::Cut => return true,
            }
            // Nothing overtakes what was sent before it.
            arrival = arrival.max(Instant::now() + network.delay());
            if queue.send((arrival, buffer[..length].to_vec())).await.is_err() {
                return false;
            }
        }
    };
    let writing = async {
        while let Some((arrival, chunk)) = due.recv().await {
            tokio::time::sleep_until(arrival).await;
            network.passable().await;
            if to.write_all(&chunk).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::pin!(writing);
    tokio::select! {
        cut = reading => {
            if !cut {
                // What its sender sent before it left arrives all the same.
                writing.await;
            }
            cut
        }
        // No client takes it any more.
        () = &mut writing => false,
    }
}

#[cfg(test)]
mod tests;

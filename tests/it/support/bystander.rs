//! A well-behaved client beside an attack: its answers must stay right, and its latency is measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between two requests: a client that asks for little.
const PAUSE: Duration = Duration::from_millis(2);
/// A connection that is closed between two requests is opened again, as pools do; one request in flight may be repeated
/// once.
const TRIES: usize = 2;

/// What the client asks for, and the status that alone is right.
pub type Question = (String, u16);

/// A client that keeps asking until it is stopped.
pub struct Bystander {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Experience>,
}

/// What the client saw.
#[derive(Debug, Default)]
pub struct Experience {
    /// Sorted, one of each answered request.
    latencies: Vec<Duration>,
    /// Answers of another status than the right one, and requests that got none.
    pub wrong: Vec<String>,
}

impl Experience {
    /// Requests that were answered as they should be.
    pub fn answered(&self) -> usize {
        self.latencies.len()
    }

    /// The latency that this share of the requests stayed below.
    pub fn percentile(&self, share: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }
}

impl Bystander {
    /// Asks these questions of the data listener at `address` in turn.
    pub fn start(address: &str, questions: Vec<Question>) -> Self {
        let (stop, address) = (Arc::new(AtomicBool::new(false)), address.to_owned());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut client = Client { address, connection: None };
            let mut seen = Experience::default();
            for (target, right) in questions.iter().cycle() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let began = Instant::now();
                match client.ask(target) {
                    Ok(status) if status == *right => seen.latencies.push(began.elapsed()),
                    other => seen.wrong.push(format!("{target}: {other:?} after {:?}", began.elapsed())),
                }
                std::thread::sleep(PAUSE);
            }
            seen.latencies.sort_unstable();
            seen
        });
        Self { stop, thread }
    }

    /// Stops asking.
    pub fn stop(self) -> Experience {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

struct Client {
    address: String,
    connection: Option<BufReader<TcpStream>>,
}

impl Client {
    fn ask(&mut self, target: &str) -> std::io::Result<u16> {
        let mut last = None;
        for _ in 0..TRIES {
            match self.try_ask(target) {
                Ok(status) => return Ok(status),
                Err(error) => {
                    self.connection = None;
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap())
    }

    fn try_ask(&mut self, target: &str) -> std::io::Result<u16> {
        if self.connection.is_none() {
            let stream = TcpStream::connect(&self.address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            self.connection = Some(BufReader::new(stream));
        }
        let reader = self.connection.as_mut().unwrap();
        write!(reader.get_mut(), "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let (mut status, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            match (status, line.strip_prefix("content-length:")) {
                (None, _) => status = line.split(' ').nth(1).and_then(|code| code.parse().ok()),
                (Some(_), Some(value)) => length = value.trim().parse().unwrap_or(0),
                _ => {}
            }
        }
        reader.read_exact(&mut vec![0; length])?;
        status.ok_or_else(|| std::io::ErrorKind::InvalidData.into())
    }
}

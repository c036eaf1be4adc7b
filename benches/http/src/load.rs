//! The load generator: one thread, some connections, epoll. It sends as fast as answers come, or at a fixed rate
//! independent of the server.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::event::epoll::EventFlags;

use crate::connection::{Connection, Place, Wire};
use crate::requests::{Draw, Requests};

/// The requests of a run, and their destination.
#[derive(Debug, Clone)]
pub(crate) struct Target<'a> {
    pub(crate) place: Place,
    pub(crate) wire: Wire,
    pub(crate) requests: &'a Requests,
    pub(crate) connections: usize,
}

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) per_second: f64,
    /// Answers other than expected.
    pub(crate) wrong: usize,
    /// Latencies in nanoseconds, ascending. At a fixed rate they count from the moment when the request was due, not
    /// when it could be sent: a server that stalls delays all requests due in that time (no coordinated omission). At
    /// full speed they count from the send.
    pub(crate) latencies: Vec<u64>,
}

impl Outcome {
    /// In microseconds.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * percent / 100.0) as usize).map_or(f64::NAN, |nanos| *nanos as f64 / 1e3)
    }
}

struct Open {
    connections: Vec<Connection>,
    epoll: rustix::fd::OwnedFd,
}

fn open(target: &Target<'_>) -> io::Result<Open> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let connect = |_| Connection::open(&target.place, target.wire);
    let connections: Vec<Connection> = (0..target.connections).map(connect).collect::<io::Result<_>>()?;
    for (number, connection) in connections.iter().enumerate() {
        epoll::add(&epoll, connection.as_fd(), epoll::EventData::new_u64(number as u64), EventFlags::IN)?;
    }
    Ok(Open { connections, epoll })
}

/// As fast as answers come, with `depth` requests at once on each connection.
pub(crate) fn full_speed(target: &Target<'_>, depth: usize, warm_up: Duration, lasts: Duration) -> io::Result<Outcome> {
    let Open { mut connections, epoll } = open(target)?;
    let mut draw = target.requests.draw();
    let (mut waiting, mut sent) = (vec![depth; connections.len()], vec![Instant::now(); connections.len()]);
    let (mut latencies, mut free) = (Vec::new(), Vec::with_capacity(connections.len()));
    // The first requests may be longer than a socket's buffer.
    let mut interests = vec![EventFlags::IN | EventFlags::OUT; connections.len()];
    for (number, connection) in connections.iter_mut().enumerate() {
        connection.send(draw.next(depth))?;
        epoll::modify(&epoll, connection.as_fd(), epoll::EventData::new_u64(number as u64), interests[number])?;
    }
    let mut events = Vec::with_capacity(connections.len());
    let (mut begin, mut warm) = (Instant::now(), false);
    let (mut done, mut wrong) = (0, 0);
    loop {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&Timespec { tv_sec: 1, tv_nsec: 0 }))?;
        for event in &events {
            let number = event.data.u64() as usize;
            let connection = &mut connections[number];
            connection.send_rest()?;
            let answered = connection.receive(target.requests.wanted())?;
            done += answered.all;
            wrong += answered.all - answered.as_wanted;
            waiting[number] -= answered.all;
            if waiting[number] == 0 {
                latencies.push(sent[number].elapsed().as_nanos() as u64);
                free.push(number);
            }
        }
        // All in a row: a sleeping server is woken by the first send.
        for number in free.drain(..) {
            (waiting[number], sent[number]) = (depth, Instant::now());
            connections[number].send(draw.next(depth))?;
        }
        for event in &events {
            // Requests longer than a socket's buffer are sent as the server reads.
            let number = event.data.u64() as usize;
            let interest =
                if connections[number].has_unsent() { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            if interest != interests[number] {
                epoll::modify(&epoll, connections[number].as_fd(), event.data, interest)?;
                interests[number] = interest;
            }
        }
        let now = Instant::now();
        if !warm && now - begin >= warm_up {
            (begin, warm, done, wrong) = (now, true, 0, 0);
            latencies.clear();
        } else if warm && now - begin >= lasts {
            latencies.sort_unstable();
            return Ok(Outcome { per_second: done as f64 / (now - begin).as_secs_f64(), wrong, latencies });
        }
    }
}

/// At a fixed rate, see [`at_rates`].
pub(crate) fn at_rate(target: &Target<'_>, per_second: f64, lasts: Duration) -> io::Result<Outcome> {
    Ok(at_rates(&[(target, 1)], per_second, lasts)?.pop().unwrap_or_default())
}

/// The requests to one target.
struct Lane<'a> {
    open: Open,
    draw: Draw<'a>,
    share: usize,
    wanted: &'a [u8],
    /// When the pending requests were due, by connection.
    due: Vec<VecDeque<Instant>>,
    sent: usize,
    outcome: Outcome,
}

impl<'a> Lane<'a> {
    fn open(target: &Target<'a>) -> io::Result<Self> {
        let (open, requests) = (open(target)?, target.requests);
        let due = vec![VecDeque::new(); open.connections.len()];
        Ok(Self {
            open,
            draw: requests.draw(),
            share: 1,
            wanted: requests.wanted(),
            due,
            sent: 0,
            outcome: Outcome::default(),
        })
    }

    /// Sends one request, on the connections in turn.
    fn send(&mut self, due: Instant) -> io::Result<()> {
        let number = self.sent % self.due.len();
        self.sent += 1;
        self.due[number].push_back(due);
        self.open.connections[number].send(self.draw.next(1))
    }

    /// Receives the answers that have arrived.
    fn receive(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        events.clear();
        epoll::wait(
            &self.open.epoll,
            rustix::buffer::spare_capacity(events),
            Some(&Timespec { tv_sec: 0, tv_nsec: 0 }),
        )?;
        for event in events {
            let number = event.data.u64() as usize;
            let connection = &mut self.open.connections[number];
            connection.send_rest()?;
            let answered = connection.receive(self.wanted)?;
            self.outcome.wrong += answered.all - answered.as_wanted;
            let now = Instant::now();
            self.outcome
                .latencies
                .extend(self.due[number].drain(..answered.all).map(|due| (now - due).as_nanos() as u64));
        }
        Ok(())
    }
}

/// At a fixed rate, of which each target has its share: each request is sent when it is due. Spins in between, because
/// a sleeping thread wakes up late.
pub(crate) fn at_rates(targets: &[(&Target<'_>, usize)], per_second: f64, lasts: Duration) -> io::Result<Vec<Outcome>> {
    let mut lanes = Vec::new();
    for (target, share) in targets {
        lanes.push(Lane { share: *share, ..Lane::open(target)? });
    }
    let (begin, every) = (Instant::now(), Duration::from_secs_f64(1.0 / per_second));
    let total = (per_second * lasts.as_secs_f64()) as usize;
    let (mut sent, mut next, mut events) = (0, begin, Vec::with_capacity(64));
    while lanes.iter().map(|lane| lane.outcome.latencies.len()).sum::<usize>() < total {
        let now = Instant::now();
        assert!(now < begin + lasts * 4, "the server does not keep up with {per_second} requests a second");
        while sent < total && next <= now {
            // The target that is furthest behind its share.
            let behind = lanes.iter_mut().min_by_key(|lane| (lane.sent + 1) * 1_000_000 / lane.share);
            behind.map_or(Ok(()), |lane| lane.send(next))?;
            sent += 1;
            next += every;
        }
        for lane in &mut lanes {
            lane.receive(&mut events)?;
        }
    }
    let took = begin.elapsed().as_secs_f64();
    for Lane { outcome, .. } in &mut lanes {
        outcome.per_second = outcome.latencies.len() as f64 / took;
        outcome.latencies.sort_unstable();
    }
    Ok(lanes.into_iter().map(|lane| lane.outcome).collect())
}

/// As fast as answers come, each over a new connection: connect, request, answer, reset, so that no connection remains
/// in TIME_WAIT.
pub(crate) fn reconnecting(target: &Target<'_>, lasts: Duration) -> io::Result<Outcome> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut draw = target.requests.draw();
    let mut connections: Vec<(Connection, Instant)> = Vec::new();
    let mut connect = |number: u64| -> io::Result<(Connection, Instant)> {
        let begin = Instant::now();
        let mut connection = Connection::open(&target.place, target.wire)?;
        connection.reset_at_end()?;
        epoll::add(&epoll, connection.as_fd(), epoll::EventData::new_u64(number), EventFlags::IN)?;
        connection.send(draw.next(1))?;
        Ok((connection, begin))
    };
    for number in 0..target.connections as u64 {
        connections.push(connect(number)?);
    }
    let (mut outcome, begin, mut events) = (Outcome::default(), Instant::now(), Vec::with_capacity(target.connections));
    while begin.elapsed() < lasts {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&Timespec { tv_sec: 1, tv_nsec: 0 }))?;
        for event in &events {
            let (connection, began) = &mut connections[event.data.u64() as usize];
            let answered = connection.receive(target.requests.wanted())?;
            if answered.all > 0 {
                outcome.wrong += answered.all - answered.as_wanted;
                outcome.latencies.push(began.elapsed().as_nanos() as u64);
                // Replacing the old connection closes it, which also removes it from the epoll.
                connections[event.data.u64() as usize] = connect(event.data.u64())?;
            }
        }
    }
    outcome.per_second = outcome.latencies.len() as f64 / begin.elapsed().as_secs_f64();
    outcome.latencies.sort_unstable();
    Ok(outcome)
}

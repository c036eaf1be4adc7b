//! The load generator: one thread, some connections, epoll. Either as fast as answers come, or at a fixed rate whatever the server does.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::event::epoll::EventFlags;

use crate::connection::{Connection, Place, Wire};
use crate::requests::Requests;

/// What a run sends, and to whom.
#[derive(Debug, Clone)]
pub(crate) struct Target<'a> {
    pub(crate) place: Place,
    pub(crate) wire: Wire,
    pub(crate) requests: &'a Requests,
    pub(crate) connections: usize,
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) per_second: f64,
    /// Answers that were not what was asked for.
    pub(crate) wrong: usize,
    /// Nanoseconds each, in order. At a fixed rate from the moment when the request was due, not from when it could be sent: a server that stalls makes
    /// all those late that were due meanwhile (no coordinated omission). At full speed from when it was sent.
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

/// As fast as answers come, `depth` requests at once on each connection.
pub(crate) fn full_speed(target: &Target<'_>, depth: usize, warm_up: Duration, lasts: Duration) -> io::Result<Outcome> {
    let Open { mut connections, epoll } = open(target)?;
    let mut draw = target.requests.draw();
    let (mut waiting, mut sent) = (vec![depth; connections.len()], vec![Instant::now(); connections.len()]);
    let mut latencies = Vec::new();
    // The first requests may be longer than what a socket takes at once.
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
                let now = Instant::now();
                latencies.push((now - sent[number]).as_nanos() as u64);
                (waiting[number], sent[number]) = (depth, now);
                connection.send(draw.next(depth))?;
            }
            // What is longer than a socket's buffer goes out as it is read.
            let interest = if connection.has_unsent() { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            if interest != interests[number] {
                epoll::modify(&epoll, connection.as_fd(), event.data, interest)?;
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

/// At a fixed rate: each request is sent when it is due, on the connection whose turn it is. Spins between, since a thread that sleeps is woken late.
pub(crate) fn at_rate(target: &Target<'_>, per_second: f64, lasts: Duration) -> io::Result<Outcome> {
    let Open { mut connections, epoll } = open(target)?;
    let mut draw = target.requests.draw();
    let mut due: Vec<std::collections::VecDeque<Instant>> = vec![Default::default(); connections.len()];
    let (begin, every) = (Instant::now(), Duration::from_secs_f64(1.0 / per_second));
    let total = (per_second * lasts.as_secs_f64()) as usize;
    let mut outcome = Outcome { latencies: Vec::with_capacity(total), ..Default::default() };
    let (mut sent, mut next) = (0, begin);
    let mut events = Vec::with_capacity(connections.len());
    while outcome.latencies.len() < total {
        let now = Instant::now();
        assert!(now < begin + lasts * 4, "the server does not keep up with {per_second} requests a second");
        while sent < total && next <= now {
            let number = sent % connections.len();
            due[number].push_back(next);
            connections[number].send(draw.next(1))?;
            sent += 1;
            next += every;
        }
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        for event in &events {
            let number = event.data.u64() as usize;
            connections[number].send_rest()?;
            let answered = connections[number].receive(target.requests.wanted())?;
            outcome.wrong += answered.all - answered.as_wanted;
            let now = Instant::now();
            outcome.latencies.extend(due[number].drain(..answered.all).map(|due| (now - due).as_nanos() as u64));
        }
    }
    outcome.per_second = total as f64 / begin.elapsed().as_secs_f64();
    outcome.latencies.sort_unstable();
    Ok(outcome)
}

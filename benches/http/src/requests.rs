//! Requests, built before a run: the load generator only copies them.

use std::io::Write;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::connection::Wire;

/// Keys that the filter holds: the even numbers below twice this one.
pub(crate) const MEMBERS: u64 = 1_000_000;
const DISTINCT: u64 = 200_000;

/// Which keys the requests read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Absent keys only.
    Absent,
    /// One key in a hundred exists.
    MostlyAbsent,
    /// Present keys, a few of them most of the time.
    ZipfPresent,
    /// One present key.
    OneHotKey,
}

/// How the keys of a check are written, and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchForm {
    Text,
    /// Lines again, answered by one bit per key.
    TextBits,
    Ndjson,
    Json,
    /// JSON again, of strings.
    JsonStrings,
}

impl BatchForm {
    pub(crate) const ALL: [Self; 5] = [Self::Text, Self::TextBits, Self::Ndjson, Self::Json, Self::JsonStrings];

    pub(crate) const fn body(self) -> &'static str {
        match self {
            Self::Text | Self::TextBits => "text lines",
            Self::Ndjson => "NDJSON",
            Self::Json => "JSON, integers",
            Self::JsonStrings => "JSON, strings",
        }
    }

    pub(crate) const fn answer(self) -> &'static str {
        if matches!(self, Self::TextBits) { "bits" } else { "JSON" }
    }
}

/// Requests in one piece of memory.
#[derive(Debug)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    wanted: &'static [u8],
}

impl Requests {
    /// `GET /v1/keys/users/{key}` of the mix's keys, or `GET` of them over [`Wire::Resp`].
    pub(crate) fn new(mix: Mix, wire: Wire) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for key in keys(mix) {
            match wire {
                Wire::Http => write!(bytes, "GET /v1/keys/users/{key} HTTP/1.1\r\nHost: 127.0.0.1:4040\r\n\r\n"),
                Wire::Resp => {
                    let key = format!("users:{key}");
                    write!(bytes, "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len())
                }
            }
            .expect("memory takes what is written to it");
            ends.push(bytes.len());
        }
        let wanted: &[u8] = match (wire, mix) {
            (Wire::Resp, _) => b"$-1",
            (Wire::Http, Mix::Absent) => b"HTTP/1.1 404",
            (Wire::Http, Mix::MostlyAbsent) => b"HTTP/1.1 ",
            (Wire::Http, Mix::ZipfPresent | Mix::OneHotKey) => b"HTTP/1.1 200",
        };
        Self { bytes, ends, wanted }
    }

    /// `POST /v1/check/users` with `size` absent keys each.
    pub(crate) fn checks(form: BatchForm, size: usize) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for batch in keys(Mix::Absent).chunks(size) {
            let keys: Vec<String> = batch.iter().map(u64::to_string).collect();
            let (kind, body) = match form {
                BatchForm::Text | BatchForm::TextBits => ("text/plain", keys.join("\n")),
                BatchForm::Json => ("application/json", format!("[{}]", keys.join(","))),
                BatchForm::JsonStrings => ("application/json", format!("[\"{}\"]", keys.join("\",\""))),
                BatchForm::Ndjson => ("application/x-ndjson", keys.join("\n")),
            };
            let accept = if form == BatchForm::TextBits { "accept: application/octet-stream\r\n" } else { "" };
            let head = format!(
                "POST /v1/check/users HTTP/1.1\r\nHost: 127.0.0.1:4040\r\ncontent-type: \
                 {kind}\r\n{accept}content-length: {}",
                body.len()
            );
            bytes.extend_from_slice(format!("{head}\r\n\r\n{body}").as_bytes());
            ends.push(bytes.len());
        }
        Self { bytes, ends, wanted: b"HTTP/1.1 200" }
    }

    /// Guarded reads of keys that a table of `rows` rows lacks; past the guard if `bypass`.
    pub(crate) fn beyond(rows: u64, bypass: bool) -> Self {
        let headers = if bypass { "bloomguard-bypass: 1\r\n" } else { "" };
        Self::single("GET", (0..DISTINCT).map(|n| 2 * spread(n, rows) + 1), headers, b"HTTP/1.1 404")
    }

    /// Guarded reads of keys that such a table contains.
    pub(crate) fn rows(rows: u64) -> Self {
        Self::single("GET", (0..DISTINCT).map(|n| 2 * spread(n, rows)), "", b"HTTP/1.1 200")
    }

    /// Announces of keys that it does not contain yet.
    pub(crate) fn announces(rows: u64) -> Self {
        Self::single("PUT", (0..DISTINCT).map(|n| 2 * (rows + n)), "", b"HTTP/1.1 204")
    }

    fn single(method: &str, keys: impl Iterator<Item = u64>, headers: &str, wanted: &'static [u8]) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for key in keys {
            bytes.extend_from_slice(
                format!("{method} /v1/keys/users/{key} HTTP/1.1\r\nHost: 127.0.0.1:4040\r\n{headers}\r\n").as_bytes(),
            );
            ends.push(bytes.len());
        }
        Self { bytes, ends, wanted }
    }

    /// The beginning of a correct answer.
    pub(crate) const fn wanted(&self) -> &'static [u8] {
        self.wanted
    }

    /// All of them in order, repeatedly.
    pub(crate) const fn draw(&self) -> Draw<'_> {
        Draw { requests: self, at: 0 }
    }
}

pub(crate) struct Draw<'a> {
    requests: &'a Requests,
    at: usize,
}

impl Draw<'_> {
    /// The next `count` requests.
    pub(crate) fn next(&mut self, count: usize) -> &[u8] {
        let Requests { bytes, ends, .. } = self.requests;
        if self.at + count >= ends.len() {
            self.at = 0;
        }
        let range = ends[self.at]..ends[self.at + count];
        self.at += count;
        &bytes[range]
    }
}

/// Numbers below `rows`, never two consecutive ones in sequence.
const fn spread(n: u64, rows: u64) -> u64 {
    n * 7_919 % rows
}

fn keys(mix: Mix) -> Vec<u64> {
    let (absent, member) = (|n: u64| 2 * n + 1, |n: u64| 2 * (n % MEMBERS));
    let mut keys: Vec<u64> = match mix {
        Mix::Absent => (0..DISTINCT).map(absent).collect(),
        Mix::MostlyAbsent => (0..DISTINCT).map(|n| if n % 100 == 0 { member(n / 100) } else { absent(n) }).collect(),
        Mix::ZipfPresent => zipf(DISTINCT, 10_000).map(member).collect(),
        Mix::OneHotKey => vec![member(4_711); 64],
    };
    keys.shuffle(&mut SmallRng::seed_from_u64(1));
    keys
}

/// `draws` numbers below `n`, by a Zipf distribution of exponent 1: rank r appears in proportion to 1/r.
fn zipf(draws: u64, n: u64) -> impl Iterator<Item = u64> {
    let harmonic: f64 = (1..=n).map(|rank| 1.0 / rank as f64).sum();
    (1..=n).flat_map(move |rank| {
        std::iter::repeat_n(rank * 7_919, (draws as f64 / (rank as f64 * harmonic)).ceil() as usize)
    })
}

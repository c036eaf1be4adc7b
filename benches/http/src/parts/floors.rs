//! The ratios that `make bench-check` checks, and their minimum: about 0.8 of the measured value, to allow for other
//! machines and busy ones.
//!
//! A change that makes something faster raises its floor.

use crate::contenders::{Contender, Transport};

/// The requests of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// Absent keys one by one.
    Absent,
    /// … sixteen at once on each connection.
    Pipelined,
    /// One key in the hot tier.
    Hot,
    /// A thousand absent keys per request, as lines.
    Text,
    /// … as JSON.
    Json,
}

/// One side of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) contender: Contender,
    pub(super) transport: Transport,
    pub(super) question: Question,
}

/// A ratio, and its minimum.
#[derive(Debug)]
pub(super) struct Floor {
    pub(super) name: &'static str,
    pub(super) ours: Side,
    pub(super) theirs: Side,
    pub(super) least: f64,
}

const fn tcp(contender: Contender, question: Question) -> Side {
    Side { contender, transport: Transport::Tcp, question }
}

const fn unix(contender: Contender) -> Side {
    Side { contender, transport: Transport::Unix, question: Question::Absent }
}

use Contender::{BareAxum, Guard, Nginx, Raw, Redis};
use Question::{Absent, Hot, Json, Pipelined, Text};

/// Servers have one core, and the load generator the other.
pub(super) const FLOORS: [Floor; 8] = [
    Floor { name: "absent / bare axum", ours: tcp(Guard, Absent), theirs: tcp(BareAxum, Absent), least: 0.9 },
    Floor { name: "absent / nginx", ours: tcp(Guard, Absent), theirs: tcp(Nginx, Absent), least: 0.8 },
    Floor { name: "absent / raw loop", ours: tcp(Guard, Absent), theirs: tcp(Raw, Absent), least: 0.6 },
    Floor {
        name: "absent, pipelined by 16 / bare axum",
        ours: tcp(Guard, Pipelined),
        theirs: tcp(BareAxum, Pipelined),
        least: 5.0,
    },
    Floor { name: "absent, Unix socket / raw loop", ours: unix(Guard), theirs: unix(Raw), least: 0.55 },
    Floor { name: "hot / absent", ours: tcp(Guard, Hot), theirs: tcp(Guard, Absent), least: 0.78 },
    Floor { name: "checks as lines / redis GET", ours: tcp(Guard, Text), theirs: tcp(Redis, Absent), least: 110.0 },
    Floor { name: "checks as JSON / redis GET", ours: tcp(Guard, Json), theirs: tcp(Redis, Absent), least: 95.0 },
];

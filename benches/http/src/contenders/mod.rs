//! The compared servers, measured in turn.

mod bare_axum;
mod guard;
mod nginx;
mod raw;
mod redis;
mod site;

use tempfile::TempDir;

use crate::connection::{Place, Wire};
use crate::process::{Placement, Server, folder};

pub(crate) use self::bare_axum::serve as serve_axum;
pub(crate) use self::guard::{Built, build_from, program as guard_program, start_before as start_guard_before};
pub(crate) use self::raw::{serve as serve_raw, serve_rows};
pub(crate) use self::site::{Site, program_bytes};

/// A compared server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contender {
    /// The whole product.
    Guard,
    /// With one worker thread, however many processors there are.
    GuardByOne,
    /// An epoll loop with the filter and nothing else: the upper bound.
    Raw,
    /// A router without routes.
    BareAxum,
    /// The same on a runtime for each core.
    AxumByCores,
    /// `return 404`.
    Nginx,
    /// `GET` of a missing key, over its own protocol.
    Redis,
}

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Unix,
}

/// A server that answers.
pub(crate) struct Running {
    pub(crate) place: Place,
    pub(crate) server: Server,
    /// Further processes that it needs.
    _others: Vec<Server>,
    _directory: TempDir,
}

impl Contender {
    /// The servers that differ by more than a setting.
    pub(crate) const ALL: [Self; 5] = [Self::Guard, Self::Raw, Self::BareAxum, Self::Nginx, Self::Redis];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Guard => "bloomguard",
            Self::GuardByOne => "bloomguard, `workers = 1`",
            Self::Raw => "raw epoll loop + filter",
            Self::BareAxum => "bare axum, 404",
            Self::AxumByCores => "bare axum, a runtime a core",
            Self::Nginx => "nginx, `return 404`",
            Self::Redis => "redis-server, GET",
        }
    }

    pub(crate) const fn wire(self) -> Wire {
        if matches!(self, Self::Redis) { Wire::Resp } else { Wire::Http }
    }

    pub(crate) fn start(self, placement: Placement, transport: Transport) -> Running {
        let directory = folder();
        let (place, server, others) = match self {
            Self::Guard => guard::start(placement, transport, "", directory.path()),
            Self::GuardByOne => guard::start(placement, transport, "workers = 1\n", directory.path()),
            Self::Raw => raw::start(placement, transport, directory.path()),
            Self::BareAxum => bare_axum::start(placement, false, directory.path()),
            Self::AxumByCores => bare_axum::start(placement, true, directory.path()),
            Self::Nginx => nginx::start(placement, transport, directory.path()),
            Self::Redis => redis::start(placement, transport, directory.path()),
        };
        Running { place, server, _others: others, _directory: directory }
    }
}

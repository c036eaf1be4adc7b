//! One lookup, as it goes down through the rooms.

use super::outcome::LookupOptions;
use super::probe::ProbeResult;
use crate::backend::FetchContext;
use crate::key::{Key, KeyHash};
use crate::keyspace::single_flight::Kind;
use crate::labels::{Source, Verdict};

/// What a lookup is about; fixed when it begins.
#[derive(Debug, Clone)]
pub(crate) struct LookupRequest {
    /// Canonical: the form that caches use.
    pub(crate) key: Key,
    /// The given spelling, if the backend may have the row under that only. Cached absences of the canonical form do
    /// not answer it, and its own are not cached: the cache knows one key and the database may know two.
    pub(crate) given: Option<Key>,
    pub(crate) hash: KeyHash,
    pub(crate) probed: ProbeResult,
    pub(crate) options: LookupOptions,
    /// No client waits: a value is loaded again ahead of its expiry.
    pub(crate) refresh: bool,
}

impl LookupRequest {
    pub(crate) fn new(key: Key, (hash, probed): (KeyHash, ProbeResult), options: LookupOptions) -> Self {
        let given = key.given();
        let key = if given.is_some() { key.canonical() } else { key };
        Self { probed, key, given, hash, options, refresh: false }
    }

    /// Returns true if the filter answers this lookup.
    pub(crate) fn is_rejected(&self) -> bool {
        self.probed.probe.effective() == Verdict::Absent && !self.options.bypass && !self.options.unapplied_version
    }

    /// The key with its given spelling, for the backend.
    pub(crate) fn backend_key(&self) -> Key {
        self.given.as_ref().map_or_else(|| self.key.clone(), |given| self.key.spelled(given))
    }

    /// Returns true if a value of this source is known to belong to the canonical spelling.
    pub(crate) fn may_keep(&self, source: Source) -> bool {
        self.given.is_none() || source == Source::Redis
    }

    /// The key under which a load is shared: one of another spelling is of no use to this lookup.
    pub(crate) fn flight_key(&self) -> &Key {
        self.given.as_ref().unwrap_or(&self.key)
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.options {
            _ if self.refresh => Kind::Refresh,
            LookupOptions { bypass: true, .. } => Kind::Bypass,
            LookupOptions { unapplied_version: true, .. } => Kind::Fresh,
            _ => Kind::Plain,
        }
    }

    /// What the backend receives about the lookup.
    pub(crate) fn context(&self) -> FetchContext {
        FetchContext { trace: self.options.trace.clone(), ..FetchContext::default() }
    }
}

//! `[keyspaces.NAME]`

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    BackendConfig, CacheConfig, CanaryConfig, Enforcement, EnforcementSetting, FilterConfig, RebuildConfig, Sources,
    units,
};
use crate::key::KeyForm;

/// A named set of keys that are guarded together.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeyspaceConfig {
    /// The canonical form of the keys. Default: derived from the column type, if the driver reports it.
    pub key: Option<KeyForm>,
    /// Whether the filter answers 404 or is only compared. Default `enforce`.
    pub enforcement: Enforcement,
    /// Share of the keys whose absence the filter answers, the same keys at every instance; 0 to 100. Default 100.
    pub enforce_percent: u8,
    /// Whether the admin API shows keys instead of their hashes. Default off.
    pub reveal_keys: bool,
    /// What freshness depends on. Default `polled` if a source has `incremental`, else `rebuilt`.
    pub freshness: Freshness,
    /// Whether writers announce keys. Off: `PUT` is 409, and the right to answer 404 rests on scans and polls alone,
    /// whatever happens to Redis. Default: on with `freshness = "announced"`, which requires it, else off.
    pub announces: Option<bool>,
    /// Age at which the filter stops answering 404, counted from the start of the last scan (`rebuilt`) or of the last
    /// complete poll (`polled`). Default 10 min.
    #[serde(with = "units::duration")]
    pub max_staleness: Duration,
    /// Longest time from sending an announce until its row is visible on backend and source, including replica lag.
    /// Default 30 s.
    #[serde(with = "units::duration")]
    pub commit_window: Duration,
    /// Deadline of a whole lookup, including its cache fills. Default 300 ms.
    #[serde(with = "units::duration")]
    pub deadline: Duration,
    /// The Bloom filter.
    pub filter: FilterConfig,
    /// Lifetimes and sizes of cached answers.
    pub cache: CacheConfig,
    /// Where rows are read.
    pub backend: BackendConfig,
    /// Where the keys come from: one source, or several whose union is the key set.
    pub source: Sources,
    /// When the filter is rebuilt, and what a build must pass.
    pub rebuild: RebuildConfig,
    /// Checks of a sample of the filter's answers against the backend.
    pub canary: CanaryConfig,
}

impl KeyspaceConfig {
    /// The configured enforcement.
    #[must_use]
    pub const fn enforcement_setting(&self) -> EnforcementSetting {
        EnforcementSetting { mode: self.enforcement, percent: self.enforce_percent }
    }

    /// Whether instances share announces and drops through the delta log. A key set that never changes has none to
    /// share.
    #[must_use]
    pub fn uses_delta_log(&self, has_redis: bool) -> bool {
        has_redis && self.freshness != Freshness::Static
    }

    /// Whether writers announce keys.
    #[must_use]
    pub fn takes_announces(&self) -> bool {
        self.announces.unwrap_or(self.freshness == Freshness::Announced)
    }

    /// Whether announces of other instances come through the delta log.
    #[must_use]
    pub fn shares_announces(&self, has_redis: bool) -> bool {
        self.takes_announces() && self.uses_delta_log(has_redis)
    }
}

impl Default for KeyspaceConfig {
    fn default() -> Self {
        Self {
            key: None,
            enforcement: Enforcement::Enforce,
            enforce_percent: EnforcementSetting::ALL,
            reveal_keys: false,
            freshness: Freshness::Rebuilt,
            announces: None,
            max_staleness: Duration::from_secs(600),
            commit_window: Duration::from_secs(30),
            deadline: Duration::from_millis(300),
            filter: FilterConfig::default(),
            cache: CacheConfig::default(),
            backend: BackendConfig::default(),
            source: Sources::default(),
            rebuild: RebuildConfig::default(),
            canary: CanaryConfig::default(),
        }
    }
}

/// What "absent means absent" depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Freshness {
    /// Every writer announces its keys before it commits.
    Announced,
    /// New keys are polled; the last complete poll began within `max_staleness`.
    Polled,
    /// The key set is scanned again within `max_staleness`.
    Rebuilt,
    /// The key set does not change.
    Static,
}

impl Freshness {
    /// The spelling used in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Announced => "announced",
            Self::Polled => "polled",
            Self::Rebuilt => "rebuilt",
            Self::Static => "static",
        }
    }
}

//! Which absences the filter answers: `enforcement` and `enforce_percent`, and what replaces them at run time.

use serde::{Deserialize, Serialize};

/// Whether the filter answers 404.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// It answers 404.
    Enforce,
    /// Its verdicts are only compared.
    Shadow,
}

impl Enforcement {
    /// The spelling used in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }
}

/// Whether the filter answers 404, and for which share of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EnforcementSetting {
    /// Whether it answers 404.
    pub mode: Enforcement,
    /// Share of the keys whose absence it answers, 0 to [`EnforcementSetting::ALL`]; no effect in shadow.
    pub percent: u8,
}

impl EnforcementSetting {
    /// Every key.
    pub const ALL: u8 = 100;
}

impl From<Enforcement> for EnforcementSetting {
    fn from(mode: Enforcement) -> Self {
        Self { mode, percent: Self::ALL }
    }
}

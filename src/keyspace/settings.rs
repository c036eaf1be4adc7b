//! What of a keyspace's configuration can change while it serves.

use super::Keyspace;
use super::fill::Limits;
use crate::clock::Moment;
use crate::config::KeyspaceConfig;

/// Replaced as a whole: each step of a lookup reads it once, and so goes by the old settings or by the new ones. What a filter's absence reads has places of
/// its own, an atomic each: whose absences the filter answers, and how many of them are checked.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) limits: Limits,
    /// `rebuild.max_deleted_ratio`.
    pub(super) max_deleted_ratio: f64,
}

impl Settings {
    pub(super) fn new(config: &KeyspaceConfig) -> Self {
        Self { limits: Limits::new(config), max_deleted_ratio: config.rebuild.max_deleted_ratio }
    }
}

impl Keyspace {
    /// Takes over the live settings of `config`, whose other ones must be those that the keyspace was made with. What the admin API has switched stays
    /// switched.
    pub fn reconfigure(&self, config: &KeyspaceConfig) {
        self.settings.store(Settings::new(config).into());
        self.canary.reconfigure(&config.canary);
        self.standing.set_first_hold(config.canary.hold);
        if self.members().is_none() {
            self.standing.enforcing.proof.require(config.canary.proof);
            self.standing.enforcing.proof_changed();
        }
        self.mismatches.reveal_keys(config.reveal_keys);
        self.standing.enforcing.configure(config.enforcement_setting());
        let (state, reason) = self.standing.explain(Moment::now());
        self.note_state(state, &reason);
    }
}

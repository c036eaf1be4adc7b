//! For which keys the filter answers 404: the configured setting, unless the admin API has replaced it for this
//! instance or the fleet.

use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

use super::proof::{Proof, ProofStatus};
use crate::config::{Enforcement, EnforcementSetting};
use crate::fleet::{LogError, Switch};
use crate::key::KeyHash;

/// Bit of the active word: the filter is only compared.
const SHADOW: u16 = 0x80;
/// Bit of the active word: the filter is only compared until its proof is finished.
const PROVING: u16 = 0x100;

/// The active setting and its origin.
#[derive(Debug)]
pub(crate) struct EnforcementSwitch {
    /// Percent, [`SHADOW`] and [`PROVING`]. Derived from `settings` and `proof`, which are the truth.
    active: AtomicU16,
    settings: Mutex<Settings>,
    proof: Proof,
}

/// The configured setting, and those that replace it.
#[derive(Debug)]
struct Settings {
    configured: EnforcementSetting,
    /// Of this instance; goes before an earlier setting of the fleet.
    instance: Option<EnforcementSetting>,
    /// Of the fleet, as last read from Redis.
    fleet: Option<Switch>,
    /// False until the first read: what that brings may be older than the setting of this instance.
    has_read_fleet: bool,
}

/// Where a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EnforcementOrigin {
    /// The configuration.
    Config,
    /// The admin API, for this instance.
    Instance,
    /// The admin API of an instance, for the fleet.
    Fleet,
}

/// What is enforced, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EnforcementStatus {
    /// The active setting.
    #[serde(flatten)]
    pub in_force: EnforcementSetting,
    /// Where it comes from.
    pub origin: EnforcementOrigin,
    /// The configured setting.
    pub configured: EnforcementSetting,
    /// The comparisons that precede the first 404 from the filter; `None`: they are done, or `canary.proof` is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<ProofStatus>,
}

/// The fleet's setting could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// There is no fleet.
    #[error(
        "this keyspace has no delta log, which requires [redis] and a freshness other than static: switch each \
         instance with scope \"instance\""
    )]
    NoFleet,
    /// The write to Redis failed.
    #[error("the fleet may not have been switched: {0}")]
    Log(#[from] LogError),
}

/// The setting at one moment, as a lookup reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActiveEnforcement(u16);

impl ActiveEnforcement {
    pub(crate) const fn mode(self) -> Enforcement {
        if self.0 & SHADOW == 0 { Enforcement::Enforce } else { Enforcement::Shadow }
    }

    pub(crate) const fn is_proving(self) -> bool {
        self.0 & PROVING != 0
    }

    /// Returns true if the filter answers 404 for this key: the same keys at every instance and for every filter; a
    /// higher percentage adds keys.
    ///
    /// Decided by the topmost bits of the hash. Block filters use the lowest 48 bits of its upper half, the other kinds
    /// a mix of the whole with a random salt: both are independent of these.
    pub(crate) const fn covers(self, hash: KeyHash) -> bool {
        let place = ((hash.get() >> 64) * (EnforcementSetting::ALL as u128)) >> 64;
        place < (self.0 & !(SHADOW | PROVING)) as u128
    }
}

impl From<EnforcementSetting> for ActiveEnforcement {
    fn from(setting: EnforcementSetting) -> Self {
        let percent = u16::from(setting.percent.min(EnforcementSetting::ALL));
        Self(if setting.mode == Enforcement::Shadow { percent | SHADOW } else { percent })
    }
}

impl EnforcementSwitch {
    /// `proof`: comparisons that precede the first 404 from the filter.
    pub(crate) fn new(configured: EnforcementSetting, proof: u32) -> Self {
        let settings = Settings { configured, instance: None, fleet: None, has_read_fleet: false };
        let switch = Self { active: AtomicU16::default(), settings: Mutex::new(settings), proof: Proof::new(proof) };
        switch.update(&switch.settings.lock());
        switch
    }

    pub(crate) fn active(&self) -> ActiveEnforcement {
        // Relaxed: it publishes no other memory. A lookup that still reads the earlier setting equals one that came a
        // moment earlier.
        ActiveEnforcement(self.active.load(Ordering::Relaxed))
    }

    pub(crate) fn status(&self) -> EnforcementStatus {
        let settings = self.settings.lock();
        let (origin, in_force) = settings.active();
        EnforcementStatus { in_force, origin, configured: settings.configured, proof: self.proof.status() }
    }

    /// The configuration has changed; settings of the admin API stay. `proof`: `None` for a keyspace that needs none.
    pub(crate) fn configure(&self, configured: EnforcementSetting, proof: Option<u32>) {
        let mut settings = self.settings.lock();
        settings.configured = configured;
        if let Some(needed) = proof {
            self.proof.require(needed);
        }
        self.update(&settings);
    }

    /// Replaces the setting of this instance; `None`: the fleet's setting applies, or the configuration.
    pub(crate) fn set_instance(&self, setting: Option<EnforcementSetting>) {
        let mut settings = self.settings.lock();
        settings.instance = setting;
        self.update(&settings);
    }

    /// Applies the fleet's setting as read from Redis. Returns the setting that this instance knows if that is later:
    /// Redis has lost it.
    pub(crate) fn set_fleet(&self, switch: Option<Switch>) -> Option<Switch> {
        let mut settings = self.settings.lock();
        let serial = |switch: Option<Switch>| switch.map_or(0, |switch| switch.serial);
        let first = !std::mem::replace(&mut settings.has_read_fleet, true);
        if serial(switch) < serial(settings.fleet) {
            return settings.fleet;
        }
        if serial(switch) > serial(settings.fleet) {
            if !first {
                settings.instance = None;
            }
            settings.fleet = switch;
            self.update(&settings);
        }
        None
    }

    /// Serial number of the fleet's setting; 0: it has none.
    pub(crate) fn fleet_serial(&self) -> u64 {
        self.settings.lock().fleet.map_or(0, |switch| switch.serial)
    }

    fn update(&self, settings: &Settings) {
        let proving = if self.proof.is_open() { PROVING } else { 0 };
        self.active.store(ActiveEnforcement::from(settings.active().1).0 | proving, Ordering::Relaxed);
    }

    /// Returns true while absences of the filter are still compared with the backend.
    pub(crate) fn has_open_proof(&self) -> bool {
        self.proof.is_open()
    }

    /// Returns true if a proof was made, here or by the process that wrote the snapshot.
    pub(crate) fn is_proven(&self) -> bool {
        self.proof.is_proven()
    }

    /// The snapshot's keyspace had proven its filter.
    pub(crate) fn inherit_proof(&self) {
        self.proof.inherit();
        self.update(&self.settings.lock());
    }

    /// The backend has confirmed an absence of a trusted filter. Returns true if that has finished the proof.
    pub(crate) fn confirm_absence(&self, hash: KeyHash) -> bool {
        self.proof.is_open() && self.finished(self.proof.confirm(hash))
    }

    /// A row was found that the filter had called absent: the proof waits for [`Self::suspect_classified`].
    pub(crate) fn suspect_found(&self) {
        self.proof.suspect();
    }

    /// Such a row is classified. Returns true if that has finished the proof.
    pub(crate) fn suspect_classified(&self) -> bool {
        let was_open = self.proof.is_open();
        let is_open = self.proof.suspect_classified();
        was_open && self.finished(is_open)
    }

    /// The filter was wrong: the next one starts a new proof. Returns true if a proof was open.
    pub(crate) fn fail_proof(&self) -> bool {
        self.proof.fail()
    }

    fn finished(&self, is_open: bool) -> bool {
        if !is_open {
            self.update(&self.settings.lock());
        }
        !is_open
    }
}

impl Settings {
    fn active(&self) -> (EnforcementOrigin, EnforcementSetting) {
        match (self.instance, self.fleet.and_then(|switch| switch.setting)) {
            (Some(setting), _) => (EnforcementOrigin::Instance, setting),
            (None, Some(setting)) => (EnforcementOrigin::Fleet, setting),
            (None, None) => (EnforcementOrigin::Config, self.configured),
        }
    }
}

impl EnforcementStatus {
    /// Why the filter answers 404 for none, or not all, of the keys.
    pub(crate) fn reason(&self) -> String {
        let by = match self.origin {
            EnforcementOrigin::Config => "",
            EnforcementOrigin::Instance => ", switched for this instance by the admin API",
            EnforcementOrigin::Fleet => ", switched for the fleet by the admin API",
        };
        match (self.in_force, self.proof) {
            (EnforcementSetting { mode: Enforcement::Shadow, .. }, _) => format!("enforcement = \"shadow\"{by}"),
            (_, Some(ProofStatus { compared, needed })) => {
                format!("proving: {compared} of {needed} absences of the filter were compared with the backend")
            }
            (EnforcementSetting { percent, .. }, None) => format!("enforce_percent = {percent}{by}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHADOW: EnforcementSetting = EnforcementSetting { mode: Enforcement::Shadow, percent: 100 };

    fn enforce(percent: u8) -> EnforcementSetting {
        EnforcementSetting { mode: Enforcement::Enforce, percent }
    }

    fn fleet(serial: u64, setting: Option<EnforcementSetting>) -> Option<Switch> {
        Some(Switch { serial, setting })
    }

    #[test]
    fn a_percentage_covers_its_share_of_the_keys_and_a_higher_one_these_too() {
        let hashes: Vec<KeyHash> =
            (0..100_000u64).map(|n| KeyHash::from_bits(xxhash_rust::xxh3::xxh3_128(&n.to_be_bytes()))).collect();
        let covered =
            |percent: u8| hashes.iter().filter(|hash| ActiveEnforcement::from(enforce(percent)).covers(**hash)).count();
        assert_eq!((covered(0), covered(100)), (0, hashes.len()));
        for percent in [1, 10, 50, 99] {
            // Six standard deviations of 100,000 draws are less than 1 %.
            assert!(covered(percent).abs_diff(usize::from(percent) * 1000) < 1000, "{percent}: {}", covered(percent));
            let (less, more) =
                (ActiveEnforcement::from(enforce(percent)), ActiveEnforcement::from(enforce(percent + 1)));
            assert!(hashes.iter().all(|hash| !less.covers(*hash) || more.covers(*hash)));
        }
    }

    #[test]
    fn a_proof_keeps_the_filter_from_answering_until_it_is_finished() {
        let switch = EnforcementSwitch::new(enforce(100), 300);
        assert!(switch.active().is_proving());
        assert_eq!(switch.status().reason(), "proving: 0 of 300 absences of the filter were compared with the backend");
        switch.configure(enforce(50), None);
        assert!(switch.active().is_proving(), "for any setting");
        switch.configure(enforce(50), Some(0));
        assert_eq!(switch.active(), enforce(50).into());
    }

    #[test]
    fn the_instances_setting_applies_before_the_fleets_and_the_configured() {
        let switch = EnforcementSwitch::new(enforce(100), 0);
        let decided = || {
            let status = switch.status();
            assert_eq!(switch.active(), status.in_force.into());
            (status.origin, status.in_force)
        };
        assert_eq!(decided(), (EnforcementOrigin::Config, enforce(100)));
        switch.set_instance(Some(enforce(10)));
        assert_eq!(decided(), (EnforcementOrigin::Instance, enforce(10)));
        assert_eq!(switch.set_fleet(fleet(5, Some(SHADOW))), None);
        assert_eq!(decided(), (EnforcementOrigin::Instance, enforce(10)), "the fleet's setting may be older");
        switch.set_instance(None);
        assert_eq!(decided(), (EnforcementOrigin::Fleet, SHADOW));
        switch.set_instance(Some(enforce(10)));
        assert_eq!(switch.set_fleet(fleet(6, Some(enforce(20)))), None);
        assert_eq!(decided(), (EnforcementOrigin::Fleet, enforce(20)), "set after the instance's");
        assert_eq!(switch.set_fleet(fleet(7, None)), None);
        assert_eq!(decided(), (EnforcementOrigin::Config, enforce(100)));
    }

    #[test]
    fn a_changed_configuration_applies_unless_the_admin_api_replaced_it() {
        let switch = EnforcementSwitch::new(enforce(100), 0);
        switch.configure(enforce(5), None);
        assert_eq!((switch.active(), switch.status().origin), (enforce(5).into(), EnforcementOrigin::Config));
        switch.set_instance(Some(enforce(10)));
        switch.configure(SHADOW, None);
        let status = switch.status();
        assert_eq!(
            (switch.active(), status.origin, status.configured),
            (enforce(10).into(), EnforcementOrigin::Instance, SHADOW)
        );
        switch.set_instance(None);
        assert_eq!(switch.active(), SHADOW.into());
    }

    #[test]
    fn the_first_fleet_setting_replaces_an_instances_own() {
        let switch = EnforcementSwitch::new(enforce(100), 0);
        assert_eq!(switch.set_fleet(None), None);
        switch.set_instance(Some(enforce(10)));
        assert_eq!(switch.set_fleet(fleet(1, Some(SHADOW))), None);
        assert_eq!(switch.status().origin, EnforcementOrigin::Fleet);
    }

    #[test]
    fn an_older_or_lost_fleet_setting_changes_nothing_and_is_restored() {
        let switch = EnforcementSwitch::new(enforce(100), 0);
        assert_eq!(switch.set_fleet(None), None);
        assert_eq!(switch.set_fleet(fleet(7, Some(SHADOW))), None);
        assert_eq!(switch.set_fleet(fleet(7, Some(SHADOW))), None);
        for older in [None, fleet(6, Some(enforce(100)))] {
            assert_eq!(switch.set_fleet(older), fleet(7, Some(SHADOW)));
            assert_eq!(switch.active(), SHADOW.into());
        }
    }
}

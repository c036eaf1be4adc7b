//! Whose absences the filter answers at present: what the configuration says, unless this instance or the whole fleet was told otherwise.

use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

use super::Keyspace;
use super::proof::{Proof, ProofStatus};
use crate::clock::Moment;
use crate::config::{Enforcement, EnforcementSetting};
use crate::fleet::{LogError, Switch};
use crate::key::KeyHash;

/// In the word in force: the filter is only compared.
const SHADOW: u16 = 0x80;
/// In the word in force: the filter is only compared until its proof is finished.
const PROVING: u16 = 0x100;

/// The setting in force, and where it comes from.
#[derive(Debug)]
pub(super) struct Enforcing {
    /// The setting in force: its percent, [`SHADOW`] and [`PROVING`]. Derived from `told` and `proof`, which alone are the truth.
    in_force: AtomicU16,
    told: Mutex<Told>,
    pub(super) proof: Proof,
}

/// What the configuration says, and what takes its place.
#[derive(Debug)]
struct Told {
    configured: EnforcementSetting,
    /// Of this instance; goes before what the fleet was told earlier.
    instance: Option<EnforcementSetting>,
    /// Of the fleet, as far as this instance has heard of it.
    fleet: Option<Switch>,
    /// Whether it has listened at all: what is heard first may have been told long before.
    listened: bool,
}

/// Where a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The configuration.
    Config,
    /// The admin API told this instance.
    Instance,
    /// The admin API of some instance told the fleet.
    Fleet,
}

/// What is enforced, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EnforcementStatus {
    /// What is in force.
    #[serde(flatten)]
    pub in_force: EnforcementSetting,
    /// Where that comes from.
    pub origin: Origin,
    /// What the configuration says.
    pub configured: EnforcementSetting,
    /// The comparisons that come before the filter answers anybody; `None`: they are done, or none are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<ProofStatus>,
}

/// The fleet could not be told.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// There is none.
    #[error(
        "instances tell each other nothing of this keyspace, which takes [redis] and a freshness other than static: switch each with scope \"instance\""
    )]
    NoFleet,
    /// Redis did not take it.
    #[error("the fleet may not have been told: {0}")]
    Log(#[from] LogError),
}

/// A setting at one moment, as a lookup reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InForce(u16);

impl InForce {
    pub(super) const fn mode(self) -> Enforcement {
        if self.0 & SHADOW == 0 { Enforcement::Enforce } else { Enforcement::Shadow }
    }

    pub(super) const fn is_proving(self) -> bool {
        self.0 & PROVING != 0
    }

    /// Whether a key is among those whose absence the filter answers: the same keys at every instance and for every filter, and with a higher percentage
    /// these and others.
    ///
    /// By the topmost bits of the hash as it is. Filters of blocks use the lowest 48 of its upper half, the other kinds a mix of the whole with a random salt:
    /// neither can be told from these.
    pub(super) const fn covers(self, hash: KeyHash) -> bool {
        let place = ((hash.get() >> 64) * (EnforcementSetting::ALL as u128)) >> 64;
        place < (self.0 & !(SHADOW | PROVING)) as u128
    }
}

impl From<EnforcementSetting> for InForce {
    fn from(setting: EnforcementSetting) -> Self {
        let percent = u16::from(setting.percent.min(EnforcementSetting::ALL));
        Self(if setting.mode == Enforcement::Shadow { percent | SHADOW } else { percent })
    }
}

impl Enforcing {
    /// `proof`: so many comparisons come before the filter answers anybody.
    pub(super) fn new(configured: EnforcementSetting, proof: u32) -> Self {
        let told = Told { configured, instance: None, fleet: None, listened: false };
        let enforcing = Self { in_force: AtomicU16::default(), told: Mutex::new(told), proof: Proof::new(proof) };
        enforcing.proof_changed();
        enforcing
    }

    /// To be called after each change that may begin or end the proof.
    pub(super) fn proof_changed(&self) {
        self.settle(&self.told.lock());
    }

    pub(super) fn in_force(&self) -> InForce {
        // Relaxed: it publishes no other memory, and a lookup that still reads the setting of before is as good as one that came a moment earlier.
        InForce(self.in_force.load(Ordering::Relaxed))
    }

    pub(super) fn status(&self) -> EnforcementStatus {
        let told = self.told.lock();
        let (origin, in_force) = told.decides();
        EnforcementStatus { in_force, origin, configured: told.configured, proof: self.proof.status() }
    }

    /// The configuration has changed; what was told since the start stays.
    pub(super) fn configure(&self, configured: EnforcementSetting) {
        let mut told = self.told.lock();
        told.configured = configured;
        self.settle(&told);
    }

    /// This instance is told; `None`: to go by the fleet's setting, or the configuration.
    fn tell_instance(&self, setting: Option<EnforcementSetting>) {
        let mut told = self.told.lock();
        told.instance = setting;
        self.settle(&told);
    }

    /// The fleet was told. Where this instance knows of something later, that is returned: it got lost where this comes from.
    fn tell_fleet(&self, switch: Option<Switch>) -> Option<Switch> {
        let mut told = self.told.lock();
        let serial = |switch: Option<Switch>| switch.map_or(0, |switch| switch.serial);
        let first = !std::mem::replace(&mut told.listened, true);
        if serial(switch) < serial(told.fleet) {
            return told.fleet;
        }
        if serial(switch) > serial(told.fleet) {
            if !first {
                told.instance = None;
            }
            told.fleet = switch;
            self.settle(&told);
        }
        None
    }

    fn settle(&self, told: &Told) {
        let proving = if self.proof.is_open() { PROVING } else { 0 };
        self.in_force.store(InForce::from(told.decides().1).0 | proving, Ordering::Relaxed);
    }
}

impl Told {
    fn decides(&self) -> (Origin, EnforcementSetting) {
        match (self.instance, self.fleet.and_then(|switch| switch.setting)) {
            (Some(setting), _) => (Origin::Instance, setting),
            (None, Some(setting)) => (Origin::Fleet, setting),
            (None, None) => (Origin::Config, self.configured),
        }
    }
}

impl EnforcementStatus {
    /// Why the filter answers none, or not all, of the keys.
    pub(super) fn reason(&self) -> String {
        let by = match self.origin {
            Origin::Config => "",
            Origin::Instance => ", switched for this instance by the admin API",
            Origin::Fleet => ", switched for the fleet by the admin API",
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

impl Keyspace {
    /// Whose absences the filter answers, and who says so.
    #[must_use]
    pub fn enforcement(&self) -> EnforcementStatus {
        self.standing.enforcing.status()
    }

    /// Tells this instance what to enforce, until it or the fleet is told otherwise; `None`: what the fleet was told, or the configuration.
    pub fn enforce_here(&self, setting: Option<EnforcementSetting>) -> EnforcementStatus {
        self.standing.enforcing.tell_instance(setting);
        self.note_switch()
    }

    /// Tells every instance what to enforce, those that start later too; `None`: its configuration. What single instances were told is void.
    ///
    /// # Errors
    /// [`SwitchError`].
    pub async fn enforce_everywhere(
        &self,
        setting: Option<EnforcementSetting>,
    ) -> Result<EnforcementStatus, SwitchError> {
        let fleet = self.fleet.as_ref().ok_or(SwitchError::NoFleet)?;
        let known = self.standing.enforcing.told.lock().fleet.map_or(0, |switch| switch.serial);
        let switch = fleet.switch(setting, known).await?;
        // Here at once; the others read it within a tenth of a second. This is the later word, also where it is the first of the fleet's.
        self.standing.enforcing.tell_instance(None);
        self.standing.enforcing.tell_fleet(Some(switch));
        Ok(self.note_switch())
    }

    /// What a read of the log says the fleet was told. What this instance knows better is returned.
    pub(super) fn heed(&self, switch: Option<Switch>) -> Option<Switch> {
        let before = self.enforcement();
        let better = self.standing.enforcing.tell_fleet(switch);
        if self.enforcement() != before {
            self.note_switch();
        }
        better
    }

    fn note_switch(&self) -> EnforcementStatus {
        let status = self.enforcement();
        let EnforcementSetting { mode, percent } = status.in_force;
        tracing::warn!(keyspace = %self.name, mode = mode.as_str(), percent, origin = ?status.origin, "what the filter may answer was switched");
        let (state, reason) = self.standing.explain(Moment::now());
        self.note_state(state, &reason);
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHADOW: EnforcementSetting = EnforcementSetting { mode: Enforcement::Shadow, percent: 100 };

    fn enforce(percent: u8) -> EnforcementSetting {
        EnforcementSetting { mode: Enforcement::Enforce, percent }
    }

    fn switch(serial: u64, setting: Option<EnforcementSetting>) -> Option<Switch> {
        Some(Switch { serial, setting })
    }

    #[test]
    fn a_percentage_covers_its_share_of_the_keys_and_a_higher_one_these_too() {
        let hashes: Vec<KeyHash> =
            (0..100_000u64).map(|n| KeyHash::from_bits(xxhash_rust::xxh3::xxh3_128(&n.to_be_bytes()))).collect();
        let covered = |percent: u8| hashes.iter().filter(|hash| InForce::from(enforce(percent)).covers(**hash)).count();
        assert_eq!((covered(0), covered(100)), (0, hashes.len()));
        for percent in [1, 10, 50, 99] {
            // Six standard deviations of 100,000 draws are less than 1 %.
            assert!(covered(percent).abs_diff(usize::from(percent) * 1000) < 1000, "{percent}: {}", covered(percent));
            let (less, more) = (InForce::from(enforce(percent)), InForce::from(enforce(percent + 1)));
            assert!(hashes.iter().all(|hash| !less.covers(*hash) || more.covers(*hash)));
        }
    }

    #[test]
    fn a_proof_keeps_the_filter_from_answering_until_it_is_finished() {
        let enforcing = Enforcing::new(enforce(100), 300);
        assert!(enforcing.in_force().is_proving());
        assert_eq!(
            enforcing.status().reason(),
            "proving: 0 of 300 absences of the filter were compared with the backend"
        );
        enforcing.configure(enforce(50));
        assert!(enforcing.in_force().is_proving(), "whatever is enforced");
        enforcing.proof.require(0);
        enforcing.proof_changed();
        assert_eq!(enforcing.in_force(), enforce(50).into());
    }

    #[test]
    fn an_instance_goes_by_its_own_setting_then_the_fleets_then_its_configuration() {
        let enforcing = Enforcing::new(enforce(100), 0);
        let decided = || {
            let status = enforcing.status();
            assert_eq!(enforcing.in_force(), status.in_force.into());
            (status.origin, status.in_force)
        };
        assert_eq!(decided(), (Origin::Config, enforce(100)));
        enforcing.tell_instance(Some(enforce(10)));
        assert_eq!(decided(), (Origin::Instance, enforce(10)));
        assert_eq!(enforcing.tell_fleet(switch(5, Some(SHADOW))), None);
        assert_eq!(decided(), (Origin::Instance, enforce(10)), "the fleet may have been told long before");
        enforcing.tell_instance(None);
        assert_eq!(decided(), (Origin::Fleet, SHADOW));
        enforcing.tell_instance(Some(enforce(10)));
        assert_eq!(enforcing.tell_fleet(switch(6, Some(enforce(20)))), None);
        assert_eq!(decided(), (Origin::Fleet, enforce(20)), "told after the instance");
        assert_eq!(enforcing.tell_fleet(switch(7, None)), None);
        assert_eq!(decided(), (Origin::Config, enforce(100)));
    }

    #[test]
    fn a_configuration_that_changes_counts_where_nobody_was_told_otherwise() {
        let enforcing = Enforcing::new(enforce(100), 0);
        enforcing.configure(enforce(5));
        assert_eq!((enforcing.in_force(), enforcing.status().origin), (enforce(5).into(), Origin::Config));
        enforcing.tell_instance(Some(enforce(10)));
        enforcing.configure(SHADOW);
        let status = enforcing.status();
        assert_eq!(
            (enforcing.in_force(), status.origin, status.configured),
            (enforce(10).into(), Origin::Instance, SHADOW)
        );
        enforcing.tell_instance(None);
        assert_eq!(enforcing.in_force(), SHADOW.into());
    }

    #[test]
    fn the_first_that_the_fleet_is_ever_told_reaches_an_instance_with_a_setting_of_its_own() {
        let enforcing = Enforcing::new(enforce(100), 0);
        assert_eq!(enforcing.tell_fleet(None), None);
        enforcing.tell_instance(Some(enforce(10)));
        assert_eq!(enforcing.tell_fleet(switch(1, Some(SHADOW))), None);
        assert_eq!(enforcing.status().origin, Origin::Fleet);
    }

    #[test]
    fn what_the_fleet_was_told_before_or_has_lost_changes_nothing_and_is_put_back() {
        let enforcing = Enforcing::new(enforce(100), 0);
        assert_eq!(enforcing.tell_fleet(None), None);
        assert_eq!(enforcing.tell_fleet(switch(7, Some(SHADOW))), None);
        assert_eq!(enforcing.tell_fleet(switch(7, Some(SHADOW))), None);
        for older in [None, switch(6, Some(enforce(100)))] {
            assert_eq!(enforcing.tell_fleet(older), switch(7, Some(SHADOW)));
            assert_eq!(enforcing.in_force(), SHADOW.into());
        }
    }
}

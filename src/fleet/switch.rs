//! The enforcement setting of the whole fleet, as it stands in Redis: a register, not an event. Every read of the log
//! includes it, so a trimmed log loses nothing of it, and an instance that has not read the log does not enforce.
//!
//! `v1 {serial} enforce {percent}`, `v1 {serial} shadow {percent}` or `v1 {serial} config`. It is never removed: an
//! instance that finds an older one than it knows restores its own, because Redis has lost it.

use std::fmt;
use std::str::FromStr;

use crate::config::{Enforcement, EnforcementSetting};

/// The fleet's latest setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// Grows with each setting; the highest applies.
    pub serial: u64,
    /// `None`: each instance uses its configuration.
    pub setting: Option<EnforcementSetting>,
}

/// First word: the form. `redis.rs` reads it too.
const FORM: &str = "v1";

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORM} {} {}", self.serial, words(self.setting))
    }
}

/// The part behind the serial.
pub(super) fn words(setting: Option<EnforcementSetting>) -> String {
    setting.map_or_else(|| "config".to_owned(), |setting| format!("{} {}", setting.mode.as_str(), setting.percent))
}

impl FromStr for Switch {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split(' ').collect();
        let (serial, setting) = match parts[..] {
            [FORM, serial, "config"] => (serial, None),
            [FORM, serial, mode, percent] => {
                let mode = [Enforcement::Enforce, Enforcement::Shadow]
                    .into_iter()
                    .find(|known| known.as_str() == mode)
                    .ok_or(())?;
                let percent = percent.parse().ok().filter(|percent| *percent <= EnforcementSetting::ALL).ok_or(())?;
                (serial, Some(EnforcementSetting { mode, percent }))
            }
            _ => return Err(()),
        };
        Ok(Self { serial: serial.parse().map_err(|_| ())?, setting })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other instances read this text: this test changes only together with its form.
    #[test]
    fn a_switch_is_written_as_documented_and_comes_back() {
        let half = EnforcementSetting { mode: Enforcement::Enforce, percent: 50 };
        for (setting, text) in [
            (None, "v1 7 config"),
            (Some(half), "v1 7 enforce 50"),
            (Some(Enforcement::Shadow.into()), "v1 7 shadow 100"),
        ] {
            let switch = Switch { serial: 7, setting };
            assert_eq!(switch.to_string(), text);
            assert_eq!(text.parse(), Ok(switch));
        }
    }

    #[test]
    fn what_is_no_switch_is_none() {
        for text in [
            "",
            "v1",
            "v2 7 config",
            "v1 x config",
            "v1 7 enforce",
            "v1 7 enforce 101",
            "v1 7 enforce 50 1",
            "v1 7 polite 50",
            "v1 7 config ",
        ] {
            assert_eq!(text.parse::<Switch>(), Err(()), "{text}");
        }
    }
}

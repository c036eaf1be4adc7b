//! The age of a snapshot, across restarts and reboots, by clocks that may have been set.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock::Moment;
use crate::filter::snapshot::Taken;

/// The start of a copy, by both clocks.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) now: Moment,
    pub(super) taken: Taken,
}

impl Beginning {
    /// Reads the wall clock first: if the process pauses in between, the snapshot seems older than it is, never
    /// younger.
    pub(super) fn here() -> Self {
        let unix_nanos = unix_nanos();
        let now = Moment::now();
        Self { now, taken: Taken { unix_nanos, ..taken(now) } }
    }
}

/// This moment by both clocks.
pub(super) fn taken(now: Moment) -> Taken {
    Taken { unix_nanos: unix_nanos(), boot_id: boot_id(), boot_nanos: now.since_boot() }
}

/// Returns the age, or `None` if the snapshot seems to come from the future, so that its age is unknown.
///
/// Within one boot `CLOCK_BOOTTIME` counts, which can't be set and includes suspended time; after a reboot only the
/// wall clock does. Within one boot the longer of both times applies: a virtual machine restored from a checkpoint has
/// an old clock of one kind and a new one of the other.
pub(super) fn since(taken: &Taken, now: Moment) -> Option<Duration> {
    elapsed(taken, &self::taken(now))
}

fn elapsed(then: &Taken, now: &Taken) -> Option<Duration> {
    let by_wall = now.unix_nanos.checked_sub(then.unix_nanos);
    let same_boot = !now.boot_id.is_empty() && now.boot_id == then.boot_id;
    let nanos =
        if same_boot { by_wall.unwrap_or(0).max(now.boot_nanos.checked_sub(then.boot_nanos)?) } else { by_wall? };
    Some(Duration::from_nanos(nanos))
}

fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Empty if the kernel does not provide it.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(unix: u64, boot: &str, since_boot: u64) -> Taken {
        Taken { unix_nanos: unix, boot_id: boot.into(), boot_nanos: since_boot }
    }

    #[test]
    fn a_clock_that_was_set_back_makes_nothing_younger() {
        let then = at(1_000, "a", 500);
        for (now, expected) in [
            (at(1_007, "a", 507), Some(7)),
            // Set back, within one boot: the other clock counts.
            (at(300, "a", 507), Some(7)),
            // Set forward, or the machine was set back to a checkpoint.
            (at(1_900, "a", 507), Some(900)),
            (at(1_007, "a", 499), None),
            // Rebooted: only the wall clock counts, and no age is negative.
            (at(1_070, "b", 3), Some(70)),
            (at(999, "b", 3), None),
            (at(999, "", 600), None),
        ] {
            assert_eq!(elapsed(&then, &now), expected.map(Duration::from_nanos), "{now:?}");
        }
        assert_eq!(
            elapsed(&at(1, "", 500), &at(3, "", 600)),
            Some(Duration::from_nanos(2)),
            "an unknown boot equals no other"
        );
    }

    #[test]
    fn a_snapshot_taken_now_is_young() {
        let now = Moment::now();
        assert!(since(&taken(now), Moment::now()).unwrap() < Duration::from_secs(60));
    }
}

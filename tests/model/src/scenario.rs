//! The participants, events and durations of a search.

use crate::world::{Left, Row};

/// A fault of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The replica takes over, without the entries that it had not received. Connections end.
    Failover,
    /// The replica takes over, and the old primary becomes its replica. Connections to that one stay.
    Demotion,
    /// It is killed and starts again without data.
    Wipe,
    /// It loses its data and continues.
    Flush,
    /// The replica takes over, and the old primary still serves this instance.
    CutOffWith(u8),
}

/// Bounds and participants of one search.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// There is a Redis.
    pub redis: bool,
    /// The log is on its own server.
    pub split: bool,
    /// `commit_window`, `deadline` and `max_lag`, in ticks.
    pub window: u8,
    /// The window of B, and of a restarted instance; 0: the same.
    pub lowered: u8,
    /// A and B have different forms of keys: neither entries nor marks of the one mean anything to the other.
    pub other_form: bool,
    /// See `window`.
    pub deadline: u8,
    /// See `window`.
    pub max_lag: u8,
    /// Which lookups run, two per instance.
    pub asks: [[bool; 2]; 2],
    /// B also gets lookups with the announce's version.
    pub versions: bool,
    /// Lookups only probe the filter, in one step.
    pub probes_only: bool,
    /// k passes every filter.
    pub false_positive: bool,
    /// k is announced at A.
    pub announces: bool,
    /// The instance that drops k.
    pub changer: Option<usize>,
    /// k's row at the beginning.
    pub row: Row,
    /// … and after the change.
    pub changed: Row,
    /// Cached entries may expire at any moment.
    pub expires: bool,
    /// The instances that read the log.
    pub readers: [bool; 2],
    /// Possible faults of the servers.
    pub faults: &'static [Fault],
    /// Keys are hashed under a secret that Redis may lose.
    pub secrets: bool,
    /// Entries that the log has room for; 0: any number.
    pub room: u8,
    /// Ticks after which entries are trimmed; 0: never.
    pub retention: u8,
    /// How many events may happen.
    pub left: Left,
    /// Faults come after the 204, and lookups begin after them: a small part of the states, with the deep
    /// counterexamples.
    pub late: bool,
    /// A new log is trusted once A has told that all its announces are there.
    pub roll_call: bool,
    /// A known remaining window: the search must find it.
    pub window_remains: bool,
}

impl Scenario {
    /// Returns true if ages affect later steps.
    pub(crate) fn uses_ages(&self) -> bool {
        let Left { faults, crashes, builds, others, .. } = self.left;
        faults > 0 || crashes != [0; 2] || builds != [0; 2] || others > 0
    }

    /// The window of B, and of a restarted instance.
    pub(crate) const fn after_restart(&self) -> u8 {
        if self.lowered > 0 { self.lowered } else { self.window }
    }

    /// Returns true if the row exists first and is then deleted.
    pub(crate) fn deletes(&self) -> bool {
        self.row != Row::None && self.changed == Row::None
    }
}

const NONE: Left = Left { faults: 0, crashes: [0; 2], builds: [0; 2], repairs: 0, others: 0, snapshots: 0, full: 0 };
/// One lookup at a time at A, at B, or at both; two at once.
const AT_A: [[bool; 2]; 2] = [[true, false], [false, false]];
const AT_B: [[bool; 2]; 2] = [[false, false], [true, false]];
const AT_BOTH: [[bool; 2]; 2] = [[true, false], [true, false]];
const TWO_AT_A: [[bool; 2]; 2] = [[true, true], [false, false]];
const TWO_AT_B: [[bool; 2]; 2] = [[false, false], [true, true]];

/// An announce at A, read at B, with short times.
const ANNOUNCE: Scenario = Scenario {
    name: "",
    redis: true,
    split: false,
    window: 1,
    lowered: 0,
    other_form: false,
    deadline: 1,
    max_lag: 1,
    asks: AT_B,
    versions: false,
    probes_only: false,
    false_positive: true,
    announces: true,
    changer: None,
    row: Row::None,
    changed: Row::None,
    expires: false,
    readers: [false, true],
    faults: &[],
    secrets: false,
    room: 0,
    retention: 0,
    left: NONE,
    late: false,
    roll_call: false,
    window_remains: false,
};

/// … in which lookups only probe the filters.
const PROBE: Scenario = Scenario { probes_only: true, false_positive: false, ..ANNOUNCE };
/// A row that is changed and then dropped.
const DROP: Scenario = Scenario {
    announces: false,
    changer: Some(0),
    row: Row::Old,
    changed: Row::New,
    readers: [false, true],
    ..ANNOUNCE
};

/// Small enough for every test run: seconds each.
#[rustfmt::skip]
pub const SHORT: &[Scenario] = &[
    // Caches.
    Scenario { name: "cached-at-a", asks: AT_A, window: 2, expires: true, readers: [false; 2], ..ANNOUNCE },
    Scenario { name: "cached-at-b", versions: true, expires: true, ..ANNOUNCE },
    Scenario { name: "two-at-a", asks: TWO_AT_A, readers: [false; 2], ..ANNOUNCE },
    Scenario { name: "invalidate-at-a", asks: TWO_AT_A, readers: [false; 2], ..DROP },
    // Builds.
    Scenario { name: "build-at-a", asks: AT_A, false_positive: false, window: 2, readers: [false; 2],
        left: Left { builds: [2, 0], ..NONE }, ..ANNOUNCE },
    Scenario { name: "build-at-b", versions: true, left: Left { builds: [0, 1], ..NONE }, ..PROBE },
    // Without Redis.
    Scenario { name: "alone", redis: false, asks: AT_A, readers: [false; 2],
        left: Left { builds: [1, 0], crashes: [1, 0], ..NONE }, ..ANNOUNCE },
    Scenario { name: "alone-snapshot", redis: false, asks: AT_A, readers: [false; 2],
        left: Left { builds: [1, 0], crashes: [1, 0], snapshots: 2, ..NONE }, ..PROBE },
    Scenario { name: "alone-lowered", redis: false, window: 3, lowered: 1, asks: AT_A, readers: [false; 2],
        left: Left { builds: [1, 0], crashes: [1, 0], ..NONE }, ..PROBE },
    // Instances that are configured otherwise.
    Scenario { name: "lowered", window: 3, lowered: 1, versions: true, left: Left { builds: [0, 2], ..NONE }, ..PROBE },
    Scenario { name: "lowered-crash", window: 3, lowered: 1,
        left: Left { crashes: [0, 1], builds: [0, 1], ..NONE }, ..PROBE },
    Scenario { name: "other-form", other_form: true, versions: true, left: Left { repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "cached-other-form", other_form: true, left: Left { repairs: 1, ..NONE }, ..ANNOUNCE },
    // The log is lost.
    Scenario { name: "wipe", faults: &[Fault::Wipe], versions: true,
        left: Left { faults: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "failover", faults: &[Fault::Failover], left: Left { faults: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "demotion", faults: &[Fault::Demotion], left: Left { faults: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "invalidate-flush", asks: AT_A, readers: [false; 2], faults: &[Fault::Flush],
        left: Left { faults: 1, ..NONE }, ..DROP },
    Scenario { name: "flush", faults: &[Fault::Flush], left: Left { faults: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "cut-off-writer", faults: &[Fault::CutOffWith(0)],
        left: Left { faults: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "trim", room: 1, left: Left { others: 2, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "full", left: Left { full: 1, repairs: 1, builds: [0, 1], ..NONE }, ..PROBE },
    Scenario { name: "wipe-called", roll_call: true, faults: &[Fault::Wipe], versions: true,
        left: Left { faults: 1, repairs: 1, ..NONE }, ..PROBE },
    // Restarts.
    Scenario { name: "crash-of-b", left: Left { crashes: [0, 1], ..NONE }, ..PROBE },
    Scenario { name: "crash-of-a", asks: AT_A, readers: [true, false],
        left: Left { crashes: [1, 0], ..NONE }, ..PROBE },
    Scenario { name: "snapshot", left: Left { crashes: [0, 1], snapshots: 1, ..NONE }, ..PROBE },
];

/// Minutes in all.
#[rustfmt::skip]
pub const DEEP: &[Scenario] = &[
    // Caches, with longer times and more lookups.
    Scenario { name: "cached-at-both", asks: AT_BOTH, ..ANNOUNCE },
    Scenario { name: "two-at-b", asks: TWO_AT_B, versions: true, ..ANNOUNCE },
    Scenario { name: "invalidate-at-both", asks: AT_BOTH, ..DROP },
    Scenario { name: "invalidate-seen-at-b", asks: TWO_AT_B, ..DROP },
    Scenario { name: "delete", asks: AT_BOTH, changed: Row::None, ..DROP },
    // Caches and a loss.
    Scenario { name: "cached-failover", faults: &[Fault::Failover],
        left: Left { faults: 1, repairs: 1, ..NONE }, ..ANNOUNCE },
    Scenario { name: "cached-wipe", faults: &[Fault::Wipe], left: Left { faults: 1, repairs: 1, ..NONE }, ..ANNOUNCE },
    Scenario { name: "cached-flush", faults: &[Fault::Flush],
        left: Left { faults: 1, repairs: 1, ..NONE }, ..ANNOUNCE },
    Scenario { name: "cached-wipe-called", roll_call: true, faults: &[Fault::Wipe],
        left: Left { faults: 1, ..NONE }, ..ANNOUNCE },
    Scenario { name: "cached-flush-called", roll_call: true, faults: &[Fault::Flush],
        left: Left { faults: 1, ..NONE }, ..ANNOUNCE },
    Scenario { name: "late-wipe-called", roll_call: true, late: true, faults: &[Fault::Wipe],
        left: Left { faults: 1, ..NONE }, ..ANNOUNCE },
    Scenario { name: "failover-called", roll_call: true, faults: &[Fault::Failover],
        left: Left { faults: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "two-wipes-called", roll_call: true, faults: &[Fault::Wipe],
        left: Left { faults: 2, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "wipe-during-build-called", roll_call: true, faults: &[Fault::Wipe],
        left: Left { builds: [0, 1], faults: 1, ..NONE }, ..PROBE },
    Scenario { name: "lowered-wipe", window: 3, lowered: 1, faults: &[Fault::Wipe],
        left: Left { faults: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "lowered-trim", window: 3, lowered: 1, room: 1,
        left: Left { others: 2, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "lowered-snapshot", window: 3, lowered: 1,
        left: Left { crashes: [0, 1], snapshots: 1, ..NONE }, ..PROBE },
    Scenario { name: "cached-demotion", faults: &[Fault::Demotion],
        left: Left { faults: 1, repairs: 1, ..NONE }, ..ANNOUNCE },
    Scenario { name: "late-failover", late: true, faults: &[Fault::Failover],
        left: Left { faults: 1, repairs: 1, ..NONE }, ..ANNOUNCE },
    Scenario { name: "late-split-failover", late: true, split: true, faults: &[Fault::Failover],
        left: Left { faults: 1, repairs: 1, ..NONE }, ..ANNOUNCE },
    Scenario { name: "split-failover", split: true, faults: &[Fault::Failover],
        left: Left { faults: 1, repairs: 1, ..NONE }, ..ANNOUNCE },
    Scenario { name: "split-wipe", split: true, faults: &[Fault::Wipe],
        left: Left { faults: 1, repairs: 1, ..NONE }, ..ANNOUNCE },
    Scenario { name: "split-trim", split: true, faults: &[Fault::Wipe], room: 1,
        left: Left { faults: 1, others: 1, repairs: 1, ..NONE }, ..PROBE },
    // Trimming, restarts and losses together.
    Scenario { name: "trim-by-age", retention: 3, room: 2, left: Left { others: 2, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "crash+trim", room: 2, left: Left { crashes: [0, 1], others: 2, ..NONE }, ..PROBE },
    Scenario { name: "crash+trim-by-age", retention: 3,
        left: Left { crashes: [0, 1], others: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "crash+failover", faults: &[Fault::Failover],
        left: Left { crashes: [0, 1], faults: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "crash-of-a+failover", asks: AT_BOTH, faults: &[Fault::Failover], readers: [true, true],
        left: Left { crashes: [1, 0], faults: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "crash+wipe", secrets: true, faults: &[Fault::Wipe],
        left: Left { crashes: [0, 1], faults: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "wipe-during-build", secrets: true, faults: &[Fault::Wipe],
        left: Left { builds: [0, 1], faults: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "two-failovers", faults: &[Fault::Failover],
        left: Left { faults: 2, repairs: 2, ..NONE }, ..PROBE },
    Scenario { name: "failover+wipe", faults: &[Fault::Failover, Fault::Wipe],
        left: Left { faults: 2, repairs: 2, ..NONE }, ..PROBE },
    Scenario { name: "failover+trim", faults: &[Fault::Failover], room: 2,
        left: Left { faults: 1, others: 2, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "snapshot+failover", faults: &[Fault::Failover],
        left: Left { crashes: [0, 1], faults: 1, snapshots: 1, ..NONE }, ..PROBE },
    Scenario { name: "snapshot+trim", room: 2, retention: 3,
        left: Left { crashes: [0, 1], others: 1, snapshots: 1, repairs: 1, ..NONE }, ..PROBE },
    Scenario { name: "snapshot+crashes", left: Left { crashes: [0, 2], snapshots: 1, ..NONE }, ..PROBE },
    // Windows that no rule closes.
    Scenario { name: "cut-off-reader", faults: &[Fault::CutOffWith(1)], window_remains: true,
        left: Left { faults: 1, repairs: 1, ..NONE }, ..PROBE },
];

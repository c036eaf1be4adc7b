//! The rules, each of which can be taken away to see what breaks.

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A rule of the protocol; its documentation says what breaks without it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Rule { $($(#[doc = $doc])+ $name,)+ }

        impl Rule {
            /// Every rule, with what is said of it.
            pub const ALL: &[(Self, &'static str, &'static str)] =
                &[$((Self::$name, stringify!($name), concat!($($doc),+)),)+];
        }
    };
}

rules! {
    // The memory of announces.
    /// Remembered for window + deadline; else a lookup that read the backend just before the commit caches its absence
    /// after the memory has forgotten.
    MemoryLastsADeadlineMore,
    /// The window is counted from the sending of the announce; else a slow announce's memory ends before its row's time
    /// does.
    WindowFromSending,
    /// Remembered before the filter pair is loaded; else a build that begins in between sees neither memory nor bits.
    RememberFirst,
    /// No absence is stored in Redis of a key that is remembered; else it outlives the window there.
    MemoryForbidsShared,
    /// No cached absence is served of a key that is remembered; else one from before is served after the commit.
    MemoryForbidsServing,
    /// A hot absence is stored, and then the memory looked at once more; else an announce between the look and the
    /// store leaves it.
    LookAgain,
    /// That second look can't be cut off by the deadline; else the absence stays.
    LookAgainIsNotCut,
    /// An announce drops the hot absence where it is made; else it is served when the memory has forgotten.
    AnnounceDropsHot,
    /// An announce drops the hot absence where it is read from the log.
    DeltaDropsHot,

    // Marks and entries in Redis.
    /// An announce sets a mark in Redis; else an instance that does not know of it yet stores an absence there.
    Mark,
    /// The mark is set before the append; else an absence is stored between the two by who has not read the entry.
    MarkFirst,
    /// Marks live for window + deadline; else a fill that began before the commit comes after the mark.
    MarkLastsADeadlineMore,
    /// Absences are stored only in nothing's place; else they overwrite a mark.
    AbsenceOnlyInNothingsPlace,
    /// What was read over one connection is stored over the same one; else over a server that has lost the mark.
    SameConnection,
    /// A value or an absence is stored only in the log that its lookup began in, which the store itself looks at; else
    /// a wipe during the load lets an old value come back in place of the tombstone that was wiped.
    StoreInItsLog,
    /// A value is stored only in place of what the lookup saw; else an old one overwrites a tombstone.
    CompareAndSet,
    /// An absence in Redis is believed only under the log identity that the reader's follower knows; else one from
    /// before a failover comes back.
    AbsenceOfOneLog,
    /// It is stamped with the identity that the *follower* had taken in when the lookup began, not the connection's;
    /// else who has reconnected and not read the new log yet stores under the new identity what only the lost mark
    /// forbade.
    AbsenceStampedByFollower,
    /// Where the log is on another server: an absence carries the cache server's run too.
    AbsenceOfOneCache,
    /// … and none is stored under a run younger than the window when the lookup begins; else what only a lost mark
    /// forbade is stored under the new run.
    YoungCacheKeepsNoAbsence,
    /// Only who may reject stores absences in Redis.
    OnlyTrustedStore,
    /// Who may not reject serves no cached absence.
    OnlyTrustedServe,
    /// Who looks again after storing a hot absence looks at its right to reject too.
    LookAgainAtTrust,
    /// Before the right to reject comes back, hot absences are dropped; else those of the time between are served.
    VoidBeforeTrust,

    // Flights.
    /// An absence is shared only with those who joined before its read began; else with one who asked after the commit.
    ShareEarlyOnly,
    /// An announce or drop detaches the key's flight; else it stores the old value hot, or is joined.
    Detach,
    /// Checking the flight and storing hot is one step.
    HotStoreIsOneStep,
    /// Who brings a version that is not applied joins no load begun earlier.
    VersionJoinsNobody,
    /// … and is served no cached absence.
    VersionForbidsAbsence,

    // Drops.
    /// DELETE and invalidate leave a tombstone; else an older fill stores into nothing's place.
    Tombstone,
    /// Tombstones live for window + deadline; else a slow fill sees nothing twice.
    TombstoneLastsLong,
    /// The tombstone comes first, then the log, then the local drop; else a fill reads Redis in between and stores it
    /// hot behind the drop.
    TombstoneFirst,

    // Builds.
    /// Inserts reach the candidate too.
    DualInsert,
    /// The memory is put into the candidate; else announces of before it began are missing in it.
    MemoryIntoCandidate,
    /// … when it was published and not only at its end, when the memory may have forgotten.
    MemoryIntoCandidateEarly,

    // The delta log.
    /// Another identity of the log is a loss.
    AnotherLogIsALoss,
    /// Counting: a page that leaves nothing unread brings as many entries as were made; else what was trimmed is
    /// missed.
    CountEntries,
    /// The place under which entries were trimmed for want of room is looked at by who begins to read.
    FloorAtBegin,
    /// … and on each page until counting has begun; else what is trimmed between the first page and the second is
    /// missed.
    FloorUntilCounted,
    /// An uncounted place that is older than the retention is a loss: what was trimmed for its age is in no floor.
    CountSoon,
    /// A writer's entries name its previous one; else a hole is missed where nothing was counted yet.
    Chains,
    /// Who begins to read begins window + deadline ago; else it misses announces whose rows are still to come.
    BeginAWindowAgo,
    /// No build begins before the first page of the log was read; else an announce that is older than that page
    /// reaches, and younger than the scan, is in neither.
    BuildAfterFirstPage,
    /// A log younger than the window is a loss for who begins to read: what was announced in the log before it is
    /// unknown.
    YoungLogIsALoss,
    /// A scan mends a loss only if it begins a window after the loss was noticed; else rows still on their way are
    /// missed.
    ScanAWindowAfterLoss,
    /// Loss takes trust away though a build is under way, and that build does not mend it.
    LossOutlastsBuild,
    /// A log not read to its end for max_lag takes the right to reject away, judged at each lookup.
    LagEndsTrust,
    /// Lag counts from the sending of the read.
    LagFromSending,
    /// The cursor and the lag move only when a page has taken effect; else a version counts as applied before its bits
    /// are there.
    EffectBeforeCursor,
    /// Mark and append go over the same connection, else the announce is refused; the entry may be in a log whose
    /// server has no such mark.
    MarkAndAppendOverOne,
    /// After a reconnect a writer appends what it remembers again.
    AppendAgain,
    /// … and sets the marks again.
    MarkAgain,
    /// The log is read from a primary only: a demoted one keeps connections and identity, and lacks what was never
    /// replicated.
    ReadPrimaryOnly,
    /// An announce is not acknowledged before so many replicas have it (`min_replicas_acked`): a primary that is cut
    /// off acknowledges nothing.
    WaitForReplicas,
    /// An announce of others that the memory can't hold makes every key count as within its window.
    FullMemoryIsAllKeys,
    /// … and no build begins before that closes: its candidate would lack the key.
    NoBuildWhileUnheld,

    // Instances that are configured otherwise, as during a rolling restart.
    /// An announce is remembered for the longest window that any instance is known to have, and losses last as long;
    /// else a reader with a shorter window than the writer forgets an announce whose row is still to come, and its next
    /// build lacks it.
    LongestWindowCounts,
    /// Windows are registered in Redis; else who begins to read begins too late in the log.
    WindowsAreRegistered,
    /// An entry of an instance that has another form of keys is a loss; else it says nothing, and counts as applied.
    OtherFormIsALoss,
    /// An absence in Redis is believed only if its lookup began after the scan behind the filter; else one from before
    /// an announce of another form of keys, whose mark stands elsewhere, is believed again after the scan that mends
    /// that loss.
    AbsenceOfThisScan,
    /// The journal tells for how long its announces are remembered; else a restart with a shorter window forgets them
    /// too early.
    JournalTellsTheWindow,

    // The secret under which keys are hashed.
    /// The secret is agreed on after each connect; else a wiped Redis gives it to others only, and each side's entries
    /// mean nothing to the other.
    SecretAfterEachConnect,
    /// Who is told another secret may not reject.
    OtherSecretEndsTrust,
    /// An entry of another secret is a loss.
    ForeignEntryIsALoss,
    /// A build under another secret is not put in force.
    OtherSecretEndsBuild,
    /// An announce is acknowledged only if the secret is still the one it was hashed under.
    SecretCheckedAtTheEnd,

    // Restarts.
    /// A snapshot's place in the log is noted before its first bit is copied; else an announce between the two is in
    /// neither.
    PlaceBeforeBits,
    /// Who starts from a snapshot rejects only after reading the log from its place on.
    ReplayBeforeTrust,
    /// … from its place, however long ago that is; else announces between it and a window ago are missed.
    ReplayFromPlace,
    /// … and from a window ago if that is earlier; else the memory lacks announces that the bits hold, and the next
    /// build loses them.
    ReplayAWindowToo,
    /// … in the same log.
    ReplaySameLog,
    /// The snapshot holds how many entries had been made at its place, and counting begins there: what was trimmed for
    /// its age is in no floor.
    SnapshotCounts,
    /// No snapshot is taken while something is lost; else its place lies behind the loss, and nothing tells of it after
    /// a restart.
    SnapshotOfAWholeFilter,
    /// Without Redis announces are journalled before 204.
    Journal,
    /// The journal is replayed into the memory too; else the first build loses them.
    JournalIntoMemory,
    /// What is in no snapshot yet stays in the journal though its window has closed.
    JournalUntilSnapshot,

    // Polls.
    /// A poll starts from what had been seen `overlap` before the last complete one began, not before this one.
    PollFromTheLastOne,
    /// … and reaches back by the age that the oldest open transaction had.
    PollReachesOpenTransactions,
    /// … which is looked at before the rows are read; else one that ends in between is in neither.
    TransactionsBeforeRows,
    /// Watermarks beyond the database's clock are not taken for the highest.
    WatermarkNotBeyondNow,
    /// Only a complete poll moves the start.
    FailedPollMovesNothing,
    /// A scan counts only if it began when everything below the polls' first watermark had become visible.
    ScanAfterCoverage,
    /// A build waits for a poll that began after its scan.
    PollAfterScan,
}

/// The rules in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules(u128);

impl Rules {
    /// All of them.
    pub const ALL: Self = Self(u128::MAX);

    /// All but one.
    #[must_use]
    pub const fn without(self, rule: Rule) -> Self {
        Self(self.0 & !(1 << rule as u32))
    }

    /// Whether a rule is in force.
    #[must_use]
    pub const fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u32) != 0
    }
}

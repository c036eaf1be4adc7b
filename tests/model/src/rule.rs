//! The rules. Each can be removed, to see what breaks.

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A rule of the protocol; its documentation says what breaks without it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Rule { $($(#[doc = $doc])+ $name,)+ }

        impl Rule {
            /// Every rule, with its name and documentation.
            pub const ALL: &[(Self, &'static str, &'static str)] =
                &[$((Self::$name, stringify!($name), concat!($($doc),+)),)+];
        }
    };
}

rules! {
    // The memory of announces.
    /// An announce is remembered for window + deadline; else a lookup that read the backend just before the commit
    /// caches its absence after the memory has forgotten the key.
    MemoryLastsADeadlineMore,
    /// The window starts when the announce is sent; else the memory of a slow announce ends before its row may become
    /// visible.
    WindowFromSending,
    /// An announce is remembered before it loads the filter pair; else a build that begins in between sees neither
    /// memory nor bits.
    RememberFirst,
    /// No absence of a remembered key is stored in Redis; else it outlives the window there.
    MemoryForbidsShared,
    /// No cached absence of a remembered key is served; else an earlier one is served after the commit.
    MemoryForbidsServing,
    /// A lookup stores a hot absence and then checks the memory again; else an announce between check and store leaves
    /// it.
    LookAgain,
    /// The deadline can't cut off that second check; else the absence stays.
    LookAgainIsNotCut,
    /// An announce drops the hot absence at its own instance; else it is served once the memory has forgotten the key.
    AnnounceDropsHot,
    /// An announce drops the hot absence at an instance that reads it from the log.
    DeltaDropsHot,

    // Marks and entries in Redis.
    /// An announce sets a mark in Redis; else an instance that does not know of it yet stores an absence there.
    Mark,
    /// The mark is set before the append; else an instance that has not read the entry stores an absence between the
    /// two.
    MarkFirst,
    /// Marks live for window + deadline; else a fill that began before the commit comes after the mark.
    MarkLastsADeadlineMore,
    /// An absence is stored only if the key has no entry; else it overwrites a mark.
    AbsenceOnlyInNothingsPlace,
    /// A lookup stores over the connection over which it read; else it stores on a server that has lost the mark.
    SameConnection,
    /// A value or an absence is stored only in the log in which its lookup began, which the store itself checks; else a
    /// wipe during the load lets an old value replace the wiped tombstone.
    StoreInItsLog,
    /// A value is stored only in place of what the lookup saw; else an old value overwrites a tombstone.
    CompareAndSet,
    /// An absence in Redis is valid only under the log identity that the reader's follower knows; else an absence from
    /// before a failover returns.
    AbsenceOfOneLog,
    /// An absence is stamped with the identity that the *follower* knew when the lookup began, not the connection's;
    /// else an instance that has reconnected, and has not read the new log, stores under the new identity an absence
    /// that only the lost mark forbade.
    AbsenceStampedByFollower,
    /// If the log is on another server, an absence also carries the cache server's run.
    AbsenceOfOneCache,
    /// … and none is stored under a run that was younger than the window when the lookup began; else an absence that
    /// only a lost mark forbade is stored under the new run.
    YoungCacheKeepsNoAbsence,
    /// Only an instance with a trusted filter stores absences in Redis.
    OnlyTrustedStore,
    /// An instance without a trusted filter serves no cached absence.
    OnlyTrustedServe,
    /// The second check after storing a hot absence includes the trust in the filter.
    LookAgainAtTrust,
    /// Hot absences are dropped before the filter is trusted again; else those from the time between are served.
    VoidBeforeTrust,

    // Flights.
    /// An absence is shared only with lookups that joined before its read began; else with one that began after the
    /// commit.
    ShareEarlyOnly,
    /// An announce or drop detaches the key's flight; else it stores the old value hot, or is joined.
    Detach,
    /// The check of the flight and the hot store are one step.
    HotStoreIsOneStep,
    /// A lookup with an unapplied version joins no earlier load.
    VersionJoinsNobody,
    /// … and is served no cached absence.
    VersionForbidsAbsence,

    // Drops.
    /// DELETE and invalidate leave a tombstone; else an older fill finds no entry, and stores.
    Tombstone,
    /// Tombstones live for window + deadline; else a slow fill finds no entry both times.
    TombstoneLastsLong,
    /// The tombstone comes first, then the log, then the local drop; else a fill reads Redis in between and stores its
    /// entry hot after the drop.
    TombstoneFirst,

    // Builds.
    /// Inserts reach the candidate too.
    DualInsert,
    /// Remembered announces go into the candidate; else it lacks announces from before its begin.
    MemoryIntoCandidate,
    /// … when it is published and not only at its end, when the memory may have forgotten them.
    MemoryIntoCandidateEarly,

    // The delta log.
    /// Another identity of the log is a loss.
    AnotherLogIsALoss,
    /// Entries are counted: a page that leaves nothing unread brings as many as were appended; else trimmed entries are
    /// missed.
    CountEntries,
    /// A follower that begins to read checks the floor, below which entries were trimmed for lack of room.
    FloorAtBegin,
    /// … and checks it on each page until counting has begun; else entries trimmed between the first and the second
    /// page are missed.
    FloorUntilCounted,
    /// An uncounted place that is older than the retention is a loss: no floor records entries trimmed for their age.
    CountSoon,
    /// Each entry names its writer's previous one; else a hole is missed where nothing was counted yet.
    Chains,
    /// A follower begins to read window + deadline ago; else it misses announces whose rows are still to come.
    BeginAWindowAgo,
    /// No build begins before the first page of the log was read; else an announce older than that page, and younger
    /// than the scan, is in neither.
    BuildAfterFirstPage,
    /// A log younger than the window is a loss for a follower that begins to read: the announces in the log before it
    /// are unknown.
    YoungLogIsALoss,
    /// A scan fixes a loss only if it begins a window after the loss was noticed; else it misses rows that become
    /// visible later.
    ScanAWindowAfterLoss,
    /// A loss revokes the trust although a build is running, and that build does not fix it.
    LossOutlastsBuild,
    /// A filter is not trusted if the log was not read to its end for max_lag, evaluated at each lookup.
    LagEndsTrust,
    /// Lag counts from the sending of the read.
    LagFromSending,
    /// Cursor and lag move only after a page has taken effect; else a version counts as applied before its bits are
    /// set.
    EffectBeforeCursor,
    /// Mark and append use the same connection, else the announce is rejected; otherwise the entry may be in a log
    /// whose server has no such mark.
    MarkAndAppendOverOne,
    /// After a reconnect a writer appends its remembered announces again.
    AppendAgain,
    /// … and sets their marks again.
    MarkAgain,
    /// The log is read from a primary only: a demoted one keeps connections and identity, and lacks entries that were
    /// never replicated.
    ReadPrimaryOnly,
    /// An announce is acknowledged only once enough replicas have it (`min_replicas_acked`): a primary that is cut off
    /// acknowledges nothing.
    WaitForReplicas,
    /// If the memory can't hold an announce of another instance, every key counts as within its window.
    FullMemoryIsAllKeys,
    /// … and no build begins before that window closes: its candidate would lack the key.
    NoBuildWhileUnheld,

    // Instances with another configuration, as during a rolling restart.
    /// Announces are remembered for the longest window of all known instances, and losses last as long; else a reader
    /// with a shorter window than the writer forgets an announce whose row is still to come, and its next build lacks
    /// it.
    LongestWindowCounts,
    /// Windows are registered in Redis; else a new follower begins too late in the log.
    WindowsAreRegistered,
    /// An entry of an instance with another key form is a loss; else it means nothing here and counts as applied.
    OtherFormIsALoss,
    /// An absence in Redis is valid only if its lookup began after the active filter's scan; else an absence from
    /// before an announce under another key form, whose mark has another key, becomes valid again after the scan that
    /// fixes that loss.
    AbsenceOfThisScan,
    /// The journal records how long its announces are remembered; else a restart with a shorter window forgets them too
    /// early.
    JournalTellsTheWindow,

    // The secret under which keys are hashed.
    /// Instances agree on the secret after each connect; else a wiped Redis gives a new one to others only, and each
    /// side's entries mean nothing to the other.
    SecretAfterEachConnect,
    /// An instance whose secret has changed does not trust its filter.
    OtherSecretEndsTrust,
    /// An entry under another secret is a loss.
    ForeignEntryIsALoss,
    /// A build under another secret does not become active.
    OtherSecretEndsBuild,
    /// An announce is acknowledged only if its secret is still the current one.
    SecretCheckedAtTheEnd,

    // Restarts.
    /// A snapshot's place in the log is recorded before its first bit is copied; else an announce between the two is in
    /// neither.
    PlaceBeforeBits,
    /// A restored filter is trusted only after the log was read from its place on.
    ReplayBeforeTrust,
    /// … from its place, however long ago that is; else announces between it and a window ago are missed.
    ReplayFromPlace,
    /// … and from a window ago if that is earlier; else the memory lacks announces that the bits contain, and the next
    /// build loses them.
    ReplayAWindowToo,
    /// … in the same log.
    ReplaySameLog,
    /// The snapshot records how many entries had been appended at its place, and counting begins there: no floor
    /// records entries trimmed for their age.
    SnapshotCounts,
    /// No snapshot is taken during a loss; else its place is after the loss, and nothing shows the loss after a
    /// restart.
    SnapshotOfAWholeFilter,
    /// Without Redis, announces are journalled before 204.
    Journal,
    /// The journal is replayed into the memory too; else the first build loses its announces.
    JournalIntoMemory,
    /// Announces that no snapshot contains stay in the journal, although their window has closed.
    JournalUntilSnapshot,

    // Polls.
    /// A poll starts from the watermark seen `overlap` before the last complete poll began, not before this one.
    PollFromTheLastOne,
    /// … and reaches back by the age of the oldest open transaction.
    PollReachesOpenTransactions,
    /// … which is read before the rows; else a transaction that ends in between is in neither.
    TransactionsBeforeRows,
    /// Watermarks beyond the database's clock do not count as the highest.
    WatermarkNotBeyondNow,
    /// Only a complete poll moves the start.
    FailedPollMovesNothing,
    /// A scan counts only if every row below the polls' first watermark was visible when it began.
    ScanAfterCoverage,
    /// A build waits for a poll that began after its scan.
    PollAfterScan,

    // The roll call.
    /// An announce is acknowledged only within a deadline of being remembered; else a late one has left its writer's
    /// memory before the writer tells again.
    AcknowledgeWithinDeadline,
    /// A newcomer acknowledges nothing for a lease after it has enrolled; else a reader whose page is older does not
    /// know that it has to hear it.
    NewcomersWait,
    /// … and is admitted by an answer of that log, not by its clock; else it was admitted in a log that had ended.
    AdmissionIsAnswered,
    /// … or until every other member has confirmed it; else a reader's page is older than the newcomer.
    EveryoneConfirms,
    /// … in a log that is older than the lease; else a reader that has not seen this log confirms nothing, and is not
    /// missed.
    YoungLogWaits,
    /// A reader counts a page only if it is on the roster itself; else nobody waits for its confirmation.
    OwnFieldOnThePage,
    /// A writer is a descendant only if it has renewed within the window; else a reader has forgotten it after a scan.
    DescentEnds,
    /// Renewals and admissions count once replicas have them, as appends do; else a primary that is cut off makes
    /// descendants for ever.
    RenewalsAreReplicated,
    /// A member is removed only after it was silent for long; else it is a descendant that no reader knows.
    RemoveOnlySilent,
    /// Nothing is appended for a writer that is not on the roster; else one that was removed still acknowledges.
    AppendOnlyForMembers,
    /// With removals a page counts from the renewal before it; else a reader that was removed goes by an old page.
    RenewalBeforePage,
    /// A renewal alone extends no lease.
    RenewalAloneMovesNothing,
    /// A writer tells that all is there after it has appended its memory.
    TellAfterAppend,
    /// … which it copies over the new connection; else it lacks what was appended to the old log meanwhile.
    CopyOverTheNewConnection,
    /// A reader hears every writer that it knows, not only one.
    HearEveryWriter,
    /// Who has not been heard when the log changes again is still required.
    UnheardStayRequired,
    /// A reader whose last page is older than the lease scans; else it misses a newcomer that was admitted meanwhile.
    PageWithinLease,
    /// Reports count while the writers remember what the reader lacks: a window after its last page.
    WritersStillRemember,
    /// A reader that has a loss to fix scans; else it has forgotten writers that are descendants later.
    OnlyWholeBecomesPending,
}

/// The active rules.
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

    /// Returns true if a rule is active.
    #[must_use]
    pub const fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u32) != 0
    }
}

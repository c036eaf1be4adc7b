//! The state of the roll call: one reader, a writer that the old log knows, a newcomer, their log, one key k.

/// The reader.
pub const R: usize = 0;
/// Reader, old writer, newcomer.
pub const INSTANCES: usize = 3;

/// Everything that can affect later steps. Ages are ticks, as far as they matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// The log that the primary holds.
    pub log: Log,
    /// The log of a primary that was cut off, on which the writers still are.
    pub cut_off: Option<Log>,
    pub reader: Reader,
    /// The first is a placeholder for the reader.
    pub writers: [Writer; INSTANCES],
    pub put: Put,
    pub left: Left,
}

impl State {
    /// Adds an instance to the present roster, or renews its field.
    pub fn enrol(&mut self, x: usize) {
        if self.log.roster[x].is_none() {
            // A page from before does not show this membership.
            self.reader.viewed &= !(1 << x);
        }
        self.log.enrol(x);
    }
}

/// How many events may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Left {
    /// Changes of the log.
    pub changes: u8,
    /// Writers that crash.
    pub crashes: u8,
    /// Writers that leave.
    pub leaves: u8,
    /// Restarts of the reader.
    pub restarts: u8,
    /// Losses of the roster without the log.
    pub rosters: u8,
}

/// The log that the primary holds, as reader and writers see it.
pub const PRESENT: u8 = 1;
/// A log of before.
pub const FORMER: u8 = 2;
/// The log of a primary that was cut off.
pub const CUT_OFF: u8 = 3;

/// A log, and the roster beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Log {
    pub age: u8,
    /// It has k's entry.
    pub holds: bool,
    pub roster: [Option<Field>; INSTANCES],
}

impl Log {
    /// Adds an instance, as one that nobody has confirmed yet.
    pub fn enrol(&mut self, x: usize) {
        if self.roster[x].is_none() {
            self.roster.iter_mut().flatten().for_each(|field| field.confirmed &= !(1 << x));
        }
        self.roster[x].get_or_insert_with(Field::default).silent = 0;
    }

    /// Who is on the roster, as bits.
    pub fn members(&self) -> u8 {
        self.bits(|_| true)
    }

    /// Who has told that all its announces are in this log.
    pub fn told(&self) -> u8 {
        self.bits(|field| field.told)
    }

    fn bits(&self, which: impl Fn(&Field) -> bool) -> u8 {
        self.roster
            .iter()
            .enumerate()
            .filter(|(_, field)| field.as_ref().is_some_and(&which))
            .map(|(x, _)| 1 << x)
            .sum()
    }
}

/// An instance's field in the roster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Field {
    /// Since its last renewal.
    pub silent: u8,
    /// The members that it has confirmed.
    pub confirmed: u8,
    pub told: bool,
}

/// The reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Reader {
    /// Which log its last page was of; 0: none.
    pub log: u8,
    /// Its filter, if there is one: true if k is in it.
    pub filter: Option<bool>,
    /// It has read k's entry: k is in its memory.
    pub remembers: bool,
    /// Members of the roster on its last page.
    pub known: u8,
    /// Since its last page that counted; stays while it is pending.
    pub seen: u8,
    /// Since its last renewal in the log of its last page.
    pub renewed: u8,
    /// Whose present membership it has seen on a page.
    pub viewed: u8,
    /// Since its last complete page.
    pub lag: u8,
    /// After a loss: ticks until a scan can begin that fixes it.
    pub lost: Option<u8>,
    /// The same of the loss that the missing writers' reports fix too.
    pub pending: Option<u8>,
    /// The writers that have to report.
    pub required: u8,
}

/// A writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Writer {
    pub alive: bool,
    /// Which log it is connected to; 0: none.
    pub link: u8,
    /// It may acknowledge, or might in its last log.
    pub admitted: bool,
    /// Since it enrolled, while it is not admitted.
    pub waited: u8,
    /// Since its last renewal in the log in which it was admitted.
    pub renewed: u8,
    pub again: Again,
}

/// Appending again after a change of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Again {
    /// Nothing to do, or all done.
    #[default]
    No,
    /// It is connected.
    Wanted,
    /// It has copied its memory, with k in it.
    Copied,
    Appended,
}

/// The announce of k.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Put {
    pub at: PutStep,
    /// The writer.
    pub by: u8,
    /// Since it was sent and remembered.
    pub age: u8,
    /// Since the 204.
    pub known: u8,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PutStep {
    #[default]
    NotBegun,
    Remembered,
    Acknowledged,
}

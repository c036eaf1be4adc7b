//! Absences that outlive the row: spellings, polls, the journal.

//! PostgreSQL transactions without a known begin: those of sessions with `track_activities = off`, which still hold a
//! lock on their own number, and prepared ones, which have no session any more.
//!
//! Each look lists them by number. A new one has either begun since the previous look, or was among the transactions
//! with a known begin then. So the previous look, less the age of the oldest transaction seen at it, bounds its begin.

use std::collections::HashMap;

const PREPARED: &str = "prepared/";

/// The result of the last look. Times are microseconds of the database's clock.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    last: Option<LastLook>,
    /// By number: the earliest possible begin.
    since: HashMap<String, Begun>,
}

#[derive(Debug, Clone, Copy)]
struct LastLook {
    now: i64,
    /// Age of the oldest transaction with a known begin.
    seen: i64,
    /// The same of any session.
    any: i64,
}

#[derive(Debug, Clone, Copy)]
struct Begun {
    at: i64,
    /// It may have been earlier.
    unsure: bool,
}

impl Unseen {
    /// A look at `now`. The oldest transaction with a known begin has been open for `seen`. Each of `listed` is a
    /// number and a time: when its session began, or by when it had been prepared. Returns how long the oldest of these
    /// has been open, and whether that may be too short.
    pub(super) fn look(&mut self, now: i64, seen: i64, listed: &[String]) -> (i64, bool) {
        // A clock that was set back says nothing about the time in between.
        let last = self.last.filter(|last| last.now <= now);
        let known = std::mem::take(&mut self.since);
        for text in listed {
            // The statement writes both.
            let Some((id, told)) = text.split_once(' ').and_then(|(id, told)| Some((id, told.parse::<i64>().ok()?)))
            else {
                continue;
            };
            let begun = known.get(id).copied().unwrap_or_else(|| match last {
                Some(last) if id.starts_with(PREPARED) => Begun { at: last.now - last.any, unsure: false },
                Some(last) => Begun { at: told.max(last.now - last.seen), unsure: false },
                None => Begun { at: told, unsure: id.starts_with(PREPARED) },
            });
            self.since.insert(id.to_owned(), begun);
        }
        let oldest = |prepared: bool| {
            let ages = self
                .since
                .iter()
                .filter(|(id, _)| prepared || !id.starts_with(PREPARED))
                .map(|(_, begun)| now - begun.at);
            ages.max().unwrap_or(0).max(0)
        };
        self.last = Some(LastLook { now, seen, any: seen.max(oldest(false)) });
        (oldest(true), self.since.values().any(|begun| begun.unsure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_transaction_is_as_old_as_the_look_before_it_was_listed() {
        let mut unseen = Unseen::default();
        assert_eq!(
            unseen.look(1000, 0, &listed(&["3/7 400"])),
            (600, false),
            "as old as its session, before the first look"
        );
        assert_eq!(unseen.look(2000, 0, &listed(&["3/7 400", "4/1 100"])), (1600, false));
        assert_eq!(unseen.look(3000, 0, &listed(&["4/1 100"])), (2000, false), "begun since the look at 1000");
        assert_eq!(
            unseen.look(4000, 0, &listed(&["4/2 100"])),
            (1000, false),
            "each transaction has a number of its own"
        );
        assert_eq!(unseen.look(5000, 0, &listed(&["9/1 4990"])), (10, false), "no older than its session");
        assert_eq!(unseen.look(6000, 0, &[]), (0, false));
    }

    #[test]
    fn a_transaction_that_the_server_told_of_before_keeps_its_age() {
        let mut unseen = Unseen::default();
        unseen.look(1000, 800, &[]);
        assert_eq!(
            unseen.look(2000, 0, &listed(&["prepared/77 1999"])),
            (1800, false),
            "it was the one of 800, and then prepared"
        );
        assert_eq!(unseen.look(3000, 0, &listed(&["prepared/77 1999", "prepared/78 2999"])), (2800, false));
        assert_eq!(
            unseen.look(4000, 0, &listed(&["prepared/79 3999"])),
            (1000, false),
            "prepared ones make no others older"
        );
        assert_eq!(unseen.look(5000, 0, &listed(&["3/7 100"])), (1000, false));
        assert_eq!(unseen.look(6000, 0, &listed(&["prepared/80 5999"])), (2000, false), "that of 3/7");
    }

    #[test]
    fn what_was_prepared_before_the_first_look_may_be_older_than_it_says() {
        let mut unseen = Unseen::default();
        assert_eq!(unseen.look(1000, 0, &listed(&["prepared/7 900"])), (100, true));
        assert_eq!(unseen.look(2000, 0, &listed(&["prepared/7 900"])), (1100, true));
        assert_eq!(unseen.look(3000, 0, &[]), (0, false));
    }

    #[test]
    fn a_clock_that_was_set_back_bounds_nothing() {
        let mut unseen = Unseen::default();
        unseen.look(9000, 0, &[]);
        assert_eq!(unseen.look(1000, 0, &listed(&["3/7 100"])), (900, false));
    }
}

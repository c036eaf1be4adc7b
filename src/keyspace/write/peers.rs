//! How the other instances are configured, as far as that matters for what they announce: the longest windows count, and other keys are a loss.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::fleet::{LogEntry, LogEntryKind, LogPage, Terms, WriterId};
use crate::key::KeyForm;

/// How often an instance registers. One that was silent for twice as long is taken to have announced nothing since.
pub(crate) const REGISTER_EVERY: Duration = Duration::from_secs(5);
/// Instances that are told apart; further ones count with their windows only.
const TOLD_APART: usize = 1024;

/// The other instances of one keyspace.
#[derive(Debug)]
pub(crate) struct Peers {
    /// Of this instance; its form stands aside, for it may be learnt later.
    own: Terms,
    /// No window of others counts for longer: the log reaches back no further.
    longest: Duration,
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    instances: HashMap<WriterId, Instance>,
    /// Windows of those that are not told apart, and of this instance before its restart.
    others: Vec<(Windows, Moment)>,
}

#[derive(Debug)]
struct Instance {
    terms: Terms,
    host: String,
    /// It has written to the log, and not only registered.
    wrote: bool,
    /// What it announced last is visible by then.
    until: Moment,
}

/// For how long announces matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) window: Duration,
    pub(crate) deadline: Duration,
}

impl Windows {
    /// How long an announce is remembered, and its mark lives: a lookup of the slowest instance may end a deadline after the row became visible.
    pub(crate) fn life(&self) -> Duration {
        self.window.saturating_add(self.deadline)
    }

    fn or_longer(&self, other: &Self) -> Self {
        Self { window: self.window.max(other.window), deadline: self.deadline.max(other.deadline) }
    }
}

impl Peers {
    /// `longest`: how far back the log reaches; `None`: there is no log.
    pub(crate) fn new(own: Terms, longest: Option<Duration>) -> Self {
        Self { own, longest: longest.unwrap_or(Duration::MAX), heard: Mutex::default() }
    }

    /// Terms of this instance.
    pub(crate) fn own(&self, form: Option<KeyForm>) -> Terms {
        Terms { form: Terms::new(form, 0, Duration::ZERO, Duration::ZERO).form, ..self.own }
    }

    fn windows_of(&self, terms: &Terms) -> Windows {
        Windows { window: terms.commit_window().min(self.longest), deadline: terms.deadline().min(self.longest) }
    }

    /// Until this moment announces of before a restart, under these windows, may be still to come.
    pub(crate) fn before_restart(&self, windows: Windows, now: Moment) {
        self.heard.lock().others.push((windows, now.plus(windows.life())));
    }

    /// An instance registered, or wrote an entry, at `at`.
    fn heard(&self, writer: WriterId, terms: Terms, host: Option<&str>, at: Moment) {
        let windows = self.windows_of(&terms);
        let until = at.plus(REGISTER_EVERY * 2).plus(windows.life());
        let mut heard = self.heard.lock();
        let room = heard.instances.len() < TOLD_APART;
        match heard.instances.get_mut(&writer) {
            // The same process may have learnt its form meanwhile. What it announced before under a longer window does not exist: windows need a restart.
            Some(known) => {
                known.until = known.until.max(until);
                known.wrote |= host.is_none();
                known.host = host.map_or_else(|| std::mem::take(&mut known.host), str::to_owned);
                if terms.form != 0 {
                    known.terms = terms;
                }
            }
            None if room => {
                let known = Instance { terms, host: host.unwrap_or_default().to_owned(), wrote: host.is_none(), until };
                heard.instances.insert(writer, known);
            }
            None => self.heard_beside(&mut heard.others, windows, until),
        }
    }

    /// One of more instances than are told apart.
    fn heard_beside(&self, others: &mut Vec<(Windows, Moment)>, windows: Windows, until: Moment) {
        if let Some((_, last)) = others.iter_mut().find(|(known, _)| *known == windows) {
            *last = (*last).max(until);
        } else if others.len() < TOLD_APART {
            others.push((windows, until));
        } else {
            // So many configurations are nobody's: the longest that is possible covers them.
            *others = vec![(Windows { window: self.longest, deadline: windows.deadline }, until.plus(self.longest))];
        }
    }

    /// The longest windows that count now: this instance's, and those of all whose announces may be still to come.
    pub(crate) fn windows(&self, now: Moment) -> Windows {
        let mut heard = self.heard.lock();
        heard.instances.retain(|_, instance| instance.until > now);
        heard.others.retain(|(_, until)| *until > now);
        let own = Windows { window: self.own.commit_window(), deadline: self.own.deadline() };
        let of_instances = heard.instances.values().map(|instance| self.windows_of(&instance.terms));
        of_instances
            .chain(heard.others.iter().map(|(windows, _)| *windows))
            .fold(own, |longest, one| longest.or_longer(&one))
    }

    /// Records who wrote a page's entries and who registered.
    pub(crate) fn record(&self, ours: WriterId, page: &LogPage, now: Moment) {
        for peer in &page.peers {
            let at = now.minus(peer.ago).unwrap_or(now);
            self.heard(peer.writer, peer.terms, Some(&peer.host), at);
        }
        let entries = page.entries.iter().filter_map(|(_, entry)| entry.as_ref()).filter(|entry| entry.writer != ours);
        for (writer, terms) in entries.filter_map(|entry| Some((entry.writer, entry.delta.terms?))) {
            self.heard(writer, terms, None, now);
        }
    }

    /// Why the entries of another instance can't be applied here: its keys are not ours. `None`: all can.
    pub(crate) fn objection_to(&self, ours: WriterId, entries: &[LogEntry], form: Option<KeyForm>) -> Option<String> {
        let others = entries.iter().filter(|entry| entry.writer != ours && entry.delta.kind != LogEntryKind::Gap);
        let objection = |entry: &LogEntry| match &entry.delta.terms {
            Some(terms) => self.objection(terms, form),
            None => Some("its release does not tell which".into()),
        };
        let (writer, what) = others.rev().find_map(|entry| Some((entry.writer, objection(entry)?)))?;
        Some(self.describe(writer, &what))
    }

    /// For an operator: instances that are configured otherwise.
    pub(crate) fn warnings(&self, form: Option<KeyForm>) -> Vec<String> {
        let mut warnings = self.objections(form, false);
        warnings.extend(self.other_windows());
        warnings
    }

    /// Why what an instance writes under these terms can't be followed here; `None`: it can.
    fn objection(&self, terms: &Terms, form: Option<KeyForm>) -> Option<String> {
        let mut ours = self.own(form);
        if ours.form == 0 || terms.form == 0 {
            ours.form = terms.form;
        }
        let differs = terms.differs(&ours);
        if !differs.is_empty() {
            return Some(differs);
        }
        (terms.commit_window() > self.longest).then(|| {
            format!(
                "its commit_window is {}, longer than redis.log.retention = {} here",
                humantime::format_duration(terms.commit_window()),
                humantime::format_duration(self.longest)
            )
        })
    }

    /// `instance 00c0ffee… (web-1) runs another configuration: …`.
    fn describe(&self, writer: WriterId, what: &str) -> String {
        let host =
            self.heard.lock().instances.get(&writer).map(|known| known.host.clone()).filter(|host| !host.is_empty());
        let host = host.map(|host| format!(" ({host})")).unwrap_or_default();
        format!("instance {writer}{host} runs another configuration: {what}")
    }

    /// Of those that have written, who can't be followed by keys of this form.
    pub(crate) fn objections(&self, form: Option<KeyForm>, wrote: bool) -> Vec<String> {
        let known: Vec<(WriterId, Terms)> = self
            .heard
            .lock()
            .instances
            .iter()
            .filter(|(_, known)| known.wrote || !wrote)
            .map(|(writer, known)| (*writer, known.terms))
            .collect();
        known
            .into_iter()
            .filter_map(|(writer, terms)| Some(self.describe(writer, &self.objection(&terms, form)?)))
            .collect()
    }

    /// What of windows differs, for people.
    fn other_windows(&self) -> Vec<String> {
        let (window, deadline) = (self.own.window, self.own.deadline);
        let heard = self.heard.lock();
        let others = heard
            .instances
            .iter()
            .filter(|(_, known)| known.terms.window != window || known.terms.deadline != deadline);
        let told = |(writer, known): (&WriterId, &Instance)| {
            format!(
                "instance {writer} ({}) runs another configuration: its commit_window is {}, its deadline {}; the longest ones count",
                known.host,
                humantime::format_duration(known.terms.commit_window()),
                humantime::format_duration(known.terms.deadline())
            )
        };
        others.map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn terms(form: KeyForm, window: Duration) -> Terms {
        Terms::new(Some(form), 7, window, SECOND)
    }

    fn peers() -> Peers {
        Peers::new(terms(KeyForm::Integer, SECOND * 10), Some(SECOND * 3600))
    }

    #[test]
    fn the_longest_window_counts_until_its_instance_is_gone() {
        let (peers, start) = (peers(), Moment::from_nanos(0));
        assert_eq!(peers.windows(start).window, SECOND * 10);
        let writer = WriterId::random();
        peers.heard(writer, terms(KeyForm::Integer, SECOND * 60), Some("web-1"), start);
        peers.heard(WriterId::random(), terms(KeyForm::Integer, SECOND), None, start);
        assert_eq!(peers.windows(start), Windows { window: SECOND * 60, deadline: SECOND });
        let last = start.plus(SECOND * 20);
        peers.heard(writer, terms(KeyForm::Integer, SECOND * 60), None, last);
        // Silent for twice the pause between two registrations, a window and a deadline.
        let end = last.plus(REGISTER_EVERY * 2 + SECOND * 61);
        assert_eq!(peers.windows(end.minus(SECOND / 1000).unwrap()).window, SECOND * 60);
        assert_eq!(peers.windows(end).window, SECOND * 10);
    }

    #[test]
    fn an_absurd_window_is_held_no_longer_than_the_log_and_is_told() {
        let (peers, start) = (peers(), Moment::from_nanos(0));
        let absurd = terms(KeyForm::Integer, Duration::MAX);
        peers.heard(WriterId::random(), absurd, None, start);
        assert_eq!(peers.windows(start).window, SECOND * 3600);
        let told = peers.objection(&absurd, Some(KeyForm::Integer)).unwrap();
        assert!(told.contains("longer than redis.log.retention = 1h here"), "{told}");
        assert_eq!(peers.windows(start.plus(SECOND * 3700)).window, SECOND * 10, "it lapses like any other");
    }

    #[test]
    fn more_instances_than_are_told_apart_count_with_their_windows() {
        let (peers, start) = (peers(), Moment::from_nanos(0));
        for n in 0..2 * TOLD_APART as u64 {
            peers.heard(
                WriterId::random(),
                terms(KeyForm::Integer, SECOND * 20 + SECOND / 1000 * n as u32),
                None,
                start,
            );
        }
        assert!(peers.windows(start).window >= SECOND * 20 + SECOND / 1000 * (2 * TOLD_APART as u32 - 1));
        let heard = peers.heard.lock();
        assert!(heard.instances.len() <= TOLD_APART && heard.others.len() <= TOLD_APART);
    }

    #[test]
    fn other_keys_are_objected_to_and_other_windows_are_not() {
        let (peers, form) = (peers(), Some(KeyForm::Integer));
        assert_eq!(peers.objection(&terms(KeyForm::Integer, SECOND), form), None);
        assert!(peers.objection(&terms(KeyForm::Text, SECOND), form).is_some());
        assert!(peers.objection(&Terms { data: 8, ..terms(KeyForm::Integer, SECOND) }, form).is_some());
        // Where one of the two is not known yet, nothing can be said of it.
        assert_eq!(peers.objection(&terms(KeyForm::Text, SECOND), None), None);
        assert_eq!(peers.objection(&Terms { form: 0, ..terms(KeyForm::Text, SECOND) }, form), None);
    }

    #[test]
    fn windows_of_before_a_restart_count_until_they_have_closed() {
        let (peers, start) = (peers(), Moment::from_nanos(0));
        peers.before_restart(Windows { window: SECOND * 100, deadline: SECOND * 2 }, start);
        assert_eq!(peers.windows(start.plus(SECOND * 101)), Windows { window: SECOND * 100, deadline: SECOND * 2 });
        assert_eq!(peers.windows(start.plus(SECOND * 102)), Windows { window: SECOND * 10, deadline: SECOND });
    }
}

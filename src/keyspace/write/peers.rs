//! How other instances are configured, as far as that affects their announces: the longest windows of the fleet apply,
//! and announces of instances with other keys can't be applied.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::fleet::{LogEntry, LogEntryKind, LogPage, Roster, Terms, WriterId};
use crate::key::KeyForm;

/// How often an instance registers. An instance that was silent for twice as long is assumed to have announced nothing
/// since.
pub(crate) const REGISTER_EVERY: Duration = Duration::from_secs(5);
/// Instances tracked individually; of further ones only the windows count.
const MAX_INSTANCES: usize = 1024;

/// The other instances of one keyspace.
#[derive(Debug)]
pub(crate) struct Peers {
    /// Of this instance, without the key form, which may become known later.
    own: Terms,
    /// Upper bound for the windows of others: the log reaches back no further.
    longest: Duration,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    instances: HashMap<WriterId, Instance>,
    /// Windows of instances that are not tracked, of the roster's, and of this instance before its restart.
    others: Vec<(Windows, Moment)>,
}

#[derive(Debug)]
struct Instance {
    terms: Terms,
    host: String,
    /// True if it has written to the log; false if it has only registered.
    wrote: bool,
    /// When the window of its last announce closes.
    until: Moment,
}

/// How long announces matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) window: Duration,
    pub(crate) deadline: Duration,
}

impl Windows {
    /// How long an announce is remembered and its mark lives: a lookup of the slowest instance may end one deadline
    /// after the row became visible.
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
        Self { own, longest: longest.unwrap_or(Duration::MAX), known: Mutex::default() }
    }

    /// Terms of this instance.
    pub(crate) fn own(&self, form: Option<KeyForm>) -> Terms {
        Terms { form: Terms::new(form, 0, Duration::ZERO, Duration::ZERO).form, ..self.own }
    }

    fn windows_of(&self, terms: &Terms) -> Windows {
        Windows { window: terms.commit_window().min(self.longest), deadline: terms.deadline().min(self.longest) }
    }

    /// Announces from before a restart, under these windows, may still arrive.
    pub(crate) fn before_restart(&self, windows: Windows, now: Moment) {
        self.known.lock().others.push((windows, now.plus(windows.life())));
    }

    /// An instance registered, or wrote an entry, at `at`.
    fn seen(&self, writer: WriterId, terms: Terms, host: Option<&str>, at: Moment) {
        let windows = self.windows_of(&terms);
        let until = at.plus(REGISTER_EVERY * 2).plus(windows.life());
        let mut known = self.known.lock();
        let room = known.instances.len() < MAX_INSTANCES;
        match known.instances.get_mut(&writer) {
            // A process may have learnt its key form since. Its earlier announces had the same windows: changing those
            // needs a restart.
            Some(instance) => {
                instance.until = instance.until.max(until);
                instance.wrote |= host.is_none();
                instance.host = host.map_or_else(|| std::mem::take(&mut instance.host), str::to_owned);
                if terms.form != 0 {
                    instance.terms = terms;
                }
            }
            None if room => {
                let instance =
                    Instance { terms, host: host.unwrap_or_default().to_owned(), wrote: host.is_none(), until };
                known.instances.insert(writer, instance);
            }
            None => self.record_overflow(&mut known.others, windows, until),
        }
    }

    /// Records windows without their instance.
    fn record_overflow(&self, others: &mut Vec<(Windows, Moment)>, windows: Windows, until: Moment) {
        if let Some((_, last)) = others.iter_mut().find(|(known, _)| *known == windows) {
            *last = (*last).max(until);
        } else if others.len() < MAX_INSTANCES {
            others.push((windows, until));
        } else {
            // No fleet has this many configurations: the longest possible window covers all of them.
            *others = vec![(Windows { window: self.longest, deadline: windows.deadline }, until.plus(self.longest))];
        }
    }

    /// The longest active windows: of this instance, and of all instances whose announces may still arrive.
    pub(crate) fn windows(&self, now: Moment) -> Windows {
        let mut known = self.known.lock();
        known.instances.retain(|_, instance| instance.until > now);
        known.others.retain(|(_, until)| *until > now);
        let own = Windows { window: self.own.commit_window(), deadline: self.own.deadline() };
        let of_instances = known.instances.values().map(|instance| self.windows_of(&instance.terms));
        of_instances
            .chain(known.others.iter().map(|(windows, _)| *windows))
            .fold(own, |longest, one| longest.or_longer(&one))
    }

    /// Records the instances that wrote a page's entries, and those that registered.
    pub(crate) fn record(&self, ours: WriterId, page: &LogPage, now: Moment) {
        for peer in &page.peers {
            let at = now.minus(peer.ago).unwrap_or(now);
            self.seen(peer.writer, peer.terms, Some(&peer.host), at);
        }
        let entries = page.entries.iter().filter_map(|(_, entry)| entry.as_ref()).filter(|entry| entry.writer != ours);
        for (writer, terms) in entries.filter_map(|entry| Some((entry.writer, entry.delta.terms?))) {
            self.seen(writer, terms, None, now);
        }
    }

    /// Records the windows of the roster's members, which announced until now. For a reader that begins: the register
    /// may have been lost alone.
    pub(crate) fn record_members(&self, roster: &Roster, now: Moment) {
        for member in &roster.members {
            let windows = Windows { window: member.terms.window.min(self.longest), deadline: self.own.deadline() };
            let until = now.plus(REGISTER_EVERY * 2).plus(windows.life());
            self.record_overflow(&mut self.known.lock().others, windows, until);
        }
    }

    /// Why entries of another instance can't be applied: its keys differ. `None`: all can.
    pub(crate) fn objection_to(&self, ours: WriterId, entries: &[LogEntry], form: Option<KeyForm>) -> Option<String> {
        let others = entries.iter().filter(|entry| entry.writer != ours && entry.delta.kind != LogEntryKind::Gap);
        let objection = |entry: &LogEntry| match &entry.delta.terms {
            Some(terms) => self.objection(terms, form),
            None => Some("its release does not say which".into()),
        };
        let (writer, what) = others.rev().find_map(|entry| Some((entry.writer, objection(entry)?)))?;
        Some(self.describe(writer, &what))
    }

    /// For an operator: instances with another configuration.
    pub(crate) fn warnings(&self, form: Option<KeyForm>) -> Vec<String> {
        let mut warnings = self.objections(form, false);
        warnings.extend(self.other_windows());
        warnings
    }

    /// Why entries written under these terms can't be followed here; `None`: they can.
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
        let host = self
            .known
            .lock()
            .instances
            .get(&writer)
            .map(|instance| instance.host.clone())
            .filter(|host| !host.is_empty());
        let host = host.map(|host| format!(" ({host})")).unwrap_or_default();
        format!("instance {writer}{host} runs another configuration: {what}")
    }

    /// Why instances can't be followed with keys of this form; `wrote`: only those that have written.
    pub(crate) fn objections(&self, form: Option<KeyForm>, wrote: bool) -> Vec<String> {
        let known: Vec<(WriterId, Terms)> = self
            .known
            .lock()
            .instances
            .iter()
            .filter(|(_, instance)| instance.wrote || !wrote)
            .map(|(writer, instance)| (*writer, instance.terms))
            .collect();
        known
            .into_iter()
            .filter_map(|(writer, terms)| Some(self.describe(writer, &self.objection(&terms, form)?)))
            .collect()
    }

    /// For an operator: instances with other windows.
    fn other_windows(&self) -> Vec<String> {
        let (window, deadline) = (self.own.window, self.own.deadline);
        let known = self.known.lock();
        let others = known
            .instances
            .iter()
            .filter(|(_, instance)| instance.terms.window != window || instance.terms.deadline != deadline);
        let describe = |(writer, instance): (&WriterId, &Instance)| {
            format!(
                "instance {writer} ({}) runs another configuration: its commit_window is {}, \
                 its deadline {}; the longest ones apply",
                instance.host,
                humantime::format_duration(instance.terms.commit_window()),
                humantime::format_duration(instance.terms.deadline())
            )
        };
        others.map(describe).collect()
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
        peers.seen(writer, terms(KeyForm::Integer, SECOND * 60), Some("web-1"), start);
        peers.seen(WriterId::random(), terms(KeyForm::Integer, SECOND), None, start);
        assert_eq!(peers.windows(start), Windows { window: SECOND * 60, deadline: SECOND });
        let last = start.plus(SECOND * 20);
        peers.seen(writer, terms(KeyForm::Integer, SECOND * 60), None, last);
        // Silent for two registration intervals, a window and a deadline.
        let end = last.plus(REGISTER_EVERY * 2 + SECOND * 61);
        assert_eq!(peers.windows(end.minus(SECOND / 1000).unwrap()).window, SECOND * 60);
        assert_eq!(peers.windows(end).window, SECOND * 10);
    }

    #[test]
    fn an_absurd_window_is_capped_at_the_log_retention_and_reported() {
        let (peers, start) = (peers(), Moment::from_nanos(0));
        let absurd = terms(KeyForm::Integer, Duration::MAX);
        peers.seen(WriterId::random(), absurd, None, start);
        assert_eq!(peers.windows(start).window, SECOND * 3600);
        let objection = peers.objection(&absurd, Some(KeyForm::Integer)).unwrap();
        assert!(objection.contains("longer than redis.log.retention = 1h here"), "{objection}");
        assert_eq!(peers.windows(start.plus(SECOND * 3700)).window, SECOND * 10, "it lapses like any other");
    }

    #[test]
    fn instances_beyond_the_limit_count_with_their_windows() {
        let (peers, start) = (peers(), Moment::from_nanos(0));
        for n in 0..2 * MAX_INSTANCES as u64 {
            peers.seen(
                WriterId::random(),
                terms(KeyForm::Integer, SECOND * 20 + SECOND / 1000 * n as u32),
                None,
                start,
            );
        }
        assert!(peers.windows(start).window >= SECOND * 20 + SECOND / 1000 * (2 * MAX_INSTANCES as u32 - 1));
        let known = peers.known.lock();
        assert!(known.instances.len() <= MAX_INSTANCES && known.others.len() <= MAX_INSTANCES);
    }

    #[test]
    fn other_keys_are_objected_to_and_other_windows_are_not() {
        let (peers, form) = (peers(), Some(KeyForm::Integer));
        assert_eq!(peers.objection(&terms(KeyForm::Integer, SECOND), form), None);
        assert!(peers.objection(&terms(KeyForm::Text, SECOND), form).is_some());
        assert!(peers.objection(&Terms { data: 8, ..terms(KeyForm::Integer, SECOND) }, form).is_some());
        // If one of the two forms is unknown, they can't be compared.
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

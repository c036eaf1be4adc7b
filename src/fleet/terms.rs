//! What instances must agree on to understand each other's entries: [`Terms`].

use std::fmt::Write;
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use super::writer::WriterId;
use crate::key::KeyForm;

/// What a hash in the log stands for, and how long it matters, as the writing instance is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    /// Fingerprint of the key form; 0: not known yet.
    pub form: u32,
    /// Fingerprint of which rows the keys stand for.
    pub data: u64,
    /// `commit_window`, milliseconds.
    pub window: u32,
    /// `deadline`, milliseconds.
    pub deadline: u32,
}

impl Terms {
    /// The terms of an instance with this configuration.
    #[must_use]
    pub fn new(form: Option<KeyForm>, data: u64, window: Duration, deadline: Duration) -> Self {
        Self { form: form.map_or(0, fingerprint), data, window: millis(window), deadline: millis(deadline) }
    }

    /// `commit_window`.
    #[must_use]
    pub const fn commit_window(&self) -> Duration {
        Duration::from_millis(self.window as u64)
    }

    /// `deadline`.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline as u64)
    }

    /// The text between writer and host in the register.
    pub(super) fn suffix(&self) -> String {
        let Self { form, data, window, deadline } = self;
        format!("{form:08x} {data:016x} {window} {deadline}")
    }

    /// Returns true if a hash means the same key to both.
    #[must_use]
    pub const fn same_keys(&self, other: &Self) -> bool {
        self.form == other.form && self.data == other.data
    }

    /// How the keys of `self` differ from `ours`, in words; empty if they don't.
    #[must_use]
    pub fn differs(&self, ours: &Self) -> String {
        let mut told = String::new();
        if self.form != ours.form {
            // Writing to a `String` can't fail.
            let _ = write!(told, "its key form is {}, here {}", form_name(self.form), form_name(ours.form));
        }
        if self.data != ours.data {
            let and = if told.is_empty() { "" } else { ", and " };
            let _ = write!(told, "{and}its backend or source is another one");
        }
        told
    }
}

/// An instance with registered terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its process.
    pub writer: WriterId,
    /// Its terms.
    pub terms: Terms,
    /// Name of its host.
    pub host: String,
    /// Time since its last registration, by the server's clock.
    pub ago: Duration,
}

impl Peer {
    /// Its text in the register. `enrols`: all that it announces is announced as a member of the roster.
    pub(super) fn text(writer: WriterId, terms: &Terms, host: &str, enrols: bool) -> String {
        format!("v1 {writer} {} {host}{}", terms.suffix(), if enrols { ENROLS } else { "" })
    }

    /// Reads the text of [`Peer::text`]; `None` for another form.
    pub(super) fn parse(text: &str, ago: Duration) -> Option<Self> {
        let parts: Vec<&str> = text.splitn(7, ' ').collect();
        let ["v1", writer, form, data, window, deadline, host] = parts[..] else { return None };
        let terms = Terms {
            form: u32::from_str_radix(form, 16).ok()?,
            data: u64::from_str_radix(data, 16).ok()?,
            window: window.parse().ok()?,
            deadline: deadline.parse().ok()?,
        };
        let host = host.strip_suffix(ENROLS).unwrap_or(host);
        let host: String = host.chars().filter(|c| !c.is_control()).take(HOST_CHARS).collect();
        Some(Self { writer: WriterId(u64::from_str_radix(writer, 16).ok()?), terms, host, ago })
    }
}

/// Stands at the end of an instance's text.
const ENROLS: &str = " enrols";

/// Characters of a host's name that are kept.
pub(super) const HOST_CHARS: usize = 64;

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn fingerprint(form: KeyForm) -> u32 {
    // Never 0, which stands for a form that is not known.
    (xxh3_64(form.as_str().as_bytes()) as u32).max(1)
}

fn form_name(form: u32) -> &'static str {
    match KeyForm::ALL.into_iter().find(|known| fingerprint(*known) == form) {
        Some(known) => known.as_str(),
        None if form == 0 => "not known yet",
        None => "unknown to this release",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(form: KeyForm, data: u64) -> Terms {
        Terms::new(Some(form), data, Duration::from_secs(30), Duration::from_millis(300))
    }

    #[test]
    fn what_differs_is_told_in_words() {
        let ours = terms(KeyForm::Integer, 1);
        assert_eq!(ours.differs(&ours), "");
        assert_eq!(terms(KeyForm::Text, 1).differs(&ours), "its key form is text, here integer");
        assert_eq!(terms(KeyForm::Integer, 2).differs(&ours), "its backend or source is another one");
        assert_eq!(
            terms(KeyForm::Uuid, 2).differs(&ours),
            "its key form is uuid, here integer, and its backend or source is another one"
        );
        assert!(Terms { form: 77, ..ours }.differs(&ours).contains("unknown to this release"));
    }

    /// Other instances read this text: this test changes only together with its form.
    #[test]
    fn a_peer_is_registered_as_documented_and_comes_back() {
        let (terms, ago) = (Terms { form: 0xab, data: 7, window: 30_000, deadline: 300 }, Duration::from_secs(3));
        let enrolling = Peer::text(WriterId(0x0a), &terms, "web 1", true);
        assert_eq!(enrolling, "v1 000000000000000a 000000ab 0000000000000007 30000 300 web 1 enrols");
        assert_eq!(Peer::parse(&enrolling, ago).unwrap().host, "web 1");
        let text = Peer::text(WriterId(0x0a), &terms, "web 1", false);
        assert_eq!(text, "v1 000000000000000a 000000ab 0000000000000007 30000 300 web 1");
        assert_eq!(Peer::parse(&text, ago), Some(Peer { writer: WriterId(0x0a), terms, host: "web 1".into(), ago }));
        for strange in ["", "v1", "v2 a b c 1 2 h", "v1 x 1 1 1 1 h", "v1 a 1 1 -1 1 h", "v1 a 1 1 1 h"] {
            assert_eq!(Peer::parse(strange, ago), None, "{strange}");
        }
    }

    #[test]
    fn absurd_durations_are_as_long_as_can_be_told() {
        let absurd = Terms::new(None, 0, Duration::MAX, Duration::MAX);
        assert_eq!((absurd.window, absurd.deadline), (u32::MAX, u32::MAX));
    }
}

//! The members of a keyspace: the keys of the last scan, and those announced and deleted since.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parking_lot::RwLock;
use serde::Serialize;

use super::KeySet;
use super::notes::{Note, Notes};
use crate::backend::{ContentType, Value};
use crate::clock::Moment;
use crate::key::{Key, KeyForm, KeyHash};

/// Every existing key, by the last scan and the announces and deletes since.
///
/// One lock covers set and notes, so that a scan's beginning, its swap, an announce and a delete are ordered: the notes
/// of a scan begin with its predecessor's at that moment, and miss nothing from then on.
#[derive(Debug)]
pub struct Members {
    form: Arc<OnceLock<KeyForm>>,
    state: RwLock<SetState>,
}

#[derive(Debug, Default)]
struct SetState {
    /// How long a row may take after its announce.
    window: Duration,
    set: Option<Arc<KeySet>>,
    /// Notes since the scan of `set` began, with announces that were within their window then.
    notes: Notes,
    /// The same for the scan under way.
    next: Option<Notes>,
}

/// Whether a key is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// It was scanned, and not deleted since.
    Scanned,
    /// It was announced since the scan.
    Announced,
    /// Neither. Whether it is absent then depends on the age of the last scan.
    Stranger,
    /// Unknown: no scan yet, or announces were lost.
    Unknown,
}

/// Size of the set, for `/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SetStatus {
    /// Keys of the last scan.
    pub keys: u64,
    /// Bytes used.
    pub bytes: u64,
    /// Keys announced since.
    pub announced: u64,
    /// Keys deleted since.
    pub removed: u64,
}

impl Members {
    /// The maximum of bytes for the notes of the active set and of a scan under way.
    pub const NOTES_BYTES: u64 = 2 * Notes::BYTES;

    /// No set yet. `window`: how long a row may take after its announce, including a lookup's deadline. `form`: empty
    /// until it is known.
    #[must_use]
    pub fn new(form: Arc<OnceLock<KeyForm>>, window: Duration) -> Self {
        Self { form, state: RwLock::new(SetState { window, ..SetState::default() }) }
    }

    /// From now on announces count for this long: another instance's rows may take longer than this one's.
    pub fn set_life(&self, window: Duration) {
        if self.state.read().window != window {
            self.state.write().window = window;
        }
    }

    /// Whether the key is a member.
    #[must_use]
    pub fn look_up(&self, hash: KeyHash, key: &Key) -> Membership {
        let (note, complete, set) = {
            let state = self.state.read();
            (state.notes.get(hash), state.notes.lost_until().is_none(), state.set.clone())
        };
        match (note, &set) {
            (Some(Note::Announced(_)), _) => Membership::Announced,
            (None, Some(set)) if set.contains(key) => Membership::Scanned,
            (_, Some(_)) if complete => Membership::Stranger,
            _ => Membership::Unknown,
        }
    }

    /// The answer for a member.
    #[must_use]
    pub fn value(&self, key: &Key) -> Value {
        let body = match (key.as_str(), self.form.get()) {
            // Canonical integers are JSON numbers already.
            (Some(number), Some(KeyForm::Integer)) => format!("{{\"key\":{number}}}"),
            (Some(text), _) => serde_json::json!({ "key": text }).to_string(),
            (None, _) => serde_json::json!({ "key_base64": BASE64_STANDARD.encode(key.as_bytes()) }).to_string(),
        };
        Value { body: body.into(), content_type: ContentType::Json }
    }

    /// Records keys before their rows are committed. Returns true if a scan is due, to make room for further ones.
    pub fn announce(&self, hashes: &[KeyHash], now: Moment) -> bool {
        let urgency = |state: &SetState| (state.notes.is_crowded(), state.notes.lost_until().is_some());
        let mut state = self.state.write();
        let (before, until) = (urgency(&state), now.plus(state.window));
        let SetState { notes, next, .. } = &mut *state;
        for notes in std::iter::once(&mut *notes).chain(next) {
            hashes.iter().for_each(|hash| notes.announce(*hash, until));
        }
        // Returned once each: a scan under way makes room by itself, or is tried again.
        urgency(&state) != before && state.next.is_none()
    }

    /// Records that a row was deleted.
    pub fn remove(&self, hash: KeyHash, key: &Key, now: Moment) {
        let mut state = self.state.write();
        let SetState { set, notes, next, .. } = &mut *state;
        // A key that is not held takes no room.
        if notes.get(hash).is_some() || set.as_ref().is_some_and(|set| set.contains(key)) {
            notes.remove(hash, now);
        }
        if let Some(next) = next {
            next.remove(hash, now);
        }
    }

    /// A scan begins, or is about to: from now on announces and deletes are recorded for it too.
    pub fn begin(&self, now: Moment) {
        let mut state = self.state.write();
        state.next = Some(state.notes.unseen_by_scan(now));
    }

    /// The scan failed.
    pub fn withdraw(&self) {
        self.state.write().next = None;
    }

    /// Activates the keys of the scan that began. Returns the former ones, to be dropped under no lock: gigabytes may
    /// be freed.
    pub fn swap(&self, set: KeySet) -> impl Sized + use<> {
        let mut state = self.state.write();
        // Without a beginning it is unknown what the scan has seen: it may miss every announce.
        let notes = state.next.take().unwrap_or_else(|| state.notes.unseen_by_scan(Moment::NEVER));
        let window = state.window;
        std::mem::replace(&mut *state, SetState { window, set: Some(Arc::new(set)), notes, next: None })
    }

    /// When a scan must begin to see the lost announces; `None` if none were lost.
    #[must_use]
    pub fn lost_until(&self) -> Option<Moment> {
        self.state.read().notes.lost_until()
    }

    /// Its size.
    #[must_use]
    pub fn status(&self) -> SetStatus {
        let state = self.state.read();
        let (keys, bytes) = state.set.as_ref().map_or((0, 0), |set| (set.len() as u64, set.bytes()));
        SetStatus { keys, bytes, announced: state.notes.announced() as u64, removed: state.notes.removed() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::KeySetBuilder;
    use crate::key::KeySecret;

    const WINDOW: Duration = Duration::from_secs(40);

    fn members() -> Members {
        Members::new(Arc::new(OnceLock::from(KeyForm::Text)), WINDOW)
    }

    fn at(second: u64) -> Moment {
        Moment::from_nanos(second * 1_000_000_000)
    }

    fn key(text: &str) -> (KeyHash, Key) {
        let key = KeyForm::Text.canonical(text.as_bytes()).unwrap();
        (KeySecret::new([7; KeySecret::LEN]).hash(&key), key)
    }

    fn scanned(keys: &[&str]) -> KeySet {
        let mut builder = KeySetBuilder::new(KeyForm::Text);
        builder.extend(&keys.iter().map(|text| key(text).1).collect()).unwrap();
        builder.finish()
    }

    impl Members {
        fn tell(&self, text: &str) -> Membership {
            let (hash, key) = key(text);
            self.look_up(hash, &key)
        }

        fn announced(&self, text: &str, second: u64) {
            self.announce(&[key(text).0], at(second));
        }

        fn deleted(&self, text: &str, second: u64) {
            let (hash, key) = key(text);
            self.remove(hash, &key, at(second));
        }
    }

    #[test]
    fn before_the_first_scan_nobody_is_a_stranger() {
        let members = members();
        members.announced("a", 1);
        members.deleted("b", 1);
        assert_eq!(
            (members.tell("a"), members.tell("b"), members.tell("c")),
            (Membership::Announced, Membership::Unknown, Membership::Unknown)
        );
        members.begin(at(2));
        assert_eq!(members.tell("c"), Membership::Unknown);
        members.swap(scanned(&["c"]));
        assert_eq!(
            (members.tell("a"), members.tell("b"), members.tell("c")),
            (Membership::Announced, Membership::Stranger, Membership::Scanned)
        );
    }

    #[test]
    fn an_announce_counts_until_a_scan_that_began_after_its_window() {
        let members = members();
        members.announced("before", 10);
        members.begin(at(20));
        members.announced("during", 30);
        members.swap(scanned(&[]));
        assert_eq!((members.tell("before"), members.tell("during")), (Membership::Announced, Membership::Announced));
        members.begin(at(50));
        members.swap(scanned(&[]));
        assert_eq!((members.tell("before"), members.tell("during")), (Membership::Stranger, Membership::Announced));
        members.begin(at(70));
        members.swap(scanned(&["during"]));
        assert_eq!(members.tell("during"), Membership::Scanned);
    }

    #[test]
    fn a_delete_hides_what_was_scanned_before_it_and_nothing_later() {
        let members = members();
        members.begin(at(1));
        members.swap(scanned(&["early", "late"]));
        members.deleted("early", 2);
        assert_eq!(members.tell("early"), Membership::Stranger);
        members.begin(at(3));
        members.deleted("late", 4);
        members.swap(scanned(&["early", "late"]));
        assert_eq!(members.tell("early"), Membership::Scanned, "it was there again, or still");
        assert_eq!(members.tell("late"), Membership::Stranger, "the scan may have read it before it was deleted");
    }

    #[test]
    fn a_late_delete_does_not_hide_the_row_that_is_announced_anew() {
        let members = members();
        members.begin(at(1));
        members.swap(scanned(&["again"]));
        members.announced("again", 10);
        members.deleted("again", 11);
        assert_eq!(members.tell("again"), Membership::Announced);
        // Nor if the scan under way has read the old row's absence.
        members.begin(at(12));
        members.deleted("again", 13);
        members.swap(scanned(&[]));
        assert_eq!(members.tell("again"), Membership::Announced);
    }

    #[test]
    fn a_scan_that_came_to_nothing_changes_nothing() {
        let members = members();
        members.begin(at(1));
        members.swap(scanned(&["a", "b"]));
        members.deleted("a", 2);
        members.announced("c", 3);
        members.begin(at(100));
        members.announced("d", 101);
        members.withdraw();
        let told = ["a", "b", "c", "d"].map(|text| members.tell(text));
        assert_eq!(told, [Membership::Stranger, Membership::Scanned, Membership::Announced, Membership::Announced]);
    }

    #[test]
    fn strangers_that_are_deleted_take_no_room() {
        let members = members();
        members.begin(at(1));
        members.swap(scanned(&["a"]));
        members.deleted("stranger", 2);
        members.deleted("a", 2);
        assert_eq!(members.status().removed, 1);
    }

    #[test]
    fn what_is_answered_names_the_key() {
        let value = |form: KeyForm, raw: &[u8]| {
            let members = Members::new(Arc::new(OnceLock::from(form)), WINDOW);
            String::from_utf8(members.value(&form.canonical(raw).unwrap()).body.to_vec()).unwrap()
        };
        assert_eq!(value(KeyForm::Integer, b"18446744073709551615"), r#"{"key":18446744073709551615}"#);
        assert_eq!(value(KeyForm::Text, b"42"), r#"{"key":"42"}"#);
        assert_eq!(value(KeyForm::Text, br#"a"b"#), r#"{"key":"a\"b"}"#);
        assert_eq!(value(KeyForm::Bytes, b"\xff\0"), r#"{"key_base64":"/wA="}"#);
    }
}

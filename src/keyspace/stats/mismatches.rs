//! What the filter got wrong lately, or would have: the latest false negatives and false positives, for whoever decides whether to enforce.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use serde::Serialize;

use crate::key::{Key, KeyHash};
use crate::keyspace::outcome::Probe;
use crate::labels::{FoundBy, MismatchKind, State};

/// Of each kind, so that the many false positives do not push out the few false negatives.
const LIMIT: usize = 100;

/// One answer of the filter that the backend contradicts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// What it got wrong.
    pub kind: MismatchKind,
    /// Unix time, seconds.
    pub found_unix: u64,
    /// What asked the backend.
    pub found_by: FoundBy,
    /// State of the keyspace when the filter was asked.
    pub state: State,
    /// The filter that was asked.
    pub generation: u64,
    /// Hash of the key under the keyspace's secret, the same for each mismatch of one key.
    pub key_hash: String,
    /// The key, where `reveal_keys` allows it and it is text …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// … else its bytes in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_base64: Option<String>,
}

/// The latest of them.
#[derive(Debug, Clone, Serialize)]
pub struct Mismatches {
    /// Whether keys are shown: `reveal_keys`.
    pub reveal_keys: bool,
    /// Rows that exist although the filter said absent; latest first.
    pub false_negatives: Vec<Mismatch>,
    /// Keys that the filter let pass and that don't exist; latest first. They cost a backend call each, and never an answer.
    pub false_positives: Vec<Mismatch>,
}

/// Bounded memory of mismatches.
#[derive(Debug)]
pub(super) struct MismatchLog(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    reveal_keys: bool,
    /// By kind; latest first.
    latest: [VecDeque<Noted>; MismatchKind::ALL.len()],
}

#[derive(Debug, Clone)]
struct Noted {
    found_unix: u64,
    found_by: FoundBy,
    probe: Probe,
    hash: KeyHash,
    /// `None` where keys are not to be shown: then they are not kept either.
    key: Option<Key>,
}

impl MismatchLog {
    pub(super) fn new(reveal_keys: bool) -> Self {
        Self(Mutex::new(Kept { reveal_keys, latest: Default::default() }))
    }

    /// Whether keys are shown from now on. Where not, those that are kept are forgotten.
    pub(super) fn reveal_keys(&self, reveal_keys: bool) {
        let mut kept = self.0.lock();
        kept.reveal_keys = reveal_keys;
        if !reveal_keys {
            kept.latest.iter_mut().flatten().for_each(|noted| noted.key = None);
        }
    }

    pub(super) fn note(&self, kind: MismatchKind, found_by: FoundBy, probe: Probe, hash: KeyHash, key: &Key) {
        let found_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut kept = self.0.lock();
        let noted = Noted { found_unix, found_by, probe, hash, key: kept.reveal_keys.then(|| key.clone()) };
        let of_kind = &mut kept.latest[kind as usize];
        of_kind.truncate(LIMIT - 1);
        of_kind.push_front(noted);
    }

    pub(super) fn show(&self) -> Mismatches {
        let [false_negatives, false_positives] =
            [MismatchKind::FalseNegative, MismatchKind::FalsePositive].map(|kind| self.shown(kind));
        Mismatches { reveal_keys: self.0.lock().reveal_keys, false_negatives, false_positives }
    }

    fn shown(&self, kind: MismatchKind) -> Vec<Mismatch> {
        let noted = self.0.lock().latest[kind as usize].clone();
        noted.into_iter().map(|noted| noted.show(kind)).collect()
    }
}

impl Noted {
    fn show(&self, kind: MismatchKind) -> Mismatch {
        let text = self.key.as_ref().and_then(Key::as_str).map(str::to_owned);
        let bytes = self.key.as_ref().filter(|_| text.is_none()).map(|key| BASE64_STANDARD.encode(key.as_bytes()));
        Mismatch {
            kind,
            found_unix: self.found_unix,
            found_by: self.found_by,
            state: self.probe.state,
            generation: self.probe.generation,
            key_hash: format!("{:032x}", self.hash.get()),
            key: text,
            key_base64: bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyForm, KeySecret};
    use crate::labels::Verdict;

    const PROBE: Probe = Probe { verdict: Verdict::Absent, state: State::Shadow, enforced: false, generation: 3 };

    fn key(bytes: &[u8]) -> (KeyHash, Key) {
        let key = KeyForm::Bytes.canonical(bytes).unwrap();
        (KeySecret::new([7; KeySecret::LEN]).hash(&key), key)
    }

    #[test]
    fn the_latest_of_each_kind_are_kept() {
        let memory = MismatchLog::new(true);
        let note = |kind, text: &str| {
            let (hash, key) = key(text.as_bytes());
            memory.note(kind, FoundBy::Lookup, PROBE, hash, &key);
        };
        note(MismatchKind::FalseNegative, "row");
        (0..1000).for_each(|n| note(MismatchKind::FalsePositive, &n.to_string()));
        let kept = memory.shown(MismatchKind::FalsePositive);
        assert_eq!((kept.len(), kept[0].key.as_deref(), kept[99].key.as_deref()), (100, Some("999"), Some("900")));
        assert_eq!(memory.shown(MismatchKind::FalseNegative)[0].key.as_deref(), Some("row"));
    }

    #[test]
    fn keys_that_are_no_more_to_be_shown_are_forgotten() {
        let (memory, (hash, row)) = (MismatchLog::new(true), key(b"row"));
        memory.note(MismatchKind::FalseNegative, FoundBy::Lookup, PROBE, hash, &row);
        for reveal in [false, true] {
            memory.reveal_keys(reveal);
            assert_eq!(memory.shown(MismatchKind::FalseNegative)[0].key, None);
        }
    }

    #[test]
    fn keys_are_shown_only_where_that_is_wanted_and_bytes_in_base64() {
        let (hash, bytes) = key(b"\xff\x00");
        for (reveal, shown) in [(true, Some("/wA=")), (false, None)] {
            let memory = MismatchLog::new(reveal);
            memory.note(MismatchKind::FalseNegative, FoundBy::Canary, PROBE, hash, &bytes);
            let mismatch = memory.shown(MismatchKind::FalseNegative).pop().unwrap();
            assert_eq!((mismatch.key, mismatch.key_base64.as_deref()), (None, shown));
            assert_eq!(mismatch.key_hash.len(), 32);
        }
    }
}

//! The latest false negatives and false positives of the filter, for the decision whether to enforce.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use serde::Serialize;

use crate::key::{Key, KeyHash};
use crate::keyspace::outcome::Probe;
use crate::labels::{FoundBy, MismatchKind, State};

/// Number kept of each kind, so that the many false positives do not push out the few false negatives.
const LIMIT: usize = 100;

/// One answer of the filter that the backend contradicts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The kind of mistake.
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
    /// The key, if `reveal_keys` allows it and it is text …
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
    /// Rows that exist although the filter answered absent; latest first.
    pub false_negatives: Vec<Mismatch>,
    /// Absent keys that passed the filter; latest first. Each cost a backend call, and none a wrong answer.
    pub false_positives: Vec<Mismatch>,
}

/// Bounded memory of mismatches.
#[derive(Debug)]
pub(super) struct MismatchLog(Mutex<Entries>);

#[derive(Debug)]
struct Entries {
    reveal_keys: bool,
    /// By kind; latest first.
    latest: [VecDeque<Entry>; MismatchKind::ALL.len()],
}

#[derive(Debug, Clone)]
struct Entry {
    found_unix: u64,
    found_by: FoundBy,
    probe: Probe,
    hash: KeyHash,
    /// `None` if keys are hidden: then they are not kept either.
    key: Option<Key>,
}

impl MismatchLog {
    pub(super) fn new(reveal_keys: bool) -> Self {
        Self(Mutex::new(Entries { reveal_keys, latest: Default::default() }))
    }

    /// Sets whether keys are shown. If not, forgets the keys that are kept.
    pub(super) fn reveal_keys(&self, reveal_keys: bool) {
        let mut kept = self.0.lock();
        kept.reveal_keys = reveal_keys;
        if !reveal_keys {
            kept.latest.iter_mut().flatten().for_each(|entry| entry.key = None);
        }
    }

    pub(super) fn record(&self, kind: MismatchKind, found_by: FoundBy, probe: Probe, hash: KeyHash, key: &Key) {
        let found_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut kept = self.0.lock();
        let entry = Entry { found_unix, found_by, probe, hash, key: kept.reveal_keys.then(|| key.clone()) };
        let of_kind = &mut kept.latest[kind as usize];
        of_kind.truncate(LIMIT - 1);
        of_kind.push_front(entry);
    }

    pub(super) fn show(&self) -> Mismatches {
        let [false_negatives, false_positives] =
            [MismatchKind::FalseNegative, MismatchKind::FalsePositive].map(|kind| self.shown(kind));
        Mismatches { reveal_keys: self.0.lock().reveal_keys, false_negatives, false_positives }
    }

    fn shown(&self, kind: MismatchKind) -> Vec<Mismatch> {
        let entries = self.0.lock().latest[kind as usize].clone();
        entries.into_iter().map(|entry| entry.show(kind)).collect()
    }
}

impl Entry {
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
        let record = |kind, text: &str| {
            let (hash, key) = key(text.as_bytes());
            memory.record(kind, FoundBy::Lookup, PROBE, hash, &key);
        };
        record(MismatchKind::FalseNegative, "row");
        (0..1000).for_each(|n| record(MismatchKind::FalsePositive, &n.to_string()));
        let kept = memory.shown(MismatchKind::FalsePositive);
        assert_eq!((kept.len(), kept[0].key.as_deref(), kept[99].key.as_deref()), (100, Some("999"), Some("900")));
        assert_eq!(memory.shown(MismatchKind::FalseNegative)[0].key.as_deref(), Some("row"));
    }

    #[test]
    fn keys_that_may_no_longer_be_shown_are_forgotten() {
        let (memory, (hash, row)) = (MismatchLog::new(true), key(b"row"));
        memory.record(MismatchKind::FalseNegative, FoundBy::Lookup, PROBE, hash, &row);
        for reveal in [false, true] {
            memory.reveal_keys(reveal);
            assert_eq!(memory.shown(MismatchKind::FalseNegative)[0].key, None);
        }
    }

    #[test]
    fn keys_are_shown_only_if_revealed_and_bytes_in_base64() {
        let (hash, bytes) = key(b"\xff\x00");
        for (reveal, shown) in [(true, Some("/wA=")), (false, None)] {
            let memory = MismatchLog::new(reveal);
            memory.record(MismatchKind::FalseNegative, FoundBy::Canary, PROBE, hash, &bytes);
            let mismatch = memory.shown(MismatchKind::FalseNegative).pop().unwrap();
            assert_eq!((mismatch.key, mismatch.key_base64.as_deref()), (None, shown));
            assert_eq!(mismatch.key_hash.len(), 32);
        }
    }
}

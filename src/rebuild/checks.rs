//! What a candidate must pass before it is put in force.

use futures_util::{StreamExt, stream};

use super::error::BuildError;
use super::samples::Samples;
use crate::backend::BackendError;
use crate::guard::{Build, Guard};
use crate::key::{Key, KeyForm};

/// Keys that are asked of the backend at a time: a check must not crowd out lookups.
const ASKED_AT_A_TIME: usize = 4;

/// What the number of keys is compared with.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountRule {
    /// Keys of the last scan.
    pub(super) last: Option<u64>,
    /// `filter.expected_keys`.
    pub(super) expected: Option<u64>,
    /// `rebuild.min_keys_ratio`.
    pub(super) ratio: f64,
    /// `source.allow_empty`.
    pub(super) allow_empty: bool,
    /// An operator has said that fewer keys are right.
    pub(super) accept_fewer: bool,
}

/// The count has not collapsed, and is not zero unless that is allowed.
pub(super) fn count(keys: u64, rule: CountRule) -> Result<(), BuildError> {
    if keys == 0 && !rule.allow_empty {
        return Err(BuildError::Empty);
    }
    // `allow_empty` says that the source may have no keys yet, not that it may lose those it had.
    let expected = rule.expected.filter(|_| keys > 0).map(|keys| (keys, "expected (filter.expected_keys)"));
    match rule.last.map(|keys| (keys, "of the last scan")).or(expected) {
        Some((reference, of)) if !rule.accept_fewer && (keys as f64) < reference as f64 * rule.ratio => {
            Err(BuildError::Collapsed { keys, reference, of, ratio: rule.ratio })
        }
        _ => Ok(()),
    }
}

/// The candidate is no fuller than it was made for.
pub(super) fn fill(build: &Build, keys: u64) -> Result<(), BuildError> {
    let (items, capacity) = (build.filter().items(), build.filter().capacity());
    // The source may list keys twice, so the fill decides; its estimate is good to about a percent.
    if keys > capacity && items as f64 > capacity as f64 * 1.02 { Err(BuildError::Overfull { items, capacity }) } else { Ok(()) }
}

/// Every key that the backend answered before the scan, and still does, is in the candidate.
///
/// Keys that are missing are asked for again: a row may have been removed without a `DELETE` here, and such a key must not refuse every build.
pub(super) async fn proven_keys(guard: &Guard, build: &Build) -> Result<(), BuildError> {
    let missing = build.missing();
    let count = missing.len();
    let mut asked = stream::iter(missing)
        .map(|key| async { guard.verify_at_backend(&key).await.map(|row| (key, row.is_some())) })
        .buffer_unordered(ASKED_AT_A_TIME);
    while let Some(answer) = asked.next().await {
        let (key, exists) = answer?;
        if exists {
            return Err(BuildError::MissingKeys { count, first: key });
        }
        build.gone(&key);
    }
    Ok(())
}

/// Source and backend mean the same keys. Returns why the key form can't be trusted, where they spell them differently.
pub(super) async fn agreement(guard: &Guard, build: &Build, form: KeyForm, samples: &Samples) -> Result<Option<String>, BuildError> {
    for key in samples.respelled() {
        let Some(original) = key.original() else { continue };
        if guard.verify_at_backend(key).await?.is_none() && finds(guard, &original).await? {
            return Ok(Some(format!(
                "the backend finds the row of one key only as the source spells it, and not in the form that key = \"{form}\" gives it: \
                 use key = \"text\", or make backend.query compare that form, as by lower(column)"
            )));
        }
    }
    let mut found = 0;
    for key in samples.plain() {
        // A plain key has to fit: where it doesn't, the query doesn't.
        found += usize::from(guard.verify_at_backend(key).await?.is_some());
        for variant in variants(form, key) {
            if !build.filter().contains(build.hash(&variant).get()) && finds(guard, &variant).await? {
                return Ok(Some(format!(
                    "the backend finds the row of one key under another spelling, which key = \"{form}\" tells apart (a collation that ignores case, accents or trailing spaces, or a padded CHAR column): compare exactly in backend.query, or use key = \"text-ci\" where nothing but case is ignored"
                )));
            }
        }
    }
    let asked = samples.plain().len();
    if asked >= Samples::PLAIN / 2 && found == 0 {
        return Err(BuildError::Mismatch(format!(
            "the backend finds none of {asked} keys that the source lists: do both mean the same column?"
        )));
    }
    Ok(None)
}

/// Whether the backend has the row. Another spelling that its column can't hold has none.
async fn finds(guard: &Guard, key: &Key) -> Result<bool, BuildError> {
    match guard.verify_at_backend(key).await {
        Ok(row) => Ok(row.is_some()),
        Err(BackendError::Invalid(reason)) => {
            tracing::debug!(reason, "the backend can't be asked for a sampled key");
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Letters and what collations that ignore accents take them for.
const ACCENTED: [(char, char); 7] = [('a', 'á'), ('e', 'é'), ('i', 'í'), ('o', 'ó'), ('u', 'ú'), ('n', 'ñ'), ('c', 'ç')];

/// Other spellings that a lax comparison would take for the same key.
fn variants(form: KeyForm, key: &Key) -> Vec<Key> {
    let mut spellings: Vec<Vec<u8>> = Vec::new();
    if let (KeyForm::Text | KeyForm::TextCi | KeyForm::Bytes, Some(text)) = (form, key.as_str()) {
        let swap = |c: char| if c.is_ascii_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
        let swapped: String = text.chars().map(swap).collect();
        // A zero-width space has no weight in most collations of Unicode.
        let spaces = [format!("{text} "), text.trim_end().to_owned(), format!("{text}\u{200b}")];
        spellings.extend([swapped].into_iter().chain(spaces).chain(with_other_accent(text)).map(String::into_bytes));
    }
    if form == KeyForm::Bytes {
        // BINARY(n) is padded with zeros.
        let bytes = key.as_bytes();
        let unpadded = bytes.len() - bytes.iter().rev().take_while(|b| **b == 0).count();
        spellings.extend([[bytes, &[0]].concat(), bytes[..unpadded].to_vec()]);
    }
    spellings.iter().filter_map(|spelling| form.canonical(spelling).ok()).filter(|variant| variant != key).collect()
}

/// The text with an accent more or less.
fn with_other_accent(text: &str) -> Option<String> {
    text.char_indices().find_map(|(at, c)| {
        let other = ACCENTED.iter().find_map(|(plain, accented)| match c {
            _ if c == *plain => Some(*accented),
            _ if c == *accented => Some(*plain),
            _ => None,
        })?;
        Some(format!("{}{other}{}", &text[..at], &text[at + c.len_utf8()..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collapsed_count_is_refused_with_its_figures() {
        let rule = CountRule { last: Some(1_000), expected: Some(5_000), ratio: 0.9, allow_empty: false, accept_fewer: false };
        assert!(count(900, rule).is_ok());
        let error = count(899, rule).unwrap_err().to_string();
        assert!(error.contains("899") && error.contains("1000") && error.contains("0.9"), "{error}");
        assert!(count(1, CountRule { accept_fewer: true, ..rule }).is_ok());
        assert!(count(1, CountRule { last: None, expected: None, ..rule }).is_ok());
        assert!(matches!(count(899, CountRule { last: None, ..rule }), Err(BuildError::Collapsed { reference: 5_000, .. })));
    }

    #[test]
    fn an_empty_source_may_begin_empty_but_not_become_it() {
        let rule = CountRule { last: None, expected: Some(1_000), ratio: 0.9, allow_empty: true, accept_fewer: false };
        assert!(count(0, rule).is_ok());
        assert!(matches!(count(0, CountRule { last: Some(1_000), ..rule }), Err(BuildError::Collapsed { .. })));
        assert!(count(0, CountRule { last: Some(1_000), accept_fewer: true, ..rule }).is_ok());
        assert!(matches!(count(0, CountRule { allow_empty: false, accept_fewer: true, ..rule }), Err(BuildError::Empty)));
    }

    fn spellings(form: KeyForm, key: &[u8]) -> Vec<String> {
        let key = form.canonical(key).unwrap();
        variants(form, &key).iter().map(|k| k.as_bytes().escape_ascii().to_string()).collect()
    }

    #[test]
    fn spellings_that_lax_comparisons_take_for_equal_are_tried() {
        assert_eq!(spellings(KeyForm::Text, b"Foo"), ["fOO", "Foo ", r"Foo\xe2\x80\x8b", r"F\xc3\xb3o"]);
        assert_eq!(spellings(KeyForm::Text, "ré ".as_bytes()).last().unwrap(), "re ");
        // Its case is gone before it is looked up.
        assert_eq!(spellings(KeyForm::TextCi, b"FX "), ["fx  ", "fx", r"fx \xe2\x80\x8b"]);
        assert_eq!(spellings(KeyForm::Bytes, b"\xff\0\0"), [r"\xff\x00\x00\x00", r"\xff"]);
    }

    #[test]
    fn integers_and_uuids_have_one_spelling() {
        assert!(spellings(KeyForm::Integer, b"42").is_empty());
        assert!(spellings(KeyForm::Uuid, b"67e55044-10b1-426f-9247-bb680e5fe0c8").is_empty());
    }
}

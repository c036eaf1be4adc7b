//! What a candidate must pass before it is put in force.

use super::error::BuildError;
use crate::backend::BackendError;
use crate::guard::{Build, Guard};
use crate::key::{Key, KeyForm};

/// Keys of the source that are tried at the backend.
pub(super) const SAMPLES: usize = 16;
/// Missing keys that are asked for again; more than that are not all deleted.
const MISSING_TRIED: usize = 100;

/// The count has not collapsed, and is not zero unless that is allowed.
pub(super) fn count(
    keys: u64,
    reference: Option<(u64, &'static str)>,
    ratio: f64,
    allow_empty: bool,
    accept_fewer: bool,
) -> Result<(), BuildError> {
    if keys == 0 {
        return if allow_empty { Ok(()) } else { Err(BuildError::Empty) };
    }
    match reference {
        Some((reference, of)) if !accept_fewer && (keys as f64) < reference as f64 * ratio => {
            Err(BuildError::Collapsed { keys, reference, of, ratio })
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
    for key in missing.into_iter().take(MISSING_TRIED) {
        if guard.verify_at_backend(&key).await?.is_some() {
            return Err(BuildError::MissingKeys { count, first: key });
        }
        build.gone(&key);
    }
    if count > MISSING_TRIED {
        // None of those tried exists any more; the others are tried by the next builds.
        tracing::warn!(keyspace = guard.name(), count, tried = MISSING_TRIED, "many keys have vanished without a DELETE");
    }
    Ok(())
}

/// Source and backend mean the same keys. Returns why the key form can't be trusted, where the backend matches more than it does.
pub(super) async fn agreement(guard: &Guard, build: &Build, form: KeyForm, samples: &[Key]) -> Result<Option<String>, BuildError> {
    let mut found = 0;
    for key in samples {
        found += usize::from(guard.verify_at_backend(key).await?.is_some());
        for variant in variants(form, key) {
            if !build.filter().contains(build.hash(&variant).get()) && is_found(guard, &variant).await? {
                return Ok(Some(format!(
                    "the backend finds the row of one key under another spelling, which key = \"{form}\" tells apart (a collation that ignores case, accents or trailing spaces, or a padded CHAR column): compare exactly in backend.query, or use key = \"text-ci\" where nothing but case is ignored"
                )));
            }
        }
    }
    if samples.len() >= SAMPLES / 2 && found == 0 {
        return Err(BuildError::Mismatch(format!(
            "backend.query finds none of {} keys that source.query lists: do both mean the same column?",
            samples.len()
        )));
    }
    Ok(None)
}

async fn is_found(guard: &Guard, variant: &Key) -> Result<bool, BuildError> {
    match guard.verify_at_backend(variant).await {
        Ok(value) => Ok(value.is_some()),
        // A spelling that the database can't take finds no row.
        Err(BackendError::Invalid(_)) => Ok(false),
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
        let check = |keys, accept| count(keys, Some((1_000, "of the last scan")), 0.9, false, accept);
        assert!(check(900, false).is_ok());
        let error = check(899, false).unwrap_err().to_string();
        assert!(error.contains("899") && error.contains("1000") && error.contains("0.9"), "{error}");
        assert!(check(1, true).is_ok());
        assert!(matches!(check(0, true), Err(BuildError::Empty)));
        assert!(count(0, Some((1_000, "of the last scan")), 0.9, true, false).is_ok());
        assert!(count(1, None, 0.9, false, false).is_ok());
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

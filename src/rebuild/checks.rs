//! What a candidate must pass before it is put in force.

use super::error::BuildError;
use crate::backend::{BackendError, Value};
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
            if !build.filter().contains(build.hash(&variant).get()) && is_row(guard.verify_at_backend(&variant).await)? {
                return Ok(Some(format!(
                    "the backend finds the row of one key under another spelling, which key = \"{form}\" tells apart (a case-insensitive collation or a padded CHAR column): use key = \"text-ci\", or compare exactly in backend.query"
                )));
            }
        }
    }
    if samples.len() >= SAMPLES / 2 && found == 0 {
        return Err(BuildError::Mismatch(format!(
            "the backend finds none of {} keys that the source lists: do both mean the same column?",
            samples.len()
        )));
    }
    Ok(None)
}

/// A spelling that nobody has may be one that the backend does not take for a key at all.
fn is_row(fetched: Result<Option<Value>, BackendError>) -> Result<bool, BackendError> {
    match fetched {
        Ok(row) => Ok(row.is_some()),
        Err(BackendError::Invalid(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Other spellings that a lax comparison would take for the same key.
fn variants(form: KeyForm, key: &Key) -> Vec<Key> {
    let (KeyForm::Text, Some(text)) = (form, key.as_str()) else { return vec![] };
    let swapped: String =
        text.chars().map(|c| if c.is_ascii_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() }).collect();
    [swapped, format!("{text} "), text.trim_end().to_owned()]
        .into_iter()
        .filter(|variant| variant != text)
        .filter_map(|variant| form.canonical(variant.as_bytes()).ok())
        .collect()
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

    #[test]
    fn spellings_are_tried_for_text_only() {
        let key = KeyForm::Text.canonical(b"Foo").unwrap();
        let spellings: Vec<_> = variants(KeyForm::Text, &key).iter().map(|k| k.as_str().unwrap().to_owned()).collect();
        assert_eq!(spellings, ["fOO", "Foo "]);
        assert!(variants(KeyForm::Uuid, &key).is_empty());
    }
}

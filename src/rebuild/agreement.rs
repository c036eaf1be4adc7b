//! Compares source and backend, using keys sampled from the scan.

use super::error::BuildError;
use super::samples::Samples;
use crate::backend::BackendError;
use crate::key::{Key, KeyForm};
use crate::keyspace::{Build, SourceSample, Verified};

/// Checks that source and backend mean the same keys, for each source of a union, because each has its own column.
/// Returns why the key form can't be trusted if they spell keys differently.
pub(super) async fn agreement(build: &Build, form: KeyForm, members: &[Samples]) -> Result<Option<String>, BuildError> {
    let (mut conflict, mut sample) = (None, SourceSample::default());
    for (index, samples) in members.iter().enumerate() {
        let name = if members.len() == 1 { String::new() } else { format!("source[{index}]: ") };
        // Continues after a conflict: another source may mean a different column, and then there must be no swap at
        // all.
        let found = match of_member(build, form, samples, &mut sample).await {
            Err(BuildError::Mismatch(why)) => return Err(BuildError::Mismatch(format!("{name}{why}"))),
            found => found?,
        };
        conflict = conflict.or(found.map(|why| format!("{name}{why}")));
    }
    build.set_sample(sample);
    Ok(conflict)
}

async fn of_member(
    build: &Build,
    form: KeyForm,
    samples: &Samples,
    sample: &mut SourceSample,
) -> Result<Option<String>, BuildError> {
    if finds_only_originals(build, samples).await? {
        return Ok(Some(format!(
            "the backend finds the row of one key only as the source spells it, and not in the form that \
             key = \"{form}\" gives it: use key = \"text\", or make backend.query compare that form, as by lower(column)"
        )));
    }
    if finds_variants(build, form, samples.plain()).await? {
        return Ok(Some(format!(
            "the backend finds the row of one key under another spelling, which key = \"{form}\" distinguishes (a \
             collation that ignores case, accents or trailing spaces, or a padded CHAR column): compare exactly in \
             backend.query, or use key = \"text-ci\" if only case is ignored"
        )));
    }
    let verified = build.verify(samples.plain()).await?;
    check_found(&verified)?;
    sample.absent += verified.iter().filter(|verified| **verified == Verified::NoRow).count();
    let rows = samples.plain().iter().zip(&verified).filter(|(_, verified)| **verified == Verified::Row);
    sample.rows.extend(rows.map(|(key, _)| key.clone()));
    Ok(None)
}

/// Returns true if the backend finds a key only in the source's spelling, and not in its canonical form.
async fn finds_only_originals(build: &Build, samples: &Samples) -> Result<bool, BuildError> {
    let respelled: Vec<&Key> = samples.respelled().collect();
    // In canonical form only: this shows what is wrong with that form.
    let verified = build.verify(&respelled.iter().map(|key| key.canonical()).collect::<Vec<_>>()).await?;
    let missed = respelled.iter().zip(verified).filter(|(_, verified)| *verified == Verified::NoRow);
    finds_any(build, &missed.filter_map(|(key, _)| key.original()).collect::<Vec<_>>()).await
}

/// Returns true if the backend finds one of `keys` under another key, which the filter calls absent.
async fn finds_variants(build: &Build, form: KeyForm, keys: &[Key]) -> Result<bool, BuildError> {
    let others = keys.iter().flat_map(|key| variants(form, key));
    finds_any(build, &others.filter(|other| !build.filter().contains(build.hash(other).get())).collect::<Vec<_>>())
        .await
}

/// Returns true if the backend has one of the rows. A spelling that its column can't hold has none.
async fn finds_any(build: &Build, keys: &[Key]) -> Result<bool, BuildError> {
    Ok(build.verify(keys).await?.contains(&Verified::Row))
}

/// If the backend finds none of the source's keys, its query means another column, or none at all. This includes the
/// few keys of a small source: if all were removed since the scan, the next build fixes that; nothing fixes a wrong
/// column. A key that the backend can't be asked for, such as one too long for a URL, does not matter beside keys that
/// it finds.
fn check_found(verified: &[Verified]) -> Result<(), BuildError> {
    if verified.contains(&Verified::Row) {
        return Ok(());
    }
    let asked = verified.iter().filter(|verified| **verified == Verified::NoRow).count();
    if asked > 0 {
        return Err(BuildError::Mismatch(format!(
            "the backend finds none of the {asked} keys of the source that it was asked for: do both mean the same \
             column?"
        )));
    }
    let refused = verified
        .iter()
        .find_map(|verified| if let Verified::Unknown(Some(reason)) = verified { Some(reason) } else { None });
    refused.map_or(Ok(()), |reason| Err(BackendError::Invalid(reason.clone()).into()))
}

/// Letters, and the accented letters that some collations treat as equal.
const ACCENTED: [(char, char); 7] =
    [('a', 'á'), ('e', 'é'), ('i', 'í'), ('o', 'ó'), ('u', 'ú'), ('n', 'ñ'), ('c', 'ç')];

/// Other spellings that a lax comparison would treat as the same key.
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

/// The text with one accent added or removed.
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
    fn keys_that_can_not_be_asked_for_do_not_matter_beside_found_ones() {
        let (row, no_row, odd) = (Verified::Row, Verified::NoRow, Verified::Unknown(Some("too long".into())));
        let unaskable = Verified::Unknown(None);
        let check = |verified: &[&[Verified]]| check_found(&verified.concat());
        assert!(check(&[]).is_ok());
        assert!(check(&[&vec![odd.clone(); 15], &[row]]).is_ok());
        assert!(check(&[&vec![unaskable.clone(); 16]]).is_ok(), "no request can ask for such keys either");
        let checked = check(&[&vec![odd.clone(); 16]]);
        assert!(matches!(checked, Err(BuildError::Backend(BackendError::Invalid(why))) if why == "too long"));
        for odd in [odd, unaskable] {
            assert!(matches!(check(&[&vec![odd; 8], std::slice::from_ref(&no_row)]), Err(BuildError::Mismatch(_))));
        }
    }

    fn spellings(form: KeyForm, key: &[u8]) -> Vec<String> {
        let key = form.canonical(key).unwrap();
        variants(form, &key).iter().map(|k| k.as_bytes().escape_ascii().to_string()).collect()
    }

    #[test]
    fn spellings_that_lax_comparisons_treat_as_equal_are_tried() {
        assert_eq!(spellings(KeyForm::Text, b"Foo"), ["fOO", "Foo ", r"Foo\xe2\x80\x8b", r"F\xc3\xb3o"]);
        assert_eq!(spellings(KeyForm::Text, "ré ".as_bytes()).last().unwrap(), "re ");
        // Folded before it is looked up.
        assert_eq!(spellings(KeyForm::TextCi, b"FX "), ["fx  ", "fx", r"fx \xe2\x80\x8b"]);
        assert_eq!(spellings(KeyForm::Bytes, b"\xff\0\0"), [r"\xff\x00\x00\x00", r"\xff"]);
    }

    #[test]
    fn integers_and_uuids_have_one_spelling() {
        assert!(spellings(KeyForm::Integer, b"42").is_empty());
        assert!(spellings(KeyForm::Uuid, b"67e55044-10b1-426f-9247-bb680e5fe0c8").is_empty());
    }
}

//! Spellings of a key beside its canonical form.
//!
//! Form `text-ci` folds case as Unicode does. Databases differ: SQLite's `NOCASE` and PostgreSQL with `LC_CTYPE=C` fold
//! ASCII only, and libc turns a final `Σ` into `σ` and `İ` into `i`. Such a database may not find a row by its
//! canonical key.

use super::canonical_key::Key;

impl Key {
    /// The given spelling, if it differs from the canonical form in letters beyond ASCII. Databases fold those
    /// differently than Unicode does, so the backend may have the row only under this spelling.
    #[must_use]
    pub fn given(&self) -> Option<Self> {
        let original = self.original.as_deref()?;
        folds_differently(original, &self.bytes).then(|| Self::from_canonical(original.clone()))
    }

    /// The lower case of the given spelling in a database that folds each letter alone, as libc does, if that is
    /// another key. A source that lists the database's own lower case has this one.
    #[must_use]
    pub fn folded_apart(&self) -> Option<Self> {
        let given = self.given()?;
        let alone = |letter: char| if letter == 'İ' { 'i'.to_lowercase() } else { letter.to_lowercase() };
        let folded: String = given.as_str()?.chars().flat_map(alone).collect();
        (folded.as_bytes() != self.as_bytes()).then(|| Self::from_canonical(folded.into()))
    }

    /// This key with the given spelling.
    #[must_use]
    pub fn spelled(&self, given: &Self) -> Self {
        Self { bytes: self.bytes.clone(), original: Some(Box::new(given.bytes.clone())) }
    }

    /// This key without other spellings, for keeping in memory.
    #[must_use]
    pub fn canonical(&self) -> Self {
        Self::from_canonical(self.bytes.clone())
    }
}

/// Whether two spellings of a key differ in more than the case of ASCII letters, which all databases fold alike. Only
/// `text-ci` rewrites other letters.
pub(super) fn folds_differently(raw: &[u8], canonical: &[u8]) -> bool {
    !raw.is_ascii() && !raw.eq_ignore_ascii_case(canonical)
}

#[cfg(test)]
mod tests {
    use crate::key::KeyForm;

    #[test]
    fn what_folds_otherwise_letter_by_letter_is_another_key() {
        for (raw, apart) in [
            ("ΟΔΥΣΣΕΥΣ", Some("οδυσσευσ")),
            ("İSTANBUL", Some("istanbul")),
            ("ÉVA", None),
            ("ΣΑ", None),
            ("ISTANBUL", None),
        ] {
            let key = KeyForm::TextCi.canonical(raw.as_bytes()).unwrap();
            assert_eq!(key.folded_apart().as_ref().and_then(|key| key.as_str()), apart, "{raw}");
        }
    }

    #[test]
    fn a_spelling_is_kept_where_databases_fold_it_differently() {
        let given = |form: KeyForm, raw: &str| {
            form.canonical(raw.as_bytes()).unwrap().given().map(|key| key.as_str().unwrap().to_owned())
        };
        for raw in ["\u{391}\u{3a3}", "\u{130}stanbul", "\u{c9}VA", "\u{212a}ELVIN"] {
            assert_eq!(given(KeyForm::TextCi, raw).as_deref(), Some(raw));
            assert_eq!(given(KeyForm::Text, raw), None);
            assert_eq!(KeyForm::TextCi.scanned(raw.as_bytes()).unwrap().given().unwrap().as_str(), Some(raw));
        }
        for raw in ["BOB", "bob", "\u{e9}va", "\u{e9}VA"] {
            assert_eq!(given(KeyForm::TextCi, raw), None, "{raw}: every database folds ASCII");
        }
        assert_eq!(given(KeyForm::Integer, "042").or(given(KeyForm::Uuid, "67E5504410B1426F9247BB680E5FE0C8")), None);
        assert_eq!(KeyForm::Integer.scanned(b"042").unwrap().given(), None);
    }
}

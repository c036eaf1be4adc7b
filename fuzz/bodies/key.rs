//! Any bytes have a canonical form, which is canonical itself, or are rejected.

use bloomguard::key::KeyForm;

pub fn run(data: &[u8]) {
    for form in [KeyForm::Text, KeyForm::Integer, KeyForm::Uuid, KeyForm::TextCi, KeyForm::Bytes] {
        let Ok(key) = form.canonical(data) else { continue };
        let again = form.canonical(key.as_bytes());
        assert_eq!(again.as_ref().map(|key| key.as_bytes()), Ok(key.as_bytes()), "{form:?}");
        let mut scratch = vec![];
        assert_eq!(form.spell(data, &mut scratch).map(|key| key.to_key()), Ok(key), "{form:?}");
    }
}

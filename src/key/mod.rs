//! Keys in their canonical form, and their hash, which is computed once.
//!
//! Keys from requests, announces and scans pass the same [`KeyForm`] before they are hashed, cached or bound. So `042`
//! and `42` are one key of an integer column and can't miss each other in the filter.

mod batch;
mod canonical;
mod canonical_key;
mod form;
mod hash;
mod spelling;

pub use self::batch::KeyBatch;
pub use self::canonical_key::{Key, KeyRef};
pub use self::form::{BYTE_ORDER_MARK, KeyError, KeyForm};
pub use self::hash::{KeyHash, KeySecret};

#[cfg(test)]
mod tests {
    use super::*;

    fn form(form: KeyForm, raw: &str) -> Result<String, KeyError> {
        form.canonical(raw.as_bytes()).map(|k| k.as_str().unwrap().to_owned())
    }

    #[test]
    fn integers_have_one_spelling() {
        for (raw, canonical) in [("042", "42"), ("42", "42"), ("+42", "42"), ("-0", "0"), ("000", "0"), ("-007", "-7")]
        {
            assert_eq!(form(KeyForm::Integer, raw).as_deref(), Ok(canonical), "{raw}");
        }
        for i in (0..=19).map(|zeros| 10_i128.pow(zeros)).flat_map(|i| [i - 1, i, -i]) {
            assert_eq!(
                form(KeyForm::Integer, &i.to_string()),
                if i < i64::MIN.into() { Err(KeyError::NotAnInteger) } else { Ok(i.to_string()) }
            );
        }
        assert_eq!(form(KeyForm::Integer, "18446744073709551615").as_deref(), Ok("18446744073709551615"));
        assert_eq!(form(KeyForm::Integer, "-9223372036854775808").as_deref(), Ok("-9223372036854775808"));
    }

    #[test]
    fn what_is_no_integer_is_refused() {
        for raw in [
            "1; DROP TABLE users",
            "../../admin",
            "4 2",
            " 42",
            "0x2a",
            "1e3",
            "-",
            "+",
            "18446744073709551616",
            "-9223372036854775809",
            "٤٢",
        ] {
            assert_eq!(form(KeyForm::Integer, raw), Err(KeyError::NotAnInteger), "{raw}");
        }
    }

    #[test]
    fn uuids_lose_braces_and_case() {
        let canonical = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        for raw in [
            canonical,
            "67E55044-10B1-426F-9247-BB680E5FE0C8",
            "{67e55044-10b1-426f-9247-bb680e5fe0c8}",
            "67e5504410b1426f9247bb680e5fe0c8",
        ] {
            assert_eq!(form(KeyForm::Uuid, raw).as_deref(), Ok(canonical), "{raw}");
        }
        assert_eq!(form(KeyForm::Uuid, "67e55044"), Err(KeyError::NotAUuid));
    }

    #[test]
    fn text_is_left_alone_and_text_ci_is_lower_case() {
        assert_eq!(form(KeyForm::Text, "Straße É").as_deref(), Ok("Straße É"));
        assert_eq!(form(KeyForm::TextCi, "FOO É").as_deref(), Ok("foo é"));
        assert_eq!(KeyForm::Text.canonical(b"\xff"), Err(KeyError::NotUtf8(KeyForm::Text)));
        assert_eq!(KeyForm::Text.canonical(b"a\0b"), Err(KeyError::ZeroByte(KeyForm::Text)));
        assert!(KeyForm::Bytes.canonical(b"\xff\0").is_ok());
        assert_eq!(KeyForm::Bytes.canonical(b""), Err(KeyError::Empty));
    }

    #[test]
    fn a_hash_depends_on_the_secret() {
        let key = KeyForm::Text.canonical(b"user:1").unwrap();
        let secret = KeySecret::random();
        assert_eq!(secret.hash(&key), secret.clone().hash(&key));
        assert_ne!(secret.hash(&key), KeySecret::random().hash(&key));
    }
}

//! Which keys a column treats as equal.
//!
//! The filter compares bytes. A column that finds the row of `Foo` under `foo`, `fóo` or `Foo ` has keys that the
//! filter calls absent.

use super::{ColumnInfo, MySqlKeyType};
use crate::key::KeyForm;

/// Why a column of `kind` treats keys as equal that `form` keeps apart; `None` if it does not.
///
/// Form `text-ci` has the rules of `text`. No collation that ignores case folds it as the key form does: those that the
/// servers have also ignore accents, or invisible characters and the difference between `ﬁ` and `fi`.
#[must_use]
pub fn conflict(kind: MySqlKeyType, column_info: &ColumnInfo, form: KeyForm) -> Option<String> {
    let by_bytes = matches!(form, KeyForm::Text | KeyForm::TextCi | KeyForm::Bytes);
    let data_type = column_info.data_type.as_deref().unwrap_or_default();
    match kind {
        // MariaDB sends values of these types as text, but accepts several spellings of each.
        MySqlKeyType::Text if matches!(data_type, "uuid" | "inet4" | "inet6") && by_bytes => {
            let mend =
                if data_type == "uuid" { "set key = \"uuid\"" } else { "cast it to CHAR in source and backend query" };
            Some(format!(
                "the key column is of type {}: it matches keys that key form \"{form}\" tells apart; {mend}",
                data_type.to_uppercase()
            ))
        }
        MySqlKeyType::Text if by_bytes => {
            let collation = column_info.collation.as_deref()?;
            let equal = taken_for_equal(collation)?;
            Some(format!(
                "the key column is compared under collation {collation}, which takes {equal} for equal: key form \"{form}\" tells them apart; \
                 give it an exact collation (utf8mb4_0900_bin on MySQL, utf8mb4_nopad_bin on MariaDB) or type VARBINARY"
            ))
        }
        MySqlKeyType::Integer | MySqlKeyType::Decimal if by_bytes => Some(format!(
            "the key column is a number: 042 and 42 are one key to it, which key form \"{form}\" tells apart; set key = \"integer\""
        )),
        // An integer or a UUID has one spelling, of ASCII letters and digits only.
        MySqlKeyType::Text | MySqlKeyType::Integer | MySqlKeyType::Decimal | MySqlKeyType::Binary => None,
    }
}

/// `None` for collations that compare every byte and pad nothing.
fn taken_for_equal(collation: &str) -> Option<&'static str> {
    let bin = collation.ends_with("_bin");
    if collation == "binary" || (bin && (collation.contains("_nopad_") || collation.contains("_0900_"))) {
        None
    } else if bin {
        Some("a key with and without trailing spaces")
    } else if collation.ends_with("_cs") {
        Some("keys that differ in invisible characters or in how accents are composed")
    } else if collation.contains("_as_ci") {
        Some("upper and lower case, ligatures, full-width letters and invisible characters")
    } else {
        Some("upper and lower case, and letters with and without accents,")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(collation: &str, form: KeyForm) -> Option<String> {
        conflict(
            MySqlKeyType::Text,
            &ColumnInfo { collation: Some(collation.to_owned()), ..ColumnInfo::default() },
            form,
        )
    }

    #[test]
    fn only_collations_that_compare_every_byte_go_with_text() {
        for exact in ["utf8mb4_nopad_bin", "latin1_nopad_bin", "utf8mb4_0900_bin", "binary"] {
            for form in [KeyForm::Text, KeyForm::TextCi, KeyForm::Bytes] {
                assert_eq!(text(exact, form), None, "{exact}");
            }
        }
        for (lax, why) in [
            ("utf8mb4_bin", "trailing spaces"),
            ("utf8mb4_general_ci", "accents"),
            ("utf8mb4_0900_ai_ci", "accents"),
            ("utf8mb4_uca1400_nopad_as_ci", "invisible"),
            ("utf8mb4_0900_as_cs", "invisible"),
        ] {
            for form in [KeyForm::Text, KeyForm::TextCi, KeyForm::Bytes] {
                assert!(text(lax, form).unwrap().contains(why), "{lax}");
            }
            assert_eq!(text(lax, KeyForm::Integer).or(text(lax, KeyForm::Uuid)), None, "{lax}");
        }
    }

    #[test]
    fn numbers_and_parsed_types_have_several_spellings() {
        assert!(conflict(MySqlKeyType::Integer, &ColumnInfo::default(), KeyForm::Text).unwrap().contains("042"));
        assert_eq!(conflict(MySqlKeyType::Integer, &ColumnInfo::default(), KeyForm::Integer), None);
        let uuid = ColumnInfo { data_type: Some("uuid".to_owned()), ..ColumnInfo::default() };
        assert!(conflict(MySqlKeyType::Text, &uuid, KeyForm::Text).unwrap().contains("set key = \"uuid\""));
        assert_eq!(conflict(MySqlKeyType::Text, &uuid, KeyForm::Uuid), None);
    }
}

//! Rules for the columns of a query, on every database.

use crate::sql::SqlError;

/// Rejects names that would be the same member of a JSON object.
pub(super) fn unique_names<'a>(
    names: impl Iterator<Item = &'a str>,
    same: impl Fn(&str, &str) -> bool,
) -> Result<(), SqlError> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if seen.iter().any(|other| same(other, name)) {
            return Err(SqlError::invalid(format!("the query has two columns named \"{name}\": rename one with AS")));
        }
        seen.push(name);
    }
    if seen.is_empty() { Err(SqlError::invalid("the query returns no columns: it must be a SELECT")) } else { Ok(()) }
}

/// The column whose bytes are sent as they are.
pub(super) const RAW_COLUMN: &str = "value";

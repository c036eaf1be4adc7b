//! Which parameters a statement takes, found without a database.

use std::collections::BTreeSet;

/// How a database writes parameters and quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `$1`; `$tag$ quoted $tag$`.
    Postgres,
    /// `?`, `?1` or `$1`; `[quoted]` and `` `quoted` ``.
    Sqlite,
    /// `?`; `` `quoted` `` and `'escap\'d'`.
    MySql,
}

impl Dialect {
    /// How the key is written.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Postgres | Self::Sqlite => "$1",
            Self::MySql => "?",
        }
    }
}

/// The numbers of the parameters that a statement takes. What stands in quotes and comments is none.
pub(super) fn parameters(sql: &str, dialect: Dialect) -> BTreeSet<u32> {
    read(sql, dialect).0
}

/// Whether a statement says one of these words, in capitals here, outside of quotes and comments.
pub(super) fn says(sql: &str, dialect: Dialect, words: &[&str]) -> bool {
    read(sql, dialect).1.iter().any(|word| words.iter().any(|known| known.eq_ignore_ascii_case(word)))
}

/// The numbers of the parameters, and the words.
fn read(sql: &str, dialect: Dialect) -> (BTreeSet<u32>, Vec<&str>) {
    let mut words = Vec::new();
    let mut found = BTreeSet::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' if dialect == Dialect::MySql => escaped(rest, first),
            '\'' | '"' => quoted(rest, first),
            '`' if dialect != Dialect::Postgres => quoted(rest, '`'),
            '[' if dialect == Dialect::Sqlite => through(rest, "]"),
            'e' | 'E' if dialect == Dialect::Postgres && rest[1..].starts_with('\'') => 1 + escaped(&rest[1..], '\''),
            '#' if dialect == Dialect::MySql => through(rest, "\n"),
            // To MySQL `5--3` is a sum.
            '-' if rest.starts_with("--")
                && (dialect != Dialect::MySql || !rest[2..].starts_with(|c: char| c > ' ')) =>
            {
                through(rest, "\n")
            }
            '/' if rest.starts_with("/*") => through(rest, "*/"),
            '?' if dialect == Dialect::Sqlite => {
                let digits = digits(&rest[1..]);
                let next = found.last().map_or(1, |last: &u32| last.saturating_add(1));
                found.insert(digits.parse().unwrap_or(next));
                1 + digits.len()
            }
            '?' if dialect == Dialect::MySql => {
                found.insert(found.len() as u32 + 1);
                1
            }
            '$' if dialect == Dialect::MySql => word(rest),
            '$' => {
                let digits = digits(&rest[1..]);
                if let Ok(number) = digits.parse() {
                    found.insert(number);
                    1 + digits.len()
                } else if dialect == Dialect::Postgres {
                    dollar_quoted(rest)
                } else {
                    1
                }
            }
            // A name may hold digits and dollar signs that are no parameter.
            c if c.is_alphabetic() || c == '_' => {
                words.push(&rest[..word(rest)]);
                word(rest)
            }
            c => c.len_utf8(),
        };
        rest = &rest[length..];
    }
    (found, words)
}

fn digits(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())]
}

fn word(text: &str) -> usize {
    text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len())
}

/// Through the closing quote. A doubled quote is two quoted parts in a row, which comes to the same.
fn quoted(text: &str, quote: char) -> usize {
    1 + through(&text[1..], quote.encode_utf8(&mut [0; 4]))
}

/// Through the closing quote of a string in which a backslash escapes.
fn escaped(text: &str, quote: char) -> usize {
    let mut after_backslash = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            c if c == quote && !after_backslash => return at + 1,
            _ => after_backslash = c == '\\' && !after_backslash,
        }
    }
    text.len()
}

fn dollar_quoted(text: &str) -> usize {
    let tag_end = text[1..].find(|c: char| !(c.is_alphanumeric() || c == '_')).map(|at| 1 + at);
    match tag_end {
        Some(end) if text[end..].starts_with('$') => {
            let tag = &text[..=end];
            tag.len() + through(&text[tag.len()..], tag)
        }
        _ => 1,
    }
}

/// Through the next `end`, or all of it.
fn through(text: &str, end: &str) -> usize {
    text.find(end).map_or(text.len(), |at| at + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn postgres(sql: &str) -> Vec<u32> {
        parameters(sql, Dialect::Postgres).into_iter().collect()
    }

    fn sqlite(sql: &str) -> Vec<u32> {
        parameters(sql, Dialect::Sqlite).into_iter().collect()
    }

    fn mysql(sql: &str) -> Vec<u32> {
        parameters(sql, Dialect::MySql).into_iter().collect()
    }

    #[test]
    fn parameters_of_mysql_are_question_marks() {
        assert_eq!(mysql("SELECT a FROM t WHERE id = ?"), [1]);
        assert_eq!(mysql("SELECT a FROM t WHERE id=? AND 5--3=?"), [1, 2]);
        assert_eq!(mysql("SELECT 'it\\'s ?', \"?\", `?`, a$1, $2 # ?\n-- ?\n/* ? */ FROM t"), Vec::<u32>::new());
    }

    #[test]
    fn parameters_are_found() {
        assert_eq!(postgres("SELECT a FROM t WHERE id = $1"), [1]);
        assert_eq!(postgres("SELECT a FROM t WHERE id=$1 OR alt=$1 AND x=$12"), [1, 12]);
        assert_eq!(sqlite("SELECT a FROM t WHERE id = ?"), [1]);
        assert_eq!(sqlite("SELECT a FROM t WHERE id = ?1 OR b = $1"), [1]);
        assert_eq!(sqlite("SELECT a FROM t WHERE id = ? AND b = ?"), [1, 2]);
    }

    #[test]
    fn quotes_comments_and_names_hold_no_parameters() {
        let sql = "SELECT '$1', \"$2\", 'it''s $3', E'\\'$4', $$ $5 $$, $x$ $6 $x$, col$7, 'é' -- $8\n/* $9 */ FROM t";
        assert_eq!(postgres(sql), Vec::<u32>::new());
        assert_eq!(postgres("SELECT data ? 'x' FROM t"), Vec::<u32>::new());
        assert_eq!(sqlite("SELECT '?', \"?\", `?`, [?] -- ?\n/* ? */ FROM t"), Vec::<u32>::new());
    }

    #[test]
    fn unfinished_statements_end() {
        for sql in ["'", "E'\\", "$", "$x", "$x$", "/*", "--", "[", "`", "é$", "?"] {
            let _ = (postgres(sql), sqlite(sql), mysql(sql));
        }
    }
}

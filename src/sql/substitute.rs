//! Writes an expression in place of a query's parameter, so that one statement can ask the query for many keys.

use crate::sqltext::{Dialect, Token, TokenKind, tokens};

/// Keywords that an expression in a SELECT's list can follow directly.
const BEFORE_A_COLUMN: [&str; 4] = ["SELECT", "ALL", "DISTINCT", "ELSE"];

/// Writes `expression` in place of each `$1` of a PostgreSQL query.
///
/// # Errors
/// Why the result could have another meaning than the query.
pub fn substitute(query: &str, expression: &str) -> Result<String, &'static str> {
    if query.contains('\\') {
        return Err("with a backslash in it, the server's settings decide where its strings end");
    }
    let tokens = tokens(query, Dialect::Postgres);
    let mut written = String::with_capacity(query.len() + expression.len());
    let mut copied = 0;
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.kind == TokenKind::Parameter) {
        if token.text != "$1" {
            return Err("its parameter runs into what follows");
        }
        if may_name_a_column(&tokens[..at]) {
            return Err("the key may give a column its name");
        }
        written.push_str(&query[copied..token.start]);
        written.push('(');
        written.push_str(expression);
        written.push(')');
        copied = token.end();
    }
    written.push_str(&query[copied..]);
    Ok(written)
}

/// Returns true if an expression behind these tokens may be a column of a SELECT's list: bare, in parentheses, in a
/// cast or in a CASE. PostgreSQL names such a column after its expression, and `$1` gives no name. Within operators and
/// functions nothing is named.
fn may_name_a_column(before: &[Token<'_>]) -> bool {
    let opens = |token: &Token<'_>| token.is_punctuation("(") || token.is_word("CAST");
    let Some(last) = before.iter().rposition(|token| !opens(token)) else { return true };
    match before[last].text {
        "," => lists_columns(&before[..last]),
        // SELECT DISTINCT ON (…) $1
        ")" => true,
        _ => BEFORE_A_COLUMN.iter().any(|word| before[last].is_word(word)),
    }
}

/// Returns true if a comma behind these tokens separates a SELECT's columns, and not a function's arguments or VALUES.
fn lists_columns(before: &[Token<'_>]) -> bool {
    let mut closed = 0_usize;
    for token in before.iter().rev() {
        match token.text {
            ")" => closed += 1,
            "(" if closed == 0 => return false,
            "(" => closed -= 1,
            _ if closed == 0 && token.is_word("SELECT") => return true,
            _ => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parameters_are_replaced() {
        for (query, expected) in [
            ("SELECT a FROM t WHERE id = $1", "SELECT a FROM t WHERE id = (k)"),
            ("SELECT a FROM t WHERE id=$1::int OR $1 = b", "SELECT a FROM t WHERE id=(k)::int OR (k) = b"),
            (
                "SELECT '$1', \"$1\", $$ $1 $$, a$1, $t$ $1 $t$ FROM t -- $1\nWHERE /* $1 */ id = $1",
                "SELECT '$1', \"$1\", $$ $1 $$, a$1, $t$ $1 $t$ FROM t -- $1\nWHERE /* $1 */ id = (k)",
            ),
            ("SELECT * FROM f('a', $1) WHERE b IN (1, $1)", "SELECT * FROM f('a', (k)) WHERE b IN (1, (k))"),
            ("SELECT upper($1), g(a, $1) FROM t", "SELECT upper((k)), g(a, (k)) FROM t"),
            (
                "SELECT a FROM t WHERE id = CAST($1 AS int) AND b = (($1))",
                "SELECT a FROM t WHERE id = CAST((k) AS int) AND b = (((k)))",
            ),
            ("WITH q AS (VALUES (1, $1)) SELECT * FROM q", "WITH q AS (VALUES (1, (k))) SELECT * FROM q"),
        ] {
            assert_eq!(substitute(query, "k").as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_key_that_may_name_a_column_is_left_alone() {
        for query in [
            "SELECT $1",
            "SELECT $1::text, a FROM t",
            "SELECT a, $1::text FROM t WHERE id = $1",
            "SELECT f(a), ($1) FROM t",
            "SELECT CAST($1 AS int) FROM t",
            "SELECT DISTINCT $1 FROM t",
            "SELECT DISTINCT ON (a) $1 FROM t",
            "SELECT CASE WHEN a = 1 THEN b ELSE $1 END FROM t",
            "SELECT a FROM (SELECT b, CAST(($1) AS text) FROM t) AS s",
            "SELECT row_to_json(s) FROM (SELECT (SELECT $1)) AS s",
            "$1",
        ] {
            assert!(substitute(query, "k").is_err(), "{query}");
        }
    }

    #[test]
    fn what_can_not_be_told_apart_is_left_alone() {
        // Under standard_conforming_strings = off the parameter is part of the string.
        assert!(substitute(r"SELECT a FROM t WHERE b = 'it\' = $1 --'", "k").is_err());
        assert!(substitute("SELECT a FROM t WHERE id = $1AND b = 1", "k").is_err());
        assert!(substitute("SELECT a FROM t WHERE id = $12", "k").is_err());
    }
}

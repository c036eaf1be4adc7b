//! The column that a query compares its parameter with.
//!
//! The server does not describe a parameter's type, and converts any value: for an integer it reads a text column as
//! numbers, row by row and without its index, and `'42abc'` equals 42. So the key is bound as a value of the column
//! that it is compared with. That column is found in the query's text. If it is not found, the form of the key decides.

use crate::sqltext::{Dialect, Token, TokenKind, tokens};

/// What may stand before the compared column, and behind the parameter, if the comparison is not part of a larger term.
const BEFORE: [&str; 5] = ["WHERE", "AND", "OR", "ON", "HAVING"];
const AFTER: [&str; 10] = [")", "AND", "OR", "GROUP", "ORDER", "LIMIT", "HAVING", "UNION", "FOR", "LOCK"];

/// A statement whose only column is the one that `query` compares its parameter with: `column = ?`. It is prepared, and
/// never run.
#[must_use]
pub fn comparison(query: &str) -> Option<String> {
    let tokens = tokens(query, Dialect::MySql);
    let parameter = tokens.iter().position(|token| token.text == "?")?;
    if tokens.get(parameter + 1).is_some_and(|next| !is_one_of(next, &AFTER)) || parameter < 3 {
        return None;
    }
    let last = parameter - 2;
    if !tokens[parameter - 1].is_punctuation("=") || !is_name(&tokens[last]) {
        return None;
    }
    let mut first = last;
    while first >= 2 && tokens[first - 1].is_punctuation(".") && is_name(&tokens[first - 2]) {
        first -= 2;
    }
    let before = tokens[..first].iter().rfind(|token| !token.is_punctuation("("))?;
    if !is_one_of(before, &BEFORE) {
        return None;
    }
    let column = &query[tokens[first].start..tokens[last].end()];
    scope(query, &tokens[..=parameter], column)
}

/// A SELECT that is open at some point of a query.
#[derive(Default)]
struct Select {
    /// Where its first select list begins, and where the FROM of its last one does.
    first: Option<usize>,
    from: Option<usize>,
}

/// The SELECT around the parameter, with only `column` in its list, cut off behind the parameter. The parameter is the
/// last of `tokens`.
fn scope(query: &str, tokens: &[Token<'_>], column: &str) -> Option<String> {
    let mut open = vec![Select::default()];
    for token in tokens {
        match token.text {
            "(" => open.push(Select::default()),
            ")" => drop(open.pop()),
            _ => {}
        }
        let innermost = open.last_mut()?;
        if token.is_word("SELECT") {
            innermost.first = innermost.first.or(Some(token.start));
            innermost.from = None;
        } else if token.is_word("FROM") && innermost.first.is_some() && innermost.from.is_none() {
            innermost.from = Some(token.start);
        }
    }
    let depth = open.iter().rposition(|select| select.from.is_some())?;
    let select = &open[depth];
    let has_names = depth == 0 && tokens.first()?.is_word("WITH");
    let names = if has_names { &query[..select.first?] } else { "" };
    let closing = ")".repeat(open.len() - 1 - depth);
    Some(format!("{names}SELECT {column} {}{closing}", &query[select.from?..tokens.last()?.end()]))
}

fn is_one_of(token: &Token<'_>, words: &[&str]) -> bool {
    words.iter().any(|word| token.is_word(word)) || token.is_punctuation(")") && words.contains(&")")
}

fn is_name(token: &Token<'_>) -> bool {
    matches!(token.kind, TokenKind::Word | TokenKind::QuotedName)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_is_found_and_the_rest_of_its_query_kept() {
        for (query, expected) in [
            ("SELECT name, email FROM users WHERE id = ?", "SELECT id FROM users WHERE id = ?"),
            (
                "select u.name from users u where u.`id`=? order by name limit 1",
                "SELECT u.`id` from users u where u.`id`=?",
            ),
            (
                "SELECT a FROM t WHERE x = 1 AND (db.t.id = ? OR y = 2)",
                "SELECT db.t.id FROM t WHERE x = 1 AND (db.t.id = ?)",
            ),
            ("SELECT EXTRACT(YEAR FROM a) FROM t WHERE id = ?", "SELECT id FROM t WHERE id = ?"),
            ("SELECT a FROM t JOIN (SELECT b FROM u WHERE id = ?) AS s ON s.b = t.b", "SELECT id FROM u WHERE id = ?"),
            (
                "WITH l AS (SELECT * FROM t) SELECT max(n) FROM l WHERE id = ? GROUP BY id",
                "WITH l AS (SELECT * FROM t) SELECT id FROM l WHERE id = ?",
            ),
            (
                "SELECT a FROM t -- it's\nWHERE /* the key */ id = ?",
                "SELECT id FROM t -- it's\nWHERE /* the key */ id = ?",
            ),
        ] {
            assert_eq!(comparison(query).as_deref(), Some(expected));
        }
    }

    #[test]
    fn other_comparisons_are_left_to_the_form() {
        for query in [
            "SELECT a FROM t WHERE LOWER(id) = ?",
            "SELECT a FROM t WHERE id = UNHEX(?)",
            "SELECT a FROM t WHERE id = ? COLLATE utf8mb4_bin",
            "SELECT a FROM t WHERE id = ? + 1",
            "SELECT a FROM t WHERE BINARY id = ?",
            "SELECT a FROM t WHERE 1 + id = ?",
            "SELECT a FROM t WHERE id >= ?",
            "SELECT a FROM t WHERE id <=> ?",
            "SELECT a FROM t WHERE id LIKE ?",
            "SELECT a FROM t WHERE 'id' = ?",
            "SELECT a FROM t WHERE f(id = ?)",
            "SELECT ? AS a",
            "= ?",
            "?",
            "",
            ")) WHERE id = ?",
        ] {
            assert_eq!(comparison(query), None, "{query}");
        }
    }
}

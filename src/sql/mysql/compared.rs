//! What a query compares its parameter with.
//!
//! The server does not tell a parameter's type, and converts whatever it gets: an integer makes a text column be read as numbers, row
//! by row and without its index, and `'42abc'` equals 42. So the key is bound as a value of the column that it is compared with, and
//! that column is found in the query's text. Where it is not found the form of the key decides.

use std::ops::Range;

use crate::sql::Dialect;
use crate::sql::text::tokens;

/// What may stand before a column that is compared, and what after the parameter, so that the comparison is no part of a larger term.
const BEFORE: [&str; 5] = ["WHERE", "AND", "OR", "ON", "HAVING"];
const AFTER: [&str; 10] = [")", "AND", "OR", "GROUP", "ORDER", "LIMIT", "HAVING", "UNION", "FOR", "LOCK"];

/// A statement whose only column is the one that `query` compares its parameter with: `column = ?`. It is for being prepared, not
/// for being run.
#[must_use]
pub fn comparison(query: &str) -> Option<String> {
    let spans = tokens(query, Dialect::MySql);
    let token = |at: usize| spans.get(at).map_or("", |span| &query[span.clone()]);
    let parameter = (0..spans.len()).find(|at| token(*at) == "?")?;
    let follows = token(parameter + 1);
    if !follows.is_empty() && !is_one_of(follows, &AFTER) || parameter < 3 || token(parameter - 1) != "=" {
        return None;
    }
    let last = parameter - 2;
    let mut first = last;
    while first >= 2 && token(first - 1) == "." && is_name(token(first - 2)) {
        first -= 2;
    }
    if !is_name(token(last)) {
        return None;
    }
    let mut before = first.checked_sub(1)?;
    while token(before) == "(" {
        before = before.checked_sub(1)?;
    }
    if !is_one_of(token(before), &BEFORE) {
        return None;
    }
    let column = &query[spans[first].start..spans[last].end];
    scope(query, &spans[..=parameter], column)
}

/// A SELECT that is open at some point of a query.
#[derive(Default)]
struct Select {
    /// Where its first select list begins, and where the FROM of its last one does.
    first: Option<usize>,
    from: Option<usize>,
}

/// The SELECT around the parameter, which `spans` ends with, with only `column` in its list, cut off behind the parameter.
fn scope(query: &str, spans: &[Range<usize>], column: &str) -> Option<String> {
    let mut open = vec![Select::default()];
    for span in spans {
        let token = &query[span.clone()];
        match token {
            "(" => open.push(Select::default()),
            ")" => drop(open.pop()),
            _ => {}
        }
        let innermost = open.last_mut()?;
        if token.eq_ignore_ascii_case("SELECT") {
            innermost.first = innermost.first.or(Some(span.start));
            innermost.from = None;
        } else if token.eq_ignore_ascii_case("FROM") && innermost.first.is_some() && innermost.from.is_none() {
            innermost.from = Some(span.start);
        }
    }
    let depth = open.iter().rposition(|select| select.from.is_some())?;
    let select = &open[depth];
    let end = spans.last()?.end;
    let with = query.get(spans[0].clone()).filter(|first| first.eq_ignore_ascii_case("WITH"));
    let names = if depth == 0 && with.is_some() { &query[..select.first?] } else { "" };
    let closing = ")".repeat(open.len() - 1 - depth);
    Some(format!("{names}SELECT {column} {}{closing}", &query[select.from?..end]))
}

fn is_one_of(token: &str, words: &[&str]) -> bool {
    words.iter().any(|word| token.eq_ignore_ascii_case(word))
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c == '`' || c == '_' || c == '$' || c.is_alphabetic())
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

//! Cuts a query where its list can take one more column, for use in a union.

use crate::sqltext::{Dialect, Lexer, TokenKind};

/// What a part of a union can't contain, or what would have to follow its limit.
const REFUSED: [&str; 10] =
    ["UNION", "EXCEPT", "MINUS", "INTERSECT", "FETCH", "INTO", "PROCEDURE", "FOR", "LOCK", "WINDOW"];

/// A query in two halves, with a limit.
#[derive(Debug, PartialEq, Eq)]
pub struct QueryHalves {
    /// Up to the end of its list.
    pub list: String,
    /// From `FROM`.
    pub rest: String,
}

/// Cuts a query before its `FROM`. The parameter must follow `WHERE`, so that the types of the columns can't depend on
/// it.
///
/// # Errors
/// Why the query can't be a part of a union.
pub fn parts(query: &str) -> Result<QueryHalves, &'static str> {
    if query.contains('\\') {
        return Err("with a backslash in it, the server's settings decide where its strings end");
    }
    let mut depth = 0_usize;
    let (mut from, mut condition, mut limit) = (None, None, false);
    for token in Lexer::new(query, Dialect::MySql) {
        let is = |word: &str| token.is_word(word);
        match token.text {
            text if token.kind == TokenKind::Comment && (text.starts_with("/*!") || text.starts_with("/*M!")) => {
                return Err("the server may run what stands in its comments");
            }
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            "?" if condition.is_none() => return Err("its parameter does not stand behind WHERE"),
            // LIMIT ROWS EXAMINED counts the rows of a whole statement, and ends it early without an error.
            _ if is("EXAMINED") => return Err("the rows that it may read are counted"),
            _ if depth > 0 => {}
            _ if REFUSED.iter().any(|word| is(word)) => return Err("it is more than one plain SELECT"),
            _ if is("FROM") && from.is_none() => from = Some(token.start),
            _ if is("WHERE") && from.is_some() => condition = Some(token.start),
            _ if is("LIMIT") => limit = true,
            _ => {}
        }
    }
    let from = from.ok_or("it reads no table")?;
    // Only the first row, as in a single lookup. A limit also keeps the order, which servers drop within a union.
    let limit = if limit { "" } else { "\nLIMIT 1" };
    Ok(QueryHalves { list: query[..from].to_owned(), rest: format!("{}{limit}", &query[from..]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_cut_before_its_table() {
        for (query, list, rest) in [
            ("SELECT * FROM t WHERE id = ?", "SELECT * ", "FROM t WHERE id = ?\nLIMIT 1"),
            (
                "select extract(year from a), '? from' from t where id = ? order by n limit 1",
                "select extract(year from a), '? from' ",
                "from t where id = ? order by n limit 1",
            ),
            (
                "WITH l AS (SELECT * FROM t LIMIT 9) SELECT max(n) FROM l WHERE id = ? GROUP BY id -- FROM\n",
                "WITH l AS (SELECT * FROM t LIMIT 9) SELECT max(n) ",
                "FROM l WHERE id = ? GROUP BY id -- FROM\n\nLIMIT 1",
            ),
            (
                "SELECT `from` FROM t WHERE a IN (SELECT b FROM u WHERE id = ?)",
                "SELECT `from` ",
                "FROM t WHERE a IN (SELECT b FROM u WHERE id = ?)\nLIMIT 1",
            ),
        ] {
            assert_eq!(parts(query), Ok(QueryHalves { list: list.into(), rest: rest.into() }));
        }
    }

    #[test]
    fn other_queries_are_left_whole() {
        for query in [
            "SELECT a FROM t WHERE id = ? UNION SELECT a FROM u",
            "SELECT a FROM t WHERE id = ? FOR UPDATE",
            "SELECT a FROM t WHERE id = ? LOCK IN SHARE MODE",
            "SELECT a FROM t WHERE id = ? OFFSET 1 ROWS FETCH FIRST ROW ONLY",
            "(SELECT a FROM t WHERE id = ?)",
            "SELECT ? AS a FROM t WHERE id = 1",
            "SELECT a FROM (SELECT ? + 1 AS a) AS q",
            "SELECT a FROM t JOIN u ON u.id = ? WHERE t.id = u.id",
            "SELECT 1",
            "SELECT a FROM t WHERE id = ? LIMIT ROWS EXAMINED 10",
            r"SELECT a FROM t WHERE b = 'it\'s' AND id = ?",
            "SELECT a /*!50000 , b */ FROM t WHERE id = ?",
        ] {
            assert!(parts(query).is_err(), "{query}");
        }
    }
}

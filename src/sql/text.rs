//! Just enough of SQL's lexical rules to find where a statement ends and which parameters it names.
//!
//! Configured queries are wrapped in others, `SELECT … FROM (query) AS q`, where a trailing semicolon would be an error and a
//! trailing comment would swallow the closing parenthesis.

use std::ops::Range;

/// Whose lexical rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Dollar quotes, `E''` strings, nested comments.
    Postgres,
    /// Backticks, brackets, four kinds of parameter.
    Sqlite,
    /// Backticks, backslashes in strings, comments from `#`. The server's default rules: under ANSI_QUOTES or NO_BACKSLASH_ESCAPES
    /// it is the server that refuses what was misread here.
    MySql,
}

/// The single statement of `sql` without what may trail it, and the parameters that it names, in order.
///
/// # Errors
/// Says why it can't be wrapped: it is empty or more than one statement.
pub fn body(sql: &str, dialect: Dialect) -> Result<(&str, Vec<&str>), String> {
    let mut scanner = Scanner { sql, bytes: sql.as_bytes(), at: 0, dialect };
    let (mut end, mut ended) = (0, false);
    let mut parameters = Vec::new();
    while let Some(token) = scanner.next_token() {
        match token {
            Token::Semicolon => ended = end > 0,
            _ if ended => return Err("it is more than one statement".to_owned()),
            Token::Parameter(name) => {
                parameters.push(name);
                end = scanner.at;
            }
            Token::Other => end = scanner.at,
        }
    }
    if end == 0 { Err("it is empty".to_owned()) } else { Ok((sql[..end].trim_start(), parameters)) }
}

/// Where the tokens of `sql` are, comments and blanks left out.
pub(super) fn tokens(sql: &str, dialect: Dialect) -> Vec<Range<usize>> {
    let mut scanner = Scanner { sql, bytes: sql.as_bytes(), at: 0, dialect };
    let mut found = Vec::new();
    loop {
        scanner.skip_blanks_and_comments();
        let start = scanner.at;
        match scanner.next_token() {
            Some(_) => found.push(start..scanner.at),
            None => return found,
        }
    }
}

enum Token<'a> {
    Semicolon,
    Parameter(&'a str),
    Other,
}

struct Scanner<'a> {
    sql: &'a str,
    bytes: &'a [u8],
    at: usize,
    dialect: Dialect,
}

impl<'a> Scanner<'a> {
    fn next_token(&mut self) -> Option<Token<'a>> {
        self.skip_blanks_and_comments();
        let start = self.at;
        let first = *self.bytes.get(start)?;
        self.at += 1;
        match (first, self.dialect) {
            (b';', _) => return Some(Token::Semicolon),
            (b'\'' | b'"', Dialect::MySql) => self.skip_quoted(first, true),
            (b'\'' | b'"', _) | (b'`', Dialect::Sqlite | Dialect::MySql) => self.skip_quoted(first, false),
            (b'[', Dialect::Sqlite) => self.skip_past(b"]"),
            (b'$', Dialect::Postgres) if !self.peek().is_some_and(|b| b.is_ascii_digit()) => {
                self.skip_dollar_quoted(start)
            }
            (b'?', Dialect::MySql) => return Some(Token::Parameter(&self.sql[start..self.at])),
            // Not a parameter to the server, but meant as one; `$a` is a name.
            (b'$', Dialect::MySql) if !self.peek().is_some_and(|b| b.is_ascii_digit()) => self.skip_identifier(),
            (b'?', Dialect::Sqlite) | (b'$', _) => {
                self.skip_word();
                return Some(Token::Parameter(&self.sql[start..self.at]));
            }
            (b':' | b'@', Dialect::Sqlite) if self.peek().is_some_and(is_word) => {
                self.skip_word();
                return Some(Token::Parameter(&self.sql[start..self.at]));
            }
            (b'e' | b'E', Dialect::Postgres) if self.peek() == Some(b'\'') => {
                self.at += 1;
                self.skip_quoted(b'\'', true);
            }
            (b, _) if is_word(b) => self.skip_identifier(),
            _ => {}
        }
        Some(Token::Other)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_blanks_and_comments(&mut self) {
        loop {
            let rest = &self.bytes[self.at..];
            if rest.first().is_some_and(|b| b.is_ascii_whitespace() || *b == 0x0b) {
                self.at += 1;
            } else if self.begins_line_comment(rest) {
                self.skip_past(b"\n");
            } else if rest.starts_with(b"/*") {
                self.skip_block_comment();
            } else {
                return;
            }
        }
    }

    /// MySQL reads `5--3` as a sum.
    fn begins_line_comment(&self, rest: &[u8]) -> bool {
        match self.dialect {
            Dialect::MySql => {
                rest.starts_with(b"#") || (rest.starts_with(b"--") && rest.get(2).is_none_or(|b| *b <= b' '))
            }
            Dialect::Postgres | Dialect::Sqlite => rest.starts_with(b"--"),
        }
    }

    fn skip_block_comment(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            if rest.starts_with(b"/*") && (depth == 0 || self.dialect == Dialect::Postgres) {
                depth += 1;
                self.at += 2;
            } else if rest.starts_with(b"*/") {
                depth -= 1;
                self.at += 2;
                if depth == 0 {
                    return;
                }
            } else {
                self.at += 1;
            }
        }
    }

    /// After the opening quote; a doubled quote reads as two literals side by side, which ends at the same place.
    fn skip_quoted(&mut self, quote: u8, backslash: bool) {
        while let Some(b) = self.peek() {
            self.at += 1;
            if backslash && b == b'\\' {
                self.at = (self.at + 1).min(self.bytes.len());
            } else if b == quote {
                // E'it''s\'' must stay under the rules of its prefix.
                if backslash && self.peek() == Some(quote) {
                    self.at += 1;
                } else {
                    return;
                }
            }
        }
    }

    fn skip_dollar_quoted(&mut self, start: usize) {
        self.skip_word();
        if self.peek() == Some(b'$') {
            self.at += 1;
            let tag = &self.bytes[start..self.at];
            self.skip_past(tag);
        }
    }

    /// To the end of the next `end`, or of everything.
    fn skip_past(&mut self, end: &[u8]) {
        let found = self.bytes[self.at..].windows(end.len()).position(|window| window == end);
        self.at = found.map_or(self.bytes.len(), |offset| self.at + offset + end.len());
    }

    /// PostgreSQL and MySQL allow dollar signs within names: `a$b$` opens no quote.
    fn skip_identifier(&mut self) {
        while self.peek().is_some_and(|b| is_word(b) || (b == b'$' && self.dialect != Dialect::Sqlite)) {
            self.at += 1;
        }
    }

    fn skip_word(&mut self) {
        while self.peek().is_some_and(is_word) {
            self.at += 1;
        }
    }
}

/// Letters of every script count: in UTF-8 they are bytes from 0x80.
fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn postgres(sql: &str) -> Result<&str, String> {
        body(sql, Dialect::Postgres).map(|(body, _)| body)
    }

    #[test]
    fn what_trails_a_statement_is_cut_off() {
        let plain = "SELECT name FROM users WHERE id = $1";
        for tail in ["", ";", " ; ;\n", " -- done", ";-- done\n/* a /* nested */ b */ ;", "\t/* ' */"] {
            assert_eq!(postgres(&format!(" \n{plain}{tail}")), Ok(plain), "{tail:?}");
        }
    }

    #[test]
    fn quotes_hide_semicolons_and_comments() {
        for sql in [
            "SELECT ';--' AS a, \"odd;name\" FROM t",
            "SELECT E'it\\'s; ''--' AS a",
            "SELECT $$ ; -- $$, $tag$ $$ ; $tag$ FROM t",
            "SELECT 'it''s; fine'",
            "SELECT a /* ; */ FROM t",
            "SELECT a$b$ FROM t WHERE c = ';'",
        ] {
            assert_eq!(postgres(sql), Ok(sql));
        }
    }

    #[test]
    fn more_than_one_statement_is_refused() {
        assert!(postgres("SELECT 1; DROP TABLE users").is_err());
        assert!(postgres("SELECT 1; -- x\nSELECT 2").is_err());
        assert!(postgres(" ; -- nothing").is_err());
        assert!(postgres("").is_err());
    }

    #[test]
    fn parameters_of_sqlite_are_found() {
        let found = |sql| body(sql, Dialect::Sqlite).map(|(_, parameters)| parameters).unwrap();
        assert_eq!(found("SELECT a FROM t WHERE id = $1 AND b = '?' AND [c?] = ?"), ["$1", "?"]);
        assert_eq!(found("SELECT `$2`, \"?3\" FROM t WHERE id = ?12 -- :x"), ["?12"]);
        assert_eq!(found("SELECT a FROM t WHERE id = :id OR id = @id"), [":id", "@id"]);
    }

    #[test]
    fn parameters_of_mysql_are_found() {
        let found = |sql| body(sql, Dialect::MySql).map(|(body, parameters)| (body, parameters.len())).unwrap();
        for (sql, trimmed, parameters) in [
            ("SELECT a FROM t WHERE id = ? -- by id", "SELECT a FROM t WHERE id = ?", 1),
            (
                "SELECT '?', \"it\\\"s ?\", `?`, 'it\\'s; ?' /* ? */ FROM t # ?\n;",
                "SELECT '?', \"it\\\"s ?\", `?`, 'it\\'s; ?' /* ? */ FROM t",
                0,
            ),
            ("SELECT 5--3, a$1, $b FROM t", "SELECT 5--3, a$1, $b FROM t", 0),
            ("SELECT a FROM t WHERE id = $1", "SELECT a FROM t WHERE id = $1", 1),
            ("SELECT ??", "SELECT ??", 2),
        ] {
            assert_eq!(found(sql), (trimmed, parameters), "{sql}");
        }
    }

    #[test]
    fn unfinished_quotes_do_not_loop_or_panic() {
        for sql in ["SELECT 'a", "SELECT \"", "SELECT E'\\", "SELECT $x$ y", "SELECT /* x", "SELECT $", "SELECT é$"] {
            let _ = (body(sql, Dialect::Postgres), body(sql, Dialect::Sqlite), body(sql, Dialect::MySql));
        }
    }
}

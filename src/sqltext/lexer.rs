//! From text to tokens.

use std::ops::Range;

use super::Dialect;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A keyword or an unquoted name.
    Word,
    /// A name in quotes.
    QuotedName,
    /// A string, with its prefix where that changes how it is read: `E'…'`.
    String,
    /// A number without its sign.
    Number,
    /// `$1`, `?`, `:name`.
    ///
    /// Also a `$1` in MySQL: the server reads a name there, but the author meant a parameter.
    Parameter,
    /// A comment, with the line break that ends it.
    Comment,
    /// One character of anything else.
    Punctuation,
}

/// A piece of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: TokenKind,
    /// Its text, quotes included.
    pub text: &'a str,
    /// Where it begins, in bytes.
    pub start: usize,
}

impl Token<'_> {
    /// Where it ends, in bytes.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Its bytes in the statement.
    #[must_use]
    pub const fn span(&self) -> Range<usize> {
        self.start..self.end()
    }

    /// Returns true for this keyword, in capitals or not.
    #[must_use]
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == TokenKind::Word && self.text.eq_ignore_ascii_case(word)
    }

    /// Returns true for this character of punctuation.
    #[must_use]
    pub fn is_punctuation(&self, text: &str) -> bool {
        self.kind == TokenKind::Punctuation && self.text == text
    }

    /// The digits of `$1` or `?1`, without what runs into them. `None` for other tokens and for a plain `?`.
    #[must_use]
    pub fn parameter_number(&self) -> Option<u32> {
        let name = self.text.strip_prefix(['$', '?']).filter(|_| self.kind == TokenKind::Parameter)?;
        name[..name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len())].parse().ok()
    }
}

/// The tokens of a statement, comments included, blanks left out.
///
/// Any text has tokens. A string, a name or a comment that is not closed reaches to the end.
#[derive(Debug, Clone)]
pub struct Lexer<'a> {
    sql: &'a str,
    bytes: &'a [u8],
    at: usize,
    dialect: Dialect,
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.skip_while(is_blank);
        let start = self.at;
        let kind = self.read()?;
        Some(Token { kind, text: &self.sql[start..self.at], start })
    }
}

impl<'a> Lexer<'a> {
    /// Reads `sql` by the rules of `dialect`.
    #[must_use]
    pub const fn new(sql: &'a str, dialect: Dialect) -> Self {
        Self { sql, bytes: sql.as_bytes(), at: 0, dialect }
    }

    /// Reads one token and stops behind it.
    fn read(&mut self) -> Option<TokenKind> {
        use Dialect::{MySql, Postgres, Sqlite};
        let start = self.at;
        let first = self.peek()?;
        if self.begins_line_comment() {
            self.skip_line();
            return Some(TokenKind::Comment);
        }
        if self.rest().starts_with(b"/*") {
            self.skip_block_comment();
            return Some(TokenKind::Comment);
        }
        self.at += 1;
        let next = self.peek();
        Some(match (first, self.dialect) {
            (b'\'' | b'"', MySql) => {
                self.skip_quoted(first, true);
                TokenKind::String
            }
            (b'\'', _) => {
                self.skip_quoted(first, false);
                TokenKind::String
            }
            (b'e' | b'E', Postgres) if next == Some(b'\'') => {
                self.at += 1;
                self.skip_quoted(b'\'', true);
                TokenKind::String
            }
            (b'"', _) | (b'`', Sqlite | MySql) => {
                self.skip_quoted(first, false);
                TokenKind::QuotedName
            }
            (b'[', Sqlite) => {
                self.skip_past(b"]");
                TokenKind::QuotedName
            }
            (b'$', Postgres | MySql) if next.is_some_and(|b| b.is_ascii_digit()) => {
                self.skip_while(is_letter_or_digit);
                TokenKind::Parameter
            }
            (b'$', Postgres) => self.dollar_quote(start),
            (b'?', MySql) => TokenKind::Parameter,
            (b'?', Sqlite) => {
                self.skip_while(|b| b.is_ascii_digit());
                TokenKind::Parameter
            }
            (b'$' | b':' | b'@' | b'#', Sqlite) if next.is_some_and(is_letter_or_digit) => {
                self.skip_while(is_word);
                TokenKind::Parameter
            }
            (b'0'..=b'9', _) => self.number(start),
            (b'$', MySql) => {
                self.skip_while(is_word);
                TokenKind::Word
            }
            (b, _) if is_letter_or_digit(b) => {
                self.skip_while(is_word);
                TokenKind::Word
            }
            _ => TokenKind::Punctuation,
        })
    }

    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_while(&mut self, holds: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&holds) {
            self.at += 1;
        }
    }

    /// To the end of the next `end`, or of everything.
    fn skip_past(&mut self, end: &[u8]) {
        let found = self.rest().windows(end.len()).position(|window| window == end);
        self.at = found.map_or(self.bytes.len(), |offset| self.at + offset + end.len());
    }

    /// MySQL reads `5--3` as a sum.
    fn begins_line_comment(&self) -> bool {
        let rest = self.rest();
        match self.dialect {
            Dialect::MySql => {
                rest.starts_with(b"#") || (rest.starts_with(b"--") && rest.get(2).is_none_or(|b| *b <= b' '))
            }
            Dialect::Postgres | Dialect::Sqlite => rest.starts_with(b"--"),
        }
    }

    /// To PostgreSQL a carriage return ends a line.
    fn skip_line(&mut self) {
        let ends = |b| b == b'\n' || (b == b'\r' && self.dialect == Dialect::Postgres);
        let length = self.rest().iter().position(|b| ends(*b));
        self.at = length.map_or(self.bytes.len(), |length| self.at + length + 1);
    }

    /// Comments nest in PostgreSQL only.
    fn skip_block_comment(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.bytes.len() {
            let rest = self.rest();
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

    /// Stands behind the opening quote. A doubled quote belongs to what is quoted.
    fn skip_quoted(&mut self, quote: u8, backslash: bool) {
        while let Some(b) = self.peek() {
            self.at += 1;
            if backslash && b == b'\\' {
                self.at = (self.at + 1).min(self.bytes.len());
            } else if b == quote {
                if self.peek() == Some(quote) || (backslash && self.is_continued()) {
                    self.at += 1;
                } else {
                    return;
                }
            }
        }
    }

    /// Goes on to the quote that continues an `E''` string on another line, under the rules of its prefix.
    fn is_continued(&mut self) -> bool {
        let end = self.at;
        let mut line_ended = false;
        while self.dialect == Dialect::Postgres {
            match self.peek() {
                Some(b'\'') if line_ended => return true,
                Some(b) if is_blank(b) => {
                    line_ended |= b == b'\n' || b == b'\r';
                    self.at += 1;
                }
                Some(_) if self.begins_line_comment() => {
                    self.skip_line();
                    line_ended = true;
                }
                _ => break,
            }
        }
        self.at = end;
        false
    }

    /// Stands behind the first dollar sign of `$$` or `$tag$`, or of neither.
    fn dollar_quote(&mut self, start: usize) -> TokenKind {
        let behind = self.at;
        self.skip_while(is_letter_or_digit);
        if self.peek() != Some(b'$') {
            self.at = behind;
            return TokenKind::Punctuation;
        }
        self.at += 1;
        let tag = &self.bytes[start..self.at];
        self.skip_past(tag);
        TokenKind::String
    }

    /// Stands behind the first digit. In MySQL a name may begin with digits.
    fn number(&mut self, start: usize) -> TokenKind {
        let is_digit = |b: u8| b.is_ascii_digit();
        if self.bytes[start] == b'0' && matches!(self.peek(), Some(b'x' | b'X' | b'b' | b'B' | b'o' | b'O')) {
            self.skip_while(is_letter_or_digit);
            return TokenKind::Number;
        }
        self.skip_while(is_digit);
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.skip_while(is_digit);
        }
        if let [b'e' | b'E', rest @ ..] = self.rest() {
            let sign = usize::from(matches!(rest.first(), Some(b'+' | b'-')));
            if rest.get(sign).is_some_and(u8::is_ascii_digit) {
                self.at += 1 + sign;
                self.skip_while(is_digit);
            }
        }
        let whole = self.bytes[start..self.at].iter().all(u8::is_ascii_digit);
        if self.dialect == Dialect::MySql && whole && self.peek().is_some_and(is_word) {
            self.skip_while(is_word);
            return TokenKind::Word;
        }
        TokenKind::Number
    }
}

/// A vertical tab is no `is_ascii_whitespace`.
fn is_blank(b: u8) -> bool {
    b.is_ascii_whitespace() || b == 0x0b
}

/// Letters of every script count: in UTF-8 they are bytes from 0x80.
fn is_letter_or_digit(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80
}

/// A name may hold dollar signs behind its first character: `a$b$` opens no quote, and `a$1` is no parameter.
fn is_word(b: u8) -> bool {
    is_letter_or_digit(b) || b == b'$'
}

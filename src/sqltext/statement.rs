//! What is read off the tokens of a whole statement.

use std::collections::BTreeSet;

use super::{Dialect, Lexer, Token, TokenKind};

/// The single statement of a configured text.
///
/// Configured queries are wrapped in others, `SELECT … FROM (query) AS q`. A semicolon at the query's end is an error
/// there, and a comment swallows the closing parenthesis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SingleStatement<'a> {
    /// Without the semicolons, blanks and comments behind it.
    pub text: &'a str,
    /// The parameters as they are written, in their order.
    pub parameters: Vec<&'a str>,
}

/// Why a text can't be wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotOneStatement {
    /// No tokens but semicolons.
    #[error("it is empty")]
    Empty,
    /// Tokens behind a semicolon.
    #[error("it is more than one statement")]
    Several,
}

impl<'a> SingleStatement<'a> {
    /// Reads the statement of `sql`.
    ///
    /// # Errors
    /// [`NotOneStatement`] unless there is exactly one.
    pub fn parse(sql: &'a str, dialect: Dialect) -> Result<Self, NotOneStatement> {
        let (mut end, mut ended) = (0, false);
        let mut parameters = Vec::new();
        for token in significant(sql, dialect) {
            if token.is_punctuation(";") {
                ended = end > 0;
                continue;
            }
            if ended {
                return Err(NotOneStatement::Several);
            }
            if token.kind == TokenKind::Parameter {
                parameters.push(token.text);
            }
            end = token.end();
        }
        if end == 0 {
            return Err(NotOneStatement::Empty);
        }
        Ok(Self { text: sql[..end].trim_start(), parameters })
    }
}

/// The tokens of `sql` without its comments.
#[must_use]
pub fn tokens(sql: &str, dialect: Dialect) -> Vec<Token<'_>> {
    significant(sql, dialect).collect()
}

/// The numbers of the parameters that `sql` takes. Parameters with a name have none.
#[must_use]
pub fn parameter_numbers(sql: &str, dialect: Dialect) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    for token in significant(sql, dialect).filter(|token| token.kind == TokenKind::Parameter) {
        let next = || numbers.last().map_or(1, |last: &u32| last.saturating_add(1));
        let number = match dialect {
            _ if token.text == "?" => Some(next()),
            // There `$1` is a name.
            Dialect::MySql => None,
            Dialect::Postgres | Dialect::Sqlite => token.parameter_number(),
        };
        numbers.extend(number);
    }
    numbers
}

/// Returns true if `sql` has one of these keywords outside of quotes and comments.
#[must_use]
pub fn has_word(sql: &str, dialect: Dialect, words: &[&str]) -> bool {
    significant(sql, dialect).any(|token| words.iter().any(|word| token.is_word(word)))
}

fn significant(sql: &str, dialect: Dialect) -> impl Iterator<Item = Token<'_>> {
    Lexer::new(sql, dialect).filter(|token| token.kind != TokenKind::Comment)
}

//! The lexical rules of SQL: where each token of a configured statement begins and ends, in each supported dialect.
//!
//! Everything that reads SQL text works on these tokens. No grammar is known here, and no server is asked.
//!
//! Not the crate `sqlparser`: its spans are lines and columns instead of bytes, it fails on text that it can't read
//! instead of leaving that to the server, and its parser and syntax tree would come along for a lexer.

mod dialect;
mod lexer;
mod statement;
#[cfg(test)]
mod tests;

pub use dialect::Dialect;
pub use lexer::{Lexer, Token, TokenKind};
pub use statement::{NotOneStatement, SingleStatement, has_word, parameter_numbers, tokens};

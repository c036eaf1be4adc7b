//! The databases whose lexical rules are known.

/// Whose lexical rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Parameters are `$1`. Dollar quotes, `E''` strings, nested comments.
    Postgres,
    /// Parameters are `?`, `?1`, `$1`, `:name` or `@name`. Names in backticks and brackets.
    Sqlite,
    /// Parameters are `?`. Backslashes in strings, names in backticks, comments from `#`. These are the server's default
    /// rules: under ANSI_QUOTES or NO_BACKSLASH_ESCAPES the server rejects what was misread here.
    MySql,
}

impl Dialect {
    /// How a statement writes its first parameter.
    #[must_use]
    pub const fn first_parameter(self) -> &'static str {
        match self {
            Self::Postgres | Self::Sqlite => "$1",
            Self::MySql => "?",
        }
    }
}

//! Bearer tokens and their scopes. A reload replaces them.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use subtle::ConstantTimeEq;

use crate::config::{Scope, ServerConfig};

/// Tokens that a reload replaces and every listener reads.
pub type LiveTokens = ArcSwap<Tokens>;

/// A set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Scopes(u8);

impl Scopes {
    fn of(scopes: &[Scope]) -> Self {
        Self(scopes.iter().fold(0, |all, scope| all | 1 << *scope as u8))
    }

    pub(super) const fn hold(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// All tokens of a configuration. `Debug` shows none.
#[derive(Default)]
pub struct Tokens(Vec<(Arc<[u8]>, Scopes)>);

impl Tokens {
    /// Reads the tokens from a configuration.
    #[must_use]
    pub fn of(config: &ServerConfig) -> Self {
        let tokens = config.all_tokens().map(|(token, scopes)| (token.expose().as_bytes().into(), Scopes::of(scopes)));
        // An empty token would admit everybody.
        Self(tokens.filter(|(token, _): &(Arc<[u8]>, _)| !token.is_empty()).collect())
    }

    /// The scopes of a token; `None` if it is unknown. Compares with every token in constant time, so that only lengths
    /// leak.
    pub(super) fn scopes_of(&self, offered: &[u8]) -> Option<Scopes> {
        let mut found: Option<Scopes> = None;
        for (token, scopes) in &self.0 {
            if bool::from(token.ct_eq(offered)) {
                found = Some(found.unwrap_or_default().with(*scopes));
            }
        }
        found
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

/// The token of an `Authorization` header.
pub(super) fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{SecretText, TokenConfig};

    fn secret(text: &str) -> SecretText {
        SecretText::new(text.into())
    }

    #[test]
    fn a_token_allows_what_all_files_that_hold_it_say() {
        let file = |scopes: &[Scope], tokens: &[&str]| TokenConfig {
            scopes: scopes.to_vec(),
            tokens: tokens.iter().map(|text| secret(text)).collect(),
            ..TokenConfig::default()
        };
        let config = ServerConfig {
            token: vec![secret("old"), secret("new")],
            admin_token: vec![secret("root"), secret("")],
            tokens: vec![file(&[Scope::Read], &["reader", "both"]), file(&[Scope::Admin, Scope::Write], &["both"])],
            ..ServerConfig::default()
        };
        let tokens = Tokens::of(&config);
        let told = |token: &str| {
            let scopes = tokens.scopes_of(token.as_bytes())?;
            Some([Scope::Read, Scope::Write, Scope::Admin].map(|scope| scopes.hold(scope)))
        };
        assert_eq!(told("old"), Some([true, true, false]));
        assert_eq!(told("new"), Some([true, true, false]));
        assert_eq!(told("root"), Some([false, false, true]));
        assert_eq!(told("reader"), Some([true, false, false]));
        assert_eq!(told("both"), Some([true, true, true]));
        for wrong in ["", "ol", "olds", "OLD"] {
            assert_eq!(told(wrong), None, "{wrong:?}");
        }
        assert_eq!(format!("{tokens:?}"), "6 tokens");
    }
}

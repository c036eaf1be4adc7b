//! Secrets, tokens and browsers.

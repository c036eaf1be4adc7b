//! Which text may contain a secret, and what replaces it.

/// Shown instead of a secret.
pub(super) const REDACTED: &str = "redacted";

/// Whether a parameter of this name may hold a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    let words = ["pass", "pwd", "secret", "token", "apikey", "api_key", "api-key", "signature", "credential", "auth"];
    words.iter().any(|word| name.contains(word)) || ["key", "sig", "code"].contains(&name.as_str())
}

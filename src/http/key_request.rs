//! Resolves a path to a keyspace and a key.

use axum::http::StatusCode;

use super::answer::AnswerOptions;
use super::context::{HttpContext, ServedKeyspace};
use super::path::KeyPath;
use super::problem::Problem;
use crate::key::Key;

/// The keyspace of that name; an unknown one is a 400 on the data listener.
pub(super) fn find_keyspace<'a>(context: &'a HttpContext, name: &str) -> Result<&'a ServedKeyspace, Problem> {
    context.keyspaces.get(name).ok_or_else(|| Problem::unknown_keyspace(StatusCode::BAD_REQUEST, name))
}

/// A request for a known keyspace and a key in canonical form.
pub(super) struct KeyRequest<'a> {
    pub(super) served: &'a ServedKeyspace,
    pub(super) key: Key,
    pub(super) honor_no_cache: bool,
    pub(super) answer: AnswerOptions,
}

impl<'a> KeyRequest<'a> {
    /// Finds the keyspace and brings the key into canonical form.
    pub(super) fn new(context: &'a HttpContext, path: &KeyPath<'_>) -> Result<Self, Problem> {
        let served = find_keyspace(context, path.keyspace)?;
        let raw = path.decode(context.settings.max_key_bytes).map_err(|e| Problem::from(&e))?;
        let key = served.keyspace.key(&raw).map_err(|e| Problem::from(&e))?;
        let answer = AnswerOptions { cache_status: context.settings.cache_status, ..AnswerOptions::default() };
        Ok(Self { served, key, honor_no_cache: context.settings.honor_no_cache, answer })
    }
}

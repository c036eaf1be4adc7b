//! Several sources whose union is the key set: [`Union`].

use std::sync::Arc;

use async_trait::async_trait;

use super::{KeyBatches, KeySource, SourceError};
use crate::key::KeyForm;

/// One source of several.
pub struct Member {
    /// Where the keys come from.
    pub source: Arc<dyn KeySource>,
    /// Whether it may have no keys.
    pub allow_empty: bool,
}

/// Reads several sources one after another, so that a build holds no more than one of them at a time. They may share
/// keys.
///
/// A failure of one source fails the scan: the keys of the others are not the key set. So does a source without keys,
/// unless that is allowed, because the others would hide its loss.
pub struct Union(Vec<Member>);

impl std::fmt::Debug for Union {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Union").field("sources", &self.0.len()).finish()
    }
}

impl Union {
    /// The union of `members`, which messages call `source[0]`, `source[1]`, ….
    #[must_use]
    pub const fn new(members: Vec<Member>) -> Self {
        Self(members)
    }

    fn each(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.0.iter().enumerate()
    }
}

/// Adds which source failed.
fn of(index: usize) -> impl Fn(SourceError) -> SourceError {
    move |error| match error {
        SourceError::Cancelled => SourceError::Cancelled,
        error => SourceError::Member { index, error: Box::new(error) },
    }
}

#[async_trait]
impl KeySource for Union {
    /// The form that all of them suggest; `None` if one of them suggests none.
    async fn key_form(&self) -> Result<Option<KeyForm>, SourceError> {
        let mut first: Option<(usize, KeyForm)> = None;
        let mut silent = false;
        for (index, member) in self.each() {
            match (first, member.source.key_form().await.map_err(of(index))?) {
                (_, None) => silent = true,
                (None, Some(form)) => first = Some((index, form)),
                (Some((other, told)), Some(form)) if told != form => {
                    return Err(SourceError::Invalid(format!(
                        "source[{other}] has keys of form \"{told}\" and source[{index}] of form \"{form}\": set `key`, or cast one of them"
                    )));
                }
                _ => {}
            }
        }
        Ok(first.filter(|_| !silent).map(|(_, form)| form))
    }

    async fn form_conflict(&self, form: KeyForm) -> Result<Option<String>, SourceError> {
        for (index, member) in self.each() {
            if let Some(conflict) = member.source.form_conflict(form).await.map_err(of(index))? {
                return Ok(Some(format!("source[{index}]: {conflict}")));
            }
        }
        Ok(None)
    }

    /// The sum; `None` if one of them can't tell.
    async fn count(&self) -> Result<Option<u64>, SourceError> {
        let mut sum = Some(0_u64);
        for (index, member) in self.each() {
            let counted = member.source.count().await.map_err(of(index))?;
            sum = sum.zip(counted).map(|(sum, counted)| sum.saturating_add(counted));
        }
        Ok(sum)
    }

    async fn scan(&self, form: KeyForm, batches: KeyBatches) -> Result<u64, SourceError> {
        let mut sent = 0;
        for index in 0..self.0.len() {
            sent += self.scan_member(index, form, batches.clone()).await?;
        }
        Ok(sent)
    }

    fn members(&self) -> usize {
        self.0.len()
    }

    async fn scan_member(&self, index: usize, form: KeyForm, batches: KeyBatches) -> Result<u64, SourceError> {
        let member =
            self.0.get(index).ok_or_else(|| of(index)(SourceError::Invalid("there is no such source".to_owned())))?;
        let keys = member.source.scan(form, batches).await.map_err(of(index))?;
        if keys == 0 && !member.allow_empty {
            let why = "it has no keys; if that is right, set its allow_empty = true";
            return Err(of(index)(SourceError::Invalid(why.to_owned())));
        }
        Ok(keys)
    }

    fn warning(&self) -> Option<String> {
        let warnings: Vec<String> = self
            .each()
            .filter_map(|(index, member)| Some(format!("source[{index}]: {}", member.source.warning()?)))
            .collect();
        (!warnings.is_empty()).then(|| warnings.join("; "))
    }
}

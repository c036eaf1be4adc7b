//! Whether one statement can ask a query for several keys: determined at first use, then remembered.

use std::sync::{Arc, Once, OnceLock};

use crate::sql::SqlError;

/// What is needed to ask for several keys; empty if that is impossible.
#[derive(Debug)]
pub(super) struct Verdict<T> {
    found: OnceLock<Option<T>>,
    /// Plans are replaced; a refusal is logged once for each backend.
    logged: Arc<Once>,
}

impl<T> Verdict<T> {
    pub(super) const fn open(logged: Arc<Once>) -> Self {
        Self { found: OnceLock::new(), logged }
    }

    pub(super) fn is_open(&self) -> bool {
        self.found.get().is_none()
    }

    /// Returns true if the query is known to take one key at a time.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.found.get(), Some(None))
    }

    pub(super) fn accepted(&self) -> Option<&T> {
        self.found.get()?.as_ref()
    }

    /// Stores the server's answer. Only its rejection of the statement is a verdict; a failure to ask is not.
    pub(super) fn settle(&self, told: Result<T, SqlError>) -> Result<(), SqlError> {
        let accepted = match told {
            Ok(accepted) => Some(accepted),
            Err(SqlError::Invalid { message: why, .. }) => {
                self.logged.call_once(|| {
                    tracing::info!(
                        why,
                        "the backend's query can't be asked for several keys at once: batches are looked up key by key"
                    );
                });
                None
            }
            Err(error) => return Err(error),
        };
        // Others may have asked at the same time, with the same answer.
        let _ = self.found.set(accepted);
        Ok(())
    }
}

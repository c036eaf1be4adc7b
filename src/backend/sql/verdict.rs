//! Whether a query can be asked for several keys at once: found out when it is first wanted, then remembered.

use std::sync::{Arc, Once, OnceLock};

use crate::sql::SqlError;

/// What is needed to ask for several keys, or nothing where it can't be done.
#[derive(Debug)]
pub(super) struct Verdict<T> {
    found: OnceLock<Option<T>>,
    /// Plans come and go; a refusal is logged once a backend.
    logged: Arc<Once>,
}

impl<T> Verdict<T> {
    pub(super) const fn open(logged: Arc<Once>) -> Self {
        Self { found: OnceLock::new(), logged }
    }

    pub(super) fn is_open(&self) -> bool {
        self.found.get().is_none()
    }

    /// Whether it has turned out that the query takes one key at a time.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.found.get(), Some(None))
    }

    pub(super) fn accepted(&self) -> Option<&T> {
        self.found.get()?.as_ref()
    }

    /// Takes what the server said. Only its refusal of the statement is a verdict; that it could not be asked is none.
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
        // Others may have asked at the same time, and been told the same.
        let _ = self.found.set(accepted);
        Ok(())
    }
}

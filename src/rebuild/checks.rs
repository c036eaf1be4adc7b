//! Checks of a candidate before it becomes active.

use super::error::BuildError;
use crate::keyspace::{Build, Verified};

/// Keys per check of the backend.
const KEYS_AT_A_TIME: usize = 100;

/// Checks that the candidate is no fuller than its capacity.
pub(super) fn fill(build: &Build, keys: u64) -> Result<(), BuildError> {
    let (items, capacity) = (build.filter().items(), build.filter().capacity());
    // The source may list keys twice, so the fill decides; its estimate is good to about a percent.
    if keys > capacity && items as f64 > capacity as f64 * 1.02 {
        Err(BuildError::Overfull { items, capacity })
    } else {
        Ok(())
    }
}

/// Checks that the candidate contains every key that the backend found before the scan, and still finds.
///
/// Asks the backend again for missing keys: a row may have been removed without a `DELETE` here, and such a key must
/// not reject every build.
pub(super) async fn confirmed_keys(build: &Build) -> Result<(), BuildError> {
    let missing = build.missing();
    for keys in missing.chunks(KEYS_AT_A_TIME) {
        for (key, verified) in keys.iter().zip(build.verify(keys).await?) {
            match verified {
                Verified::Row => return Err(BuildError::MissingKeys { count: missing.len(), first: key.clone() }),
                Verified::NoRow => build.gone(key),
                // It may exist: inserted, so that the filter never calls it absent, at the price of a false positive.
                Verified::Unknown(_) => build.filter().insert(build.hash(key).get()),
            }
        }
    }
    Ok(())
}

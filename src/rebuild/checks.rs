//! What a candidate must hold before it is put in force.

use super::error::BuildError;
use crate::keyspace::{Build, Verified};

/// Keys that are asked of the backend before its answers are looked at.
const ASKED_TOGETHER: usize = 100;

/// The candidate is no fuller than it was made for.
pub(super) fn fill(build: &Build, keys: u64) -> Result<(), BuildError> {
    let (items, capacity) = (build.filter().items(), build.filter().capacity());
    // The source may list keys twice, so the fill decides; its estimate is good to about a percent.
    if keys > capacity && items as f64 > capacity as f64 * 1.02 {
        Err(BuildError::Overfull { items, capacity })
    } else {
        Ok(())
    }
}

/// Every key that the backend answered before the scan, and still does, is in the candidate.
///
/// Keys that are missing are asked for again: a row may have been removed without a `DELETE` here, and such a key must not refuse every build.
pub(super) async fn confirmed_keys(build: &Build) -> Result<(), BuildError> {
    let missing = build.missing();
    for keys in missing.chunks(ASKED_TOGETHER) {
        for (key, verified) in keys.iter().zip(build.verify(keys).await?) {
            match verified {
                Verified::Row => return Err(BuildError::MissingKeys { count: missing.len(), first: key.clone() }),
                Verified::NoRow => build.gone(key),
                // It may exist: never absent by this filter, at the price of a false positive.
                Verified::Unknown(_) => build.filter().insert(build.hash(key).get()),
            }
        }
    }
    Ok(())
}

//! The secret under which a keyspace hashes its keys. A fleet shares one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::key::KeySecret;
use crate::keyspace::Keyspace;
use crate::redis::{LinkError, RedisLink};

/// How often the secret is compared, besides after each connect.
const RECHECK: Duration = Duration::from_secs(1);
/// How soon a start asks again.
const RETRY_AT_START: Duration = Duration::from_millis(5);

/// The fleet's secret from Redis; `None` if Redis does not answer. Without Redis: the secret of the snapshot, or a new
/// one.
///
/// Retries until the deadline, because without the secret the snapshot can't be used.
pub(super) async fn fleet_secret(
    keyspace: &str,
    redis: Option<&Arc<RedisLink>>,
    known: Option<KeySecret>,
    until: Instant,
) -> Option<KeySecret> {
    let proposal = known.unwrap_or_else(KeySecret::random);
    let Some(link) = redis else { return Some(proposal) };
    loop {
        match link.secret(keyspace, &proposal).await {
            Ok(secret) => return Some(secret),
            Err(LinkError::Timeout(_) | LinkError::Unavailable(_)) if Instant::now() < until => {
                tokio::time::sleep(RETRY_AT_START).await
            }
            Err(error) => {
                tracing::warn!(keyspace, %error, "keyspace secret unknown: builds wait for Redis");
                return None;
            }
        }
    }
}

/// Compares the secret with Redis after each connect, because Redis may have been wiped. The first instance then
/// proposes its own.
pub(super) async fn agree_on_secret(keyspace: Arc<Keyspace>, link: Arc<RedisLink>) {
    let mut epochs = link.epochs();
    loop {
        epochs.mark_unchanged();
        match link.secret(keyspace.name(), &keyspace.proposed_secret()).await {
            Ok(secret) => keyspace.agree_on_secret(secret),
            Err(error) => tracing::debug!(keyspace = keyspace.name(), %error, "could not read keyspace secret"),
        }
        // Also checks again if an open connection did not answer.
        let _ = tokio::time::timeout(RECHECK, epochs.changed()).await;
    }
}

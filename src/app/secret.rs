//! The secret under which a keyspace hashes its keys: the fleet's, where there is one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::key::KeySecret;
use crate::keyspace::Keyspace;
use crate::redis::{LinkError, RedisLink};

/// How often it is compared, besides after each connect.
const RECHECK: Duration = Duration::from_secs(1);
/// How soon it is asked for again where nothing is served before it is known.
const RETRY_AT_START: Duration = Duration::from_millis(5);

/// The fleet's secret from Redis, `None` where it does not answer; that of the snapshot, or a fresh one, where there is no fleet.
///
/// Asked for again until then: who goes on without has no use for its snapshot, for one answer that came late.
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

/// Agrees with Redis on the secret after each connect, for it may have been wiped: who is there first proposes the one that it has.
pub(super) async fn agree_on_secret(keyspace: Arc<Keyspace>, link: Arc<RedisLink>) {
    let mut epochs = link.epochs();
    loop {
        epochs.mark_unchanged();
        match link.secret(keyspace.name(), &keyspace.proposed_secret()).await {
            Ok(secret) => keyspace.agree_on_secret(secret),
            Err(error) => tracing::debug!(keyspace = keyspace.name(), %error, "could not read keyspace secret"),
        }
        // Also where a connection is there and did not answer.
        let _ = tokio::time::timeout(RECHECK, epochs.changed()).await;
    }
}

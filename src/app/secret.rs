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

/// The secret that a keyspace without announces starts under: the snapshot's, else the fleet's if Redis has it at hand,
/// else a new one. It waits for nothing, and adopts the fleet's later, see [`agree_on_secret`].
pub(super) async fn own_secret(keyspace: &str, redis: Option<&Arc<RedisLink>>, known: Option<KeySecret>) -> KeySecret {
    if let Some(known) = known {
        return known;
    }
    let Some(link) = redis else { return KeySecret::random() };
    link.stored_secret(keyspace).await.ok().flatten().unwrap_or_else(KeySecret::random)
}

/// Compares the secret with Redis after each connect, because Redis may have been wiped. The first instance then
/// proposes its own; with `patience` only one that has known the fleet's, or once Redis has had none for so long: those
/// that have it come first then, and build nothing.
pub(super) async fn agree_on_secret(keyspace: Arc<Keyspace>, link: Arc<RedisLink>, patience: Option<Duration>) {
    let mut epochs = link.epochs();
    let mut missing_since = None;
    loop {
        if epochs.has_changed().unwrap_or(false) {
            // Another server, perhaps.
            missing_since = None;
        }
        epochs.mark_unchanged();
        let proposes = patience.is_none_or(|patience| {
            keyspace.has_known_fleet_secret() || missing_since.is_some_and(|since: Instant| since.elapsed() >= patience)
        });
        let found = if proposes {
            link.secret(keyspace.name(), &keyspace.proposed_secret()).await.map(Some)
        } else {
            link.stored_secret(keyspace.name()).await
        };
        match found {
            Ok(Some(secret)) => keyspace.agree_on_secret(secret),
            Ok(None) => drop(missing_since.get_or_insert_with(Instant::now)),
            Err(error) => tracing::debug!(keyspace = keyspace.name(), %error, "could not read keyspace secret"),
        }
        // Also checks again if an open connection did not answer.
        let _ = tokio::time::timeout(RECHECK.min(patience.unwrap_or(RECHECK)), epochs.changed()).await;
    }
}

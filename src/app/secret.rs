//! The secret under which a keyspace hashes its keys. A fleet shares one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::key::KeySecret;
use crate::keyspace::Keyspace;
use crate::redis::{LinkError, RedisLink};

/// How often the secret is compared, besides after each connect.
const RECHECK: Duration = Duration::from_secs(1);
/// How often an instance looks that has none yet.
const LOOK_WITHOUT: Duration = Duration::from_millis(50);
/// How soon a start asks again.
const RETRY_AT_START: Duration = Duration::from_millis(5);
/// Instances that run notice a wipe of Redis, and propose the secret that they have, in this time.
const FIRST_WORD: Duration = Duration::from_secs(1);

/// How long Redis has had no secret before an instance proposes one that has not known the fleet's. With announces it
/// builds nothing and acknowledges nothing meanwhile, so that is not for long.
pub(super) fn patience(takes_announces: bool, max_lag: Duration) -> Duration {
    if takes_announces { max_lag.min(FIRST_WORD) } else { max_lag }
}

/// The fleet's secret from Redis, which `known` or `is_first_start` allow to propose; `None` if Redis does not answer,
/// or holds none: then [`agree_on_secret`] waits for one. Without Redis: the secret of the snapshot, or a new one.
///
/// Retries until the deadline, because without the secret the snapshot can't be used.
pub(super) async fn fleet_secret(
    keyspace: &str,
    redis: Option<&Arc<RedisLink>>,
    known: Option<KeySecret>,
    is_first_start: bool,
    until: Instant,
) -> Option<KeySecret> {
    let proposal = known.or_else(|| (is_first_start || redis.is_none()).then(KeySecret::random));
    let Some(link) = redis else { return proposal };
    loop {
        match proposed_or_stored(link, keyspace, proposal.as_ref()).await {
            Ok(Some(secret)) => return Some(secret),
            Ok(None) => {
                tracing::info!(keyspace, "keyspace secret not in Redis yet: waiting for it");
                return None;
            }
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

/// Compares the secret with Redis after each connect, because Redis may have been wiped. The first instance that has
/// known the fleet's then proposes it; another one only once Redis has had none for `patience`: those that have it come
/// first then, and build nothing.
pub(super) async fn agree_on_secret(keyspace: Arc<Keyspace>, link: Arc<RedisLink>, patience: Duration) {
    let mut epochs = link.epochs();
    let mut missing_since = None;
    loop {
        if epochs.has_changed().unwrap_or(false) {
            // Another server, perhaps.
            missing_since = None;
        }
        epochs.mark_unchanged();
        let proposes = keyspace.has_known_fleet_secret()
            || missing_since.is_some_and(|since: Instant| since.elapsed() >= patience);
        let proposal = proposes.then(|| keyspace.proposed_secret());
        match proposed_or_stored(&link, keyspace.name(), proposal.as_ref()).await {
            Ok(Some(secret)) => keyspace.agree_on_secret(secret),
            Ok(None) => drop(missing_since.get_or_insert_with(Instant::now)),
            Err(error) => tracing::debug!(keyspace = keyspace.name(), %error, "could not read keyspace secret"),
        }
        // Also checks again if an open connection did not answer.
        let pause = if keyspace.has_secret() { RECHECK.min(patience) } else { LOOK_WITHOUT };
        let _ = tokio::time::timeout(pause, epochs.changed()).await;
    }
}

/// The secret that Redis holds, or takes.
async fn proposed_or_stored(
    link: &RedisLink,
    keyspace: &str,
    proposal: Option<&KeySecret>,
) -> Result<Option<KeySecret>, LinkError> {
    match proposal {
        Some(proposal) => link.secret(keyspace, proposal).await.map(Some),
        None => link.stored_secret(keyspace).await,
    }
}

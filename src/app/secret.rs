//! The secret under which a keyspace hashes its keys. A fleet shares one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::key::KeySecret;
use crate::keyspace::Keyspace;
use crate::redis::{LinkError, RedisLink};

/// How often the secret is compared, besides after each connect.
const RECHECK: Duration = Duration::from_millis(500);
/// How often an instance looks that has none yet.
const RECHECK_WITHOUT_SECRET: Duration = Duration::from_millis(50);
/// How soon a start asks again.
const RETRY_AT_START: Duration = Duration::from_millis(5);
/// Instances that run notice a wipe of Redis, and propose the secret that they have, in this time.
const PROPOSAL_DELAY: Duration = Duration::from_secs(1);

/// How long Redis has had no secret before an instance proposes one that has not known the fleet's. With announces it
/// builds nothing and acknowledges nothing meanwhile, so that is not for long.
pub(super) fn proposal_delay(takes_announces: bool, max_lag: Duration) -> Duration {
    if takes_announces { max_lag.min(PROPOSAL_DELAY) } else { max_lag }
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
/// known the fleet's then proposes it; another one only once Redis has had none for `proposal_delay`. Instances that
/// know the secret propose it first and need no rebuild.
pub(super) async fn agree_on_secret(keyspace: Arc<Keyspace>, link: Arc<RedisLink>, proposal_delay: Duration) {
    let mut looks = Looks::new(link.epochs(), proposal_delay);
    loop {
        let proposes = keyspace.has_known_fleet_secret() || looks.has_missed_it();
        let proposal = proposes.then(|| keyspace.proposed_secret());
        match proposed_or_stored(&link, keyspace.name(), proposal.as_ref()).await {
            Ok(Some(secret)) => keyspace.agree_on_secret(secret),
            Ok(None) => looks.missed(),
            Err(error) => tracing::debug!(keyspace = keyspace.name(), %error, "could not read keyspace secret"),
        }
        looks.pause(keyspace.has_secret()).await;
    }
}

/// When an instance looks for the secret, and for how long there has been none.
struct Looks {
    /// One for each connection.
    epochs: watch::Receiver<u64>,
    proposal_delay: Duration,
    /// Since when this connection's server has had none.
    missing_since: Option<tokio::time::Instant>,
}

impl Looks {
    const fn new(epochs: watch::Receiver<u64>, proposal_delay: Duration) -> Self {
        Self { epochs, proposal_delay, missing_since: None }
    }

    /// Returns true once there has been none for the proposal's delay.
    fn has_missed_it(&self) -> bool {
        self.missing_since.is_some_and(|since| since.elapsed() >= self.proposal_delay)
    }

    fn missed(&mut self) {
        self.missing_since.get_or_insert_with(tokio::time::Instant::now);
    }

    /// Returns when it is time for the next look, or over a new connection. Looks again too if an open connection did
    /// not answer.
    async fn pause(&mut self, has_secret: bool) {
        // Half the delay: where only the secret is lost, an instance that knows it comes first.
        let pause = if has_secret { RECHECK.min(self.proposal_delay / 2) } else { RECHECK_WITHOUT_SECRET };
        if let Ok(Ok(())) = tokio::time::timeout(pause, self.epochs.changed()).await {
            // Another server, perhaps.
            self.missing_since = None;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_secs(1);

    /// Looks in vain until it may propose. Returns after how long that is.
    async fn proposes_after(looks: &mut Looks) -> Duration {
        let began = tokio::time::Instant::now();
        while !looks.has_missed_it() {
            looks.missed();
            looks.pause(false).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_without_a_secret_counts_anew_over_each_connection() {
        let epochs = watch::Sender::new(1);
        let mut looks = Looks::new(epochs.subscribe(), DELAY);
        assert!((DELAY..DELAY * 2).contains(&proposes_after(&mut looks).await));
        looks.missing_since = None;
        let reconnects = async {
            tokio::time::sleep(DELAY / 2).await;
            epochs.send_replace(2);
        };
        let (took, ()) = tokio::join!(proposes_after(&mut looks), reconnects);
        assert!(took >= DELAY + DELAY / 2, "it proposes a secret {took:?} after the first server had none");
    }

    #[tokio::test(start_paused = true)]
    async fn instances_that_know_the_secret_look_twice_before_others_propose_one() {
        let epochs = watch::Sender::new(1);
        for max_lag in [DELAY / 10, DELAY, DELAY * 10] {
            let delay = proposal_delay(true, max_lag);
            let (mut looks, began) = (Looks::new(epochs.subscribe(), delay), tokio::time::Instant::now());
            looks.pause(true).await;
            assert!(began.elapsed() <= delay / 2 + Duration::from_millis(1), "{max_lag:?}: {:?}", began.elapsed());
        }
    }
}

//! What a change of the fleet's secret does to a keyspace.

use std::time::Duration;

use super::Keyspace;
use super::freshness::LogRole;
use crate::clock::Moment;
use crate::key::KeySecret;
use crate::labels::UnprotectedReason;

/// A build waits this long for the secret: somewhat longer than an instance that starts waits before it proposes one.
const SECRET_WAIT: Duration = Duration::from_secs(2);
/// How often it looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Keyspace {
    /// Returns true once the secret is known under which filters can be built.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        self.identity.secret.is_agreed()
    }

    /// What is proposed to a Redis that holds no secret for this keyspace.
    #[must_use]
    pub fn proposed_secret(&self) -> KeySecret {
        self.identity.secret.proposal()
    }

    /// Returns true if this instance has known the fleet's secret: after a wipe of Redis it may propose it at once.
    /// Others wait for one that has, because a filter has to be built under another one.
    #[must_use]
    pub fn has_known_fleet_secret(&self) -> bool {
        let known = &self.identity.secret;
        // With announces no other one is agreed on.
        if self.freshness.promise().log == LogRole::DropsOnly { known.was_shared() } else { known.is_agreed() }
    }

    /// Returns true if the secret is known by now, or soon: an instance that starts may wait for those that have it. If
    /// not, the secret requests a build when it comes.
    pub(super) async fn wait_for_secret(&self) -> bool {
        // While a build waits, no further one is needed.
        self.builds.fetch_misses_secret(false);
        let waiting = async {
            while !self.has_secret() {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        if tokio::time::timeout(SECRET_WAIT, waiting).await.is_ok() {
            return true;
        }
        self.builds.fetch_misses_secret(true);
        // It may have come in between. If it has requested a build too, that one scans.
        self.has_secret() && self.builds.fetch_misses_secret(false)
    }

    /// The right does not rest on what others announce: the filter under the present secret stays active, and a build
    /// under the fleet's replaces both in one step.
    fn prepare_secret(&self, secret: KeySecret) {
        if self.identity.secret.prepare(secret) {
            tracing::info!(keyspace = self.name(), "fleet hashes under another secret: building a filter under it");
            self.builds.signal.request();
        }
    }

    /// Takes the fleet's secret. Announces within their window are hashed again under it. A filter of before knows no
    /// key under the new one, and announces of others were read under the old one: both revoke the promise.
    pub fn agree_on_secret(&self, secret: KeySecret) {
        if self.freshness.promise().log == LogRole::DropsOnly {
            return self.prepare_secret(secret);
        }
        let now = Moment::now();
        let known = &self.identity.secret;
        if known.is_agreed() {
            if known.fingerprint() == secret.fingerprint() {
                return;
            }
            tracing::warn!(keyspace = self.name(), "keyspace secret changed in Redis: rebuilding from the source");
            // First, see `Secret`.
            self.freshness.revoke(
                now.plus(self.writer.windows.longest().window),
                UnprotectedReason::Secret,
                "the keyspace secret has changed, as after Redis was wiped; a scan restores it".into(),
            );
            self.builds.signal.request();
        }
        known.agree(secret);
        if self.builds.fetch_misses_secret(false) {
            self.builds.signal.request();
        }
        if let Err(full) = self.writer.rehash(&known.load(), now) {
            let count = full.0;
            self.freshness.revoke(
                now.plus(self.writer.windows.recent.life()),
                UnprotectedReason::Secret,
                format!(
                    "{count} announces are within their window, and no more can be held; a scan after it restores them"
                ),
            );
        }
    }
}

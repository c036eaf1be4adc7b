//! The permit to scan a keyspace's source, which one instance holds at a time: [`ScanPermit`], and [`RedisScanPermit`],
//! a key that expires.
//!
//! It protects the source from load, and nothing depends on it: if a holder pauses for longer than the permit lives, or
//! Redis loses it, two instances scan at once, which is only slower.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::Script;

use crate::redis::{LinkError, RedisLink};

/// Takes or extends the permit for `ARGV[2]` milliseconds, unless another holder than `ARGV[1]` has it.
const HOLD: &str = r"
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1";

/// A holder of the permit, or a candidate: one scan, not one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanHolder([u8; 16]);

impl ScanHolder {
    /// A unique holder.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }
}

/// One keyspace's permit.
#[async_trait]
pub trait ScanPermit: Send + Sync {
    /// Takes the permit for `life` if it is free, or extends it if `holder` has it. Returns true if `holder` has it
    /// now.
    ///
    /// # Errors
    /// [`LinkError`]. After `Timeout` the permit may be held or not.
    async fn hold(&self, holder: ScanHolder, life: Duration) -> Result<bool, LinkError>;

    /// Releases the permit if `holder` has it.
    ///
    /// # Errors
    /// [`LinkError`]: the permit expires.
    async fn release(&self, holder: ScanHolder) -> Result<(), LinkError>;
}

/// The permit as a key in Redis.
#[derive(Debug)]
pub struct RedisScanPermit {
    link: Arc<RedisLink>,
    name: String,
    hold: Script,
}

impl RedisScanPermit {
    /// The permit of `keyspace` at the server that `link` connects to.
    #[must_use]
    pub fn new(link: Arc<RedisLink>, keyspace: &str) -> Self {
        let name = link.names().scan(keyspace);
        Self { link, name, hold: Script::new(HOLD) }
    }
}

#[async_trait]
impl ScanPermit for RedisScanPermit {
    async fn hold(&self, holder: ScanHolder, life: Duration) -> Result<bool, LinkError> {
        let mut hold = self.hold.key(&self.name);
        hold.arg(&holder.0).arg(u64::try_from(life.as_millis()).unwrap_or(u64::MAX));
        self.link.call()?.script(&hold).await
    }

    async fn release(&self, holder: ScanHolder) -> Result<(), LinkError> {
        self.link.call()?.release(self.name.as_bytes(), &holder.0, &[], 0).await
    }
}

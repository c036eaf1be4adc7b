//! Waiting for replicas, over a connection that nothing else waits for.

use std::time::Duration;

use super::link::Call;
use super::trouble::{LinkError, Unreplicated};
use crate::config::RedisConfig;

/// Replicas that must have what is told to others, before it is acknowledged.
#[derive(Debug, Clone, Copy)]
pub struct Replicas {
    wanted: u32,
    within: Duration,
}

impl Replicas {
    /// As configured; `None`: nobody waits for any.
    #[must_use]
    pub fn of(config: &RedisConfig) -> Option<Self> {
        (config.min_replicas_acked > 0).then_some(Self { wanted: config.min_replicas_acked, within: config.timeout })
    }

    /// How to connect for commands that wait: `WAIT` holds up all that comes behind it on its connection, so lookups have another one. It lasts
    /// `redis.timeout` at the most, as any command, and an answer may take as long again: replicas that are missing are an answer, and must not
    /// look like a Redis that gives none, which would end the connection.
    #[must_use]
    pub fn connection(config: &RedisConfig) -> RedisConfig {
        RedisConfig { timeout: config.timeout * 2, ..config.clone() }
    }

    /// Waits until so many replicas have all that was written over this connection before.
    pub(crate) async fn acknowledge(&self, call: &Call<'_>) -> Result<(), LinkError> {
        // 0 would wait for ever.
        let millis = u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX).max(1);
        let acked: u32 = call.command(redis::cmd("WAIT").arg(self.wanted).arg(millis)).await?;
        let wanted = self.wanted;
        if acked < wanted { Err(Unreplicated { acked, wanted }.into()) } else { Ok(()) }
    }
}

//! Waiting for replicas, over a connection of its own.

use std::time::Duration;

use super::call::Call;
use super::error::{LinkError, Unreplicated};
use crate::config::RedisConfig;

/// Replicas that must have a write before it is acknowledged.
#[derive(Debug, Clone, Copy)]
pub struct Replicas {
    wanted: u32,
    within: Duration,
}

impl Replicas {
    /// As configured; `None`: no write waits for replicas.
    #[must_use]
    pub fn of(config: &RedisConfig) -> Option<Self> {
        (config.min_replicas_acked > 0).then_some(Self { wanted: config.min_replicas_acked, within: config.timeout })
    }

    /// How to connect for commands that wait. `WAIT` holds up all commands behind it on its connection, so lookups have
    /// another one. It lasts at most `redis.timeout`, as any command, and its answer may take as long again: missing
    /// replicas are an answer, and must not look like a Redis that does not answer, which would end the connection.
    #[must_use]
    pub fn connection(config: &RedisConfig) -> RedisConfig {
        RedisConfig { timeout: config.timeout * 2, ..config.clone() }
    }

    /// Waits until this many replicas have all earlier writes of this connection.
    pub(crate) async fn acknowledge(&self, call: &Call<'_>) -> Result<(), LinkError> {
        // 0 would wait for ever.
        let millis = u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX).max(1);
        let acked: u32 = call.command(redis::cmd("WAIT").arg(self.wanted).arg(millis)).await?;
        let wanted = self.wanted;
        if acked < wanted { Err(Unreplicated { acked, wanted }.into()) } else { Ok(()) }
    }
}

//! The hash secret of a keyspace, as Redis holds it for the fleet.

use super::{LinkError, RedisLink};
use crate::key::KeySecret;

impl RedisLink {
    /// The hash secret of a keyspace, the same for all instances. Stores `proposal` if there is none yet.
    ///
    /// # Errors
    /// [`LinkError`]; `Refused` if the stored value is not a secret.
    pub async fn secret(&self, keyspace: &str, proposal: &KeySecret) -> Result<KeySecret, LinkError> {
        let name = self.names().secret(keyspace);
        let stored = self.call()?.get_or_set(&name, proposal.as_bytes()).await?;
        parse(&name, stored)
    }

    /// The hash secret of a keyspace, if Redis holds one.
    ///
    /// # Errors
    /// As for [`RedisLink::secret`].
    pub async fn stored_secret(&self, keyspace: &str) -> Result<Option<KeySecret>, LinkError> {
        let name = self.names().secret(keyspace);
        let stored: Option<Vec<u8>> = self.call()?.command(redis::cmd("GET").arg(&name)).await?;
        stored.map(|bytes| parse(&name, bytes)).transpose()
    }
}

fn parse(name: &str, stored: Vec<u8>) -> Result<KeySecret, LinkError> {
    let bytes = stored.try_into().map_err(|other: Vec<u8>| {
        LinkError::Refused(format!("{name} holds {} bytes where a secret has {}", other.len(), KeySecret::LEN))
    })?;
    Ok(KeySecret::new(bytes))
}

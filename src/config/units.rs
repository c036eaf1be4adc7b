//! Durations (`250ms`, `10m`) and sizes (`64MiB`) as configuration writes them.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// Reads `"250ms"`, `"10m"`, `"1h 30m"`.
pub(crate) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text)
        .map_err(|_| D::Error::custom(format!("{text:?} is not a duration such as \"250ms\", \"10s\" or \"1h 30m\"")))
}

/// Reads `"64MiB"`, `"1 GB"`, `"4096"` as bytes.
pub(crate) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    text.parse::<bytesize::ByteSize>()
        .map(|s| s.as_u64())
        .map_err(|_| D::Error::custom(format!("{text:?} is not a size such as \"64MiB\" or \"4096\"")))
}

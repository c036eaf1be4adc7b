//! Durations (`250ms`, `10m`) and sizes (`64MiB`) in the configuration.

use std::fmt;
use std::time::Duration;

use serde::Serializer;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// `"250ms"`, `"10m"`, `"1h 30m"`.
pub(crate) mod duration {
    use super::{Deserializer, Duration, DurationText, Serializer};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        from.deserialize_str(DurationText)
    }

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*duration))
    }
}

/// `"64MiB"`, `"1 GB"`, `"4096"` or `4096`; serialized as bytes.
pub(crate) mod size {
    use super::{Deserializer, Serializer, SizeText};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        from.deserialize_any(SizeText)
    }

    pub(crate) fn serialize<S: Serializer>(bytes: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(*bytes)
    }
}

struct DurationText;

impl Visitor<'_> for DurationText {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"250ms\", \"10s\" or \"1h 30m\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        humantime::parse_duration(text).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

struct SizeText;

impl Visitor<'_> for SizeText {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"64MiB\" or \"4096\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        text.parse::<bytesize::ByteSize>()
            .map(|size| size.as_u64())
            .map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<u64, E> {
        u64::try_from(bytes).map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<u64, E> {
        Ok(bytes)
    }
}

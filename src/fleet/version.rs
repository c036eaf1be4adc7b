//! The token with which a client that announced a key reads it on any instance.

use std::fmt;
use std::str::FromStr;

use super::entry::EntryId;
use crate::redis::LogIdentity;

/// A place in one keyspace's log. An instance that has applied it knows the announce that it was issued for. Opaque to
/// clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Identity of the log.
    pub identity: LogIdentity,
    /// Its writer.
    pub keyspace: String,
    /// Its place.
    pub position: EntryId,
}

/// First word of a token: its form.
const FORM: &str = "v1";

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORM}.{}.{}.{}", self.identity, self.keyspace, self.position)
    }
}

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(4, '.');
        let (Some(FORM), Some(identity), Some(keyspace), Some(position)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(());
        };
        Ok(Self { identity: identity.parse()?, keyspace: keyspace.to_owned(), position: position.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_as_they_were() {
        let version = Version {
            identity: LogIdentity([0xab; 16]),
            keyspace: "users-2".into(),
            position: EntryId { millis: 1, sequence: 2 },
        };
        assert_eq!(version.to_string(), format!("v1.{}.users-2.1-2", "ab".repeat(16)));
        assert_eq!(version.to_string().parse(), Ok(version));
    }

    #[test]
    fn malformed_tokens_are_none() {
        let identity = "ab".repeat(16);
        for strange in [
            "",
            "v1",
            "v2.x.y.1-2",
            "v1..users.1-2",
            &format!("v1.{}.users.1-2", "AB".repeat(16)),
            &format!("v1.{identity}.users"),
            &format!("v1.{identity}.users.1"),
        ] {
            assert_eq!(strange.parse::<Version>(), Err(()), "{strange}");
        }
    }
}

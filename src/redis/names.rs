//! Names of our keys in Redis.
//!
//! | name | holds |
//! |------|-------|
//! | `{prefix}:entry:{keyspace}:{key}` | an entry of the shared cache |
//! | `{prefix}:lease:{keyspace}:{key}` | who loads the key at present, or that it is free to load |
//! | `{prefix}:secret:{keyspace}` | the secret under which the keyspace's keys are hashed |
//! | `{prefix}:log:{run_id}:{replid}` | the log identity of one Redis process, for as long as it is the primary |
//! | `{prefix}:owner` | in a cluster: the name of the log identity of the node that has the keyspace |
//! | `{prefix}:deltas:{keyspace}` | the delta log, a stream |
//! | `{prefix}:floor:{keyspace}` | before which place entries of the delta log were trimmed for want of room |
//! | `{prefix}:enforcement:{keyspace}` | what the whole fleet was told to enforce |
//! | `{prefix}:instances:{keyspace}` | the instances, and how each is configured |
//! | `{prefix}:roster:{keyspace}` | the members of the delta log |
//! | `{prefix}:scan:{keyspace}` | which scan of the keyspace's source is under way |
//!
//! In a cluster `{prefix}` is `{{prefix}:{keyspace}}`, with the inner braces in the name: all names of a keyspace have
//! one hash slot, and so one node.
//!
//! Names of different kinds never collide: the word after the prefix distinguishes them, a keyspace's name has no
//! colon, and the key stands last, complete and unescaped. The format's version is in the entry, not in its name: while
//! instances of two versions run side by side, a mark set by one must overwrite what the other stored.

use crate::key::Key;

/// Names under one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Names of one keyspace that a cluster keeps together; `prefix` has no braces.
    pub(crate) fn kept_together(prefix: &str, keyspace: &str) -> Self {
        Self { prefix: format!("{{{prefix}:{keyspace}}}") }
    }

    /// Prefix of a keyspace's entries.
    pub(crate) fn entries(&self, keyspace: &str) -> NamesByKey {
        self.by_key("entry", keyspace)
    }

    /// Prefix of its leases.
    pub(crate) fn leases(&self, keyspace: &str) -> NamesByKey {
        self.by_key("lease", keyspace)
    }

    fn by_key(&self, word: &str, keyspace: &str) -> NamesByKey {
        NamesByKey { prefix: format!("{}:{word}:{keyspace}:", self.prefix).into_bytes() }
    }

    pub(crate) fn secret(&self, keyspace: &str) -> String {
        format!("{}:secret:{keyspace}", self.prefix)
    }

    pub(crate) fn deltas(&self, keyspace: &str) -> String {
        format!("{}:deltas:{keyspace}", self.prefix)
    }

    pub(crate) fn floor(&self, keyspace: &str) -> String {
        format!("{}:floor:{keyspace}", self.prefix)
    }

    pub(crate) fn enforcement(&self, keyspace: &str) -> String {
        format!("{}:enforcement:{keyspace}", self.prefix)
    }

    pub(crate) fn instances(&self, keyspace: &str) -> String {
        format!("{}:instances:{keyspace}", self.prefix)
    }

    pub(crate) fn roster(&self, keyspace: &str) -> String {
        format!("{}:roster:{keyspace}", self.prefix)
    }

    pub(crate) fn scan(&self, keyspace: &str) -> String {
        format!("{}:scan:{keyspace}", self.prefix)
    }

    pub(crate) fn owner(&self) -> String {
        format!("{}:owner", self.prefix)
    }

    /// Depends on one process and one replication history: a server that was a replica in between has lost what its
    /// primary did not send, under the same `run_id`. The history stands last.
    pub(crate) fn log(&self, run_id: &str, replid: &str) -> String {
        format!("{}:log:{run_id}:{replid}", self.prefix)
    }
}

/// Names that end with a key of one keyspace.
#[derive(Debug)]
pub(crate) struct NamesByKey {
    prefix: Vec<u8>,
}

impl NamesByKey {
    pub(crate) fn of(&self, key: &Key) -> Vec<u8> {
        [&self.prefix, key.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn no_key_can_take_another_name() {
        let names = Names::new("p");
        let entry = |ks: &str, key: &'static str| {
            names.entries(ks).of(&Key::from_canonical(Bytes::from_static(key.as_bytes())))
        };
        assert_eq!(entry("users", "1"), b"p:entry:users:1");
        // Keys that come closest to names of other kinds and keyspaces.
        assert_ne!(entry("users", ":secret:users"), names.secret("users").into_bytes());
        assert_ne!(entry("a", "b:1"), entry("a-b", "1"));
        assert_ne!(entry("secret", "users"), names.secret("users").into_bytes());
        assert_ne!(names.secret("log"), names.log("secret", "users"));
        assert_eq!(names.enforcement("users"), "p:enforcement:users");
        assert_eq!(names.scan("users"), "p:scan:users");
        assert_eq!(Names::kept_together("p", "users").deltas("users"), "{p:users}:deltas:users");
        let leased = Key::from_canonical(Bytes::from_static(b"1"));
        assert_eq!(names.leases("users").of(&leased), b"p:lease:users:1");
    }
}

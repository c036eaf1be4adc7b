//! What our keys in Redis are called.
//!
//! | name | holds |
//! |------|-------|
//! | `{prefix}:entry:{keyspace}:{key}` | an entry, see [`crate::cache::entry`] |
//! | `{prefix}:secret:{keyspace}` | the secret under which the keyspace's keys are hashed |
//! | `{prefix}:log:{run_id}` | the log identity of one Redis process |
//! | `{prefix}:deltas:{keyspace}` | the delta log, a stream |
//! | `{prefix}:floor:{keyspace}` | before which place entries of the delta log were trimmed for want of room |
//!
//! No name can be taken for another: the word after the prefix tells them apart, a keyspace's name has no colon, and the key
//! stands last, whole and unescaped. The version of the format is in the entry, not in its name: while instances of two versions
//! run side by side, a mark set by one must overwrite what the other stored.

use crate::key::Key;

/// Names under one prefix.
#[derive(Debug, Clone)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// What the names of a keyspace's entries begin with.
    pub(super) fn entries(&self, keyspace: &str) -> EntryNames {
        EntryNames { prefix: format!("{}:entry:{keyspace}:", self.prefix).into_bytes() }
    }

    pub(super) fn secret(&self, keyspace: &str) -> String {
        format!("{}:secret:{keyspace}", self.prefix)
    }

    pub(super) fn deltas(&self, keyspace: &str) -> String {
        format!("{}:deltas:{keyspace}", self.prefix)
    }

    pub(super) fn floor(&self, keyspace: &str) -> String {
        format!("{}:floor:{keyspace}", self.prefix)
    }

    pub(super) fn log(&self, run_id: &str) -> String {
        format!("{}:log:{run_id}", self.prefix)
    }
}

/// Names of one keyspace's entries.
#[derive(Debug)]
pub(super) struct EntryNames {
    prefix: Vec<u8>,
}

impl EntryNames {
    pub(super) fn of(&self, key: &Key) -> Vec<u8> {
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
        let entry = |ks: &str, key: &'static str| names.entries(ks).of(&Key::from_canonical(Bytes::from_static(key.as_bytes())));
        assert_eq!(entry("users", "1"), b"p:entry:users:1");
        // The closest that keys get to names of other kinds and keyspaces.
        assert_ne!(entry("users", ":secret:users"), names.secret("users").into_bytes());
        assert_ne!(entry("a", "b:1"), entry("a-b", "1"));
        assert_ne!(entry("secret", "users"), names.secret("users").into_bytes());
        assert_ne!(names.secret("log"), names.log("secret"));
    }
}

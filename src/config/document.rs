//! The configuration as it may be shown, and the differences of two configurations.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::error::push_key;
use super::{BackendConfig, Config, Headers, SecretText, SecretUrl, SourceConfig};
use crate::client::Trust;

/// Key of every URL. Its redacted text does not distinguish two URLs, so they are compared as [`HiddenValue`].
const URL: &str = "url";

/// What [`Config::document`] redacts or leaves out.
#[derive(PartialEq)]
enum HiddenValue<'c> {
    Url(&'c SecretUrl),
    /// Inherited from the backend or from `[redis]`, and compared there.
    Inherited,
    Tokens(&'c [SecretText]),
    Headers(&'c Headers),
    Authorities(&'c Option<Trust>),
}

impl Config {
    /// Every setting, defaults included. Passwords, tokens and header values are redacted.
    #[must_use]
    pub fn document(&self) -> Value {
        // The configuration consists of numbers, strings, paths and tables, which JSON can all represent.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The key paths of settings that differ in `other`. A file that is named counts with its content. If only one of
    /// the two has a section, the path of the section.
    #[must_use]
    pub fn differences(&self, other: &Self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        differ(&self.document(), &other.document(), "", &mut found);
        let theirs = other.hidden();
        let changed =
            self.hidden().into_iter().filter(|(path, mine)| theirs.get(path).is_some_and(|theirs| theirs != mine));
        found.extend(changed.map(|(path, _)| path));
        found
    }

    /// Hidden values by the key that changes them.
    fn hidden(&self) -> BTreeMap<String, HiddenValue<'_>> {
        let mut hidden = BTreeMap::new();
        hidden.insert("server.token_file".to_owned(), HiddenValue::Tokens(&self.server.token));
        hidden.insert("server.admin_token_file".to_owned(), HiddenValue::Tokens(&self.server.admin_token));
        for (index, file) in self.server.tokens.iter().enumerate() {
            hidden.insert(format!("server.tokens[{index}].file"), HiddenValue::Tokens(&file.tokens));
        }
        if let Some(redis) = &self.redis {
            hidden.insert(format!("redis.{}", url_key(redis.url_file.is_some())), HiddenValue::Url(&redis.url));
        }
        for (name, keyspace) in &self.keyspaces {
            let BackendConfig { url, url_file, headers, secret_headers, ca, .. } = &keyspace.backend;
            let section = format!("keyspaces.{name}.backend");
            hidden.insert(format!("{section}.{}", url_key(url_file.is_some())), HiddenValue::Url(url));
            hidden.extend(hidden_of_section(&section, headers, secret_headers, ca));
            let inheritable = [Some(url), self.redis.as_ref().map(|redis| &redis.url)];
            for (index, source) in keyspace.source.iter().enumerate() {
                let SourceConfig { url, url_file, headers, secret_headers, ca, .. } = source;
                let section = format!("keyspaces.{name}.{}", keyspace.source.key(index));
                let inherited = url_file.is_none() && inheritable.contains(&Some(url));
                let url = if inherited { HiddenValue::Inherited } else { HiddenValue::Url(url) };
                hidden.insert(format!("{section}.{}", url_key(url_file.is_some())), url);
                hidden.extend(hidden_of_section(&section, headers, secret_headers, ca));
            }
        }
        hidden
    }
}

fn hidden_of_section<'c>(
    section: &str,
    headers: &'c Headers,
    secret_headers: &'c Headers,
    ca: &'c Option<Trust>,
) -> [(String, HiddenValue<'c>); 3] {
    [
        (format!("{section}.headers"), HiddenValue::Headers(headers)),
        (format!("{section}.headers_file"), HiddenValue::Headers(secret_headers)),
        (format!("{section}.ca_file"), HiddenValue::Authorities(ca)),
    ]
}

const fn url_key(is_in_file: bool) -> &'static str {
    if is_in_file { "url_file" } else { URL }
}

/// URLs are compared by their hidden values. A table may have the same name, because a keyspace may be called `url`.
fn is_text(mine: &Map<String, Value>, theirs: &Map<String, Value>, key: &str) -> bool {
    [mine, theirs].iter().filter_map(|section| section.get(key)).all(Value::is_string)
}

fn differ(mine: &Value, theirs: &Value, at: &str, found: &mut BTreeSet<String>) {
    match (mine, theirs) {
        (Value::Object(mine), Value::Object(theirs)) => {
            let keys: BTreeSet<&String> =
                mine.keys().chain(theirs.keys()).filter(|key| *key != URL || !is_text(mine, theirs, key)).collect();
            for key in keys {
                let mut path = at.to_owned();
                push_key(&mut path, key);
                match (mine.get(key), theirs.get(key)) {
                    (Some(mine), Some(theirs)) => differ(mine, theirs, &path, found),
                    _ => drop(found.insert(path)),
                }
            }
        }
        // A list of plain values is one setting; a list of tables is several sections.
        (Value::Array(mine), Value::Array(theirs))
            if mine.len() == theirs.len() && mine.iter().all(Value::is_object) =>
        {
            for (index, (mine, theirs)) in mine.iter().zip(theirs).enumerate() {
                differ(mine, theirs, &format!("{at}[{index}]"), found);
            }
        }
        _ if mine != theirs => drop(found.insert(at.to_owned())),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{KeyspaceConfig, RedisConfig};

    fn url(password: &str) -> SecretUrl {
        SecretUrl::new(format!("postgres://u:{password}@db/app"))
    }

    fn own_url(keyspace: &mut KeyspaceConfig) {
        keyspace.source.iter_mut().for_each(|source| source.url = url("other"));
    }

    fn config(change: impl FnOnce(&mut Config, &mut KeyspaceConfig)) -> Config {
        let (mut config, mut users) = (Config::default(), KeyspaceConfig::default());
        users.backend.url = url("hunter2");
        users.source = SourceConfig { url: url("hunter2"), ..SourceConfig::default() }.into();
        users.backend.headers = Headers::new(vec![("x-key".into(), "hunter2".into())]);
        config.server.token = vec![SecretText::new("hunter2".into())];
        change(&mut config, &mut users);
        config.keyspaces.insert("users".into(), users);
        config
    }

    #[test]
    fn whatever_is_set_otherwise_is_named_and_so_is_what_is_not_shown() {
        let plain = config(|_, _| {});
        assert!(plain.differences(&config(|_, _| {})).is_empty());
        let named = |change: fn(&mut Config, &mut KeyspaceConfig)| -> Vec<String> {
            let other = config(change);
            assert_eq!(plain.differences(&other), other.differences(&plain));
            plain.differences(&other).into_iter().collect()
        };
        assert_eq!(named(|c, _| c.log.level = "debug".into()), ["log.level"]);
        assert_eq!(named(|c, _| c.redis = Some(RedisConfig::default())), ["redis"]);
        assert_eq!(
            named(|c, _| drop(c.keyspaces.insert("orders".into(), KeyspaceConfig::default()))),
            ["keyspaces.orders"]
        );
        assert_eq!(named(|c, _| drop(c.keyspaces.insert("url".into(), KeyspaceConfig::default()))), ["keyspaces.url"]);
        assert_eq!(named(|_, k| k.cache.ttl = Duration::from_secs(1)), ["keyspaces.users.cache.ttl"]);
        assert_eq!(named(|_, k| k.backend.absent_status.push(410)), ["keyspaces.users.backend.absent_status"]);
        assert_eq!(
            named(|_, k| k.source.iter_mut().for_each(|s| s.allow_empty = true)),
            ["keyspaces.users.source.allow_empty"]
        );
        assert_eq!(named(|c, _| c.server.token.clear()), ["server.token_file"]);
        assert_eq!(
            named(|_, k| k.backend.headers = Headers::new(vec![("x-key".into(), "other".into())])),
            ["keyspaces.users.backend.headers"]
        );
        assert_eq!(named(|_, k| own_url(k)), ["keyspaces.users.source.url"]);
        let inherited = config(|_, k| {
            k.backend.url = url("other");
            own_url(k);
        });
        assert_eq!(
            plain.differences(&inherited).into_iter().collect::<Vec<_>>(),
            ["keyspaces.users.backend.url"],
            "once"
        );
    }

    #[test]
    fn no_secret_is_shown() {
        let shown = config(|_, _| {}).document().to_string();
        assert!(
            !shown.contains("hunter2") && shown.contains("postgres://u:redacted@db/app") && shown.contains("x-key"),
            "{shown}"
        );
    }
}

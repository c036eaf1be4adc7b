//! What `redis.url` names: one server, sentinels, or a cluster.
//!
//! Parsed by hand, because neither the `url` crate nor the driver accepts several hosts.

use std::str::FromStr;

use percent_encoding::percent_decode_str;
use redis::{ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::SecretUrl;

const SENTINEL_PORT: u16 = 26379;
const SERVER_PORT: u16 = 6379;

/// How to find a Redis, with TLS or without. `Debug` shows no password.
#[derive(Debug, Clone)]
pub enum RedisPlace {
    /// One server: `redis://[user:password@]host:port/db`, or `unix:///path`.
    Server(ConnectionInfo),
    /// The primary that these sentinels call `service`: `redis+sentinel://[user:password@]host[:port],…/service[/db]`.
    Sentinels {
        /// Host and port of each.
        sentinels: Vec<(String, u16)>,
        /// The sentinels' name for the primary.
        service: String,
        /// Login at the primary.
        server: RedisConnectionInfo,
        /// Login at a sentinel: parameters `sentinel_username` and `sentinel_password` of the URL.
        sentinel: RedisConnectionInfo,
    },
    /// The cluster of these nodes: `redis+cluster://[user:password@]host[:port],…`.
    Cluster {
        /// Host and port of each.
        nodes: Vec<(String, u16)>,
        /// Login at any node.
        login: RedisConnectionInfo,
    },
}

impl RedisPlace {
    /// Whether a URL names sentinels or a cluster.
    #[must_use]
    pub fn has_several_servers(url: &SecretUrl) -> bool {
        ["redis+sentinel", "redis+cluster", "rediss+sentinel", "rediss+cluster"].contains(&url.scheme())
    }

    /// Whether a URL names sentinels.
    #[must_use]
    pub fn has_sentinels(url: &SecretUrl) -> bool {
        ["redis+sentinel", "rediss+sentinel"].contains(&url.scheme())
    }

    /// Whether a URL asks for TLS.
    #[must_use]
    pub fn is_secure(url: &SecretUrl) -> bool {
        ["rediss", "rediss+sentinel", "rediss+cluster"].contains(&url.scheme())
    }

    /// Whether a URL names a cluster.
    #[must_use]
    pub fn is_cluster(url: &SecretUrl) -> bool {
        ["redis+cluster", "rediss+cluster"].contains(&url.scheme())
    }

    /// Parses a URL.
    ///
    /// # Errors
    /// Why it is rejected, without any of its text.
    pub fn parse(url: &SecretUrl) -> Result<Self, String> {
        let parsed = || MultiHostUrl::of(url.expose()).map_err(str::to_owned);
        match url.scheme() {
            "redis+sentinel" | "rediss+sentinel" => Ok(parsed()?.sentinels()?),
            "redis+cluster" | "rediss+cluster" => Ok(parsed()?.cluster()?),
            "rediss" if url.expose().contains('#') => {
                Err("it ends in a fragment; certificates are always checked, and ca_file names other authorities"
                    .into())
            }
            // The driver has no TLS: it gets the place only.
            "rediss" => Self::server(&url.expose().replacen("rediss", "redis", 1)),
            _ => Self::server(url.expose()),
        }
    }

    fn server(url: &str) -> Result<Self, String> {
        url.into_connection_info().map(Self::Server).map_err(|error| {
            // Only the first sentence: the driver appends its own category after the dash.
            error.to_string().split(" - ").next().unwrap_or_default().to_owned()
        })
    }

    /// Whether the URL holds a password of the server.
    #[must_use]
    pub fn has_password(&self) -> bool {
        match self {
            Self::Server(info) => info.redis_settings().password(),
            Self::Sentinels { server, .. } => server.password(),
            Self::Cluster { login, .. } => login.password(),
        }
        .is_some()
    }

    /// Whether the URL holds a password of the sentinels.
    #[must_use]
    pub fn has_sentinel_password(&self) -> bool {
        matches!(self, Self::Sentinels { sentinel, .. } if sentinel.password().is_some())
    }
}

/// A URL with several hosts, which the `url` crate rejects.
struct MultiHostUrl<'a> {
    login: RedisConnectionInfo,
    hosts: &'a str,
    /// Without the leading slash.
    path: &'a str,
    parameters: &'a str,
}

impl<'a> MultiHostUrl<'a> {
    fn of(url: &'a str) -> Result<Self, &'static str> {
        let (_, rest) = url.split_once("://").ok_or("it has no // after its scheme")?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        Ok(Self { login: login(name, password)?, hosts, path, parameters })
    }

    fn sentinels(self) -> Result<RedisPlace, &'static str> {
        let (service, db) = self.path.split_once('/').unwrap_or((self.path, ""));
        let service = decoded(service)?;
        if service.is_empty() {
            return Err("it lacks the name of the primary, as in redis+sentinel://host:26379/mymaster");
        }
        let db = if db.is_empty() {
            0
        } else {
            i64::from_str(db).ok().filter(|db| *db >= 0).ok_or("its database is not a number")?
        };
        let (mut name, mut password) = ("", "");
        for parameter in self.parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sentinel_username", value)) => name = value,
                Some(("sentinel_password", value)) => password = value,
                _ => return Err("it has a parameter other than sentinel_username and sentinel_password"),
            }
        }
        let (sentinels, sentinel) = (hosts(self.hosts, SENTINEL_PORT)?, login(name, password)?);
        Ok(RedisPlace::Sentinels { sentinels, service, server: self.login.set_db(db), sentinel })
    }

    fn cluster(self) -> Result<RedisPlace, &'static str> {
        if !["", "0"].contains(&self.path) {
            return Err("a cluster has only database 0");
        }
        if !self.parameters.is_empty() {
            return Err("it has parameters, which a cluster does not use");
        }
        Ok(RedisPlace::Cluster { nodes: hosts(self.hosts, SERVER_PORT)?, login: self.login })
    }
}

fn login(name: &str, password: &str) -> Result<RedisConnectionInfo, &'static str> {
    let mut login = RedisConnectionInfo::default();
    if !name.is_empty() {
        login = login.set_username(decoded(name)?);
    }
    if !password.is_empty() {
        login = login.set_password(decoded(password)?);
    }
    Ok(login)
}

fn decoded(text: &str) -> Result<String, &'static str> {
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| "its percent-encoding is not UTF-8")
}

/// `host[:port],host[:port]`; IPv6 addresses in brackets.
fn hosts(text: &str, default_port: u16) -> Result<Vec<(String, u16)>, &'static str> {
    let host = |text: &str| -> Option<(String, u16)> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = if port.is_empty() {
            default_port
        } else {
            port.strip_prefix(':')?.parse().ok().filter(|port| *port > 0)?
        };
        let is_sane = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:".contains(&b));
        is_sane.then(|| (name.to_owned(), port))
    };
    text.split(',').map(|text| host(text).ok_or("its hosts must be host:port, separated by commas")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<RedisPlace, String> {
        RedisPlace::parse(&SecretUrl::new(url.into()))
    }

    #[test]
    fn sentinels_are_read_with_the_service_the_database_and_both_logins() {
        let url =
            "redis+sentinel://app:p%40ss@a,b:26380,[::1]:1/my%2Dmaster/3?sentinel_username=s&sentinel_password=q%2Bw";
        let Ok(RedisPlace::Sentinels { sentinels, service, server, sentinel }) = parse(url) else {
            panic!("{:?}", parse(url))
        };
        assert_eq!(sentinels, [("a".to_owned(), 26379), ("b".to_owned(), 26380), ("::1".to_owned(), 1)]);
        assert_eq!((service.as_str(), server.db()), ("my-master", 3));
        assert_eq!((server.username(), server.password()), (Some("app"), Some("p@ss")));
        assert_eq!((sentinel.username(), sentinel.password()), (Some("s"), Some("q+w")));
    }

    #[test]
    fn a_cluster_is_read_with_its_nodes_and_the_login() {
        let Ok(RedisPlace::Cluster { nodes, login }) = parse("redis+cluster://:secret@a:7000,b") else { panic!() };
        assert_eq!(nodes, [("a".to_owned(), 7000), ("b".to_owned(), 6379)]);
        assert_eq!((login.username(), login.password()), (None, Some("secret")));
    }

    #[test]
    fn every_kind_of_place_can_be_had_with_tls() {
        for url in ["rediss://app@h:1/2", "rediss+sentinel://:secret@a,b/main", "rediss+cluster://:secret@a,b"] {
            let plain = parse(&url.replacen("rediss", "redis", 1)).unwrap();
            assert_eq!(format!("{:?}", parse(url).unwrap()), format!("{plain:?}"));
            let url = SecretUrl::new(url.into());
            assert!(RedisPlace::is_secure(&url) && !url.redacted().contains("secret"), "{url}");
        }
        assert!(!RedisPlace::is_secure(&SecretUrl::new("redis://h".into())));
        assert!(parse("rediss://:secret@h").unwrap().has_password());
        assert!(!parse("rediss://app@h").unwrap().has_password());
        assert!(parse("rediss+sentinel://a/m?sentinel_password=x").unwrap().has_sentinel_password());
    }

    #[test]
    fn what_can_not_be_meant_is_refused_without_repeating_it() {
        for url in [
            "rediss://:hunter2@h/#insecure",
            "redis+sentinel://hunter2",
            "redis+sentinel://hunter2/",
            "redis+sentinel:hunter2",
            "redis+sentinel://hunter2/main/x",
            "redis+sentinel://hunter2/main/-1",
            "redis+sentinel://h/main?password=hunter2",
            "redis+sentinel:///main",
            "redis+cluster://u:hunter2@",
            "redis+cluster://u:hunter2@h:0",
            "redis+cluster://u:hunter2@h:port",
            "redis+cluster://u:hun/ter2@h",
            "redis+cluster://hunter2@h,",
            "redis+cluster://h/1",
            "redis+cluster://h?x=hunter2",
            "redis+cluster://:%ff@h",
        ] {
            let error = parse(url).unwrap_err();
            assert!(!error.contains("hunter2") && !error.is_empty(), "{url}: {error}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        for url in [
            "redis+sentinel://u:hunter2@a,b/m?sentinel_password=hunter2",
            "redis+cluster://u:hunter2@a,b",
            "redis://u:hunter2@a",
        ] {
            let shown = format!("{:?} {:?}", parse(url).unwrap(), SecretUrl::new(url.into()));
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        let hosts = SecretUrl::new("redis+cluster://u:hunter2@a:1,b:2".into());
        assert_eq!(hosts.redacted(), "redis+cluster://u:redacted@a:1,b:2");
        assert_eq!(SecretUrl::new("redis+cluster://a:1,b:2".into()).redacted(), "redis+cluster://a:1,b:2");
    }
}

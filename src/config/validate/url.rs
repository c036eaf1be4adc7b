//! URLs of databases and caches: present, of a supported scheme, and acceptable for the driver.

use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use super::section::Section;
use crate::client::{Url, UrlError, UrlTemplate};
use crate::config::error::shown_text;
use crate::config::url_text::{UrlFlaw, UrlText};
use crate::config::{RedisPlace, SecretUrl};
use crate::sqltext::Dialect;

/// The key at which errors of the URL are reported.
fn key(from_file: bool) -> &'static str {
    if from_file { "url_file" } else { "url" }
}

/// Validates a database URL and returns its dialect.
pub(super) fn database(url: &SecretUrl, from_file: bool, section: &mut Section<'_>) -> Option<Dialect> {
    let key = key(from_file);
    if missing(url, section) || is_ambiguous(url, key, section) {
        return None;
    }
    let (dialect, taken) = match url.scheme() {
        "postgres" | "postgresql" => (Dialect::Postgres, url.for_driver().parse::<PgConnectOptions>().map(drop)),
        "mysql" | "mariadb" => (Dialect::MySql, url.expose().parse::<MySqlConnectOptions>().map(drop)),
        "sqlite" => (Dialect::Sqlite, url.expose().parse::<SqliteConnectOptions>().map(drop)),
        scheme @ ("http" | "https") => {
            section.add(
                key,
                format!("is of scheme {scheme}, which needs kind = \"http\", is {}", shown_text(&url.redacted())),
            );
            return None;
        }
        _ => {
            section.add(
                key,
                format!("must be a postgres://, mysql:// or sqlite: URL, is {}", shown_text(&url.redacted())),
            );
            return None;
        }
    };
    if let Err(error) = taken {
        section
            .add(key, format!("must be a URL that can be connected to: {error}, is {}", shown_text(&url.redacted())));
    }
    if dialect == Dialect::Sqlite && sqlite_path(url).is_empty() {
        section.add(key, format!("must name a database file, is {}", shown_text(&url.redacted())));
    }
    Some(dialect)
}

/// Validates the URL template of an HTTP API. Returns whether it is TLS.
pub(super) fn template(url: &SecretUrl, from_file: bool, section: &mut Section<'_>) -> Option<bool> {
    http(url, |text| UrlTemplate::parse(text).map(|url| url.origin().is_secure()), from_file, section)
}

/// Validates the URL of a key list. Returns whether it is TLS.
pub(super) fn list(url: &SecretUrl, from_file: bool, section: &mut Section<'_>) -> Option<bool> {
    http(url, |text| Url::parse(text).map(|url| url.origin().is_secure()), from_file, section)
}

fn http(
    url: &SecretUrl,
    parse: impl Fn(&str) -> Result<bool, UrlError>,
    from_file: bool,
    section: &mut Section<'_>,
) -> Option<bool> {
    if missing(url, section) || is_ambiguous(url, key(from_file), section) {
        return None;
    }
    parse(url.expose())
        .map_err(|error| section.add(key(from_file), format!("{error}, is {}", shown_text(&url.redacted()))))
        .ok()
}

/// Validates the URL of one Redis server.
pub(super) fn redis_server(url: &SecretUrl, from_file: bool, section: &mut Section<'_>) {
    if RedisPlace::has_several_servers(url) {
        let rule = format!("must name one server: a scan reads one and no other, is {}", shown_text(&url.redacted()));
        return section.add(key(from_file), rule);
    }
    redis(url, from_file, section);
}

/// Validates the URL of the shared cache.
pub(super) fn redis(url: &SecretUrl, from_file: bool, section: &mut Section<'_>) {
    let key = key(from_file);
    if missing(url, section) || is_ambiguous(url, key, section) {
        return;
    }
    let scheme = url.scheme();
    if ["redis", "redis+unix", "unix", "redis+sentinel", "redis+cluster"].contains(&scheme)
        || RedisPlace::is_secure(url)
    {
        if let Err(reason) = RedisPlace::parse(url) {
            section.add(
                key,
                format!("must be a URL that can be connected to: {reason}, is {}", shown_text(&url.redacted())),
            );
        }
    } else {
        section.add(
            key,
            format!(
                "must be a redis://, rediss://, redis+sentinel://, redis+cluster:// or unix:// URL, is {}",
                shown_text(&url.redacted())
            ),
        );
    }
}

/// Whether a driver could take part of the password for a host or a path, which errors and logs would show.
fn is_ambiguous(url: &SecretUrl, key: &str, section: &mut Section<'_>) -> bool {
    let flaw = UrlText::split(url.expose()).err().filter(|flaw| *flaw != UrlFlaw::NoUrl && url.scheme() != "sqlite");
    if let Some(flaw) = flaw {
        section.add(key, flaw.to_string());
    }
    flaw.is_some()
}

fn missing(url: &SecretUrl, section: &mut Section<'_>) -> bool {
    if !url.is_empty() {
        return false;
    }
    // If the kind was rejected, the true kind may need no URL.
    if !section.was_rejected("url_file") && !section.was_rejected("kind") {
        section.add("url", "is required, here or in a file that url_file names");
    }
    true
}

fn sqlite_path(url: &SecretUrl) -> &str {
    let path = url.expose().trim_start_matches("sqlite:").trim_start_matches("//");
    path.split_once('?').map_or(path, |(path, _)| path)
}

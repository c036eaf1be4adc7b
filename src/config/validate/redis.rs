//! `[redis]`

use std::time::Duration;

use rustls::pki_types::ServerName;

use super::section::Section;
use super::url;
use crate::config::error::shown_text;
use crate::config::{RedisConfig, RedisPlace};

/// Validates the shared cache.
pub(super) fn check(settings: &RedisConfig, section: &mut Section<'_>) {
    url::redis(&settings.url, settings.url_file.is_some(), section);
    tls(settings, section);
    passwords(settings, section);
    section.duration("timeout", settings.timeout);
    section.duration("max_lag", settings.max_lag);
    let roll_call = settings.roll_call;
    let shown = humantime::format_duration(roll_call);
    section.must(roll_call <= Duration::from_secs(10), "roll_call", "be at most 10s", shown);
    let log = &mut section.inner("log");
    log.duration("retention", settings.log.retention);
    log.must(settings.log.max_bytes >= 1 << 20, "max_bytes", "be at least 1MiB", settings.log.max_bytes);
    let prefix = &settings.key_prefix;
    let sane = (1..=128).contains(&prefix.len()) && prefix.bytes().all(|b| b.is_ascii_graphic());
    section.must(sane, "key_prefix", "be 1 to 128 printable ASCII characters without spaces", shown_text(prefix));
    // Braces select the part of a key that decides on its node.
    let untagged = !RedisPlace::is_cluster(&settings.url) || !prefix.contains(['{', '}']);
    section.must(untagged, "key_prefix", "have no braces where redis.url names a cluster", shown_text(prefix));
}

fn tls(settings: &RedisConfig, section: &mut Section<'_>) {
    let shown = shown_text(&settings.url.redacted());
    for (key, is_set) in [
        ("ca_file", settings.ca_file.is_some()),
        ("cert_file", settings.cert_file.is_some()),
        ("key_file", settings.key_file.is_some()),
        ("server_name", settings.server_name.is_some()),
    ] {
        if is_set && !settings.url.is_empty() && !RedisPlace::is_secure(&settings.url) {
            section.add(key, format!("is for TLS, and redis.url is not a rediss:// URL, is {shown}"));
        }
    }
    for (given, needed, missing) in
        [(&settings.cert_file, &settings.key_file, "key_file"), (&settings.key_file, &settings.cert_file, "cert_file")]
    {
        if given.is_some() && needed.is_none() && !section.was_rejected(missing) {
            section.add(missing, "is required: a certificate and its key belong together");
        }
    }
    if let Some(name) = &settings.server_name {
        let usable = ServerName::try_from(name.as_str()).is_ok();
        section.must(usable, "server_name", "be a DNS name or an IP address", shown_text(name));
    }
}

fn passwords(settings: &RedisConfig, section: &mut Section<'_>) {
    // A URL that is none was reported already.
    let Ok(place) = RedisPlace::parse(&settings.url) else { return };
    if settings.password_file.is_some() && place.has_password() {
        section.add("password_file", "can't be set together with a password in redis.url; leave its user there");
    }
    if settings.sentinel_password_file.is_none() {
        return;
    }
    if !RedisPlace::has_sentinels(&settings.url) {
        section.add("sentinel_password_file", "is for redis+sentinel:// URLs: nothing else has sentinels");
    } else if place.has_sentinel_password() {
        section.add("sentinel_password_file", "can't be set together with sentinel_password in redis.url");
    }
}

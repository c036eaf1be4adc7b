//! `[server]`: listeners that can be bound, limits that can be kept, and no accidental access.

use super::section::Section;
use crate::config::error::{ErrorCollector, shown_text};
use crate::config::{Listen, ServerConfig};

/// Each request is compared with the tokens of every file.
const MAX_TOKEN_FILES: usize = 16;

pub(super) fn check(server: &ServerConfig, errors: &mut ErrorCollector) {
    let section = &mut Section::new("server", errors);
    listeners(server, section);
    section.must(
        server.socket_mode().is_some(),
        "unix_mode",
        "be 3 or 4 octal digits such as \"0660\"",
        shown_text(&server.unix_mode),
    );
    section.must(server.workers <= 1024, "workers", "be at most 1024", server.workers);
    section.must(
        (1..=1_000_000).contains(&server.max_connections),
        "max_connections",
        "be from 1 to 1000000",
        server.max_connections,
    );
    section.must(
        (1..=65_536).contains(&server.max_key_bytes),
        "max_key_bytes",
        "be from 1 to 65536",
        server.max_key_bytes,
    );
    section.must(
        (1..=1_000_000).contains(&server.max_batch_keys),
        "max_batch_keys",
        "be from 1 to 1000000",
        server.max_batch_keys,
    );
    section.must(server.max_batch_bytes >= 1, "max_batch_bytes", "be at least 1", server.max_batch_bytes);
    section.must(server.max_body_bytes >= 1, "max_body_bytes", "be at least 1", server.max_body_bytes);
    section.must(
        server.max_buffered_bytes == 0 || server.max_buffered_bytes >= server.min_buffered_bytes(),
        "max_buffered_bytes",
        &format!(
            "be 0, or at least {} for a body of max_body_bytes and a batch of max_batch_keys",
            server.min_buffered_bytes()
        ),
        server.max_buffered_bytes,
    );
    section.duration("send_timeout", server.send_timeout);
    section.must(
        (1..=10_000_000).contains(&server.max_announces_per_second),
        "max_announces_per_second",
        "be from 1 to 10000000",
        server.max_announces_per_second,
    );
    section.must(
        (1 << 20..=1 << 32).contains(&server.max_announce_bytes),
        "max_announce_bytes",
        "be from 1MiB to 4GiB",
        server.max_announce_bytes,
    );
    section.duration_or_zero("drain_timeout", server.drain_timeout);
    section.duration("header_timeout", server.header_timeout);
    tokens(server, section);
    section.must(
        server.allow_bypass || !server.honor_no_cache,
        "honor_no_cache",
        "be false where allow_bypass = false",
        "true",
    );
    for host in &server.allowed_hosts {
        let is_name = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        section.must(
            is_name,
            "allowed_hosts",
            "hold names of hosts without port, such as \"api.internal\"",
            shown_text(host),
        );
    }
    section.must(!server.data_dir.as_os_str().is_empty(), "data_dir", "be a path", "\"\"");
}

fn tokens(server: &ServerConfig, section: &mut Section<'_>) {
    section.must(server.tokens.len() <= MAX_TOKEN_FILES, "tokens", "be at most 16 files", server.tokens.len());
    for (index, tokens) in server.tokens.iter().enumerate() {
        let key = |name: &str| format!("tokens[{index}].{name}");
        if tokens.file.as_os_str().is_empty() && !section.was_rejected(&key("file")) {
            section.add(&key("file"), "is required: a file that holds one token a line");
        }
        if tokens.scopes.is_empty() && !section.was_rejected(&key("scopes")) {
            section.add(&key("scopes"), "must name at least one of \"read\", \"write\", \"admin\"");
        }
    }
}

fn listeners(server: &ServerConfig, section: &mut Section<'_>) {
    let data = listener("listen", &server.listen, true, section);
    let telemetry = listener("telemetry_listen", &server.telemetry_listen, false, section);
    let admin = listener("admin_listen", &server.admin_listen, false, section);
    distinct(("listen", &data), ("telemetry_listen", &telemetry), section);
    distinct(("listen", &data), ("admin_listen", &admin), section);
    distinct(("telemetry_listen", &telemetry), ("admin_listen", &admin), section);

    // An unreadable token file was reported already; here it only matters that one was configured.
    let has_token = server.data_requires_token() || section.was_rejected("token_file") || server.allow_unauthenticated;
    if data.is_some_and(|data| !data.is_local()) && !has_token {
        section.add(
            "listen",
            format!(
                "off loopback it needs token_file, tokens, or allow_unauthenticated = true, is {}",
                shown_text(&server.listen)
            ),
        );
    }
    let has_admin_token = server.admin_requires_token() || section.was_rejected("admin_token_file");
    if admin.is_some_and(|admin| !admin.is_local()) && !has_admin_token {
        section.add(
            "admin_listen",
            format!(
                "off loopback it needs admin_token_file, or tokens of scope \"admin\", is {}",
                shown_text(&server.admin_listen)
            ),
        );
    }
}

fn listener(key: &str, text: &str, may_be_unix: bool, section: &mut Section<'_>) -> Option<Listen> {
    match text.parse() {
        Ok(Listen::Unix(_)) if !may_be_unix => {
            section.add(
                key,
                format!(
                    "must be an IP address and port; only server.listen may be a Unix socket, is {}",
                    shown_text(text)
                ),
            );
            None
        }
        Ok(listen) => Some(listen),
        Err(error) => {
            section.add(key, format!("{error}, is {}", shown_text(text)));
            None
        }
    }
}

fn distinct(one: (&str, &Option<Listen>), other: (&str, &Option<Listen>), section: &mut Section<'_>) {
    // A default that replaced a rejected value can't collide.
    if section.was_rejected(one.0) || section.was_rejected(other.0) {
        return;
    }
    if let ((_, Some(a)), (_, Some(b))) = (one, other)
        && a.collides(b)
    {
        section.add(other.0, format!("must not take the address of server.{} ({a}), is \"{b}\"", one.0));
    }
}

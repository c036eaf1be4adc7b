//! Splits a URL as text, more strictly than drivers do: what is shown must not contain any part of a password.
//!
//! Hand-written, because the `url` crate guesses where drivers disagree and rejects several hosts.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use super::redaction::REDACTED;

/// Longer parameter names are not shown.
const MAX_NAME_BYTES: usize = 64;
/// Parameters whose values `/admin/config` and errors show.
const SHOWN_OF_POSTGRES: &[&str] = &[
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "application_name",
];
const SHOWN_OF_MYSQL: &[&str] = &[
    "sslmode",
    "ssl-mode",
    "sslca",
    "ssl-ca",
    "charset",
    "collation",
    "statement-cache-capacity",
    "socket",
    "timezone",
    "time-zone",
];
const SHOWN_OF_SQLITE: &[&str] = &["mode", "cache", "immutable", "vfs"];
const SHOWN_OF_REDIS: &[&str] = &["sentinel_username", "db", "user", "protocol"];
/// Further parameters of the PostgreSQL driver. It logs unknown ones with their values.
const HIDDEN_OF_POSTGRES: &[&str] = &["sslcert", "ssl-cert", "sslkey", "ssl-key", "password", "options"];

/// Why a URL is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UrlFlaw {
    /// No `scheme://`, or characters that no URL contains.
    NoUrl,
    /// Drivers would end the password at this character and take the rest for a host or a path.
    Unescaped(char),
}

/// The URL of a server, of several servers, or of a Unix socket.
pub(super) struct UrlText<'u> {
    scheme: &'u str,
    user: Option<&'u str>,
    password: Option<&'u str>,
    hosts: &'u str,
    path: &'u str,
    parameters: Option<&'u str>,
    has_fragment: bool,
}

impl<'u> UrlText<'u> {
    pub(super) fn split(url: &'u str) -> Result<Self, UrlFlaw> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlFlaw::NoUrl)?;
        let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        if !named || url.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Err(UrlFlaw::NoUrl);
        }
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let login = authority.rsplit_once('@');
        // An API path may contain an @. A password can't end there if nothing before the path could begin one.
        let plain_host = scheme.starts_with("http") && !authority.contains([':', '@']);
        if login.is_some_and(|(login, _)| login.contains('@')) || (login.is_some() && tail.contains('@')) {
            return Err(UrlFlaw::Unescaped('@'));
        }
        if !authority.is_empty() && !plain_host && tail.contains('@') {
            return Err(UrlFlaw::Unescaped(tail.chars().next().unwrap_or('@')));
        }
        let (login, hosts) = login.map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        let (user, password) = login.map_or((None, None), |login| match login.split_once(':') {
            Some((user, password)) => (Some(user), Some(password)),
            None => (Some(login), None),
        });
        let (tail, fragment) = tail.split_once('#').map_or((tail, None), |(tail, fragment)| (tail, Some(fragment)));
        let (path, parameters) =
            tail.split_once('?').map_or((tail, None), |(path, parameters)| (path, Some(parameters)));
        Ok(Self { scheme, user, password, hosts, path, parameters, has_fragment: fragment.is_some() })
    }

    /// The URL without its password and without parameter values, except known harmless ones.
    pub(super) fn redacted(&self) -> String {
        // If the host was forgotten, the password is in its place.
        if !self.hosts.split(',').all(is_host) {
            return format!("{}://<{REDACTED}>", self.scheme);
        }
        let mut shown = format!("{}://", self.scheme);
        if let Some(user) = self.user {
            // A user without password is a token for APIs, and a password for some Redis clients.
            let hidden = self.password.is_none() && (self.scheme.starts_with("http") || self.scheme.contains("redis"));
            shown += if hidden { REDACTED } else { user };
            if self.password.is_some() {
                let _ = write!(shown, ":{REDACTED}");
            }
            shown.push('@');
        }
        shown += self.hosts;
        shown += self.path;
        if let Some(parameters) = self.parameters {
            show_parameters(&mut shown, parameters, self.scheme);
        }
        if self.has_fragment {
            let _ = write!(shown, "#{REDACTED}");
        }
        shown
    }
}

/// `sqlite:path?parameters`: a path contains no password.
pub(super) fn redacted_sqlite(url: &str) -> String {
    let Some((path, parameters)) = url.split_once('?') else { return url.to_owned() };
    let mut shown = path.to_owned();
    show_parameters(&mut shown, parameters, "sqlite");
    shown
}

fn show_parameters(shown: &mut String, parameters: &str, scheme: &str) {
    let known = match scheme {
        "postgres" | "postgresql" => SHOWN_OF_POSTGRES,
        "mysql" | "mariadb" => SHOWN_OF_MYSQL,
        "sqlite" => SHOWN_OF_SQLITE,
        _ if scheme.contains("redis") || scheme == "unix" => SHOWN_OF_REDIS,
        _ => &[],
    };
    for (index, parameter) in parameters.split('&').enumerate() {
        shown.push(if index == 0 { '?' } else { '&' });
        let Some((name, value)) = parameter.split_once('=') else {
            shown.push_str(if parameter.is_empty() { "" } else { REDACTED });
            continue;
        };
        let is_name =
            name.len() <= MAX_NAME_BYTES && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.[]".contains(&b));
        shown.push_str(if is_name { name } else { REDACTED });
        shown.push('=');
        shown.push_str(if known.contains(&name) || value == "{key}" { value } else { REDACTED });
    }
}

/// `name`, `name:port` or `[address]:port`; the name may be a percent-encoded socket path.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some(bracketed) => bracketed,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    is_port && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%:{}".contains(&b))
}

/// The URL as the driver gets it. PostgreSQL's driver logs the values of unknown parameters, so they are removed.
pub(super) fn for_driver(url: &str) -> Cow<'_, str> {
    let is_postgres = url.starts_with("postgres://") || url.starts_with("postgresql://");
    let Some((before, parameters)) = url.split_once('?').filter(|_| is_postgres) else { return url.into() };
    let is_known = |parameter: &&str| {
        let name = parameter.split('=').next().unwrap_or_default();
        SHOWN_OF_POSTGRES.contains(&name) || HIDDEN_OF_POSTGRES.contains(&name) || name.starts_with("options[")
    };
    let known: Vec<&str> = parameters.split('&').filter(is_known).collect();
    format!("{before}?{}", known.join("&")).into()
}

/// Names the character that must be encoded, and shows nothing else.
impl fmt::Display for UrlFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUrl => f.write_str("must be a URL"),
            Self::Unescaped('@') => {
                f.write_str("must percent-encode @ as %40 in its user and password, and behind its host")
            }
            Self::Unescaped(c) => {
                let code = u32::from(*c);
                write!(
                    f,
                    "must percent-encode {c} as %{code:02X} in its user and password, or @ as %40 behind its host"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaw(url: &str) -> Option<UrlFlaw> {
        UrlText::split(url).err()
    }

    #[test]
    fn a_character_that_would_end_a_password_early_is_found() {
        for scheme in ["postgres", "mysql", "redis", "redis+sentinel", "redis+cluster", "http", "https"] {
            for (rest, flawed) in [
                ("u:hun@ter2@db/app", Some(UrlFlaw::Unescaped('@'))),
                ("u:hun@ter/2@db/app", Some(UrlFlaw::Unescaped('@'))),
                ("u:hun@ter@2/x@db", Some(UrlFlaw::Unescaped('@'))),
                ("u:12/hunter2@db/app", Some(UrlFlaw::Unescaped('/'))),
                ("u:12?hunter2@db/app", Some(UrlFlaw::Unescaped('?'))),
                ("u:12#hunter2@db/app", Some(UrlFlaw::Unescaped('#'))),
                ("u:p%40ss%2Fw@db/app", None),
                ("u:a:b@db:1/app?x=y", None),
                ("db/app", None),
            ] {
                assert_eq!(flaw(&format!("{scheme}://{rest}")), flawed, "{scheme}://{rest}");
            }
        }
        assert_eq!(flaw("http://api/users/@{key}?by=a@b"), None);
        assert_eq!(flaw("unix:///run/redis@x.sock"), None);
        assert_eq!(flaw("host=db password=hunter2"), Some(UrlFlaw::NoUrl));
        assert_eq!(flaw("hunter 2://db"), Some(UrlFlaw::NoUrl));
        assert_eq!(
            UrlFlaw::Unescaped('/').to_string(),
            "must percent-encode / as %2F in its user and password, or @ as %40 behind its host"
        );
    }

    #[test]
    fn a_driver_gets_no_parameter_that_it_would_log() {
        let given = for_driver(
            "postgres://u:p@h/d?sslpassword=x&sslmode=disable&connect_timeout=5&options=-c%20a&options[b]=c&password=p",
        );
        assert_eq!(given, "postgres://u:p@h/d?sslmode=disable&options=-c%20a&options[b]=c&password=p");
        assert_eq!(for_driver("mysql://u:p@h/d?x=y"), "mysql://u:p@h/d?x=y");
    }
}

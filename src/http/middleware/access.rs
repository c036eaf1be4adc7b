//! Who may do what: bearer tokens with scopes, hosts, and protection against web pages.

use std::sync::Arc;

use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, HOST, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{Method, Request, StatusCode, Version};

use super::admission::Admission;
use super::hosts::{Hosts, is_cross_site};
use crate::config::Scope;
use crate::http::context::HttpSettings;
use crate::http::options::{has_no_cache, wants_bypass};
use crate::http::path::Resource;
use crate::http::problem::Problem;
use crate::http::tokens::{LiveTokens, Scopes, bearer};
use crate::labels::Listener;

/// What a listener requires of each request.
#[derive(Debug, Clone)]
pub(in crate::http) struct AccessPolicy {
    listener: Listener,
    hosts: Hosts,
    /// Accepted tokens, if a token is required.
    tokens: Option<Arc<LiveTokens>>,
    /// Sites whose pages may change something; `None` if browsers can't reach the listener.
    allowed_origins: Option<Arc<[String]>>,
    allow_bypass: bool,
    honor_no_cache: bool,
}

/// What a request would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct RequestEffect {
    /// Changes something.
    changes: bool,
    /// A lookup that skips filter and caches by our own header.
    bypasses: bool,
    /// A lookup that asks to skip them by `Cache-Control: no-cache`; without permission the header is ignored.
    may_bypass: bool,
}

impl AccessPolicy {
    /// The policy of the data listener.
    pub(in crate::http) fn for_data(settings: &HttpSettings) -> Self {
        let tokens = settings.data_requires_token.then(|| Arc::clone(&settings.tokens));
        Self {
            allowed_origins: settings.data_origins.clone(),
            ..Self::new(Listener::Data, &settings.data_hosts, tokens, settings)
        }
    }

    /// The policy of the telemetry listener.
    pub(in crate::http) fn for_telemetry(settings: &HttpSettings) -> Self {
        Self::new(Listener::Telemetry, &settings.telemetry_hosts, None, settings)
    }

    /// The policy of the admin listener.
    pub(in crate::http) fn for_admin(settings: &HttpSettings) -> Self {
        let tokens = settings.admin_requires_token.then(|| Arc::clone(&settings.tokens));
        Self::new(Listener::Admin, &Hosts::Loopback, tokens, settings)
    }

    /// If a token is required the host does not matter, because a web page has no token.
    fn new(listener: Listener, hosts: &Hosts, tokens: Option<Arc<LiveTokens>>, settings: &HttpSettings) -> Self {
        let hosts = if tokens.is_some() { Hosts::Any } else { hosts.clone() };
        let (allow_bypass, honor_no_cache) = (settings.allow_bypass, settings.honor_no_cache);
        Self { listener, hosts, tokens, allowed_origins: Some([].into()), allow_bypass, honor_no_cache }
    }

    /// Whether a read with only this `Authorization` and this `Host` may pass.
    pub(in crate::http) fn admits_read(&self, authorization: Option<&[u8]>, host: Option<&[u8]>) -> bool {
        let is_known = |tokens: &Arc<LiveTokens>| {
            let offered = authorization.and_then(bearer);
            offered.and_then(|offered| tokens.load().scopes_of(offered)).is_some_and(|scopes| scopes.hold(Scope::Read))
        };
        self.tokens.as_ref().is_none_or(is_known) && self.hosts.admit(host)
    }

    /// Checks a request. Removes `Cache-Control` from one that may not bypass.
    fn check<B>(&self, request: &mut Request<B>) -> Result<(), Problem> {
        if !self.hosts.admit_all(request.uri(), request.headers()) {
            return Err(self.wrong_host());
        }
        let effect = self.effect(request);
        let scopes = self.scopes(request)?;
        let writes = effect.changes || effect.bypasses;
        let lacks = |scope: Scope| scopes.is_some_and(|scopes| !scopes.hold(scope));
        let reads = if self.listener == Listener::Admin { Scope::Admin } else { Scope::Read };
        if (!effect.changes || self.listener == Listener::Admin) && lacks(reads) {
            return Err(insufficient_scope(reads));
        }
        if self.listener == Listener::Data && writes && lacks(Scope::Write) {
            return Err(insufficient_scope(Scope::Write));
        }
        let allowed = self.allowed_origins.as_deref();
        let is_foreign = || allowed.is_some_and(|allowed| is_cross_site(request.uri(), request.headers(), allowed));
        if writes && is_foreign() {
            return Err(wrong_origin());
        }
        if effect.bypasses && !self.allow_bypass {
            return Err(bypass_not_allowed());
        }
        if effect.may_bypass && (lacks(Scope::Write) || is_foreign()) {
            request.headers_mut().remove(CACHE_CONTROL);
        }
        Ok(())
    }

    fn effect<B>(&self, request: &Request<B>) -> RequestEffect {
        let method = request.method();
        if self.listener != Listener::Data {
            return RequestEffect {
                changes: ![Method::GET, Method::HEAD].contains(method),
                ..RequestEffect::default()
            };
        }
        let changes = match Resource::split(request.uri().path()) {
            Some((Resource::Invalidate, _)) => true,
            Some((Resource::Keys, _)) => [Method::PUT, Method::POST, Method::DELETE].contains(method),
            Some((Resource::Check | Resource::Lookup, _)) | None => false,
        };
        let may_bypass = !changes && self.honor_no_cache && has_no_cache(request.headers());
        RequestEffect { changes, bypasses: !changes && wants_bypass(request.headers()), may_bypass }
    }

    /// `None` if no token is required.
    fn scopes<B>(&self, request: &Request<B>) -> Result<Option<Scopes>, Problem> {
        let Some(tokens) = &self.tokens else { return Ok(None) };
        let offered = request.headers().get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        let scopes = offered.and_then(|offered| tokens.load().scopes_of(offered));
        scopes.map(Some).ok_or_else(|| unauthorized(offered.is_some()))
    }

    fn wrong_host(&self) -> Problem {
        if self.listener == Listener::Admin {
            return Problem::new(
                StatusCode::FORBIDDEN,
                "host-not-loopback",
                "Host is not loopback",
                "without an admin token, this listener serves requests whose Host is localhost, 127.0.0.0/8 or [::1]",
            );
        }
        let detail = "this listener is on loopback and serves requests whose Host is localhost, an IP address or in \
                      server.allowed_hosts";
        Problem::new(StatusCode::FORBIDDEN, "host-not-allowed", "Host is not allowed", detail)
    }
}

fn unauthorized(offered: bool) -> Problem {
    let (detail, challenge) = if offered {
        ("the bearer token is unknown", "Bearer realm=\"bloomguard\", error=\"invalid_token\"")
    } else {
        ("this listener requires a bearer token", "Bearer realm=\"bloomguard\"")
    };
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "Unauthorized", detail)
        .header(WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
}

fn insufficient_scope(scope: Scope) -> Problem {
    let detail = format!("the bearer token lacks the scope {:?}", scope.as_str());
    let problem = Problem::new(StatusCode::FORBIDDEN, "insufficient-scope", "Insufficient scope", detail);
    let challenge = match scope {
        Scope::Read => "Bearer realm=\"bloomguard\", error=\"insufficient_scope\", scope=\"read\"",
        Scope::Write => "Bearer realm=\"bloomguard\", error=\"insufficient_scope\", scope=\"write\"",
        Scope::Admin => "Bearer realm=\"bloomguard\", error=\"insufficient_scope\", scope=\"admin\"",
    };
    problem.member("scope", scope.as_str()).header(WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
}

fn wrong_origin() -> Problem {
    let detail = "a web page of another site sent this request; add its host to server.allowed_hosts to allow it";
    Problem::new(StatusCode::FORBIDDEN, "origin-not-allowed", "Origin is not allowed", detail)
}

fn bypass_not_allowed() -> Problem {
    let detail = "server.allow_bypass is false: retry without Bloomguard-Bypass";
    Problem::new(StatusCode::FORBIDDEN, "bypass-not-allowed", "Bypass is not allowed", detail)
}

impl<B> Admission<B> for AccessPolicy {
    type Body = B;

    #[inline]
    fn admit(&self, mut request: Request<B>) -> Result<Request<B>, Problem> {
        require_one_host(&request)?;
        self.check(&mut request)?;
        Ok(request)
    }
}

/// An HTTP/1.1 request names its host exactly once (RFC 9112, section 3.2). A proxy in front may have read another one
/// of several.
fn require_one_host<B>(request: &Request<B>) -> Result<(), Problem> {
    if request.version() == Version::HTTP_11 && request.headers().get_all(HOST).iter().count() != 1 {
        let detail = "an HTTP/1.1 request must have exactly one Host header";
        return Err(Problem::bad_request("host", "Exactly one Host required", detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{SecretText, ServerConfig};

    fn token() -> ServerConfig {
        ServerConfig {
            token_file: Some("x".into()),
            token: vec![SecretText::new("s3cret".into())],
            ..ServerConfig::default()
        }
    }

    fn outcome(
        access: &AccessPolicy,
        method: &str,
        path: &str,
        headers: &[(&'static str, &'static str)],
    ) -> (u16, Request<()>) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        let status = access.check(&mut request).map_or_else(|problem| problem.summary().0, |()| 200);
        (status, request)
    }

    #[test]
    fn only_the_token_itself_is_admitted() {
        let access = AccessPolicy::for_data(&HttpSettings::new(&token()));
        let ask = |value: &'static str| outcome(&access, "GET", "/v1/keys/users/1", &[("authorization", value)]).0;
        for value in ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret "] {
            assert_eq!(ask(value), 200, "{value:?}");
            assert!(access.admits_read(Some(value.as_bytes()), None));
        }
        for value in
            ["s3cret", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crets", "Basic s3cret", "Bearers3cret", ""]
        {
            assert_eq!(ask(value), 401, "{value:?}");
            assert!(!access.admits_read(Some(value.as_bytes()), None));
        }
        assert_eq!(outcome(&access, "GET", "/", &[]).0, 401);
        assert!(!access.admits_read(None, None));
        assert!(!format!("{access:?}").contains("s3cret"));
    }

    #[test]
    fn a_page_of_another_site_changes_nothing_and_bypasses_nothing() {
        let config = ServerConfig { honor_no_cache: true, ..ServerConfig::default() };
        let access = AccessPolicy::for_data(&HttpSettings::new(&config));
        const FOREIGN: (&str, &str) = ("origin", "https://evil.example");
        const HOST: (&str, &str) = ("host", "localhost:4040");
        let key = "/v1/keys/users/1";
        for (method, path) in
            [("PUT", key), ("DELETE", key), ("POST", "/v1/keys/users"), ("POST", "/v1/invalidate/users")]
        {
            assert_eq!(outcome(&access, method, path, &[HOST, FOREIGN]).0, 403, "{method} {path}");
            assert_eq!(outcome(&access, method, path, &[HOST]).0, 200, "{method} {path}");
        }
        let bypass = ("bloomguard-bypass", "1");
        for (method, path) in [("GET", key), ("HEAD", key), ("POST", "/v1/lookup/users")] {
            assert_eq!(outcome(&access, method, path, &[HOST, FOREIGN]).0, 200, "{method} {path}");
            assert_eq!(outcome(&access, method, path, &[HOST, FOREIGN, bypass]).0, 403, "{method} {path}");
            assert_eq!(outcome(&access, method, path, &[HOST, bypass]).0, 200, "{method} {path}");
        }
        let no_cache = ("cache-control", "no-cache");
        let (status, foreign) = outcome(&access, "GET", key, &[HOST, no_cache, ("sec-fetch-site", "cross-site")]);
        assert!(status == 200 && !has_no_cache(foreign.headers()));
        let (status, own) = outcome(&access, "GET", key, &[HOST, no_cache]);
        assert!(status == 200 && has_no_cache(own.headers()));
    }

    #[test]
    fn a_socket_of_this_machine_knows_no_browser() {
        let config = ServerConfig { listen: "unix:/run/data.sock".into(), ..ServerConfig::default() };
        let access = AccessPolicy::for_data(&HttpSettings::new(&config));
        let headers = [("host", "evil.example"), ("origin", "https://evil.example")];
        assert_eq!(outcome(&access, "PUT", "/v1/keys/users/1", &headers).0, 200);
    }
}

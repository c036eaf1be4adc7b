//! `http_requests_total{route,method,code}`.

use metrics::Counter;

use super::Registry;

/// Where a request went. One label value each, never a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Route {
    /// `/v1/keys/{ks}/{key}`
    Keys,
    /// `/v1/check/{ks}/{key}`
    Check,
    /// `/livez`
    Livez,
    /// `/readyz`
    Readyz,
    /// `/status`
    Status,
    /// `/metrics`
    Metrics,
    /// `/admin/…`
    Admin,
    /// No such route.
    Unknown,
}

/// Request method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// PUT
    Put,
    /// POST
    Post,
    /// DELETE
    Delete,
    /// Any other.
    Other,
}

const ROUTES: &[&str] = &["keys", "check", "livez", "readyz", "status", "metrics", "admin", "unknown"];
const METHODS: &[&str] = &["GET", "HEAD", "PUT", "POST", "DELETE", "other"];
/// Codes that we answer with; the last stands for any other.
const CODES: &[&str] = &["200", "202", "204", "400", "401", "403", "404", "405", "409", "413", "414", "415", "429", "500", "503", "other"];

/// Counts requests without looking anything up: a table of handles.
#[derive(Debug)]
pub struct HttpMetrics(Vec<Counter>);

impl HttpMetrics {
    pub(super) fn new(registry: &Registry<'_>) -> Self {
        let mut counters = Vec::with_capacity(ROUTES.len() * METHODS.len() * CODES.len());
        for route in ROUTES {
            for method in METHODS {
                for code in CODES {
                    counters.push(registry.counter(
                        "http_requests_total",
                        "HTTP requests answered",
                        &[("route", route), ("method", method), ("code", code)],
                    ));
                }
            }
        }
        Self(counters)
    }

    /// Counts one answered request.
    pub fn request(&self, route: Route, method: Method, code: u16) {
        let code = match code {
            200 => 0,
            202 => 1,
            204 => 2,
            400 => 3,
            401 => 4,
            403 => 5,
            404 => 6,
            405 => 7,
            409 => 8,
            413 => 9,
            414 => 10,
            415 => 11,
            429 => 12,
            500 => 13,
            503 => 14,
            _ => 15,
        };
        self.0[(route as usize * METHODS.len() + method as usize) * CODES.len() + code].increment(1);
    }
}

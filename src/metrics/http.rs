//! `http_requests_total{route,method,code}`.

use super::Registry;
use super::series::Counter;

/// The route of a request. One label value each, never a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Route {
    /// `/v1/keys/{ks}/{key}`
    Keys,
    /// `/v1/check/{ks}/{key}`
    Check,
    /// `/v1/lookup/{ks}`
    Lookup,
    /// `/v1/invalidate/{ks}`
    Invalidate,
    /// `/livez`
    Livez,
    /// `/readyz`
    Readyz,
    /// `/startupz`
    Startupz,
    /// `/status`
    Status,
    /// `/metrics`
    Metrics,
    /// `/admin/…`
    Admin,
    /// Any other path.
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
    /// Any other method, and any that the route does not serve.
    Other,
}

const ROUTES: &[&str] =
    &["keys", "check", "lookup", "invalidate", "livez", "readyz", "startupz", "status", "metrics", "admin", "unknown"];
const METHODS: &[&str] = &["GET", "HEAD", "PUT", "POST", "DELETE", "other"];
/// Status codes of our responses; the last stands for any other.
const CODES: &[&str] = &[
    "200", "202", "204", "400", "401", "403", "404", "405", "408", "409", "413", "414", "415", "422", "500", "503",
    "other",
];

/// The series that exist: the codes with which each route answers the methods that it serves. Each also gets the code
/// `other`.
///
/// A route's method `other` comes first and stands for every method. Later lines give some methods their own series.
const SERIES: &[(Route, &[Method], &[u16])] = &[
    (Route::Keys, &[Method::Other], &[401, 403, 405]),
    (Route::Keys, &[Method::Get, Method::Head], &[200, 400, 401, 403, 404, 408, 413, 414, 500, 503]),
    (Route::Keys, &[Method::Put], &[204, 400, 401, 403, 408, 413, 414, 500, 503]),
    (Route::Keys, &[Method::Delete], &[202, 400, 401, 403, 408, 413, 414, 500, 503]),
    (Route::Check, &[Method::Other], &[401, 403, 405]),
    (Route::Check, &[Method::Get, Method::Head], &[204, 400, 401, 403, 404, 408, 413, 414, 500, 503]),
    (Route::Keys, &[Method::Post], &[204, 400, 401, 403, 405, 408, 413, 414, 415, 500, 503]),
    (Route::Check, &[Method::Post], &[200, 400, 401, 403, 405, 408, 413, 414, 415, 500, 503]),
    (Route::Lookup, &[Method::Other], &[400, 401, 403, 405]),
    (Route::Lookup, &[Method::Post], &[200, 400, 401, 403, 408, 413, 415, 500, 503]),
    (Route::Invalidate, &[Method::Other], &[400, 401, 403, 405]),
    (Route::Invalidate, &[Method::Post], &[204, 400, 401, 403, 408, 413, 414, 415, 500, 503]),
    (Route::Livez, &[Method::Other], &[400, 403, 405]),
    (Route::Livez, &[Method::Get, Method::Head], &[200]),
    (Route::Readyz, &[Method::Other], &[400, 403, 405]),
    (Route::Readyz, &[Method::Get, Method::Head], &[200, 503]),
    (Route::Startupz, &[Method::Other], &[400, 403, 405]),
    (Route::Startupz, &[Method::Get, Method::Head], &[200, 503]),
    (Route::Status, &[Method::Other], &[400, 403, 405]),
    (Route::Status, &[Method::Get, Method::Head], &[200, 500, 503]),
    (Route::Metrics, &[Method::Other], &[400, 403, 405]),
    (Route::Metrics, &[Method::Get, Method::Head], &[200, 500, 503]),
    (Route::Admin, &[Method::Other], &[401, 403, 405]),
    (Route::Admin, &[Method::Get, Method::Head], &[200, 401, 403, 404, 500, 503]),
    (Route::Admin, &[Method::Post], &[200, 202, 400, 401, 403, 404, 408, 409, 413, 415, 422, 500, 503]),
    (Route::Unknown, &[Method::Other], &[400, 401, 403, 404]),
];

/// Counts requests without a lookup by label: a full table of handles. Cells without a series of their own share the
/// handle of their `other`.
#[derive(Debug)]
pub struct HttpMetrics(Vec<Counter>);

impl HttpMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let series = |route: Route, method: Method, code: usize| {
            registry.counter(
                "http_requests_total",
                "HTTP requests answered",
                &[("route", ROUTES[route as usize]), ("method", METHODS[method as usize]), ("code", CODES[code])],
            )
        };
        let mut table = vec![Counter::default(); ROUTES.len() * METHODS.len() * CODES.len()];
        for (route, methods, codes) in SERIES {
            for method in *methods {
                let cells = if *method == Method::Other { ALL_METHODS } else { std::slice::from_ref(method) };
                let other = series(*route, *method, CODES.len() - 1);
                for cell in cells {
                    table[index(*route, *cell, 0)..][..CODES.len()].fill(other.clone());
                }
                for code in *codes {
                    let counter = series(*route, *method, column(*code));
                    for cell in cells {
                        table[index(*route, *cell, column(*code))] = counter.clone();
                    }
                }
            }
        }
        Self(table)
    }

    /// Counts one answered request.
    pub fn request(&self, route: Route, method: Method, code: u16) {
        self.0[index(route, method, column(code))].increment(1);
    }
}

const ALL_METHODS: &[Method] = &[Method::Get, Method::Head, Method::Put, Method::Post, Method::Delete, Method::Other];

const fn index(route: Route, method: Method, column: usize) -> usize {
    (route as usize * METHODS.len() + method as usize) * CODES.len() + column
}

const fn column(code: u16) -> usize {
    match code {
        200 => 0,
        202 => 1,
        204 => 2,
        400 => 3,
        401 => 4,
        403 => 5,
        404 => 6,
        405 => 7,
        408 => 8,
        409 => 9,
        413 => 10,
        414 => 11,
        415 => 12,
        422 => 13,
        500 => 14,
        503 => 15,
        _ => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    fn series(metrics: &Metrics) -> Vec<String> {
        metrics
            .render()
            .lines()
            .filter(|l| l.starts_with("bloomguard_http_requests_total{"))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn columns_are_where_their_codes_are() {
        for (i, code) in CODES.iter().enumerate() {
            assert_eq!(column(code.parse().unwrap_or(299)), i, "{code}");
        }
    }

    #[test]
    fn series_exist_at_zero_and_no_more_of_them_than_can_occur() {
        let all = series(&Metrics::new());
        let declared: usize = SERIES.iter().map(|(_, methods, codes)| methods.len() * (codes.len() + 1)).sum();
        assert_eq!(all.len(), declared, "each is registered once");
        assert!(all.len() < 220, "{}", all.len());
        assert!(all.iter().all(|l| l.ends_with(" 0")));
        assert!(all.iter().any(|l| l.contains(r#"route="keys",method="GET",code="404""#)), "{all:?}");
    }

    #[test]
    fn every_request_is_counted_once_and_odd_ones_as_other() {
        let metrics = Metrics::new();
        for (route, method, code, expected) in [
            (Route::Keys, Method::Get, 404, r#"route="keys",method="GET",code="404""#),
            (Route::Keys, Method::Get, 418, r#"route="keys",method="GET",code="other""#),
            (Route::Keys, Method::Post, 405, r#"route="keys",method="POST",code="405""#),
            (Route::Check, Method::Put, 405, r#"route="check",method="other",code="405""#),
            (Route::Unknown, Method::Get, 400, r#"route="unknown",method="other",code="400""#),
            (Route::Admin, Method::Post, 409, r#"route="admin",method="POST",code="409""#),
            (Route::Livez, Method::Delete, 500, r#"route="livez",method="other",code="other""#),
        ] {
            metrics.http.request(route, method, code);
            let counted = series(&metrics).into_iter().filter(|l| l.contains(expected) && l.ends_with(" 1")).count();
            assert_eq!(counted, 1, "{expected}");
        }
        let total: u64 = series(&metrics).iter().map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(total, 7);
    }

    #[test]
    fn no_combination_is_lost() {
        let metrics = Metrics::new();
        for route in 0..ROUTES.len() {
            for method in ALL_METHODS {
                for code in 0..CODES.len() {
                    metrics.http.0[(route * METHODS.len() + *method as usize) * CODES.len() + code].increment(1);
                }
            }
        }
        let total: u64 = series(&metrics).iter().map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(total, metrics.http.0.len() as u64);
    }
}

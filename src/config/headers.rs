//! Headers of requests to an HTTP backend or key source.

use std::fmt;
use std::str::FromStr;

use hyper::header::{HeaderMap, HeaderName};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::redaction::{REDACTED, is_secret};

/// Names and values. `Debug` shows no value: any of them may be a secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Wraps pairs of name and value.
    #[must_use]
    pub const fn new(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    /// Each name with its value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// No header was given.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Headers whose names don't suggest a secret.
    pub fn plain(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(|(name, _)| !is_secret_header(name))
    }
}

fn is_secret_header(name: &str) -> bool {
    let name = name.to_lowercase();
    is_secret(&name) || ["auth", "cookie", "key"].iter().any(|word| name.contains(word))
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let table = std::collections::BTreeMap::<String, String>::deserialize(from)?;
        Ok(Self(table.into_iter().collect()))
    }
}

/// Serializes names only.
impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, _)| (name, REDACTED)))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// The header that an absence must carry: `Name`, or `Name: value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsentHeader {
    name: HeaderName,
    value: Option<String>,
}

impl AbsentHeader {
    /// Whether the headers contain it. Ignores the value's case and what follows a semicolon.
    #[must_use]
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let fits = |given: &[u8]| {
            let given = given.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
            self.value.as_ref().is_none_or(|value| given.eq_ignore_ascii_case(value.as_bytes()))
        };
        headers.get_all(&self.name).iter().any(|given| fits(given.as_bytes()))
    }
}

impl fmt::Display for AbsentHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}: {value}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

impl Serialize for AbsentHeader {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl FromStr for AbsentHeader {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const RULE: &str = "expected the name of a header, or \"Name: value\"";
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value.trim())));
        if value.is_some_and(|value| {
            value.is_empty() || value.contains(';') || !value.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
        }) {
            return Err(RULE);
        }
        Ok(Self { name: name.trim().parse().map_err(|_| RULE)?, value: value.map(str::to_owned) })
    }
}

impl<'de> Deserialize<'de> for AbsentHeader {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct AbsentHeaderVisitor;
        impl serde::de::Visitor<'_> for AbsentHeaderVisitor {
            type Value = AbsentHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a header, or \"Name: value\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<AbsentHeader, E> {
                text.parse().map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        from.deserialize_str(AbsentHeaderVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_shown() {
        let headers = Headers::new(vec![("X-Tenant".into(), "hunter2".into())]);
        assert_eq!(format!("{headers:?}"), "{\"X-Tenant\"}");
    }

    #[test]
    fn an_absence_is_known_by_its_header() {
        let answer = |pairs: &[(&'static str, &'static str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in pairs {
                map.append(*name, value.parse().unwrap());
            }
            map
        };
        let named: AbsentHeader = "X-Row".parse().unwrap();
        assert!(named.is_in(&answer(&[("x-row", "anything")])) && !named.is_in(&answer(&[("x-rows", "1")])));
        let typed: AbsentHeader = "Content-Type: application/json".parse().unwrap();
        for (given, fits) in
            [("application/json", true), ("Application/JSON; charset=utf-8", true), ("text/html", false)]
        {
            assert_eq!(typed.is_in(&answer(&[("content-type", given)])), fits, "{given}");
        }
        for text in ["", ":", "X-Row:", "bad name", "X: a;b", "X: é"] {
            assert!(text.parse::<AbsentHeader>().is_err(), "{text}");
        }
    }
}

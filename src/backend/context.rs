//! What a backend learns about a lookup beside its key.

use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderValue};
use tokio::time::Instant;

/// Longer ones are left out, which the standard allows from 512 on.
const LONGEST_STATE: usize = 4096;

/// Context of a backend call. A load that several lookups share has that of the lookup which began it.
#[derive(Debug, Clone, Default)]
pub struct FetchContext {
    /// The trace of the request.
    pub trace: Option<Arc<TraceContext>>,
    /// When no lookup waits for the answer any more.
    pub deadline: Option<Instant>,
    /// Bytes of rows that one call may gather. The row that reaches the limit may exceed it. `None`: no limit.
    pub room: Option<u64>,
}

/// What is left of [`FetchContext::room`] in one call.
#[derive(Debug, Clone)]
pub(super) struct RowBudget(u64);

impl RowBudget {
    pub(super) fn of(context: &FetchContext) -> Self {
        // At least 1: a call that may gather nothing would never end.
        context.room.map_or(Self::unlimited(), |room| Self(room.max(1)))
    }

    pub(super) const fn unlimited() -> Self {
        Self(u64::MAX)
    }

    pub(super) const fn is_full(&self) -> bool {
        self.0 == 0
    }

    /// Counts a row of this size, which is kept.
    pub(super) const fn take(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes as u64);
    }
}

/// W3C trace context of a request, passed on as it came: bloomguard has no spans of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    parent: HeaderValue,
    state: Option<HeaderValue>,
}

impl TraceContext {
    /// Reads `traceparent` and `tracestate`; `None` without a valid parent, because then the state means nothing.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all("traceparent").iter();
        let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
        if !is_parent(parent.as_bytes()) {
            return None;
        }
        let states: Vec<&[u8]> = headers.get_all("tracestate").iter().map(HeaderValue::as_bytes).collect();
        let state = states.join(&b","[..]);
        let state = HeaderValue::from_bytes(&state).ok().filter(|_| !state.is_empty() && state.len() <= LONGEST_STATE);
        Some(Self { parent: parent.clone(), state })
    }

    /// Adds the headers to a request.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        headers.insert("traceparent", self.parent.clone());
        if let Some(state) = &self.state {
            headers.insert("tracestate", state.clone());
        }
    }
}

/// `version-trace-parent-flags` in lower-case hexadecimal; later versions may append to it.
fn is_parent(text: &[u8]) -> bool {
    let hex = |part: &[u8]| part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let id = |part: &[u8]| hex(part) && part.iter().any(|b| *b != b'0');
    let Some((known, rest)) = text.split_at_checked(55) else { return false };
    let dashes = known[2] == b'-' && known[35] == b'-' && known[52] == b'-';
    let version = &known[..2];
    let length = rest.is_empty() || (version != b"00" && rest[0] == b'-');
    dashes && length && hex(version) && version != b"ff" && id(&known[3..35]) && id(&known[36..52]) && hex(&known[53..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(headers: &[(&'static str, &str)]) -> Option<(String, Option<String>)> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let mut written = HeaderMap::new();
        TraceContext::from_headers(&map)?.write(&mut written);
        let text = |name| written.get(name).map(|value: &HeaderValue| value.to_str().unwrap().to_owned());
        Some((text("traceparent").unwrap(), text("tracestate")))
    }

    #[test]
    fn a_valid_context_is_passed_on_as_it_came() {
        assert_eq!(read(&[("traceparent", PARENT)]), Some((PARENT.to_owned(), None)));
        let states = [("traceparent", PARENT), ("tracestate", "a=1,b=2"), ("tracestate", "c=3")];
        assert_eq!(read(&states), Some((PARENT.to_owned(), Some("a=1,b=2,c=3".to_owned()))));
        let later = PARENT.replace("00-4", "01-4") + "-more";
        assert_eq!(read(&[("traceparent", &later)]), Some((later.clone(), None)));
        assert_eq!(
            read(&[("traceparent", PARENT), ("tracestate", &"x".repeat(5000))]),
            Some((PARENT.to_owned(), None))
        );
    }

    #[test]
    fn an_invalid_parent_takes_its_state_along() {
        for parent in [
            "",
            "00",
            &PARENT.to_uppercase(),
            &PARENT.replace("00-4", "ff-4"),
            &PARENT.replace("00-4", "0g-4"),
            &PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &format!("{PARENT}-more"),
            &format!("{PARENT} "),
            &PARENT.replace('-', "_"),
        ] {
            assert_eq!(read(&[("traceparent", parent), ("tracestate", "a=1")]), None, "{parent}");
        }
        assert_eq!(read(&[("tracestate", "a=1")]), None);
        assert_eq!(read(&[("traceparent", PARENT), ("traceparent", PARENT)]), None);
    }
}

//! The bytes of an entry in Redis.
//!
//! A header of [`HEADER_LEN`] bytes, integers in network order, then the body of a value:
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0 | 3 | magic `BGe` |
//! | 3 | 1 | version, 3 |
//! | 4 | 1 | kind: `A` absence, `V` value, `M` announced, `T` tombstone of a drop |
//! | 5 | 1 | content type of a value: 1 JSON, 2 octets, 3 another one, written before the body; 0 for the other kinds |
//! | 6 | 2 | length of that other content type; else 0 |
//! | 8 | 8 | token, random each time the entry is written |
//! | 16 | 8 | fingerprint of backend and query for values and absences; 0 for marks |
//! | 24 | 16 | log identity for absences; for values the time that the backend took, in microseconds, and the first 8 bytes of the log identity; 0 for marks |
//! | 40 | 8 | by the server's clock, Unix milliseconds: for values that are kept past their expiry, that; for absences, when their lookup began; else 0 |
//! | 48 | … | the other content type, if any, then the body of a value; nothing for the other kinds |
//!
//! The token makes every written entry differ from every other, so comparing headers compares entries: the same value
//! written again is another entry. Later versions of this format must keep magic and token where they are.
//!
//! Bytes that can't be decoded are a miss, never an absence. An absence must match in every byte but token and time. A
//! mark is recognised by magic, version and kind alone: a wrong mark only costs a call of the backend.

use std::time::Duration;

use bytes::Bytes;

use super::{Entry, Mark};
use crate::backend::{ContentType, Value};
use crate::redis::LogIdentity;

/// Length of the header, which compare-and-set compares.
pub(super) const HEADER_LEN: usize = 48;

const MAGIC: [u8; 3] = *b"BGe";
const VERSION: u8 = 3;
const ABSENCE: u8 = b'A';
const VALUE: u8 = b'V';
const ANNOUNCED: u8 = b'M';
const DROPPED: u8 = b'T';
const JSON: u8 = 1;
const OCTETS: u8 = 2;
const OTHER: u8 = 3;

/// Makes an entry differ from every other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryToken(pub(super) [u8; 8]);

impl EntryToken {
    /// A fresh one.
    #[must_use]
    pub(super) fn random() -> Self {
        Self(rand::random())
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryOrigin {
    pub(super) fingerprint: u64,
    pub(super) identity: LogIdentity,
    /// How long the backend took to answer with it.
    pub(super) cost: Duration,
    /// Served until then, Unix milliseconds of the server; 0: as long as it is there.
    pub(super) fresh_until: u64,
}

/// The entry of a value.
#[must_use]
pub(super) fn encode_value(value: &Value, token: EntryToken, origin: &EntryOrigin) -> Vec<u8> {
    let (content_type, written) = match &value.content_type {
        ContentType::Json => (JSON, &b""[..]),
        ContentType::OctetStream => (OCTETS, &b""[..]),
        ContentType::Other(other) => (OTHER, other.as_bytes()),
    };
    let mut header = header(VALUE, content_type, token, origin.fingerprint, origin.identity);
    // A media type is never longer than 255 bytes.
    header[6..8].copy_from_slice(&u16::try_from(written.len()).unwrap_or(u16::MAX).to_be_bytes());
    header.copy_within(24..32, 32);
    header[24..32].copy_from_slice(&u64::try_from(origin.cost.as_micros()).unwrap_or(u64::MAX).to_be_bytes());
    header[40..].copy_from_slice(&origin.fresh_until.to_be_bytes());
    let mut bytes = Vec::with_capacity(HEADER_LEN + written.len() + value.body.len());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(written);
    bytes.extend_from_slice(&value.body);
    bytes
}

/// The entry of an absence.
#[must_use]
pub(super) fn encode_absence(
    token: EntryToken,
    fingerprint: u64,
    identity: LogIdentity,
    sent: u64,
) -> [u8; HEADER_LEN] {
    let mut header = header(ABSENCE, 0, token, fingerprint, identity);
    header[40..].copy_from_slice(&sent.to_be_bytes());
    header
}

/// When the lookup of an absence began, from the absence's first bytes; `None` for other entries.
#[must_use]
pub(super) fn absence_sent(head: &[u8]) -> Option<u64> {
    let is_one = head.len() == HEADER_LEN && head[0..3] == MAGIC && head[3] == VERSION && head[4] == ABSENCE;
    head.get(40..).filter(|_| is_one).and_then(<[u8]>::first_chunk).copied().map(u64::from_be_bytes)
}

/// The entry of a mark.
#[must_use]
pub(super) fn encode_mark(mark: Mark, token: EntryToken) -> [u8; HEADER_LEN] {
    let kind = match mark {
        Mark::Announced => ANNOUNCED,
        Mark::Dropped => DROPPED,
    };
    header(kind, 0, token, 0, LogIdentity([0; 16]))
}

fn header(kind: u8, content_type: u8, token: EntryToken, fingerprint: u64, identity: LogIdentity) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[0..3].copy_from_slice(&MAGIC);
    bytes[3] = VERSION;
    bytes[4] = kind;
    bytes[5] = content_type;
    bytes[8..16].copy_from_slice(&token.0);
    bytes[16..24].copy_from_slice(&fingerprint.to_be_bytes());
    bytes[24..40].copy_from_slice(&identity.0);
    bytes
}

/// What `bytes` mean to a reader with this fingerprint, under this log identity, at this time of the server. The body
/// of a value is not copied.
#[must_use]
pub(super) fn decode(bytes: &Bytes, fingerprint: u64, identity: LogIdentity, now: u64) -> Entry {
    let Some(head) = bytes.first_chunk::<HEADER_LEN>() else { return Entry::Nothing };
    if head[0..3] != MAGIC || head[3] != VERSION {
        return Entry::Nothing;
    }
    match head[4] {
        ANNOUNCED => Entry::Mark(Mark::Announced),
        DROPPED => Entry::Mark(Mark::Dropped),
        VALUE => match (decode_value(head, bytes, fingerprint, identity), past(bytes, now)) {
            (Some(value), None) => Entry::Value(value),
            (Some(value), Some(past)) => Entry::Stale { value, past },
            (None, _) => Entry::Nothing,
        },
        ABSENCE => {
            let Some(token) = head[8..].first_chunk().copied().map(EntryToken) else { return Entry::Nothing };
            let sent = absence_sent(head).unwrap_or_default();
            if bytes[..] == encode_absence(token, fingerprint, identity, sent) {
                Entry::Absence
            } else {
                Entry::Nothing
            }
        }
        _ => Entry::Nothing,
    }
}

/// An absence of another log is a miss: that log may have lost the tombstone that it replaced, and a replica has
/// restored the absence.
fn decode_value(head: &[u8; HEADER_LEN], bytes: &Bytes, fingerprint: u64, identity: LogIdentity) -> Option<Value> {
    if head[16..24] != fingerprint.to_be_bytes() || head[32..40] != identity.0[..8] {
        return None;
    }
    let written = usize::from(u16::from_be_bytes([head[6], head[7]]));
    let (content_type, body) = match (head[5], written) {
        (JSON, 0) => (ContentType::Json, HEADER_LEN),
        (OCTETS, 0) => (ContentType::OctetStream, HEADER_LEN),
        (OTHER, 1..) => {
            let other = ContentType::parse(bytes.get(HEADER_LEN..HEADER_LEN + written)?)?;
            (other, HEADER_LEN + written)
        }
        _ => return None,
    };
    Some(Value { body: bytes.slice(body..), content_type })
}

/// How long ago this value has expired; `None` if it has not.
fn past(bytes: &[u8], now: u64) -> Option<Duration> {
    let until = fresh_until(bytes)?;
    (now >= until).then(|| Duration::from_millis(now - until))
}

/// Milliseconds that this value may still be served, if it has a limit.
#[must_use]
pub(super) fn fresh_left(bytes: &[u8], now: u64) -> Option<u64> {
    fresh_until(bytes).map(|until| until.saturating_sub(now))
}

fn fresh_until(bytes: &[u8]) -> Option<u64> {
    bytes.get(40..).and_then(<[u8]>::first_chunk).copied().map(u64::from_be_bytes).filter(|until| *until > 0)
}

/// How long the backend took to answer with the value that was decoded from these bytes.
#[must_use]
pub(super) fn cost(bytes: &[u8]) -> Duration {
    let micros = bytes.get(24..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_be_bytes);
    Duration::from_micros(micros)
}

/// The bytes that compare-and-set compares: the header, or all of a shorter entry.
#[must_use]
pub(super) fn head(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(HEADER_LEN)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FINGERPRINT: u64 = 0x0102_0304_0506_0708;
    const IDENTITY: LogIdentity = LogIdentity(*b"identity-of-log!");
    const TOKEN: EntryToken = EntryToken(*b"token-01");
    const COST: Duration = Duration::from_millis(100);
    const NOW: u64 = 1_700_000_000_000;
    const SENT: u64 = NOW - 7;
    const ORIGIN: EntryOrigin =
        EntryOrigin { fingerprint: FINGERPRINT, identity: IDENTITY, cost: COST, fresh_until: 0 };

    fn value(body: &'static str, content_type: ContentType) -> Value {
        Value { body: Bytes::from_static(body.as_bytes()), content_type }
    }

    fn read(bytes: &[u8]) -> Entry {
        decode(&Bytes::copy_from_slice(bytes), FINGERPRINT, IDENTITY, NOW)
    }

    #[test]
    fn the_body_of_a_value_is_a_part_of_what_was_read_and_no_copy() {
        let large = Value { body: vec![7; 1 << 20].into(), content_type: ContentType::OctetStream };
        let bytes = Bytes::from(encode_value(&large, TOKEN, &ORIGIN));
        let Entry::Value(found) = decode(&bytes, FINGERPRINT, IDENTITY, NOW) else { panic!("no value") };
        assert_eq!((found.body.as_ptr(), found.body.len()), (bytes[HEADER_LEN..].as_ptr(), 1 << 20));
    }

    /// Other instances and later versions read these bytes: this test changes only together with the version.
    #[test]
    fn bytes_are_as_documented() {
        let (zero_identity, cost) = ([0u8; 16], *b"\0\0\0\0\0\x01\x86\xa0identity");
        let fp = [1, 2, 3, 4, 5, 6, 7, 8];
        let golden = |kind: u8, content: u8, fp: [u8; 8], identity: &[u8], body: &[u8]| {
            [b"BGe\x03".as_slice(), &[kind, content, 0, 0], b"token-01", &fp, identity, &[0; 8], body].concat()
        };
        let json = value("{\"a\":1}", ContentType::Json);
        assert_eq!(encode_value(&json, TOKEN, &ORIGIN), golden(b'V', 1, fp, &cost, b"{\"a\":1}"));
        let octets = value("x", ContentType::OctetStream);
        assert_eq!(encode_value(&octets, TOKEN, &ORIGIN), golden(b'V', 2, fp, &cost, b"x"));
        let text = value("x", ContentType::parse(b"text/plain").unwrap());
        let mut other = golden(b'V', 3, fp, &cost, b"text/plainx");
        other[7] = 10;
        assert_eq!(encode_value(&text, TOKEN, &ORIGIN), other);
        other[40..48].copy_from_slice(b"\0\0\0\0\0\0\x01\x02");
        assert_eq!(encode_value(&text, TOKEN, &EntryOrigin { fresh_until: 258, ..ORIGIN }), other);
        let mut absence = golden(b'A', 0, fp, b"identity-of-log!", b"");
        absence[40..48].copy_from_slice(&SENT.to_be_bytes());
        assert_eq!(encode_absence(TOKEN, FINGERPRINT, IDENTITY, SENT)[..], absence);
        assert_eq!(absence_sent(&absence), Some(SENT));
        assert_eq!(absence_sent(&encode_mark(Mark::Dropped, TOKEN)), None);
        assert_eq!(encode_mark(Mark::Announced, TOKEN)[..], golden(b'M', 0, [0; 8], &zero_identity, b""));
        assert_eq!(encode_mark(Mark::Dropped, TOKEN)[..], golden(b'T', 0, [0; 8], &zero_identity, b""));
    }

    #[test]
    fn value_of_another_query_or_log_is_nothing() {
        let bytes = Bytes::from(encode_value(&value("x", ContentType::Json), TOKEN, &ORIGIN));
        assert_eq!(decode(&bytes, FINGERPRINT, IDENTITY, NOW), Entry::Value(value("x", ContentType::Json)));
        assert_eq!(decode(&bytes, FINGERPRINT, LogIdentity([9; 16]), NOW), Entry::Nothing);
        assert_eq!(decode(&bytes, FINGERPRINT + 1, IDENTITY, NOW), Entry::Nothing);
    }

    #[test]
    fn value_of_a_content_type_that_can_not_be_sent_is_nothing() {
        let bytes = encode_value(&value("body", ContentType::parse(b"text/plain").unwrap()), TOKEN, &ORIGIN);
        assert!(matches!(read(&bytes), Entry::Value(_)));
        for (at, byte) in [(7, 0), (7, 3), (7, 200), (6, 1), (5, 1), (5, 4), (50, b'\n'), (52, 0xff), (52, b'x')] {
            let mut damaged = bytes.clone();
            damaged[at] = byte;
            assert_eq!(read(&damaged), Entry::Nothing, "{at}: {byte}");
        }
    }

    #[test]
    fn absence_of_another_query_or_log_is_nothing() {
        let bytes = Bytes::copy_from_slice(&encode_absence(TOKEN, FINGERPRINT, IDENTITY, SENT));
        assert_eq!(decode(&bytes, FINGERPRINT, IDENTITY, NOW), Entry::Absence);
        assert_eq!(decode(&bytes, FINGERPRINT + 1, IDENTITY, NOW), Entry::Nothing);
        assert_eq!(decode(&bytes, FINGERPRINT, LogIdentity([9; 16]), NOW), Entry::Nothing);
    }

    #[test]
    fn mark_is_recognised_whatever_the_query_and_log() {
        for mark in [Mark::Announced, Mark::Dropped] {
            let bytes = Bytes::copy_from_slice(&encode_mark(mark, EntryToken::random()));
            assert_eq!(decode(&bytes, rand::random(), LogIdentity(rand::random()), NOW), Entry::Mark(mark));
        }
    }

    fn bytes_like_entries() -> impl Strategy<Value = Vec<u8>> {
        let token = any::<[u8; 8]>().prop_map(EntryToken);
        let body = prop::collection::vec(any::<u8>(), 0..80);
        let encoded = prop_oneof![
            token.clone().prop_map(|t| encode_absence(t, FINGERPRINT, IDENTITY, SENT).to_vec()),
            token.clone().prop_map(|t| encode_mark(Mark::Dropped, t).to_vec()),
            (token, body.clone()).prop_map(|(t, b)| {
                encode_value(&Value { body: Bytes::from(b), content_type: ContentType::Json }, t, &ORIGIN)
            }),
        ];
        let flips = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
        let damaged = (encoded, flips, any::<prop::sample::Index>(), any::<bool>(), body.clone()).prop_map(
            |(mut bytes, flips, cut, cuts, tail)| {
                for (at, with) in flips {
                    let at = at.index(bytes.len());
                    bytes[at] ^= with;
                }
                if cuts {
                    bytes.truncate(cut.index(bytes.len() + 1));
                } else if tail.len() > 60 {
                    bytes.extend_from_slice(&tail);
                }
                bytes
            },
        );
        prop_oneof![1 => body, 4 => damaged]
    }

    proptest! {
        #[test]
        fn damaged_bytes_never_become_an_absence(bytes in bytes_like_entries()) {
            let is_one = bytes.len() == HEADER_LEN && {
                let token = EntryToken(bytes[8..16].try_into().unwrap());
                bytes == encode_absence(token, FINGERPRINT, IDENTITY, u64::from_be_bytes(bytes[40..].try_into().unwrap()))
            };
            prop_assert_eq!(read(&bytes) == Entry::Absence, is_one);
        }

        #[test]
        fn values_come_back_as_they_were(
            body in prop::collection::vec(any::<u8>(), 0..200), token: [u8; 8], fingerprint: u64, micros: u64, left: u32,
            content_type in prop_oneof!["application/octet-stream", "application/json", "[a-z]{1,20}/[!-~ ]{0,234}"],
        ) {
            let content_type = ContentType::parse(content_type.as_bytes()).unwrap();
            let value = Value { body: Bytes::from(body), content_type };
            let origin = EntryOrigin { fingerprint, cost: Duration::from_micros(micros), fresh_until: NOW + u64::from(left), ..ORIGIN };
            let bytes = Bytes::from(encode_value(&value, EntryToken(token), &origin));
            prop_assert_eq!(head(&bytes).len(), HEADER_LEN);
            prop_assert_eq!(cost(&bytes), Duration::from_micros(micros));
            prop_assert_eq!(fresh_left(&bytes, NOW), Some(u64::from(left)));
            prop_assert_eq!(decode(&bytes, fingerprint, IDENTITY, NOW.saturating_sub(1)), Entry::Value(value.clone()));
            let past = Duration::from_millis(7);
            prop_assert_eq!(decode(&bytes, fingerprint, IDENTITY, NOW + u64::from(left) + 7), Entry::Stale { value, past });
        }
    }
}

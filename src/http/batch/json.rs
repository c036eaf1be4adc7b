//! Bodies that are a JSON array of strings or integers.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use super::plain::{self, ArrayRead};
use super::sink::{KeySink, TooMany, bad_body};
use crate::http::problem::Problem;

pub(super) fn keys<F: FnMut(&[u8])>(body: &[u8], keys: &mut KeySink<F>) -> Result<(), Problem> {
    match plain::array(body, keys) {
        ArrayRead::All => Ok(()),
        ArrayRead::TooMany(too_many) => Err(too_many.into()),
        ArrayRead::UpTo(read) => rest(body, read, keys),
    }
}

/// Reads all but the first `read` elements, which are in `keys` already. Parses from the start, so that errors name the
/// right position.
pub(super) fn rest<F: FnMut(&[u8])>(body: &[u8], read: usize, keys: &mut KeySink<F>) -> Result<(), Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let mut too_many = None;
    let array = Array { keys, skip: read, too_many: &mut too_many };
    let read = deserializer.deserialize_seq(array).and_then(|()| deserializer.end());
    match too_many {
        // Everything before the limit was valid, so the error is the limit and not the unfinished array.
        Some(too_many) => Err(too_many.into()),
        None => read.map_err(|error| bad_body(error.to_string())),
    }
}

/// Puts the elements of an array into the sink, except the first ones, up to the limit.
struct Array<'a, F> {
    keys: &'a mut KeySink<F>,
    skip: usize,
    too_many: &'a mut Option<TooMany>,
}

impl<'de, F: FnMut(&[u8])> Visitor<'de> for Array<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array of strings or integers")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut array: A) -> Result<(), A::Error> {
        while self.too_many.is_none() && array.next_element_seed(KeySeed(|key: &[u8]| self.take(key)))?.is_some() {}
        Ok(())
    }
}

impl<F: FnMut(&[u8])> Array<'_, F> {
    fn take(&mut self, key: &[u8]) {
        match self.skip.checked_sub(1) {
            Some(left) => self.skip = left,
            None => *self.too_many = self.keys.push(key).err(),
        }
    }
}

/// Deserializes a string or integer key and passes its bytes on.
struct KeySeed<F>(F);

impl<'de, R, F: FnOnce(&[u8]) -> R> DeserializeSeed<'de> for KeySeed<F> {
    type Value = R;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<R, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<R, F: FnOnce(&[u8]) -> R> Visitor<'_> for KeySeed<F> {
    type Value = R;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a string or an integer as key")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<R, E> {
        Ok((self.0)(text.as_bytes()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<R, E> {
        Ok((self.0)(number.to_string().as_bytes()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<R, E> {
        Ok((self.0)(number.to_string().as_bytes()))
    }
}

/// A key of a JSON document that owns its bytes.
pub(super) struct OwnedKey(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for OwnedKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        KeySeed(<[u8]>::to_vec).deserialize(deserializer).map(Self)
    }
}

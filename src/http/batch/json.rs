//! Bodies that are a JSON array of strings or integers.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use super::format::{Counted, bad_body};
use super::plain::{self, Read};
use crate::http::problem::Problem;

pub(super) fn keys<F: FnMut(&[u8])>(body: &[u8], mut keys: Counted<F>) -> Result<(), Problem> {
    match plain::array(body, &mut keys) {
        Read::All => Ok(()),
        Read::TooMany(too_many) => Err(too_many.into()),
        Read::UpTo(read) => rest(body, read, keys),
    }
}

/// All but the first `read` elements, which have been handed over. From the beginning all the same: so errors tell where in the body they are.
pub(super) fn rest<F: FnMut(&[u8])>(body: &[u8], read: usize, mut keys: Counted<F>) -> Result<(), Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let array = Array { keys: &mut keys, skip: read };
    match deserializer.deserialize_seq(array).and_then(|full| deserializer.end().map(|()| full)) {
        Ok(false) => Ok(()),
        // What came before the limit was fine, so the limit is what is wrong.
        Ok(true) => Err(keys.too_many().into()),
        Err(_) if keys.is_full() => Err(keys.too_many().into()),
        Err(error) => Err(bad_body(error.to_string())),
    }
}

/// Hands over the elements of an array but for the first ones, and stops at the limit; says whether there were more.
struct Array<'a, F> {
    keys: &'a mut Counted<F>,
    skip: usize,
}

impl<'de, F: FnMut(&[u8])> Visitor<'de> for Array<'_, F> {
    type Value = bool;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array of strings or integers")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut array: A) -> Result<bool, A::Error> {
        while let Some(went) = array.next_element_seed(Key(|key: &[u8]| self.take(key)))? {
            if !went {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<F: FnMut(&[u8])> Array<'_, F> {
    /// `false`: that was one too many.
    fn take(&mut self, key: &[u8]) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return true;
        }
        self.keys.push(key).is_ok()
    }
}

/// A key of a JSON document, a string or an integer, for who takes its bytes.
struct Key<F>(F);

impl<'de, R, F: FnOnce(&[u8]) -> R> DeserializeSeed<'de> for Key<F> {
    type Value = R;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<R, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<R, F: FnOnce(&[u8]) -> R> Visitor<'_> for Key<F> {
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

/// A key of a JSON document by itself.
pub(super) struct Raw(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Key(<[u8]>::to_vec).deserialize(deserializer).map(Self)
    }
}

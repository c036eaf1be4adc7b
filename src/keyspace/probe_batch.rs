//! Probes the filter for many keys: each is hashed as it arrives, and all are probed at one moment when all are there.
//! So a check holds one hash per key, however long the keys and however slowly they arrive, and holds no filter
//! meanwhile. It also keeps the keys that are sampled for a check at the backend.

use std::sync::Arc;

use super::audit::{QUEUE, Suspect};
use super::freshness::FreshnessTracker;
use super::outcome::Probe;
use super::secret::CurrentSecret;
use super::{Keyspace, ParseError};
use crate::clock::Moment;
use crate::key::{Key, KeyForm, KeyHash};
use crate::labels::{State, Verdict};

/// Keys that are probed together: many more than are prefetched, and few enough that their hashes stay in the L1 cache.
/// A multiple of 8.
const GROUP: usize = 512;

/// The filter's answer to a batch: one generation, one state for all of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// One bit a key, 1 = maybe, lowest bit first; the last byte is filled up with 0.
    maybes: Vec<u8>,
    /// Number of keys.
    pub checked: usize,
    /// The generation that answered; 0 if there is none, or none that uses the secret under which these keys were
    /// hashed.
    pub generation: u64,
    /// State of the keyspace at that moment.
    pub state: State,
}

impl Checked {
    /// Indices of the keys that are absent, ascending. None unless the keyspace enforces, and none outside
    /// `enforce_percent`.
    pub fn absent(&self) -> impl Iterator<Item = usize> + Clone {
        let absent = |(place, byte): (usize, &u8)| {
            let mut absent = !byte;
            std::iter::from_fn(move || {
                let lowest = absent.trailing_zeros();
                absent &= absent.wrapping_sub(1);
                (lowest < u8::BITS).then_some(place * 8 + lowest as usize)
            })
        };
        let checked = self.checked;
        self.maybes.iter().enumerate().flat_map(absent).take_while(move |index| *index < checked)
    }

    /// How many keys are absent.
    #[must_use]
    pub fn absent_count(&self) -> usize {
        self.checked - self.maybes.iter().map(|eight| eight.count_ones() as usize).sum::<usize>()
    }

    /// One bit a key, 1 = maybe, lowest bit first; the last byte is filled up with 0.
    #[must_use]
    pub fn into_bits(self) -> Vec<u8> {
        self.maybes
    }

    /// Answers maybe for all keys.
    pub fn doubt_all(&mut self) {
        self.maybes.fill(u8::MAX);
        if let Some(last) = self.maybes.last_mut().filter(|_| !self.checked.is_multiple_of(8)) {
            *last = (1 << (self.checked % 8)) - 1;
        }
    }

    /// For a keyspace without a usable filter.
    fn unknown(keys: usize, state: State) -> Self {
        let mut checked = Self { maybes: vec![0; keys.div_ceil(8)], checked: keys, generation: 0, state };
        checked.doubt_all();
        checked
    }

    fn is_absent(&self, index: usize) -> bool {
        self.maybes[index / 8] & (1 << (index % 8)) == 0
    }
}

/// A check in progress: collects keys, and answers them together.
#[derive(Debug)]
pub struct BatchCheck<'a> {
    keyspace: &'a Keyspace,
    form: KeyForm,
    /// True if the backend may refuse keys of this form.
    may_refuse: bool,
    secret: Arc<CurrentSecret>,
    hashes: Vec<u128>,
    scratch: Vec<u8>,
    /// Sampled keys, to be checked at the backend if they are absent, with their indices.
    drawn: Vec<(usize, Key, KeyHash)>,
    /// Indices of keys whose case the database may fold differently: always maybe.
    doubtful: Vec<usize>,
    /// Number of keys until the next sampled one.
    gap: Option<u64>,
}

impl Keyspace {
    /// Begins a check of many keys. Reserves room for `expected` of them.
    ///
    /// # Errors
    /// [`ParseError::UnknownForm`].
    pub fn begin_check(&self, expected: usize) -> Result<BatchCheck<'_>, ParseError> {
        let form = self.form().ok_or(ParseError::UnknownForm)?;
        Ok(BatchCheck {
            keyspace: self,
            form,
            may_refuse: !self.backend.admits_all(form),
            secret: self.identity.secret.load_full(),
            hashes: Vec::with_capacity(expected),
            scratch: Vec::new(),
            drawn: Vec::new(),
            doubtful: Vec::new(),
            gap: self.audit.canary.draw_gap(),
        })
    }
}

impl BatchCheck<'_> {
    /// Adds one key.
    ///
    /// # Errors
    /// [`ParseError`]; the key is not counted then.
    #[inline]
    pub fn add(&mut self, raw: &[u8]) -> Result<(), ParseError> {
        let key = self.form.spell(raw, &mut self.scratch)?;
        if self.may_refuse {
            self.keyspace.backend.admits(key)?;
        }
        let hash = self.secret.hash_ref(key);
        if self.form == KeyForm::TextCi && !raw.is_ascii() && self.form.canonical(raw)?.folded_apart().is_some() {
            self.doubtful.push(self.hashes.len());
        }
        if let Some(gap) = &mut self.gap {
            if *gap == 0 && self.drawn.len() < QUEUE {
                // Built again from the given bytes, which the backend may spell differently.
                self.drawn.push((self.hashes.len(), self.form.canonical(raw)?, hash));
                self.gap = self.keyspace.audit.canary.draw_gap();
            } else {
                *gap = gap.saturating_sub(1);
            }
        }
        self.hashes.push(hash.get());
        Ok(())
    }

    /// Answers for all added keys, as of this moment and not as of each key's arrival. A client may add a key after its
    /// row was announced, however early its request began, and takes "absent" as true when it receives the answer.
    #[must_use]
    pub fn finish(self) -> Checked {
        let Self { keyspace, secret, hashes, drawn, doubtful, .. } = self;
        // In this order: a swap in between can only make the answer stricter, and under another secret no filter finds
        // its keys by these hashes.
        let until = keyspace.freshness.trusted_until();
        let generation = keyspace.prober.current().filter(|_| keyspace.identity.secret.is_still(&secret));
        let trusted = generation.is_some() && Moment::now() < until;
        let enforcement = keyspace.freshness.enforcement();
        let active = enforcement.active();
        let state = FreshnessTracker::state(active, generation.is_some(), trusted);
        let covers = |hash: &u128| state == State::Enforcing && active.covers(KeyHash::from_bits(*hash));
        let Some(generation) = generation else { return Checked::unknown(hashes.len(), state) };

        let (mut maybes, mut absent) = (Vec::with_capacity(hashes.len().div_ceil(8)), 0);
        for group in hashes.chunks(GROUP) {
            let mut found = [true; GROUP];
            let found = &mut found[..group.len()];
            generation.filter.contains_many(group, found);
            let raw = || found.iter().zip(group).filter(|(maybe, _)| !**maybe);
            keyspace.stats.record_absent_keys(raw().map(|(_, hash)| KeyHash::from_bits(*hash)));
            absent += raw().count() as u64;
            found.iter_mut().zip(group).for_each(|(maybe, hash)| *maybe |= !covers(hash));
            maybes.extend(found.chunks(8).map(bits));
        }
        for index in doubtful {
            maybes[index / 8] |= 1 << (index % 8);
        }
        let checked = Checked { maybes, checked: hashes.len(), generation: generation.number, state };
        keyspace.stats.record_batch(absent, checked.checked as u64 - absent);
        let proves = trusted && enforcement.has_open_proof();
        for (index, key, hash) in drawn {
            let enforced = checked.is_absent(index);
            if enforced || proves && !generation.filter.contains(hash.get()) {
                let probe = Probe { verdict: Verdict::Absent, state, enforced, generation: checked.generation };
                keyspace.audit.canary.offer(Suspect { key, hash, probe });
            }
        }
        checked
    }
}

/// The bits of up to eight keys, the first key's lowest.
fn bits(maybes: &[bool]) -> u8 {
    maybes.iter().rev().fold(0, |bits, maybe| bits << 1 | u8::from(*maybe))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(maybes: &[bool]) -> Checked {
        Checked {
            maybes: maybes.chunks(8).map(bits).collect(),
            checked: maybes.len(),
            generation: 1,
            state: State::Enforcing,
        }
    }

    #[test]
    fn a_bit_a_key_lowest_first_one_is_maybe() {
        for (keys, absent, bits) in [
            (0, &[][..], &[][..]),
            (3, &[0], &[0b110]),
            (9, &[1, 8], &[0b1111_1101, 0]),
            (9, &[], &[0xff, 1]),
            (16, &[7, 8], &[0x7f, 0xfe]),
        ] {
            let mut checked = batch(&(0..keys).map(|index| !absent.contains(&index)).collect::<Vec<_>>());
            assert_eq!(checked.absent().collect::<Vec<_>>(), absent);
            assert_eq!(checked.absent_count(), absent.len());
            assert!((0..keys).all(|index| checked.is_absent(index) == absent.contains(&index)));
            assert_eq!(checked.clone().into_bits(), bits);
            checked.doubt_all();
            assert_eq!((checked.absent().count(), checked.into_bits()), (0, batch(&vec![true; keys]).into_bits()));
        }
    }
}

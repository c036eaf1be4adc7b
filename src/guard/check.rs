//! Many keys at once, asked of the filter only: judged as of one moment, hashed as they come and probed by handfuls. So a check holds a bit a key, however many
//! there are.

use std::sync::Arc;

use super::enforcement::InForce;
use super::missed::Found;
use super::secret::Current;
use super::standing::Standing;
use super::{Guard, ParseError, Probe};
use crate::clock::Moment;
use crate::filter::Generation;
use crate::key::{Key, KeyForm, KeyHash};
use crate::words::{State, Verdict};

/// Keys that are probed together: many more than are fetched ahead, and few enough that their hashes stay in the processor's first cache. A multiple of 8.
const HANDFUL: usize = 512;

/// What the filter said of a batch: one generation, one state for all of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// One bit a key, 1 = maybe, lowest bit first; the last byte is filled up with 0.
    maybes: Vec<u8>,
    /// How many keys were asked for.
    pub checked: usize,
    /// The generation that was asked; 0 while there is none.
    pub generation: u64,
    /// State of the keyspace at that moment.
    pub state: State,
}

impl Checked {
    /// Indices of the keys that are absent, ascending. None unless the keyspace enforces, and none outside `enforce_percent`.
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

    /// Takes all keys for maybe, whatever the filter said.
    pub fn doubt_all(&mut self) {
        self.maybes.fill(u8::MAX);
        if let Some(last) = self.maybes.last_mut().filter(|_| !self.checked.is_multiple_of(8)) {
            *last = (1 << (self.checked % 8)) - 1;
        }
    }

    fn is_absent(&self, index: usize) -> bool {
        self.maybes[index / 8] & (1 << (index % 8)) == 0
    }
}

/// A check under way: takes keys, and answers them together.
#[derive(Debug)]
pub struct BatchCheck<'a> {
    guard: &'a Guard,
    form: KeyForm,
    /// Whether there are keys of this form that the backend refuses.
    may_refuse: bool,
    secret: Arc<Current>,
    generation: Option<Arc<Generation>>,
    in_force: InForce,
    /// All but its bits are known from the start.
    said: Checked,
    /// Raw verdicts.
    absent: u64,
    /// Keys that are not probed yet.
    hashes: Vec<u128>,
    scratch: Vec<u8>,
    /// Keys to be checked at the backend if they are absent, with their indices.
    drawn: Vec<(usize, Key, KeyHash)>,
    /// Keys until the next such one.
    gap: Option<u64>,
}

impl Guard {
    /// Begins to ask the filter for many keys, `at_most` so many, as of this moment: for keys that are all there already. One that a client names
    /// later may be of a row that was announced to the next filter and committed meanwhile.
    ///
    /// # Errors
    /// [`ParseError::UnknownForm`].
    pub fn begin_check(&self, at_most: usize) -> Result<BatchCheck<'_>, ParseError> {
        let form = self.form().ok_or(ParseError::UnknownForm)?;
        // In this order: a change of the secret or a swap in between can only make the answer stricter.
        let secret = self.secret.load_full();
        let until = self.standing.trusted_until();
        let generation = self.active.current();
        let trusted = generation.is_some() && Moment::now() < until;
        let in_force = self.standing.enforcing.in_force();
        let state = Standing::state(in_force, generation.is_some(), trusted);
        let number = generation.as_ref().map_or(0, |generation| generation.number);
        Ok(BatchCheck {
            guard: self,
            form,
            may_refuse: !self.backend.admits_all(form),
            secret,
            generation,
            in_force,
            said: Checked { maybes: Vec::with_capacity(at_most.div_ceil(8)), checked: 0, generation: number, state },
            absent: 0,
            hashes: Vec::with_capacity(at_most.min(HANDFUL)),
            scratch: Vec::new(),
            drawn: Vec::new(),
            gap: self.canary.draw_gap(),
        })
    }
}

impl BatchCheck<'_> {
    /// Asks for one more key.
    ///
    /// # Errors
    /// [`ParseError`]; the key is not counted then.
    #[inline]
    pub fn add(&mut self, raw: &[u8]) -> Result<(), ParseError> {
        let key = self.form.spell(raw, &mut self.scratch)?;
        if self.may_refuse {
            self.guard.backend.admits(key)?;
        }
        let hash = self.secret.hash_ref(key);
        if let Some(gap) = &mut self.gap {
            if *gap == 0 {
                self.drawn.push((self.said.checked, key.to_key(), hash));
                self.gap = self.guard.canary.draw_gap();
            } else {
                *gap -= 1;
            }
        }
        self.said.checked += 1;
        self.hashes.push(hash.get());
        if self.hashes.len() == HANDFUL {
            self.probe();
        }
        Ok(())
    }

    /// The answer.
    #[must_use]
    pub fn finish(mut self) -> Checked {
        self.probe();
        let Self { guard, said, absent, drawn, .. } = self;
        if said.generation > 0 {
            guard.metrics.checked(Verdict::Absent, absent);
            guard.metrics.checked(Verdict::Maybe, said.checked as u64 - absent);
            guard.observed.true_negatives(absent);
        }
        for (_, key, hash) in drawn.into_iter().filter(|(index, ..)| said.is_absent(*index)) {
            let probe = Probe { verdict: Verdict::Absent, state: said.state, enforced: true, generation: said.generation };
            guard.canary.offer(Found { key, hash, probe });
        }
        said
    }

    /// Asks the filter for the keys of a handful. A batch that is refused in the end may leave its absent keys in the estimate of distinct ones, and nowhere else.
    fn probe(&mut self) {
        let Self { guard, generation, in_force, said, hashes, .. } = self;
        let mut maybes = [true; HANDFUL];
        let maybes = &mut maybes[..hashes.len()];
        if let Some(generation) = generation {
            generation.filter.contains_many(hashes, maybes);
            let raw = || maybes.iter().zip(&*hashes).filter(|(maybe, _)| !**maybe);
            guard.growth.true_negatives(raw().map(|(_, hash)| KeyHash::from_bits(*hash)));
            self.absent += raw().count() as u64;
            if said.state == State::Enforcing {
                maybes.iter_mut().zip(&*hashes).for_each(|(maybe, hash)| *maybe |= !in_force.covers(KeyHash::from_bits(*hash)));
            } else {
                maybes.fill(true);
            }
        }
        said.maybes.extend(maybes.chunks(8).map(|eight| eight.iter().rev().fold(0, |bits, maybe| bits << 1 | u8::from(*maybe))));
        hashes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(maybes: &[bool]) -> Checked {
        let maybes_of = |eight: &[bool]| eight.iter().rev().fold(0, |bits, maybe| bits << 1 | u8::from(*maybe));
        Checked { maybes: maybes.chunks(8).map(maybes_of).collect(), checked: maybes.len(), generation: 1, state: State::Enforcing }
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
            let mut said = checked(&(0..keys).map(|index| !absent.contains(&index)).collect::<Vec<_>>());
            assert_eq!(said.absent().collect::<Vec<_>>(), absent);
            assert_eq!(said.absent_count(), absent.len());
            assert!((0..keys).all(|index| said.is_absent(index) == absent.contains(&index)));
            assert_eq!(said.clone().into_bits(), bits);
            said.doubt_all();
            assert_eq!((said.absent().count(), said.into_bits()), (0, checked(&vec![true; keys]).into_bits()));
        }
    }
}

//! A sample of a scan's keys, for checks at the backend.

use crate::key::{Key, KeyBatch};

/// Keys sampled during the scan of one source, in bounded memory.
///
/// Sampled at random from the whole scan: a fault of some keys shows sooner or later, and no single odd key is sampled
/// each time.
#[derive(Debug)]
pub(super) struct Samples {
    plain: Reservoir,
    /// Keys whose spelling in the source differs from their canonical form, without and with non-ASCII letters. The
    /// latter are rare and have faults of their own.
    ascii: Reservoir,
    beyond: Reservoir,
}

/// A uniform sample of a stream that knows beforehand which key it takes next (Li 1994, algorithm L): skipped keys cost
/// nothing.
#[derive(Debug)]
struct Reservoir {
    keys: Vec<Key>,
    room: usize,
    seen: u64,
    /// Number of the next sampled key, once the sample is full.
    next: u64,
    weight: f64,
}

impl Samples {
    /// Sampled keys of all keys.
    const PLAIN: usize = 16;
    /// Sampled respelled keys of each sort.
    const RESPELLED: usize = 64;

    /// An empty sample.
    pub(super) const fn new() -> Self {
        Self {
            plain: Reservoir::new(Self::PLAIN),
            ascii: Reservoir::new(Self::RESPELLED),
            beyond: Reservoir::new(Self::RESPELLED),
        }
    }

    /// Samples a batch of keys.
    pub(super) fn draw(&mut self, batch: &KeyBatch) {
        self.plain.draw(batch.len(), |index| batch.get(index));
        for (index, original) in batch.respelled() {
            if original.is_ascii() { &mut self.ascii } else { &mut self.beyond }.draw(1, |_| batch.get(index));
        }
    }

    /// Number of keys seen.
    pub(super) const fn keys(&self) -> u64 {
        self.plain.seen
    }

    pub(super) fn plain(&self) -> &[Key] {
        &self.plain.keys
    }

    pub(super) fn respelled(&self) -> impl Iterator<Item = &Key> {
        self.ascii.keys.iter().chain(&self.beyond.keys)
    }
}

impl Reservoir {
    const fn new(room: usize) -> Self {
        Self { keys: Vec::new(), room, seen: 0, next: 0, weight: 1.0 }
    }

    /// Samples a run of `keys` keys; `key` builds the sampled ones.
    fn draw(&mut self, keys: usize, key: impl Fn(usize) -> Option<Key>) {
        let first = self.seen;
        self.seen += keys as u64;
        while self.next < self.seen {
            let Some(drawn) = key((self.next - first) as usize) else { return };
            if self.keys.len() < self.room {
                self.keys.push(drawn);
            } else {
                let place = rand::random_range(0..self.room);
                self.keys[place] = drawn;
            }
            let skipped = if self.keys.len() == self.room { self.skipped() } else { 0 };
            self.next = self.next.saturating_add(1).saturating_add(skipped);
        }
    }

    /// Number of keys to skip before the next sampled one.
    fn skipped(&mut self) -> u64 {
        // In (0, 1], so that the logarithm is finite.
        let unit = || 1.0 - rand::random::<f64>();
        self.weight *= (unit().ln() / self.room as f64).exp();
        // Saturates: past the end of every scan.
        (unit().ln() / (-self.weight).ln_1p()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyForm;

    #[test]
    fn respelled_keys_are_drawn_apart_and_in_bounded_number() {
        let mut samples = Samples::new();
        for i in 0..1000 {
            let mut batch = KeyBatch::default();
            for raw in [format!("Bob{i}"), format!("bob{i}"), format!("\u{dc}nal{i}")] {
                batch.push(KeyForm::TextCi, raw.as_bytes()).unwrap();
            }
            samples.draw(&batch);
        }
        assert_eq!((samples.keys(), samples.plain().len()), (3000, Samples::PLAIN));
        assert_eq!(samples.respelled().count(), 2 * Samples::RESPELLED);
        assert_eq!(
            samples.respelled().filter(|k| k.original().unwrap().as_str().unwrap().starts_with("Bob")).count(),
            Samples::RESPELLED
        );
    }

    #[test]
    fn keys_are_drawn_from_all_of_a_scan() {
        let mut latest = 0;
        for _ in 0..20 {
            let mut samples = Samples::new();
            let key = |i: u32| KeyForm::Integer.canonical(i.to_string().as_bytes()).unwrap();
            // Batches of any size, as sources send them.
            (0..100).for_each(|part| samples.draw(&(part * 100..part * 100 + 100 - part).map(key).collect()));
            (0..100).for_each(|part| samples.draw(&(part * 100 + 100 - part..part * 100 + 100).map(key).collect()));
            latest = samples
                .plain()
                .iter()
                .map(|key| key.as_str().unwrap().parse::<u32>().unwrap())
                .max()
                .unwrap()
                .max(latest);
        }
        // The chance that none of 320 keys is from the second half is 2 to the power of -320.
        assert!(latest >= 5_000, "{latest}");
    }

    #[test]
    fn every_key_of_a_scan_is_drawn_as_often_as_every_other() {
        const KEYS: usize = 64;
        let batch: KeyBatch =
            (0..KEYS).map(|i| KeyForm::Integer.canonical(i.to_string().as_bytes()).unwrap()).collect();
        let mut drawn = [0_u32; KEYS];
        for _ in 0..4_000 {
            let mut samples = Samples::new();
            samples.draw(&batch);
            samples.plain().iter().for_each(|key| drawn[key.as_str().unwrap().parse::<usize>().unwrap()] += 1);
        }
        // A quarter of 4,000 each: eight standard deviations are 220.
        assert!(drawn.iter().all(|times| (780..1220).contains(times)), "{drawn:?}");
    }
}

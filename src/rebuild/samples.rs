//! A few keys of a scan, to be tried at the backend.

use crate::key::Key;

/// Keys that were drawn while a scan went by, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct Samples {
    plain: Vec<Key>,
    /// Keys that the source spells otherwise than their form does, without and with letters beyond ASCII: the latter are rare and go wrong
    /// in ways of their own.
    ascii: Reservoir,
    beyond: Reservoir,
}

/// A uniform sample of a stream (Vitter 1985, algorithm R).
#[derive(Debug, Default)]
struct Reservoir {
    keys: Vec<Key>,
    seen: u64,
}

impl Samples {
    /// Keys of the first batch that are drawn.
    pub(super) const PLAIN: usize = 16;
    /// Respelled keys of either sort.
    const RESPELLED: usize = 64;

    /// A batch goes by.
    pub(super) fn draw(&mut self, batch: &[Key]) {
        if self.plain.is_empty() {
            let stride = batch.len().div_ceil(Self::PLAIN).max(1);
            self.plain.extend(batch.iter().step_by(stride).cloned());
        }
        for key in batch {
            if let Some(original) = key.original() {
                if original.as_bytes().is_ascii() { &mut self.ascii } else { &mut self.beyond }.draw(key);
            }
        }
    }

    pub(super) fn plain(&self) -> &[Key] {
        &self.plain
    }

    pub(super) fn respelled(&self) -> impl Iterator<Item = &Key> {
        self.ascii.keys.iter().chain(&self.beyond.keys)
    }
}

impl Reservoir {
    fn draw(&mut self, key: &Key) {
        self.seen += 1;
        if self.keys.len() < Samples::RESPELLED {
            self.keys.push(key.clone());
        } else if let Some(place) = self.keys.get_mut(rand::random_range(0..self.seen) as usize) {
            *place = key.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyForm;

    #[test]
    fn respelled_keys_are_drawn_apart_and_in_bounded_number() {
        let mut samples = Samples::default();
        for i in 0..1000 {
            let batch =
                [format!("Bob{i}"), format!("bob{i}"), format!("\u{dc}nal{i}")].map(|raw| KeyForm::TextCi.scanned(raw.as_bytes()).unwrap());
            samples.draw(&batch);
        }
        assert_eq!(samples.plain().len(), 3);
        assert_eq!(samples.respelled().count(), 2 * Samples::RESPELLED);
        assert_eq!(samples.respelled().filter(|k| k.original().unwrap().as_str().unwrap().starts_with("Bob")).count(), Samples::RESPELLED);
    }
}

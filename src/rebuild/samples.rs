//! A few keys of a scan, to be tried at the backend.

use crate::key::Key;

/// Keys that were drawn while the scan of one source went by, in bounded memory.
///
/// Drawn by chance and from all of it: what is wrong with some keys shows sooner or later, and no single odd one is drawn each time.
#[derive(Debug)]
pub(super) struct Samples {
    plain: Reservoir,
    /// Keys that the source spells otherwise than their form does, without and with letters beyond ASCII: the latter are rare and go wrong
    /// in ways of their own.
    ascii: Reservoir,
    beyond: Reservoir,
}

/// A uniform sample of a stream (Vitter 1985, algorithm R).
#[derive(Debug)]
struct Reservoir {
    keys: Vec<Key>,
    room: usize,
    seen: u64,
}

impl Samples {
    /// Keys that are drawn of all.
    const PLAIN: usize = 16;
    /// Respelled keys of either sort.
    const RESPELLED: usize = 64;

    /// Nothing yet.
    pub(super) const fn new() -> Self {
        Self { plain: Reservoir::new(Self::PLAIN), ascii: Reservoir::new(Self::RESPELLED), beyond: Reservoir::new(Self::RESPELLED) }
    }

    /// A key goes by.
    pub(super) fn draw(&mut self, key: &Key) {
        self.plain.draw(key);
        if let Some(original) = key.original() {
            if original.as_bytes().is_ascii() { &mut self.ascii } else { &mut self.beyond }.draw(key);
        }
    }

    /// How many keys went by.
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
        Self { keys: Vec::new(), room, seen: 0 }
    }

    fn draw(&mut self, key: &Key) {
        self.seen += 1;
        if self.keys.len() < self.room {
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
        let mut samples = Samples::new();
        for i in 0..1000 {
            for raw in [format!("Bob{i}"), format!("bob{i}"), format!("\u{dc}nal{i}")] {
                samples.draw(&KeyForm::TextCi.scanned(raw.as_bytes()).unwrap());
            }
        }
        assert_eq!((samples.keys(), samples.plain().len()), (3000, Samples::PLAIN));
        assert_eq!(samples.respelled().count(), 2 * Samples::RESPELLED);
        assert_eq!(samples.respelled().filter(|k| k.original().unwrap().as_str().unwrap().starts_with("Bob")).count(), Samples::RESPELLED);
    }

    #[test]
    fn keys_are_drawn_from_all_of_a_scan() {
        let mut latest = 0;
        for _ in 0..20 {
            let mut samples = Samples::new();
            (0..10_000).for_each(|i: u32| samples.draw(&KeyForm::Integer.canonical(i.to_string().as_bytes()).unwrap()));
            latest = samples.plain().iter().map(|key| key.as_str().unwrap().parse::<u32>().unwrap()).max().unwrap().max(latest);
        }
        // That none of 320 is from the second half has a chance of 2 to the power of -320.
        assert!(latest >= 5_000, "{latest}");
    }
}

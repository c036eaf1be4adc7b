//! Breadth-first search through every interleaving: the first counterexample found is a shortest one.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A model that can be searched: states, and the atomic steps between them.
pub trait Model {
    /// Everything that can affect later steps. Small, because there are millions of states.
    type State: Copy + Hash;

    /// The initial states.
    fn starts(&self) -> Vec<Self::State>;

    /// Every possible step at `state`; always in the same order, because counterexamples are reconstructed by repeating
    /// the steps.
    fn steps(&self, state: &Self::State, into: &mut Steps<Self::State>);
}

/// The possible steps at a state.
pub type Steps<S> = Vec<Step<S>>;

/// One atomic step.
#[derive(Debug, Clone, Copy)]
pub struct Step<S> {
    /// Who takes it.
    pub who: &'static str,
    /// What happens.
    pub what: &'static str,
    /// The state after it.
    pub next: S,
    /// The promise that it breaks.
    pub wrong: Option<&'static str>,
}

/// The result of a search.
#[derive(Debug)]
pub struct Outcome {
    /// Different states seen.
    pub states: usize,
    /// What was found.
    pub found: Found,
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Every state was visited, and no promise is ever broken.
    Nothing,
    /// A shortest way to a broken promise, step by step.
    Counterexample(Vec<String>),
    /// More states than were allowed.
    Unfinished,
}

/// Visits every reachable state, up to `most` of them.
///
/// States are distinguished by 128 bits of their hash. A collision among a hundred million states is not to be expected
/// (1 in 10^22).
pub fn search<M: Model>(model: &M, most: usize) -> Outcome {
    let starts = model.starts();
    let mut tree = Tree::default();
    let mut level: Vec<(M::State, u32)> = Vec::new();
    for (at, start) in starts.iter().enumerate() {
        level.extend(tree.add(start, ROOT, at).map(|number| (*start, number)));
    }
    let mut steps = Steps::new();
    while !level.is_empty() {
        let mut next = Vec::new();
        for (state, number) in level {
            steps.clear();
            model.steps(&state, &mut steps);
            for (at, step) in steps.iter().enumerate() {
                if let Some(wrong) = step.wrong {
                    let mut path = tree.path_to(model, &starts, number);
                    path.push(format!("{}: {} => {wrong}", step.who, step.what));
                    return Outcome { states: tree.parents.len(), found: Found::Counterexample(path) };
                }
                next.extend(tree.add(&step.next, number, at).map(|number| (step.next, number)));
            }
            if tree.parents.len() > most {
                return Outcome { states: tree.parents.len(), found: Found::Unfinished };
            }
        }
        level = next;
    }
    Outcome { states: tree.parents.len(), found: Found::Nothing }
}

const ROOT: u32 = u32::MAX;

/// The visited states, and how each was first reached.
#[derive(Default)]
struct Tree {
    seen: HashSet<u128, BuildHasherDefault<AlreadyHashed>>,
    /// The previous state, and the step that led here.
    parents: Vec<(u32, u16)>,
}

impl Tree {
    /// Returns the state's number if it is new.
    fn add<S: Hash>(&mut self, state: &S, parent: u32, step: usize) -> Option<u32> {
        let mut mixer = Mixer::default();
        state.hash(&mut mixer);
        self.seen.insert(mixer.both()).then(|| {
            self.parents.push((parent, step as u16));
            self.parents.len() as u32 - 1
        })
    }

    /// Repeats the steps to a state, and describes them.
    fn path_to<M: Model>(&self, model: &M, starts: &[M::State], mut number: u32) -> Vec<String> {
        let mut path = Vec::new();
        loop {
            let (parent, step) = self.parents[number as usize];
            path.push(step);
            if parent == ROOT {
                break;
            }
            number = parent;
        }
        let mut path = path.into_iter().rev();
        let mut state = starts[path.next().map_or(0, usize::from)];
        let mut described = Vec::new();
        for at in path {
            let mut steps = Steps::new();
            model.steps(&state, &mut steps);
            let step = steps.swap_remove(usize::from(at));
            described.push(format!("{}: {}", step.who, step.what));
            state = step.next;
        }
        described
    }
}

/// Two lanes of 64 bits.
#[derive(Default)]
struct Mixer(u64, u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.1 =
            (self.1 ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29).wrapping_add(0x1234_5678_9abc_def1);
    }

    fn both(&self) -> u128 {
        let end = |mut z: u64| {
            z = (z ^ (z >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z ^ (z >> 29)
        };
        u128::from(end(self.0)) << 64 | u128::from(end(self.1 ^ self.0.rotate_left(17)))
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.mix(u64::from(*byte)));
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(u64::from(byte));
    }

    fn write_isize(&mut self, word: isize) {
        self.mix(word as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }
}

/// For keys that are hashes already.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u128(&mut self, word: u128) {
        self.0 = word as u64;
    }
}

//! Builds each structure from the same keys, hashing included. Reports the best of a few rounds that take turns,
//! because one build is too long to repeat often.

use std::time::Instant;

use bloomguard::filter::SplitBlock;

use crate::floor::Lines;
use crate::keys::{Keys, hash};
use crate::peers::{BloomFilter, FastBloom, Fuse8, Peer, Sbbf};
use crate::table::Table;

const ROUNDS: usize = 2;
/// Hashes per call, as in a scan.
const HASHES_PER_CALL: usize = 1_024;

/// All structures for lookups.
pub(crate) struct Structures {
    pub lines: Lines,
    pub ours: SplitBlock,
    pub ours_thousandth: SplitBlock,
    pub fast: FastBloom,
    pub sbbf: Sbbf,
    pub fuse: Fuse8,
    pub bloom: BloomFilter,
}

pub(crate) fn run(keys: &Keys, table: &Table) -> Structures {
    let mut built = None;
    for _ in 0..ROUNDS {
        let ours = timed(table, "ours 1 %", "insert", keys, || inserted(keys));
        drop(ours);
        drop(timed(table, "ours 1 %, in handfuls", "insert", keys, || {
            handed(keys, |filter, hashes| filter.insert_many(hashes))
        }));
        let structures = Structures {
            ours: timed(table, "ours 1 %", "build", keys, || handed(keys, SplitBlock::fill)),
            ours_thousandth: timed(table, "ours 0.1 %", "build", keys, || filled(keys, 0.001)),
            fast: timed(table, "fastbloom 1 %", "build", keys, || FastBloom::build(keys, 0.01)),
            sbbf: timed(table, "sbbf-rs 1 %", "build", keys, || Sbbf::build(keys)),
            fuse: timed(table, "xorf fuse8", "build", keys, || Fuse8::build(keys)),
            bloom: timed(table, "bloomfilter 1 %", "build", keys, || BloomFilter::build(keys, 0.01)),
            lines: Lines::like(SplitBlock::bytes_needed(keys.len() as u64, 0.01).unwrap()),
        };
        built = Some(structures);
    }
    let structures = built.unwrap();
    for (row, bits) in [
        ("ours 1 %", Peer::bits(&structures.ours)),
        ("ours 0.1 %", Peer::bits(&structures.ours_thousandth)),
        ("fastbloom 1 %", structures.fast.bits()),
        ("sbbf-rs 1 %", structures.sbbf.bits()),
        ("xorf fuse8", structures.fuse.bits()),
        ("bloomfilter 1 %", structures.bloom.bits()),
    ] {
        table.record(row, "bits/key", bits as f64 / keys.len() as f64);
    }
    structures
}

fn timed<T>(table: &Table, row: &'static str, column: &'static str, keys: &Keys, build: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let built = build();
    table.record(row, column, begin.elapsed().as_nanos() as f64 / keys.len() as f64);
    built
}

/// One atomic insert after another.
fn inserted(keys: &Keys) -> SplitBlock {
    let filter = SplitBlock::new(keys.len() as u64, 0.01).unwrap();
    keys.iter().for_each(|key| filter.insert(hash(key)));
    filter
}

fn filled(keys: &Keys, rate: f64) -> SplitBlock {
    in_handfuls(SplitBlock::new(keys.len() as u64, rate).unwrap(), keys, SplitBlock::fill)
}

fn handed(keys: &Keys, add: impl FnMut(&mut SplitBlock, &[u128])) -> SplitBlock {
    in_handfuls(SplitBlock::new(keys.len() as u64, 0.01).unwrap(), keys, add)
}

fn in_handfuls(mut filter: SplitBlock, keys: &Keys, mut add: impl FnMut(&mut SplitBlock, &[u128])) -> SplitBlock {
    let mut handful = Vec::with_capacity(HASHES_PER_CALL);
    for key in keys.iter() {
        handful.push(hash(key));
        if handful.len() == HASHES_PER_CALL {
            add(&mut filter, &handful);
            handful.clear();
        }
    }
    add(&mut filter, &handful);
    filter
}

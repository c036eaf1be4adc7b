//! Lookups on one thread: of absent and present keys with hashing, and with given hashes, one by one and many at a
//! time.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};

use crate::builds::Structures;
use crate::keys::{Keys, hash, hash64};
use crate::peers::Peer;
use crate::table::Table;

/// Keys for measuring rates.
pub(crate) const QUERIES: u64 = 1_000_000;
/// The subset that is timed repeatedly. A service has the key in its L1 cache when it looks it up. With many more keys,
/// reading them and what they evict would be measured.
const TIMED: usize = 200_000;
const HASHES_PER_CALL: usize = 256;

pub(crate) fn run(structures: &Structures, present: &Keys, absent: &Keys, table: &Table) {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(900))
        .without_plots()
        .configure_from_args();
    let members =
        Keys::numbered((present.len() as u64 / 2)..(present.len() as u64 / 2 + QUERIES).min(present.len() as u64));
    let Structures { lines, ours, ours_thousandth, fast, sbbf, fuse, bloom } = structures;
    let (timed_absent, timed_members) = (absent.first(TIMED), members.first(TIMED));
    let mut lookups = Lookups {
        criterion: &mut criterion,
        table,
        absent,
        members: &members,
        timed_absent: &timed_absent,
        timed_members: &timed_members,
    };
    lookups.keys("floor", |key| lines.read(hash(key)));
    lookups.peer("ours 1 %", ours);
    lookups.peer("sbbf-rs 1 %", sbbf);
    lookups.peer("ours 0.1 %", ours_thousandth);
    lookups.peer("fastbloom 1 %", fast);
    lookups.peer("xorf fuse8", fuse);
    lookups.peer("bloomfilter 1 %", bloom);
    // The cost of the wider hash alone.
    lookups.keys("floor, 64-bit hash", |key| lines.read(hash64(key).into()));
    lookups.keys("sbbf-rs 1 %, our hash", |key| sbbf.contains_hash(folded(hash(key))));
    lookups.keys("fastbloom 1 %, our hash", |key| fast.contains_hash(folded(hash(key))));

    let hashes: Vec<u128> = timed_absent.iter().map(hash).collect();
    lookups.hashes("floor", &hashes, |hash| lines.read(hash));
    lookups.hashes("ours 1 %", &hashes, |hash| ours.contains(hash));
    lookups.hashes("ours 0.1 %", &hashes, |hash| ours_thousandth.contains(hash));
    lookups.hashes("sbbf-rs 1 %", &hashes, |hash| sbbf.contains_hash(folded(hash)));
    lookups.hashes("fastbloom 1 %", &hashes, |hash| fast.contains_hash(folded(hash)));
    lookups.handfuls("floor", &hashes, |hashes, answers| lines.read_many(hashes, answers));
    lookups.handfuls("ours 1 %", &hashes, |hashes, answers| ours.contains_many(hashes, answers));
    lookups.handfuls("ours 0.1 %", &hashes, |hashes, answers| ours_thousandth.contains_many(hashes, answers));
    criterion.final_summary();
}

struct Lookups<'a> {
    criterion: &'a mut Criterion,
    table: &'a Table,
    absent: &'a Keys,
    members: &'a Keys,
    timed_absent: &'a Keys,
    timed_members: &'a Keys,
}

impl Lookups<'_> {
    fn peer(&mut self, row: &'static str, peer: &impl Peer) {
        let rate = self.absent.iter().filter(|key| peer.contains(key)).count() as f64 / self.absent.len() as f64;
        self.table.record(row, "rate %", rate * 100.0);
        assert!(self.members.iter().all(|key| peer.contains(key)), "{row} misses a key");
        self.keys(row, |key| peer.contains(key));
    }

    fn keys(&mut self, row: &'static str, contains: impl Fn(&[u8]) -> bool) {
        let (absent, members) = (self.timed_absent, self.timed_members);
        self.measure(row, "absent", absent.len(), || asked(absent, &contains));
        self.measure(row, "present", members.len(), || asked(members, &contains));
    }

    fn hashes(&mut self, row: &'static str, hashes: &[u128], contains: impl Fn(u128) -> bool) {
        self.measure(row, "hashed", hashes.len(), || asked_hashed(hashes, &contains));
    }

    fn handfuls(&mut self, row: &'static str, hashes: &[u128], contains: impl Fn(&[u128], &mut [bool])) {
        self.measure(row, "batched", hashes.len(), || {
            let mut answers = [false; HASHES_PER_CALL];
            for hashes in hashes.chunks(HASHES_PER_CALL) {
                contains(hashes, &mut answers[..hashes.len()]);
                black_box(&answers);
            }
            0
        });
    }

    /// Whole passes over the keys, so that the loop resembles a program and not a benchmark.
    fn measure(&mut self, row: &'static str, column: &'static str, keys: usize, pass: impl Fn() -> u64) {
        let table = self.table;
        let mut group = self.criterion.benchmark_group(row);
        group.throughput(Throughput::Elements(keys as u64));
        group.bench_function(column, |bencher| {
            bencher.iter_custom(|passes| {
                let begin = Instant::now();
                for _ in 0..passes {
                    black_box(pass());
                }
                let took = begin.elapsed();
                table.record(row, column, took.as_nanos() as f64 / (passes * keys as u64) as f64);
                took
            });
        });
        group.finish();
    }
}

/// Both halves, so that the whole hash is computed.
#[inline(always)]
const fn folded(hash: u128) -> u64 {
    (hash as u64) ^ (hash >> 64) as u64
}

/// A function of its own for each structure, because inlined neighbours would compete for registers.
#[inline(never)]
fn asked(keys: &Keys, contains: &impl Fn(&[u8]) -> bool) -> u64 {
    keys.iter().map(|key| u64::from(contains(key))).sum()
}

#[inline(never)]
fn asked_hashed(hashes: &[u128], contains: &impl Fn(u128) -> bool) -> u64 {
    hashes.iter().map(|hash| u64::from(contains(*hash))).sum()
}

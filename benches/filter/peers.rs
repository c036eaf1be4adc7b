//! The measured structures behind one trait, so that the same loop drives all. To add one, implement the trait and name
//! it in `builds`.

use bloomguard::filter::SplitBlock;
use xorf::Filter as _;

use crate::keys::{Keys, hash, hash64};

/// A filter for keys as in requests; it hashes them itself.
pub(crate) trait Peer {
    fn contains(&self, key: &[u8]) -> bool;
    fn bits(&self) -> u64;
}

impl Peer for SplitBlock {
    #[inline(always)]
    fn contains(&self, key: &[u8]) -> bool {
        Self::contains(self, hash(key))
    }

    fn bits(&self) -> u64 {
        Self::bits(self)
    }
}

/// `fastbloom`, with the same family of hashes.
pub(crate) struct FastBloom(fastbloom::AtomicBloomFilter);

impl FastBloom {
    pub(crate) fn build(keys: &Keys, rate: f64) -> Self {
        let filter = fastbloom::AtomicBloomFilter::with_false_pos(rate).expected_items(keys.len());
        keys.iter().for_each(|key| _ = filter.insert_hash(hash64(key)));
        Self(filter)
    }

    #[inline(always)]
    pub(crate) fn contains_hash(&self, hash: u64) -> bool {
        self.0.contains_hash(hash)
    }
}

impl Peer for FastBloom {
    #[inline(always)]
    fn contains(&self, key: &[u8]) -> bool {
        self.0.contains_hash(hash64(key))
    }

    fn bits(&self) -> u64 {
        self.0.num_bits() as u64
    }
}

/// `sbbf-rs`: blocks of 256 bits.
pub(crate) struct Sbbf(sbbf_rs_safe::Filter);

impl Sbbf {
    /// Bits per key for 1 %: its own sizing only takes whole numbers.
    const BITS_PER_KEY: f64 = 10.53;

    pub(crate) fn build(keys: &Keys) -> Self {
        let blocks = (keys.len() as f64 * Self::BITS_PER_KEY / 256.0).ceil() as usize;
        let mut filter = sbbf_rs_safe::Filter::from_bytes(&vec![0; blocks * 32]).unwrap();
        keys.iter().for_each(|key| _ = filter.insert_hash(hash64(key)));
        Self(filter)
    }

    #[inline(always)]
    pub(crate) fn contains_hash(&self, hash: u64) -> bool {
        self.0.contains_hash(hash)
    }
}

impl Peer for Sbbf {
    #[inline(always)]
    fn contains(&self, key: &[u8]) -> bool {
        self.0.contains_hash(hash64(key))
    }

    fn bits(&self) -> u64 {
        self.0.as_bytes().len() as u64 * 8
    }
}

/// `xorf`: static, 0.39 %, and needs all keys at once.
pub(crate) struct Fuse8(xorf::BinaryFuse8);

impl Fuse8 {
    pub(crate) fn build(keys: &Keys) -> Self {
        let hashes: Vec<u64> = keys.iter().map(hash64).collect();
        Self(xorf::BinaryFuse8::try_from(&hashes).unwrap())
    }
}

impl Peer for Fuse8 {
    #[inline(always)]
    fn contains(&self, key: &[u8]) -> bool {
        self.0.contains(&hash64(key))
    }

    fn bits(&self) -> u64 {
        self.0.len() as u64 * 8
    }
}

/// `bloomfilter`, with its own SipHash.
pub(crate) struct BloomFilter(bloomfilter::Bloom<[u8]>);

impl BloomFilter {
    pub(crate) fn build(keys: &Keys, rate: f64) -> Self {
        // Two different halves: they are the keys of its two hashes.
        let seed = std::array::from_fn(|byte| byte as u8);
        let mut filter = bloomfilter::Bloom::new_for_fp_rate_with_seed(keys.len(), rate, &seed).unwrap();
        keys.iter().for_each(|key| filter.set(key));
        Self(filter)
    }
}

impl Peer for BloomFilter {
    #[inline(always)]
    fn contains(&self, key: &[u8]) -> bool {
        self.0.check(key)
    }

    fn bits(&self) -> u64 {
        self.0.len()
    }
}

//! The union of two filters. It is exact if both put a key's bits in the same positions.

use std::sync::atomic::Ordering;

use super::{SplitBlock, UnionError};

impl SplitBlock {
    /// Adds all keys of another filter. Lock-free; concurrent with everything. Inserts into the other filter meanwhile
    /// may be missed.
    ///
    /// # Errors
    /// [`UnionError`] names the difference; nothing has changed then.
    pub fn unite(&self, other: &Self) -> Result<(), UnionError> {
        if self.bits() != other.bits() {
            return Err(UnionError::Size { ours: self.bits(), theirs: other.bits() });
        }
        if self.salt != other.salt {
            return Err(UnionError::Salt);
        }
        if self.capacity != other.capacity {
            return Err(UnionError::Capacity { ours: self.capacity, theirs: other.capacity });
        }
        for (ours, theirs) in self.blocks().iter().zip(other.blocks()) {
            let mut fresh = 0;
            for (ours, theirs) in ours.iter().zip(theirs) {
                // Relaxed, and a load first, as in an insert.
                let missing = theirs.load(Ordering::Relaxed) & !ours.load(Ordering::Relaxed);
                if missing != 0 {
                    fresh += u64::from((missing & !ours.fetch_or(missing, Ordering::Relaxed)).count_ones());
                }
            }
            if fresh > 0 {
                self.ones.add(fresh);
            }
        }
        Ok(())
    }
}

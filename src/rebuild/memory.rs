//! Checks that filters, sets of keys, candidates and caches fit the memory limit of the control group.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::buffers::Buffers;
use crate::filter::GrowthBudget;

/// What the process needs beside filters, sets of keys, caches and announces.
pub const PROCESS_BYTES: u64 = 32 << 20;

/// The memory for builds, shared by all keyspaces.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: Option<u64>,
    caches: u64,
    buffers: Option<BufferShare>,
    usage: Mutex<Usage>,
}

/// Memory of requests and responses: all that filters leave, between these bounds.
#[derive(Debug)]
struct BufferShare {
    buffers: Arc<Buffers>,
    least: u64,
    most: u64,
}

#[derive(Debug, Default)]
struct Usage {
    keyspaces: HashMap<String, KeyspaceBytes>,
    /// Bytes by which filters have grown since they were made.
    grown: u64,
}

impl Usage {
    fn sum(&self) -> u64 {
        self.keyspaces.values().map(|bytes| bytes.active + bytes.candidate).sum::<u64>() + self.grown
    }
}

/// Bytes of a keyspace's filter, and of its keys where they are held too.
#[derive(Debug, Clone, Copy, Default)]
struct KeyspaceBytes {
    active: u64,
    candidate: u64,
}

/// A build that would not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the candidate ({candidate} bytes), the active filter or set of this keyspace ({active} bytes), other keyspaces' \
     filters, sets and candidates and further layers of grown filters \
     ({others} bytes), caches and announces ({caches} bytes), requests and responses ({buffers} bytes) and the \
     process itself ({PROCESS_BYTES} bytes) come to {} \
     bytes, over the memory limit of {limit} bytes: raise the limit, or lower filter.expected_keys, filter.headroom, \
     cache.hot_capacity, server.max_announce_bytes or \
     server.max_buffered_bytes", self.sum()
)]
pub struct NoMemory {
    candidate: u64,
    active: u64,
    others: u64,
    caches: u64,
    buffers: u64,
    limit: u64,
}

impl NoMemory {
    const fn sum(&self) -> u64 {
        let parts = self.candidate.saturating_add(self.active).saturating_add(self.others);
        parts.saturating_add(self.caches).saturating_add(self.buffers).saturating_add(PROCESS_BYTES)
    }
}

/// Memory reserved for a candidate, released when dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    budget: Arc<MemoryBudget>,
    name: String,
    kept: bool,
}

impl MemoryBudget {
    /// A budget of `limit` bytes (`None`: no limit), of which caches and announces may take `caches`.
    #[must_use]
    pub fn new(limit: Option<u64>, caches: u64) -> Self {
        Self { limit, caches, buffers: None, usage: Mutex::default() }
    }

    /// Shares the memory with requests and responses. They may hold what is left: at least `least` bytes, which builds
    /// do not get, and at most `most`.
    #[must_use]
    pub fn with_buffers(self, buffers: &Arc<Buffers>, least: u64, most: u64) -> Self {
        let budget = Self { buffers: Some(BufferShare { buffers: Arc::clone(buffers), least, most }), ..self };
        budget.share(&budget.usage.lock());
        budget
    }

    /// The bytes that builds must leave to requests and responses: the minimum, or what these hold now, because they
    /// release it only when their clients have read the response.
    fn least_buffers(&self) -> u64 {
        self.buffers.as_ref().map_or(0, |share| share.least.max(share.buffers.reserved().min(share.most)))
    }

    /// Gives requests and responses the memory that builds do not use.
    fn share(&self, usage: &Usage) {
        if let Some(BufferShare { buffers, least, most }) = &self.buffers {
            let needed = usage.sum().saturating_add(self.caches).saturating_add(PROCESS_BYTES);
            let left = self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(needed));
            buffers.set_limit(left.clamp(*least, *most));
        }
    }

    /// The budget from which filters take memory for further layers. They do so during inserts, so this lock is all
    /// they wait for.
    #[must_use]
    pub fn room(self: &Arc<Self>) -> GrowthBudget {
        let budget = Arc::clone(self);
        Box::new(move |bytes| {
            let mut usage = budget.usage.lock();
            let beside = budget.caches.saturating_add(budget.least_buffers()).saturating_add(PROCESS_BYTES);
            let sum = usage.sum().saturating_add(bytes).saturating_add(beside);
            if budget.limit.is_some_and(|limit| sum > limit) {
                return None;
            }
            usage.grown += bytes;
            budget.share(&usage);
            Some(Box::new(Growth { budget: Arc::clone(&budget), bytes }))
        })
    }

    /// Reserves memory for a candidate of `keyspace`, in addition to its active filter.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn reserve(self: &Arc<Self>, keyspace: &str, candidate: u64) -> Result<MemoryReservation, NoMemory> {
        let reservation = MemoryReservation { budget: Arc::clone(self), name: keyspace.to_owned(), kept: false };
        reservation.resize(candidate)?;
        Ok(reservation)
    }
}

/// Memory of a further layer of a filter, released with it.
struct Growth {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Drop for Growth {
    fn drop(&mut self) {
        let mut usage = self.budget.usage.lock();
        usage.grown -= self.bytes;
        self.budget.share(&usage);
    }
}

impl MemoryReservation {
    /// Sets the total bytes of the candidate. After an error the earlier reservation stays.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn resize(&self, candidate: u64) -> Result<(), NoMemory> {
        let MemoryBudget { limit, caches, ref usage, .. } = *self.budget;
        let mut usage = usage.lock();
        let own = usage.keyspaces.get(&self.name).copied().unwrap_or_default();
        if let Some(limit) = limit {
            let (others, buffers) = (usage.sum() - own.candidate - own.active, self.budget.least_buffers());
            let refusal = NoMemory { candidate, active: own.active, others, caches, buffers, limit };
            if refusal.sum() > limit {
                return Err(refusal);
            }
        }
        usage.keyspaces.insert(self.name.clone(), KeyspaceBytes { candidate, ..own });
        self.budget.share(&usage);
        Ok(())
    }

    /// The candidate is active: its predecessor's memory is free.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let mut usage = self.budget.usage.lock();
        let own = usage.keyspaces.entry(self.name.clone()).or_default();
        let active = if self.kept { own.candidate } else { own.active };
        *own = KeyspaceBytes { active, candidate: 0 };
        self.budget.share(&usage);
    }
}

/// The memory of this machine, if the kernel reports it.
#[must_use]
pub fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix(" kB")?;
    kibibytes.parse::<u64>().ok()?.checked_mul(1024)
}

/// The memory limit of this process's control group: version 2 or 1, the tightest of its ancestors.
#[must_use]
pub fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_of(&groups, Path::new("/sys/fs/cgroup"))
}

fn limit_of(groups: &str, root: &Path) -> Option<u64> {
    let mut limits = vec![];
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (mount, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            c if c.split(',').any(|c| c == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        let group = mount.join(path.trim_start_matches('/'));
        // In a container the path is often that of the host, and the files are at the mount itself.
        limits
            .extend(group.ancestors().take_while(|a| a.starts_with(&mount)).filter_map(|a| read_limit(&a.join(file))));
    }
    limits.into_iter().min()
}

/// `max` means no limit, and so does version 1's value near 2⁶³.
fn read_limit(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok().filter(|limit| *limit < 1 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn a_build_that_does_not_fit_is_rejected_with_the_sum() {
        let budget = Arc::new(MemoryBudget::new(Some(PROCESS_BYTES + 1_000), 400));
        budget.reserve("users", 300).unwrap().keep();
        let error = budget.reserve("users", 301).unwrap_err().to_string();
        for part in [
            "candidate (301 bytes)",
            "active filter or set of this keyspace (300 bytes)",
            "(0 bytes)",
            "caches and announces (400 bytes)",
            "itself (33554432 bytes)",
        ] {
            assert!(error.contains(part), "no {part:?} in {error}");
        }
        assert!(
            error.contains(&format!(
                "come to {} bytes, over the memory limit of {} bytes",
                PROCESS_BYTES + 1_001,
                PROCESS_BYTES + 1_000
            )),
            "{error}"
        );
        drop(budget.reserve("users", 300).unwrap());
        budget.reserve("orders", 300).unwrap().keep();
        assert!(budget.reserve("users", 1).is_err());
        assert!(Arc::new(MemoryBudget::new(None, 0)).reserve("users", 1 << 60).is_ok());
    }

    #[test]
    fn requests_may_hold_what_filters_leave_but_never_less_than_their_least() {
        let buffers = Buffers::new(0, Metrics::new().buffers);
        let budget = Arc::new(MemoryBudget::new(Some(PROCESS_BYTES + 1_000), 400).with_buffers(&buffers, 100, 500));
        assert_eq!(buffers.limit(), 500);
        budget.reserve("users", 300).unwrap().keep();
        assert_eq!(buffers.limit(), 300);
        let layer = budget.room()(200).unwrap();
        assert_eq!(buffers.limit(), 100);
        assert!(budget.room()(1).is_none());
        let error = budget.reserve("users", 1).unwrap_err().to_string();
        assert!(
            error.contains("requests and responses (100 bytes)") && error.contains("server.max_buffered_bytes"),
            "{error}"
        );
        drop(layer);
        assert_eq!(buffers.limit(), 300);
        assert!(machine_memory().unwrap() > 1 << 26);
    }

    #[test]
    fn filters_grow_within_the_limit_and_release_their_layers() {
        let budget = Arc::new(MemoryBudget::new(Some(PROCESS_BYTES + 1_000), 0));
        budget.reserve("users", 600).unwrap().keep();
        let room = budget.room();
        let layer = room(300).unwrap();
        assert!(room(101).is_none());
        assert!(budget.reserve("orders", 101).is_err(), "a build must not use the memory of a filter's layers");
        drop(layer);
        assert!(room(400).is_some());
    }

    #[test]
    fn a_candidate_that_outgrows_the_limit_is_rejected_with_the_sum() {
        let budget = Arc::new(MemoryBudget::new(Some(PROCESS_BYTES + 1_000), 0));
        budget.reserve("users", 300).unwrap().keep();
        let growing = budget.reserve("users", 100).unwrap();
        growing.resize(700).unwrap();
        let error = growing.resize(701).unwrap_err().to_string();
        assert!(error.contains(&(PROCESS_BYTES + 1_001).to_string()), "{error}");
        assert!(budget.reserve("orders", 1).is_err(), "the earlier reservation stays");
        growing.resize(200).unwrap();
        budget.reserve("orders", 500).unwrap().keep();
        growing.keep();
        budget.reserve("users", 300).unwrap();
        assert!(budget.reserve("users", 301).is_err(), "200 active, 500 of the other keyspace");
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("pod/container");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(limit_of("0::/pod/container\n", root.path()), None);
        fs::write(root.path().join("pod/memory.max"), "1000\n").unwrap();
        fs::write(group.join("memory.max"), "2000\n").unwrap();
        assert_eq!(limit_of("0::/pod/container\n", root.path()), Some(1000));
        assert_eq!(limit_of("0::/gone\n", root.path()), None);
        // Version 1, where "no limit" is a number too.
        let group = root.path().join("memory/pod");
        fs::create_dir_all(&group).unwrap();
        fs::write(root.path().join("memory/memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert_eq!(limit_of("5:cpu,memory:/pod\n", root.path()), None);
        fs::write(group.join("memory.limit_in_bytes"), "3000\n").unwrap();
        assert_eq!(limit_of("5:cpu,memory:/pod\n4:cpu:/other\n", root.path()), Some(3000));
    }
}

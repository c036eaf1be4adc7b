//! Whether filter, candidate and caches fit the memory limit of the control group.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use parking_lot::Mutex;

/// What the process needs beside filters and caches.
const BASE_BYTES: u64 = 32 << 20;

/// The memory that builds may take, shared by all keyspaces.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: Option<u64>,
    /// Base and caches.
    fixed: u64,
    filters: Mutex<HashMap<String, u64>>,
}

/// A build that would not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "filters in force and under construction ({filters} bytes), this candidate ({candidate} bytes), caches and base ({fixed} bytes) come to {} bytes, over the memory limit of {limit} bytes: \
     raise the limit, or lower filter.expected_keys, filter.headroom or cache.hot_capacity", filters + candidate + fixed
)]
pub struct NoMemory {
    filters: u64,
    candidate: u64,
    fixed: u64,
    limit: u64,
}

/// Memory set aside for a candidate, given back when dropped.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    budget: &'a MemoryBudget,
    name: String,
    before: u64,
    candidate: u64,
    kept: bool,
}

impl MemoryBudget {
    /// A budget of `limit` bytes (`None`: no limit), of which caches may take `caches`.
    #[must_use]
    pub fn new(limit: Option<u64>, caches: u64) -> Self {
        Self { limit, fixed: BASE_BYTES + caches, filters: Mutex::default() }
    }

    /// Sets memory aside for a candidate of `keyspace`, beside its filter in force.
    pub(super) fn reserve(&self, keyspace: &str, candidate: u64) -> Result<Reservation<'_>, NoMemory> {
        let mut filters = self.filters.lock();
        let held: u64 = filters.values().sum();
        if let Some(limit) = self.limit.filter(|limit| held.saturating_add(candidate).saturating_add(self.fixed) > *limit) {
            return Err(NoMemory { filters: held, candidate, fixed: self.fixed, limit });
        }
        let entry = filters.entry(keyspace.to_owned()).or_default();
        let before = *entry;
        *entry += candidate;
        Ok(Reservation { budget: self, name: keyspace.to_owned(), before, candidate, kept: false })
    }
}

impl Reservation<'_> {
    /// The candidate is in force: its predecessor's memory is free.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let left = if self.kept { self.candidate } else { self.before };
        self.budget.filters.lock().insert(self.name.clone(), left);
    }
}

/// The memory limit of this process's control group: version 2 or 1, the tightest on the way up.
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
        // In a container the path is often that of the host and the files stand at the mount itself.
        limits.extend(group.ancestors().take_while(|a| a.starts_with(&mount)).filter_map(|a| read_limit(&a.join(file))));
    }
    limits.into_iter().min()
}

/// `max`, and version 1's near-2⁶³ for "no limit", are none.
fn read_limit(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok().filter(|limit| *limit < 1 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_does_not_fit_is_refused_with_the_sum() {
        let budget = MemoryBudget::new(Some(BASE_BYTES + 1_000), 400);
        budget.reserve("users", 300).unwrap().keep();
        let error = budget.reserve("users", 301).unwrap_err().to_string();
        assert!(error.contains(&(BASE_BYTES + 1_001).to_string()), "{error}");
        drop(budget.reserve("users", 300).unwrap());
        budget.reserve("orders", 300).unwrap().keep();
        assert!(budget.reserve("users", 1).is_err());
        assert!(MemoryBudget::new(None, 0).reserve("users", 1 << 60).is_ok());
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
    }
}

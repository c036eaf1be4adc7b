//! The reference model: what was promised of each key, and whether an answer keeps it.

use std::collections::HashMap;

use bloomguard::fleet::Version;
use bloomguard::key::Key;
use bloomguard::labels::Source;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::database::{Change, Database};
use super::instance::{MAX_LAG, WINDOW};

/// An announce that was acknowledged, and whose row was committed within its window.
#[derive(Debug, Clone)]
pub struct Announced {
    pub instance: usize,
    pub acknowledged: Instant,
}

/// A drop that was acknowledged: values up to this version are old.
#[derive(Debug, Clone)]
pub struct Dropped {
    pub key: Key,
    pub upto: u64,
    pub acknowledged: Instant,
    /// An instance that applied this place of the log in time has applied the drop.
    pub place: Option<Version>,
    /// The instance that acknowledged it, and those that were seen to have applied it.
    pub at: Vec<usize>,
}

/// A read, as it was when it began.
#[derive(Debug, Clone)]
pub struct Asked {
    pub key: Key,
    pub instance: usize,
    pub at: Instant,
    /// It brought the version of the announce, or skipped every cache.
    pub fresh: bool,
    /// Values up to this version were dropped where it asked.
    pub dropped: u64,
    /// Changes of the row that there had been.
    changes: usize,
}

/// What was promised so far.
#[derive(Default)]
pub struct Promises {
    /// By the version that the row had first.
    announced: Mutex<HashMap<u64, Announced>>,
    drops: Mutex<Vec<Dropped>>,
}

impl Promises {
    pub fn announced(&self, version: u64, announced: Announced) {
        self.announced.lock().insert(version, announced);
    }

    pub fn dropped(&self, dropped: Dropped) {
        self.drops.lock().push(dropped);
    }

    /// Redis has lost what it was told after `since`: no promise covers tombstones then.
    pub fn redis_lost(&self, since: Instant) {
        self.drops.lock().retain(|dropped| dropped.acknowledged <= since);
    }

    /// Looks which drops have been applied at an instance. One that begins to follow a log anew reads no drops that are
    /// older than its memory: those that it had not applied until then it may never apply, and what is old in its hot
    /// tier ends with `hot_ttl`.
    pub fn look(&self, instance: usize, applied: impl Fn(&Version) -> bool) {
        let in_time =
            |dropped: &&mut Dropped| dropped.acknowledged.elapsed() < WINDOW / 2 && !dropped.at.contains(&instance);
        for dropped in self.drops.lock().iter_mut().filter(in_time) {
            if dropped.place.as_ref().is_some_and(&applied) {
                dropped.at.push(instance);
            }
        }
    }

    /// A read begins.
    pub fn ask(&self, database: &Database, key: &Key, instance: usize, fresh: bool) -> Asked {
        let drops = self.drops.lock();
        let here = |dropped: &&Dropped| dropped.key == *key && dropped.at.contains(&instance);
        let dropped = drops.iter().filter(here).map(|dropped| dropped.upto).max().unwrap_or_default();
        Asked { key: key.clone(), instance, at: Instant::now(), fresh, dropped, changes: database.history(key).len() }
    }

    /// Why the answer breaks a promise.
    pub fn judge(&self, database: &Database, asked: &Asked, value: Option<u64>, source: Source) -> Result<(), String> {
        let history = database.history(&asked.key);
        match value {
            Some(version) if !history.contains(&Some(version)) => Err(format!("{version} never was")),
            Some(version) if version <= asked.dropped => {
                Err(format!("{version} is old: up to {} was dropped", asked.dropped))
            }
            Some(_) => Ok(()),
            None => self.judge_absence(asked, &history, source),
        }
    }

    fn judge_absence(&self, asked: &Asked, history: &[Change], source: Source) -> Result<(), String> {
        let (before, since) = history.split_at(asked.changes);
        // The row was there all the time?
        let row: Vec<_> = before.iter().rev().map_while(|change| *change).collect();
        let Some(first) = row.last().copied().filter(|_| since.iter().all(Option::is_some)) else { return Ok(()) };
        let announced = self.announced.lock().get(&first).cloned();
        let why = match announced {
            None => "it is there since before the beginning",
            Some(_) if asked.fresh => "it was asked for with the version of its announce",
            Some(_) if source == Source::Backend => "the backend has it",
            Some(announced) if announced.instance == asked.instance => "it was announced here",
            Some(announced) if asked.at >= announced.acknowledged + MAX_LAG => {
                "it was announced longer than max_lag ago"
            }
            Some(_) => return Ok(()),
        };
        Err(format!("a row is called absent by {source}, though {why}"))
    }
}

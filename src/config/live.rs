//! Which settings a running process adopts from a changed configuration. All others need a restart.
//!
//! A setting is live if no cached or promised answer depends on it. So these are not live: `max_staleness`,
//! `commit_window` and `deadline`, which set the lifetimes of absences and markers that other instances read;
//! `freshness`, `announces`, `filter`, `source` and `backend`, which define what the active filter means; listeners,
//! connections and memory.

use super::{CacheConfig, Config, KeyspaceConfig};

impl Config {
    /// This configuration with the live settings of `new`. A keyspace keeps all its settings if the new ones don't fit
    /// those that need a restart, such as a schedule that is too rare for the active `max_staleness`.
    #[must_use]
    pub fn with_live_settings_of(&self, new: &Self) -> Self {
        let mut merged = self.clone();
        merged.log.level.clone_from(&new.log.level);
        merged.server = self.server.with_tokens_of(&new.server);
        for (name, keyspace) in &mut merged.keyspaces {
            let taken = new.keyspaces.get(name).map(|new| keyspace.with_live_settings_of(new));
            if let Some(taken) = taken.filter(KeyspaceConfig::schedule_fits_staleness) {
                *keyspace = taken;
            }
        }
        merged
    }
}

impl KeyspaceConfig {
    fn with_live_settings_of(&self, new: &Self) -> Self {
        Self {
            enforcement: new.enforcement,
            enforce_percent: new.enforce_percent,
            reveal_keys: new.reveal_keys,
            cache: self.cache.with_live_settings_of(&new.cache),
            rebuild: new.rebuild.clone(),
            canary: new.canary.clone(),
            ..self.clone()
        }
    }
}

impl CacheConfig {
    /// All but `hot_capacity`, which is allocated at start, and `refresh_ahead` and `stale_if_error`, for which the
    /// caches must store expiries from the start.
    fn with_live_settings_of(&self, new: &Self) -> Self {
        Self {
            hot_capacity: self.hot_capacity,
            refresh_ahead: self.refresh_ahead,
            stale_if_error: self.stale_if_error,
            ..new.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Enforcement;

    /// A keyspace that is scanned every `every` minutes and may be `max_staleness` minutes old.
    fn config(every: u64, max_staleness: u64) -> Config {
        let mut users = KeyspaceConfig {
            enforce_percent: 5,
            max_staleness: Duration::from_secs(max_staleness * 60),
            ..KeyspaceConfig::default()
        };
        users.rebuild.schedule = format!("*/{every} * * * *");
        users.rebuild.jitter = Duration::ZERO;
        Config { keyspaces: [("users".to_owned(), users)].into(), ..Config::default() }
    }

    #[test]
    fn what_does_not_fit_the_settings_that_stay_waits_with_them() {
        let in_force = config(5, 10);
        let mut new = config(30, 60);
        new.log.level = "warn".into();
        let users = new.keyspaces.get_mut("users").unwrap();
        users.enforce_percent = 50;
        let merged = in_force.with_live_settings_of(&new);
        assert_eq!(in_force.differences(&merged).into_iter().collect::<Vec<_>>(), ["log.level"]);
        // Shadow has no freshness to keep.
        new.keyspaces.get_mut("users").unwrap().enforcement = Enforcement::Shadow;
        let merged = in_force.with_live_settings_of(&new);
        let waiting: Vec<String> = merged.differences(&new).into_iter().collect();
        assert_eq!(waiting, ["keyspaces.users.max_staleness"]);
    }

    #[test]
    fn keyspaces_come_and_go_with_a_restart_only() {
        let (one, none) = (config(5, 10), Config::default());
        assert!(one.differences(&one.with_live_settings_of(&none)).is_empty());
        assert!(none.differences(&none.with_live_settings_of(&one)).is_empty());
    }
}

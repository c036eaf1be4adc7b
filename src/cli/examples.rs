//! Examples in the help of each command. Everything after `#` is a remark.

pub(super) const OVERVIEW: &str = "\
Examples:
  bloomguard                                   # quickstart: config/quickstart.toml with a demo database
  bloomguard --config bloomguard.toml
  bloomguard check-config bloomguard.toml
  bloomguard plan --keys 10_000_000 --fpr 0.001
  bloomguard snapshot inspect data/users.snapshot

Variables BLOOMGUARD__SECTION__KEY override the files, for example BLOOMGUARD__SERVER__LISTEN=0.0.0.0:4040.
SIGHUP reloads the configuration; SIGTERM drains and stops.";

pub(super) const SERVE: &str = "\
Examples:
  bloomguard serve --config bloomguard.toml
  bloomguard serve --config base.toml --config production.toml   # later files override earlier ones";

pub(super) const CHECK_CONFIG: &str = "\
Examples:
  bloomguard check-config bloomguard.toml
  bloomguard check-config base.toml production.toml   # validated together, as serve reads them";

pub(super) const PLAN: &str = "\
Examples:
  bloomguard plan --keys 10_000_000 --fpr 0.001
  bloomguard plan --keys 1e9 --fpr 1e-5 --rps 20000
  bloomguard plan --config bloomguard.toml --keyspace users   # counts the keys of the source";

pub(super) const SNAPSHOT: &str = "\
Examples:
  bloomguard snapshot inspect data/users.snapshot";

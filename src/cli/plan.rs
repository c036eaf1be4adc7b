//! `bloomguard plan`

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};

use super::refuse;
use crate::config::{self, Config, KeyspaceConfig};
use crate::plan::{Beside, KeyCount, Plan, count};
use crate::rebuild::{PROCESS_BYTES, memory_limit};
use crate::{app, filter};

/// What is to be planned.
#[derive(Debug, Clone, PartialEq, clap::Args)]
#[group(skip)]
pub struct PlanArguments {
    /// Keys to make room for, as 1000000, 1_000_000 or 1e6
    #[arg(long, value_name = "N", value_parser = keys, required_unless_present = "config")]
    pub keys: Option<u64>,
    /// False-positive rate, between 0 and 1 [with --config: its own]
    #[arg(long, value_name = "P", value_parser = rate, required_unless_present = "config")]
    pub fpr: Option<f64>,
    /// Lookups of absent keys a second
    #[arg(long, value_name = "R", value_parser = per_second, default_value = "1000")]
    pub rps: f64,
    /// Plan for a keyspace of this configuration, whose keys are counted; may be given again, later files override earlier ones
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    pub config: Vec<PathBuf>,
    /// Which keyspace [default: the only one]
    #[arg(long, value_name = "KS", requires = "config")]
    pub keyspace: Option<String>,
}

fn keys(text: &str) -> Result<u64, String> {
    let number = text.replace('_', "");
    let whole =
        || number.parse::<f64>().ok().filter(|n| n.fract() == 0.0 && (1.0..1.8e19).contains(n)).map(|n| n as u64);
    number
        .parse::<u64>()
        .ok()
        .or_else(whole)
        .filter(|keys| *keys > 0)
        .ok_or("must be a whole number, at least 1".into())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && *rate < 1.0);
    rate.ok_or("must be greater than 0 and less than 1".into())
}

fn per_second(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0).ok_or("must be a number, at least 0".into())
}

/// Prints the plan. Exit status 78 of a bad configuration, 1 where the source can't be counted or no such filter can be made.
#[must_use]
pub fn plan(asked: &PlanArguments) -> ExitCode {
    let plan = if asked.config.is_empty() {
        Ok(Plan {
            capacity: asked.keys.unwrap_or_default(),
            rate: asked.fpr.unwrap_or_default(),
            absent_per_second: asked.rps,
            because: None,
            chosen: None,
            beside: beside(&KeyspaceConfig::default(), &Config::default()),
            limit: memory_limit(),
        })
    } else {
        match config::load(&asked.config, config::environment()) {
            Ok(config) => for_keyspace(asked, &config),
            Err(errors) => return refuse(&errors),
        }
    };
    match plan.and_then(|plan| Ok(plan.render()?)) {
        Ok(page) => {
            // Where standard output is closed nobody reads it.
            let _ = write!(std::io::stdout(), "{page}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn for_keyspace(asked: &PlanArguments, config: &Config) -> anyhow::Result<Plan> {
    let (name, keyspace) = chosen(asked, config)?;
    let filter = &keyspace.filter;
    let counted = counted(keyspace, config).with_context(|| format!("the keys of {name} can't be counted"))?;
    let how = match counted {
        KeyCount::Told(keys) => format!("{keys} counted by the source"),
        KeyCount::Scanned(keys) => format!("{keys} counted by a scan"),
    };
    let expected = filter.expected_keys.filter(|expected| *expected > counted.keys());
    let from = expected.map_or(how.clone(), |expected| format!("{expected} expected, {how}"));
    Ok(Plan {
        capacity: filter.capacity_for(counted.keys().max(filter.expected_keys.unwrap_or(0))),
        rate: asked.fpr.unwrap_or(filter.false_positive_rate),
        absent_per_second: asked.rps,
        because: Some(format!("keyspace {name}: {from}; headroom {}", filter.headroom)),
        chosen: Some(filter::FilterKind::from(filter.kind)),
        beside: beside(keyspace, config),
        limit: memory_limit(),
    })
}

fn beside(keyspace: &KeyspaceConfig, config: &Config) -> Beside {
    let caches = app::cache_bytes(keyspace, config.redis.is_some());
    let (buffers, _) = config.server.buffered_bytes(memory_limit());
    Beside { caches, announces: config.server.max_announce_bytes, buffers, process: PROCESS_BYTES }
}

fn chosen<'a>(asked: &'a PlanArguments, config: &'a Config) -> anyhow::Result<(&'a str, &'a KeyspaceConfig)> {
    let names = || config.keyspaces.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let name = match &asked.keyspace {
        Some(name) => name,
        None if config.keyspaces.len() == 1 => config.keyspaces.keys().next().context("no keyspace")?,
        None => return Err(anyhow!("name one with --keyspace: {}", names())),
    };
    let keyspace =
        config.keyspaces.get(name).ok_or_else(|| anyhow!("there is no keyspace {name:?}, but {}", names()))?;
    Ok((name, keyspace))
}

fn counted(keyspace: &KeyspaceConfig, config: &Config) -> anyhow::Result<KeyCount> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let source = app::source(keyspace, config)?;
        Ok(count(source.as_ref(), keyspace.key).await?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_be_spelled_as_people_do() {
        assert_eq!(["1000000", "1_000_000", "1e6"].map(keys), [(); 3].map(|()| Ok(1_000_000)));
        for bad in ["0", "-1", "1.5", "1e30", "many", "NaN", "inf"] {
            assert!(keys(bad).is_err(), "{bad}");
        }
        for bad in ["0", "1", "NaN", "-0.1", "inf", "1%"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert_eq!(rate("1e-3"), Ok(0.001));
    }
}

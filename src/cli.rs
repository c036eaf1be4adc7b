//! The command line: what was asked for, and the commands that need nothing but the configuration.

mod inspect;

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use self::inspect::inspect;
pub use self::plan::{PlanArguments, plan};
use crate::reload::ConfigSource;
use crate::{app, config, telemetry};

mod plan;

/// Exit status of a bad configuration: `EX_CONFIG` of sysexits.h.
pub const EX_CONFIG: u8 = 78;

/// Read where no `--config` is given.
const QUICKSTART: &str = "config/quickstart.toml";

/// What the process was asked to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Serve; no files mean the quickstart, see [`config_files`].
    Serve {
        /// Configuration files, later ones overriding earlier ones.
        config: Vec<PathBuf>,
    },
    /// Judge a configuration; see [`check_config`].
    CheckConfig {
        /// Configuration files, later ones overriding earlier ones.
        files: Vec<PathBuf>,
    },
    /// Say what a filter would take; see [`plan`].
    Plan(PlanArguments),
    /// Print and verify a snapshot; see [`inspect`].
    Inspect {
        /// The file.
        file: PathBuf,
    },
}

/// A sidecar that answers lookups of absent keys by a Bloom filter before they cost the cache or the database anything.
#[derive(Parser)]
#[command(name = "bloomguard", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<CommandArguments>,
    #[command(flatten)]
    serve: ServeArguments,
}

#[derive(Subcommand)]
enum CommandArguments {
    /// Serve (also without a command)
    Serve(ServeArguments),
    /// Print every error of a configuration; exit 0 if there is none, 78 otherwise
    CheckConfig {
        /// TOML files; later ones override earlier ones
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Print what filters of each kind would take: for --keys at --fpr, or for a keyspace whose source is counted
    Plan(PlanArguments),
    /// Look at the snapshots that `serve` writes to server.data_dir
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
}

#[derive(Subcommand)]
enum SnapshotCommand {
    /// Print what a snapshot holds and verify its checksums; exit 0 if it is whole, 65 if it is damaged or none, 66 if it can't be read
    Inspect {
        /// The file
        file: PathBuf,
    },
}

#[derive(clap::Args)]
struct ServeArguments {
    /// TOML file; may be given again, later ones override earlier ones [default: config/quickstart.toml]
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
}

/// Reads the command line. Ends the process where it can't be read, or asks for help or the version.
#[must_use]
pub fn parse() -> Command {
    Arguments::parse().into()
}

impl From<Arguments> for Command {
    fn from(arguments: Arguments) -> Self {
        match arguments.command {
            None => Self::Serve { config: arguments.serve.config },
            Some(CommandArguments::Serve(serve)) => Self::Serve { config: serve.config },
            Some(CommandArguments::CheckConfig { files }) => Self::CheckConfig { files },
            Some(CommandArguments::Plan(arguments)) => Self::Plan(arguments),
            Some(CommandArguments::Snapshot(SnapshotCommand::Inspect { file })) => Self::Inspect { file },
        }
    }
}

/// The files to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFiles {
    /// In the order in which they override each other; never empty.
    pub files: Vec<PathBuf>,
    /// No file was named: these are the demo's, whose database may have to be made first.
    pub quickstart: bool,
}

/// Nobody said what to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no configuration: name a file with --config FILE, or start in a directory that contains {QUICKSTART}")]
pub struct NoConfig;

/// The files that were named, else the quickstart of the working directory.
///
/// # Errors
/// [`NoConfig`] where there is neither.
pub fn config_files(named: Vec<PathBuf>) -> Result<ConfigFiles, NoConfig> {
    if !named.is_empty() {
        return Ok(ConfigFiles { files: named, quickstart: false });
    }
    if Path::new(QUICKSTART).is_file() {
        Ok(ConfigFiles { files: vec![QUICKSTART.into()], quickstart: true })
    } else {
        Err(NoConfig)
    }
}

/// Says on standard error what is wrong with a configuration; the exit status to end with.
pub fn print_config_errors(errors: &impl Display) -> ExitCode {
    // Where standard error is closed, the status still tells.
    let _ = writeln!(std::io::stderr(), "{errors}");
    ExitCode::from(EX_CONFIG)
}

/// Serves what was named, else the quickstart, until it is told to stop. Nothing is bound on a bad configuration.
#[must_use]
pub fn serve(named: Vec<PathBuf>) -> ExitCode {
    let chosen = match config_files(named) {
        Ok(chosen) => chosen,
        Err(none) => return print_config_errors(&none),
    };
    let mut source = ConfigSource::new(chosen.files, config::environment());
    let config = match source.load() {
        Ok(config) => config,
        Err(errors) => return print_config_errors(&errors),
    };
    let log = match telemetry::init(&config.log) {
        Ok(log) => log,
        Err(error) => return print_config_errors(&error),
    };
    match app::serve(config, source, log, chosen.quickstart) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "startup failed");
            ExitCode::FAILURE
        }
    }
}

/// Judges a configuration as `serve` would, environment included: one line a error on standard error, or one line on standard output.
#[must_use]
pub fn check_config(files: &[PathBuf]) -> ExitCode {
    match config::load(files, config::environment()) {
        Ok(config) => {
            let names: Vec<&str> = config.keyspaces.keys().map(String::as_str).collect();
            let count = if names.len() == 1 { "1 keyspace".to_owned() } else { format!("{} keyspaces", names.len()) };
            // Where standard output is closed, the status still tells.
            let _ = writeln!(std::io::stdout(), "the configuration is valid: {count} ({})", names.join(", "));
            ExitCode::SUCCESS
        }
        Err(errors) => print_config_errors(&errors),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::CommandFactory;

    use super::*;

    fn command(arguments: &[&str]) -> Result<Command, clap::Error> {
        Arguments::try_parse_from([&["bloomguard"], arguments].concat()).map(Command::from)
    }

    #[test]
    fn arguments_are_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn serving_needs_no_command() {
        let both = vec![PathBuf::from("a.toml"), PathBuf::from("b.toml")];
        assert_eq!(command(&[]).unwrap(), Command::Serve { config: vec![] });
        assert_eq!(
            command(&["--config", "a.toml", "--config=b.toml"]).unwrap(),
            Command::Serve { config: both.clone() }
        );
        assert_eq!(
            command(&["serve", "--config", "a.toml", "--config", "b.toml"]).unwrap(),
            Command::Serve { config: both }
        );
    }

    #[test]
    fn checking_needs_a_file() {
        let files = vec![PathBuf::from("a.toml"), PathBuf::from("b.toml")];
        assert_eq!(command(&["check-config", "a.toml", "b.toml"]).unwrap(), Command::CheckConfig { files });
        assert!(command(&["check-config"]).is_err());
    }

    #[test]
    fn inspecting_needs_one_file() {
        assert_eq!(command(&["snapshot", "inspect", "a"]).unwrap(), Command::Inspect { file: "a".into() });
        assert!(command(&["snapshot", "inspect"]).is_err() && command(&["snapshot"]).is_err());
    }

    #[test]
    fn a_config_option_before_a_command_is_refused_and_not_forgotten() {
        assert!(command(&["--config", "a.toml", "check-config", "b.toml"]).is_err());
    }
}

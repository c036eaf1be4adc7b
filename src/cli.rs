//! The command line, and the commands that need only the configuration.

mod examples;
mod inspect;
mod plan;

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::examples::{CHECK_CONFIG, OVERVIEW, PLAN, SERVE, SNAPSHOT};
pub use self::inspect::inspect;
pub use self::plan::{PlanArguments, plan};
use crate::reload::ConfigSource;
use crate::{app, config, telemetry};

/// Exit status of an invalid configuration: `EX_CONFIG` of sysexits.h.
pub const EX_CONFIG: u8 = 78;

/// Used if no `--config` is given.
const QUICKSTART: &str = "config/quickstart.toml";

/// The parsed command line.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Serve. Without files it is the quickstart, see [`config_files`].
    Serve {
        /// Configuration files; later ones override earlier ones.
        config: Vec<PathBuf>,
    },
    /// Validate a configuration; see [`check_config`].
    CheckConfig {
        /// Configuration files; later ones override earlier ones.
        files: Vec<PathBuf>,
    },
    /// Compute what a filter needs; see [`plan`].
    Plan(PlanArguments),
    /// Print and verify a snapshot; see [`inspect`].
    Inspect {
        /// The file.
        file: PathBuf,
    },
}

/// Answers lookups of absent keys with a Bloom filter, before they reach the cache or the database
#[derive(Parser)]
#[command(name = "bloomguard", version, args_conflicts_with_subcommands = true, after_help = OVERVIEW)]
struct Arguments {
    #[command(subcommand)]
    command: Option<CommandArguments>,
    #[command(flatten)]
    serve: ServeArguments,
}

#[derive(Subcommand)]
enum CommandArguments {
    /// Serve (the default command)
    #[command(after_help = SERVE)]
    Serve(ServeArguments),
    /// Validate a configuration and print every error (exit 0 if valid, 78 if not)
    #[command(after_help = CHECK_CONFIG)]
    CheckConfig {
        /// TOML files; later ones override earlier ones
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the memory and the error rate of each filter kind, for given numbers or for a keyspace
    #[command(after_help = PLAN)]
    Plan(PlanArguments),
    /// Inspect snapshots that `serve` writes to server.data_dir
    #[command(subcommand, after_help = SNAPSHOT)]
    Snapshot(SnapshotCommand),
}

#[derive(Subcommand)]
enum SnapshotCommand {
    /// Print a snapshot's header and verify its checksums (exit 0 if intact, 65 if damaged, 66 if unreadable)
    #[command(after_help = SNAPSHOT)]
    Inspect {
        /// The snapshot file
        file: PathBuf,
    },
}

#[derive(clap::Args)]
struct ServeArguments {
    /// TOML file; repeatable, later files override earlier ones [default: config/quickstart.toml]
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
}

/// Parses the command line. Exits on an error, and after `--help` or `--version`.
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
    /// Whether no file was named: then these are the demo's, whose database may have to be created first.
    pub quickstart: bool,
}

/// No configuration was named or found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no configuration: name a file with --config FILE, or start in a directory that contains {QUICKSTART}")]
pub struct NoConfig;

/// The named files, else the quickstart of the working directory.
///
/// # Errors
/// [`NoConfig`] if there is neither.
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

/// Prints configuration errors to standard error and returns the exit status.
pub fn print_config_errors(errors: &impl Display) -> ExitCode {
    // If standard error is closed, the exit status still reports the failure.
    let _ = writeln!(std::io::stderr(), "{errors}");
    ExitCode::from(EX_CONFIG)
}

/// Serves the named configuration, else the quickstart, until it is stopped. Binds nothing if the configuration is
/// invalid.
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

/// Validates a configuration as `serve` would, environment included. Prints one error per line to standard error, or
/// one line to standard output.
#[must_use]
pub fn check_config(files: &[PathBuf]) -> ExitCode {
    match config::load(files, config::environment()) {
        Ok(config) => {
            let names: Vec<&str> = config.keyspaces.keys().map(String::as_str).collect();
            let count = if names.len() == 1 { "1 keyspace".to_owned() } else { format!("{} keyspaces", names.len()) };
            // If standard output is closed, the exit status still reports the result.
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

    /// Help of the program and of every command below it.
    fn helps(command: &mut clap::Command) -> Vec<String> {
        let below: Vec<String> =
            command.get_subcommands_mut().filter(|below| below.get_name() != "help").flat_map(helps).collect();
        [vec![command.render_help().to_string()], below].concat()
    }

    #[test]
    fn every_help_has_examples_that_can_be_run() {
        let mut program = Arguments::command();
        program.build();
        let helps = helps(&mut program);
        assert_eq!(helps.len(), 6, "the program, serve, check-config, plan, snapshot, inspect");
        for help in helps {
            let (_, examples) = help.split_once("Examples:").unwrap_or_else(|| panic!("no examples in {help}"));
            let commands: Vec<&str> = examples.lines().filter_map(|line| line.strip_prefix("  bloomguard")).collect();
            assert!(!commands.is_empty(), "{help}");
            for example in commands {
                let arguments: Vec<&str> = example.split_whitespace().take_while(|word| *word != "#").collect();
                assert!(command(&arguments).is_ok(), "bloomguard{example}");
            }
        }
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

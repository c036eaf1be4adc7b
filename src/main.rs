//! The program: parse, load, run, exit code. Nothing else.

use std::process::ExitCode;

use bloomguard::cli::{self, Command};
use bloomguard::config;

fn main() -> ExitCode {
    match cli::parse() {
        Command::CheckConfig { files } => cli::check_config(&files),
        Command::Serve { config: named } => match cli::config_files(named) {
            Ok(chosen) => match config::load(&chosen.files, config::environment()) {
                Ok(_) => cli::refuse(&"this build has no server"),
                Err(errors) => cli::refuse(&errors),
            },
            Err(none) => cli::refuse(&none),
        },
    }
}

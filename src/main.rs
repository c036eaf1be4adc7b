//! The program: parses the command line and runs the command.

use std::process::ExitCode;

use bloomguard::cli::{self, Command};

fn main() -> ExitCode {
    match cli::parse() {
        Command::CheckConfig { files } => cli::check_config(&files),
        Command::Plan(arguments) => cli::plan(&arguments),
        Command::Inspect { file } => cli::inspect(&file),
        Command::Serve { config } => cli::serve(config),
    }
}

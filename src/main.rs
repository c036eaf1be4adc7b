//! The program: parse, load, run, exit code. Nothing else.

use std::process::ExitCode;

use bloomguard::cli::{self, Command};

fn main() -> ExitCode {
    match cli::parse() {
        Command::CheckConfig { files } => cli::check_config(&files),
        Command::Inspect { file } => cli::inspect(&file),
        Command::Plan(asked) => cli::plan(&asked),
        Command::Serve { config } => cli::serve(config),
    }
}

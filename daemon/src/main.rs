//! Parse, run, exit code.

use clap::Parser;
use ftld::cli::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    ftld::logging::start();
    match ftld::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ftld: {failure}");
            ExitCode::from(failure.exit as u8)
        }
    }
}

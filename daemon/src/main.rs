//! Parse, run, exit code.

use ftld::cli::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::read();
    ftld::logging::start();
    let as_json = cli.json;
    match ftld::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if as_json {
                eprintln!("{}", failure.json());
            } else {
                eprintln!("ftld: {failure}");
            }
            ExitCode::from(failure.exit.code())
        }
    }
}

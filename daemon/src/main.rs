//! Entry point of `ftld`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ftld::main()
}

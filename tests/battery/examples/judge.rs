//! Runs the batteries on schemes of the table: `cargo run --release -p ftld-battery --example judge
//! -- NAME...`
//!
//! Prints a line for each battery and one with the sum; fails if a case failed.

use ftl_core::schemes::Scheme;
use ftld_battery::judge;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut right = true;
    for name in std::env::args().skip(1) {
        let Some(scheme) = Scheme::find(&name) else {
            eprintln!("judge: there is no scheme {name:?}");
            return ExitCode::FAILURE;
        };
        println!("{name}");
        right &= judge(scheme).is_perfect();
    }
    if right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

//! ftld with this scheme in it: `cargo run --release --features program -- schemes`

use std::process::ExitCode;

fn main() -> ExitCode {
    ftl_core::schemes::add(&my_scheme::SCHEME).expect("no other scheme has its name");
    ftld::main()
}

//! Subcommands: each prints for people, or JSON for programs.

mod choices;
mod doctor;
mod inspect;
mod instances;
mod manual;
mod print_config;

pub use choices::{presets, profiles, schemes, workloads};
pub use doctor::doctor;
pub use inspect::{Wanted, check, inspect};
pub use instances::{inject, list, pace, status, stop, watch};
pub use manual::{completions, manual};
pub use print_config::print_config;

use crate::config::Config;
use crate::failure::Failure;
use crate::size::show_size;
use crate::stack;
use serde_json::{Value, json};
use std::io::Write;

/// Writes to standard output; a reader that went away is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::io("standard output", &error)),
        _ => Ok(()),
    }
}

/// Prints a JSON object with a newline at the end. `"schema": "ftld.WHAT/1"` in it names its meaning; the number grows when a
/// reader of the old one would go wrong.
pub fn print_json(what: &str, value: Value) -> Result<(), Failure> {
    print(&format!("{:#}\n", with_schema(what, value)))
}

fn with_schema(what: &str, mut value: Value) -> Value {
    value["schema"] = format!("ftld.{what}/1").into();
    value
}

/// `ftld create`.
pub fn create(config: &Config, as_json: bool) -> Result<(), Failure> {
    let made = stack::create(config)?;
    let (image, raw) = (config.image.display(), made.layout.profile.geometry.data_bytes());
    if as_json {
        let geometry = &made.layout.profile.geometry;
        return print_json(
            "create",
            json!({
                "image": config.image, "scheme": made.scheme.name, "profile": made.layout.profile.name,
                "size_bytes": made.size, "raw_bytes": raw, "blocks": geometry.blocks, "op_percent": made.op_percent,
            }),
        );
    }
    print(&format!(
        "{image}: {} ({} bytes) for the host on {} of raw {} flash, scheme {}, over-provisioning {} %\n",
        show_size(made.size),
        made.size,
        show_size(raw),
        made.layout.profile.name,
        made.scheme.name,
        made.op_percent
    ))
}

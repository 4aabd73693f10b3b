//! Subcommands: each prints human-readable text or JSON.

mod choices;
mod clone;
mod create;
mod doctor;
mod inspect;
mod instances;
mod manual;
mod print_config;
mod recording;
mod status;

pub use choices::{presets, profiles, schemes, workloads};
pub use clone::clone;
pub use create::create;
pub use doctor::doctor;
pub use inspect::{InspectOptions, check, inspect};
pub use instances::{inject, list, mark, names, pause, remove, stop, stop_all};
pub(crate) use instances::{page_of, start_line, status_of};
pub use manual::{completions, manual};
pub use print_config::print_config;
pub use status::{status, watch};

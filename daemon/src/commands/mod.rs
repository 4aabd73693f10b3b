//! Subcommands: each prints human-readable text or JSON.

mod choices;
mod clone;
mod create;
mod doctor;
mod found;
mod inspect;
mod instances;
mod list;
mod manual;
mod print_config;
mod recording;
mod status;

pub use choices::{presets, profiles, schemes, workloads};
pub use clone::clone;
pub use create::create;
pub use doctor::doctor;
pub(crate) use found::Found;
pub use inspect::{InspectOptions, check, inspect};
pub use instances::{inject, mark, pause, remove, stop, stop_all};
pub(crate) use list::start_line;
pub use list::{list, names};
pub use manual::{completions, manual};
pub use print_config::print_config;
pub use status::{status, watch};

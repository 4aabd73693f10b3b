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
mod new_scheme;
mod places;
mod print_config;
mod recording;
mod status;

pub(crate) use choices::{presets, profiles, schemes, workloads};
pub(crate) use clone::clone;
pub(crate) use create::create;
pub(crate) use doctor::doctor;
pub(crate) use found::Found;
pub(crate) use inspect::{InspectOptions, check, inspect};
pub(crate) use instances::{each, inject, mark, pause, remove, shadow, stop};
pub(crate) use list::list;
pub(crate) use manual::{completions, manual};
pub(crate) use new_scheme::{Parts, new_scheme};
pub(crate) use places::places;
pub(crate) use print_config::print_config;
pub(crate) use status::{status, watch};

//! The `ftld` daemon as a library, so that tests can run one in their own process.
//!
//! Data flows one way: a [`transport`] calls the [`device::BlockDevice`] it was given, the [`volume`] cuts the request into
//! extents and runs each under its lock in the scheme. Everything else (HTTP, control socket, signals) reads what the volume
//! published. [`stack`] is the wiring diagram, [`serve`] a daemon's life.

mod activation;
mod background;
pub mod cli;
pub mod commands;
pub mod compare;
pub mod config;
pub mod control;
pub mod device;
pub mod failure;
pub mod inject;
pub mod inspect;
pub mod instance;
pub mod logging;
pub mod metrics;
mod notify;
pub mod options;
pub mod pages;
pub mod preset;
pub mod replay;
pub mod serve;
pub mod shutdown;
pub use ftld_traces::size;
pub mod stack;
pub mod status;
pub mod sys;
pub mod target;
pub mod transport;
pub mod volume;

use cli::{Cli, Command, Inject, ServeArgs};
use config::Config;
use failure::Failure;
use inject::Injection;
use instance::Dirs;

/// Does what the command line says.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let dirs = Dirs::from_env();
    match cli.command {
        None => serve::serve(&config(&cli.serve, &dirs)?, &dirs, false),
        Some(Command::Recover(args)) => serve::serve(&config(&args, &dirs)?, &dirs, true),
        Some(Command::Create { target, config: file, device, json }) => {
            commands::create(&Config::new(target.as_deref(), file.as_deref(), &device, &dirs)?, json)
        }
        Some(Command::Inspect { image, blocks, page, lpn, json }) => {
            inspect::inspect(&dirs, &image, &inspect::Wanted { blocks, page, lpn, json })
        }
        Some(Command::Check { image, json }) => inspect::check(&dirs, &image, json),
        Some(Command::Replay { job, json }) => replay::replay(&job, json),
        Some(Command::Compare(args)) => compare::compare(&args),
        Some(Command::Workloads { json }) => commands::workloads(json),
        Some(Command::Schemes { json }) => commands::schemes(json),
        Some(Command::Profiles { json }) => commands::profiles(json),
        Some(Command::Presets { json }) => commands::presets(json),
        Some(Command::List { json }) => commands::list(&dirs, json),
        Some(Command::Status { name, json }) => commands::status(&dirs, name.as_deref(), json),
        Some(Command::Stop { name, force }) => commands::stop(&dirs, name.as_deref(), force),
        Some(Command::Inject(inject)) => {
            let (name, injection, json) = match inject {
                Inject::PowerCut(on) => (on.name, Injection::PowerCut(on.fault), on.json),
                Inject::BadBlock(on) => (on.name, Injection::BadBlock(on.fault), on.json),
                Inject::BitErrors(on) => (on.name, Injection::BitErrors(on.fault), on.json),
            };
            commands::inject(&dirs, name.as_deref(), injection, json)
        }
    }
}

fn config(args: &ServeArgs, dirs: &Dirs) -> Result<Config, Failure> {
    Config::new(args.target.as_deref(), args.config.as_deref(), &args.device, dirs)
}

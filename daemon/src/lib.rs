//! The program `ftld`: command line, subcommands, and the life of a daemon.
//!
//! The block device is `ftld-device`, simulations and the crash lab are `ftld-lab`. [`serve`]
//! starts a device and ends it; HTTP ([`metrics`], [`live_page`]) and the control socket
//! ([`control`]) read its snapshots and never take the lock of a request.
//!
//! The program keeps no state of its own: after a power failure the image alone counts.

#![warn(clippy::missing_errors_doc)]

mod activation;
pub mod cli;
pub mod commands;
pub mod control;
mod crash_test;
mod demo;
mod detach;
pub mod live_page;
mod load;
pub mod logging;
pub mod metrics;
mod notify;
mod rates;
pub mod serve;
mod shadows;
mod start;
mod top;
mod words;

use cli::{Cli, Command, ServeArgs, ShadowArgs};
use ftld_device::config::Config;
use ftld_device::instance::Dirs;
use ftld_device::pause::PauseCommand;
use ftld_device::shadow::ShadowCommand;
use ftld_device::sys;
use ftld_device::target::Target;
use ftld_kit::failure::Failure;
use ftld_kit::{output, quote};
use ftld_lab::{compare, crashes, replay};
use std::io::Write as _;
use std::process::ExitCode;

/// Runs the program: parses the command line, executes the command and prints failures.
///
/// A program with its own scheme calls [`ftl_core::schemes::add`] first.
pub fn main() -> ExitCode {
    if let Some(revision) = option_env!("FTLD_BUILT_REVISION") {
        replay::set_revision(revision);
    }
    if let Some(code) = crashes::supervise() {
        return code;
    }
    let logging = logging::start();
    if let Err(error) = sys::survive_file_size_limit() {
        tracing::warn!("a limit of file sizes ends this process: {error}");
    }
    let as_json = cli::asks_for_json();
    match logging.and_then(|()| Cli::read()).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The exit code is right even if nobody can read the message.
            let _ = if as_json {
                writeln!(std::io::stderr(), "{}", failure.json())
            } else {
                let prefix = output::Tone::Bad.paint("ftld:");
                let message = quote::plain(&failure.message, &[]);
                writeln!(anstream::stderr(), "{prefix} {message}")
            };
            ExitCode::from(failure.exit.code())
        }
    }
}

/// Executes the command line.
///
/// # Errors
/// The command failed; the failure contains the exit code and the message.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let (dirs, json) = (Dirs::from_env(), cli.json);
    match cli.command {
        None => serve_or_print(&cli.serve, &dirs, false, json),
        Some(Command::Recover(mut args)) => {
            let target = args.device.target.as_deref();
            args.device.target = target.map(Target::text_to_recover).transpose()?;
            serve_or_print(&args, &dirs, true, json)
        }
        Some(Command::Start {
            names,
            detached: false,
        }) => start::start(&names, json),
        Some(Command::Start { names, .. }) => {
            let (config, args) = start::configuration(&dirs, &names[0])?;
            let how = serve::How {
                detached: true,
                json,
                ..serve::How::default()
            };
            serve::serve(&config, &dirs, how, Some(&args))
        }
        Some(Command::Create(args)) => {
            sys::private_umask();
            commands::create(&Config::new(&args.device, &dirs)?, args.age, json)
        }
        Some(Command::Inspect {
            image,
            blocks,
            page,
            lpn,
            toml,
            entries,
        }) => commands::inspect(
            &dirs,
            &image,
            &commands::InspectOptions {
                blocks,
                page,
                lpn,
                toml,
                entries,
                json,
            },
        ),
        Some(Command::Check { image }) => commands::check(&dirs, &image, json),
        Some(Command::Replay(args)) if args.repeat.seeds > 1 => compare::repeat(&args, json),
        Some(Command::Replay(args)) => replay::replay(&args, json),
        Some(Command::Compare(args)) => compare::compare(&args, json),
        Some(Command::Crashes(args)) => crash_test::recorded(&args, json),
        Some(Command::CrashTest(args)) => crash_test::crash_test(&args, json),
        Some(Command::Demo(args)) => demo::demo(&args, &dirs, json),
        Some(Command::CheckStates(args)) => crash_test::check_states(&args),
        Some(Command::GuestInit { .. }) => crash_test::guest_init(),
        Some(Command::Workloads) => commands::workloads(json),
        Some(Command::Schemes { name, long }) => commands::schemes(name.as_deref(), long, json),
        Some(Command::NewScheme {
            scheme_name,
            map,
            policy,
            path,
        }) => {
            let parts = match (map, policy) {
                (true, _) => commands::Parts::Map,
                (_, true) => commands::Parts::Policy,
                _ => commands::Parts::Both,
            };
            commands::new_scheme(&scheme_name, parts, path.as_deref(), json)
        }
        Some(Command::Profiles { name, toml }) => commands::profiles(name.as_deref(), toml, json),
        Some(Command::Presets { name }) => commands::presets(name.as_deref(), json),
        Some(Command::List { all }) => commands::list(&dirs, all, json),
        Some(Command::Clone { image, copy, seed }) => {
            commands::clone(&dirs, &image, &copy, seed, json)
        }
        Some(Command::Rm { names }) => commands::each(&names, "removed", |name| {
            commands::remove(&dirs, name, json)
        }),
        Some(Command::Status {
            name,
            watch: None,
            brief,
        }) => commands::status(&dirs, name.as_deref(), brief, json),
        Some(Command::Status {
            name,
            watch: Some(seconds),
            ..
        }) => commands::watch(&dirs, name.as_deref(), seconds, json),
        Some(Command::Where { what, ranges }) => commands::places(&dirs, &what, &ranges, json),
        Some(Command::Top { delay }) => top::top(&dirs, delay),
        Some(Command::Stop { names, force, all }) => commands::stop(&dirs, names, all, force),
        Some(Command::Pause { name, length }) => {
            commands::pause(&dirs, name.as_deref(), PauseCommand::Pause(length), json)
        }
        Some(Command::Step {
            name,
            events,
            requests,
        }) => {
            let command = requests.map_or(PauseCommand::Events(events), PauseCommand::Requests);
            commands::pause(&dirs, name.as_deref(), command, json)
        }
        Some(Command::Resume { name }) => {
            commands::pause(&dirs, name.as_deref(), PauseCommand::Resume, json)
        }
        Some(Command::Mark { name, text }) => commands::mark(&dirs, name.as_deref(), text, json),
        Some(Command::Shadow(ShadowArgs::Add { name, shadow })) => {
            commands::shadow(&dirs, name.as_deref(), ShadowCommand::Add(shadow), json)
        }
        Some(Command::Shadow(ShadowArgs::Rm { name, shadow })) => {
            commands::shadow(&dirs, name.as_deref(), ShadowCommand::Rm(shadow), json)
        }
        Some(Command::Inject(inject)) => {
            let (name, injection) = inject.into_parts();
            commands::inject(&dirs, name.as_deref(), injection, json)
        }
        Some(Command::Doctor(args)) => commands::doctor(&args, &dirs, json),
        Some(Command::Completions { shell }) => commands::completions(shell),
        Some(Command::Words { of, line }) => words::words(&dirs, of, &line),
        Some(Command::Man { folder }) => commands::manual(&folder),
    }
}

fn serve_or_print(args: &ServeArgs, dirs: &Dirs, recover: bool, json: bool) -> Result<(), Failure> {
    if args.print_config {
        return commands::print_config(&args.device, dirs, json);
    }
    if args.detach {
        return detach::start();
    }
    let how = serve::How {
        recover,
        detached: args.detached,
        json,
        ..serve::How::default()
    };
    let config = Config::new(&args.device, dirs)?;
    serve::serve(&config, dirs, how, Some(&args.device))
}

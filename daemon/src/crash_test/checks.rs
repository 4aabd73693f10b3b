//! `ftld check-states`: a check that stays up, as `ftld crashes --server` asks for one, with the
//! case of each state. It mounts each state in a machine of User-Mode Linux, without root, and runs
//! the user's check there, or asks it if it stays up, too. As root the latter may be on the host.
//!
//! Data flows one way: a line with an image -> [`Overlay`], the disk of the machine ->
//! [`super::guest`] (mount, check, unmount) -> a line with the verdict. The machine stays up from
//! state to state. If recoveries are cut, the requests to the disk are kept in a file for whoever
//! asks. If the machine dies in a mount, this process ends: that is the state's verdict, and the
//! next state gets a new machine.

use super::file_system::{self, FileSystem};
use super::guest::Spec;
use super::on_host;
use super::overlay::Overlay;
use super::uml::{self, Machine, Uml};
use clap::Args;
use ftld_device::device::BlockDevice;
use ftld_device::target::Target;
use ftld_device::transport::{self, Context, Service, StopHow};
use ftld_kit::failure::Failure;
use ftld_kit::size::parse_size;
use ftld_lab::crashes::{CrashesArgs, OnTape, RECOVERY, Tape};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Exit code where no check can be run, as a shell has it.
pub(super) const CANNOT_RUN: i32 = 126;

/// Arguments of `ftld check-states`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CheckStatesArgs {
    /// File system of the states
    #[arg(long)]
    fs: String,
    /// RAM of the machine
    #[arg(long, default_value = "256MiB", value_parser = parse_size)]
    memory: u64,
    /// Options of the mount
    #[arg(long, default_value = "")]
    pub(super) mount_options: String,
    /// The check stays up
    #[arg(long)]
    server: bool,
    /// Mount the states on this kernel, as root; the check stays up
    #[arg(long, requires = "server")]
    host: bool,
    /// Shell command that checks a mounted state
    pub(super) check: String,
}

/// Returns the check of `ftld crashes --server` that mounts each state and runs `check` on it.
///
/// # Errors
/// The path of this program cannot be told.
pub(super) fn command(
    (fs, options): (&FileSystem, &str),
    memory: u64,
    on_host: bool,
    of: &CrashesArgs,
) -> Result<String, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::io("this program", &error))?;
    let mut words = vec![
        "exec".to_owned(),
        program.to_string_lossy().into_owned(),
        "check-states".to_owned(),
        format!("--fs={}", fs.name),
        format!("--memory={memory}"),
        format!("--mount-options={options}"),
    ];
    for (option, is_given) in [("--server", of.server), ("--host", on_host)] {
        words.extend(is_given.then(|| option.to_owned()));
    }
    words.extend(["--".to_owned(), of.check.clone()]);
    Ok(ftld_kit::quote::shell(&words))
}

/// Checks the states that standard input names. A check that cannot be run ends this process with
/// the exit code of a shell that says so.
///
/// # Errors
/// The machine dies.
pub(crate) fn check_states(args: &CheckStatesArgs) -> Result<(), Failure> {
    let code = checked(args)?.unwrap_or_else(|failure| {
        eprintln!("{failure}");
        CANNOT_RUN
    });
    match code {
        0 => Ok(()),
        code => std::process::exit(code),
    }
}

/// Returns the exit code of a check that cannot be run, or why no check can be; 0 at the end.
fn checked(args: &CheckStatesArgs) -> Result<Result<i32, Failure>, Failure> {
    let fs = file_system::of(&args.fs);
    let fs = fs.ok_or_else(|| Failure::usage(format!("--fs {}: not to be mounted", args.fs)))?;
    if args.host {
        return on_host::checked(args, fs).map(Ok);
    }
    let Some(first) = next() else {
        return Ok(Ok(0));
    };
    let folder = std::env::var_os("FTLD_WORK").map_or_else(std::env::temp_dir, PathBuf::from);
    let started = start(args, fs, &folder, first);
    let (machine, service) = match started {
        Ok(started) => started,
        Err(failure) => return Ok(Err(failure)),
    };
    let report = machine.wait(&mut || Ok(()));
    let stopped = service.stop(StopHow::Remove);
    report.and_then(|report| stopped.map(|()| Ok(report.outcome.code)))
}

/// Starts a machine that checks the first state, and then the others.
fn start(
    args: &CheckStatesArgs,
    fs: &FileSystem,
    folder: &Path,
    first: Asked,
) -> Result<(Machine, Arc<dyn Service>), Failure> {
    let uml = Uml::find(args.memory, folder)?;
    let disk = Overlay::of(&first.image, folder);
    let disk = Arc::new(disk.map_err(|error| Failure::io(first.image.display(), &error))?);
    // Whoever asks may want to know what the mount and the check do.
    let recovery = std::env::var_os(RECOVERY).map(PathBuf::from);
    let tape = Arc::new(Tape::default());
    let device: Arc<dyn BlockDevice> = match recovery {
        Some(_) => Arc::new(OnTape::new(disk.clone(), tape.clone())),
        None => disk.clone(),
    };
    let context = Context {
        name: "state",
        image: "",
        tls: None,
    };
    let target = Target::parse(&uml::target(folder, 0))?;
    let service = transport::start(&target, None, device, context)?;
    let mut asked = Some(first);
    let answer = move |verdict: Vec<u8>| {
        // The first question of the machine has no verdict.
        let state = asked.take().or_else(|| {
            // Before the verdict, behind which the file is read.
            let saved = recovery.as_ref().filter(|_| verdict == b"ok");
            let saved = saved.map(|path| (path, tape.save(path, disk.size())));
            if let Some((path, Err(error))) = saved {
                eprintln!("{}: {error}", path.display());
                return None;
            }
            let mut out = io::stdout().lock();
            let _ = out.write_all(&[&verdict[..], b"\n"].concat());
            let _ = out.flush();
            next()
        });
        // An empty answer ends the checks.
        let Some(state) = state else {
            return Vec::new();
        };
        if let Err(error) = disk.replace(&state.image) {
            eprintln!("{}: {error}", state.image.display());
            return Vec::new();
        }
        if recovery.is_some() {
            tape.start();
        }
        format!("\t{}\t{}", state.case, state.mark).into_bytes()
    };
    let spec = Spec::of_checks((fs, &args.mount_options), &args.check, args.server)?;
    let machine = uml.start(folder, &spec, Vec::new(), answer)?;
    Ok((machine, service))
}

/// A state to check.
pub(super) struct Asked {
    pub(super) image: PathBuf,
    case: String,
    pub(super) mark: String,
}

/// Returns the next state; `None` at the end.
pub(super) fn next() -> Option<Asked> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).ok()?;
    let line = line.strip_suffix('\n')?;
    let (image, rest) = line.split_once('\t').unwrap_or((line, ""));
    let (case, mark) = rest.split_once('\t').unwrap_or((rest, ""));
    Some(Asked {
        image: Path::new(image).to_owned(),
        case: case.to_owned(),
        mark: mark.to_owned(),
    })
}

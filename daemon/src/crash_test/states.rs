//! How a check gets the files of a state: copied out of an ext4, or mounted by the kernel that ran
//! COMMAND. The same for `ftld crash-test` and, on its recordings, `ftld crashes --fs`.

use super::args::Where;
use super::file_system::{self, FileSystem};
use super::{Machine, checks, mount_options, on_host};
use clap::Args;
use clap::builder::PossibleValuesParser;
use ftld_kit::failure::Failure;
use ftld_kit::size::parse_size;
use ftld_lab::crashes::{self, CrashesArgs, Mounts};
use std::path::PathBuf;
use std::process::Command;

/// Memory of the machine, if nobody says how much.
pub(super) const MEMORY: &str = "256MiB";

/// Arguments of `ftld crashes`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecordedArgs {
    #[command(flatten)]
    crashes: CrashesArgs,
    /// Recordings of other devices, made at the same time, which lose power in the same moment: the
    /// check finds those of the second one in FTLD_IMAGE_2, FTLD_URI_2 and FTLD_FILES_2, and so on
    #[arg(value_name = "RECORDING")]
    others: Vec<PathBuf>,
    /// File system of the recorded device: the check finds each state mounted in FTLD_FILES, as
    /// with `ftld crash-test`
    #[arg(long, value_parser = PossibleValuesParser::new(file_system::on_devices()), conflicts_with = "files")]
    fs: Option<String>,
    /// With --fs: where states are mounted [default: host as root, else uml]
    #[arg(long, value_enum, requires = "fs")]
    machine: Option<Where>,
    /// With --fs: options of the mount; several with commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "fs", value_parser = PossibleValuesParser::new(mount_options::names()))]
    mount_options: Vec<String>,
    /// With --fs: RAM of the machine of User-Mode Linux
    #[arg(long, value_name = "SIZE", default_value = MEMORY, value_parser = parse_size)]
    memory: u64,
}

/// Explores a recording, or a group of them, or shows one case.
///
/// # Errors
/// Those of the exploration; or no kernel here mounts the states.
pub(crate) fn recorded(args: &RecordedArgs, json: bool) -> Result<(), Failure> {
    let mut of = args.crashes.clone();
    of.others.clone_from(&args.others);
    let Some(name) = &args.fs else {
        return crashes::crashes(&of, json);
    };
    crashes::check_arguments(&of)?;
    let how = How {
        machine: args.machine,
        memory: args.memory,
        mount_options: args.mount_options.clone(),
    };
    let machine = Machine::choose(name, &how, &of)?;
    let fs = file_system::of(name);
    crashes::crashes(&shown(fs, &machine, &how, &of)?, json)
}

/// What was asked for.
pub(super) struct How {
    pub(super) machine: Option<Where>,
    /// RAM of the machine.
    pub(super) memory: u64,
    /// Names of options of the mount.
    pub(super) mount_options: Vec<String>,
}

/// Returns the exploration, with the files of a state for the check.
///
/// # Errors
/// Nothing here shows the check the files of a state.
pub(super) fn shown(
    fs: Option<&FileSystem>,
    machine: &Machine,
    how: &How,
    of: &CrashesArgs,
) -> Result<CrashesArgs, Failure> {
    let mut args = of.clone();
    let Some(fs) = fs else {
        return match args.files {
            None => Ok(args),
            Some(_) => Err(Failure::usage("--files: there are none with --fs none")),
        };
    };
    // A second cut is during a mount or behind it.
    if fs.is_readable && !crashes::is_kept(of) {
        args.files.get_or_insert_with(|| "/".into());
        return Ok(args);
    }
    let name = fs.name;
    if !args.others.is_empty() {
        return Err(Failure::usage(format!(
            "--fs {name}: each state of a group has to be mounted, and one file system is at a time; use ext4, or none"
        )));
    }
    if args.files.is_some() {
        return Err(Failure::usage(format!(
            "--files reads ext4; with --fs {name} the check finds the mounted state in FTLD_FILES"
        )));
    }
    if !matches!(machine, Machine::Uml(_)) && !is_known_here(name) {
        return Err(Failure::failed(format!(
            "--fs {name}: this kernel does not know it; use `--machine uml`, or another file system"
        )));
    }
    let on_host = !matches!(machine, Machine::Uml(_));
    let options = mount_options::of(&how.mount_options, Some(fs))?;
    let (command, stays_up) = match on_host && !args.server {
        true => (on_host::command(fs, &options, &args.check), false),
        false => (
            checks::command((fs, &options), how.memory, on_host, &args)?,
            true,
        ),
    };
    args.mounts = Some(Mounts {
        command,
        stays_up,
        options: how.options(fs),
    });
    Ok(args)
}

impl How {
    /// Returns the options of `ftld crashes` that ask for this.
    fn options(&self, fs: &FileSystem) -> Vec<String> {
        let mut options = vec!["--fs".to_owned(), fs.name.to_owned()];
        if !self.mount_options.is_empty() {
            options.push(format!("--mount-options={}", self.mount_options.join(",")));
        }
        if let Some(machine) = self.machine {
            options.push(format!("--machine={}", machine.name()));
        }
        if Ok(self.memory) != parse_size(MEMORY) {
            options.push(format!("--memory={}", self.memory));
        }
        options
    }
}

/// Returns whether this kernel can mount a file system.
fn is_known_here(name: &str) -> bool {
    let is_listed = || {
        let list = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        list.lines()
            .any(|line| line.split_whitespace().last() == Some(name))
    };
    // A mount would load its module, too.
    is_listed() || (Command::new("modprobe").arg(name).output().is_ok() && is_listed())
}

//! Command line of `ftld crash-test`.

use super::seeds::{self, Seeds};
use super::states::MEMORY;
use super::{file_system, mount_options};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, ValueEnum};
use ftld_kit::failure::Failure;
use ftld_kit::size::parse_size;
use ftld_lab::crashes::{CrashesArgs, DEVICES_MAX, nth_file};
use std::ffi::OsString;

/// Where COMMAND runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Where {
    /// In User-Mode Linux, without root
    Uml,
    /// On this kernel, as root
    Host,
    /// Here, on the device over NBD, with --fs none: no kernel's disk
    Nbd,
}

impl Where {
    /// Returns its name on the command line.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Arguments of `ftld crash-test`.
#[derive(Args, Clone, Debug)]
#[command(mut_args(for_new_recording))]
pub(crate) struct CrashTestArgs {
    /// File system on the device
    #[arg(long, default_value = "ext4", value_parser = PossibleValuesParser::new(file_system::names()))]
    pub(super) fs: String,
    /// Where COMMAND runs [default: host as root, else uml]
    #[arg(long, value_enum)]
    pub(super) machine: Option<Where>,
    /// Options of the mount, for COMMAND and for the states; several with commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(mount_options::names()))]
    pub(super) mount_options: Vec<String>,
    /// Meanwhile start write-back of its files and fsync one of ours, `.ftld-agitation`, as other
    /// programs would; another SEED chooses otherwise. 1..5 runs COMMAND with each of the seeds 1
    /// to 5; later recordings are FILE.2, FILE.3
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "1", require_equals = true, value_parser = seeds::parse)]
    pub(super) agitate: Option<Seeds>,
    /// Number of devices, 2 to 8, which lose power in the same moment: {} or {1} is the folder of
    /// the first one, {2} that of the second
    #[arg(long, value_name = "N", value_parser = devices)]
    pub(super) group: Option<usize>,
    /// Size of each device
    #[arg(long, default_value = "512MiB")]
    pub(super) size: String,
    /// Aligned write that a power cut leaves old or new as a whole, such as 16KiB; the flash device
    /// has pages that large [default: 4KiB]
    #[arg(long, value_name = "SIZE")]
    pub(super) atomic_unit: Option<String>,
    /// RAM of the machine of User-Mode Linux
    #[arg(long, value_name = "SIZE", default_value = MEMORY, value_parser = parse_size)]
    pub(super) memory: u64,
    /// The exploration.
    #[command(flatten)]
    pub(super) crashes: CrashesArgs,
    /// Program that runs on the device, and its arguments; {} is the mounted folder, with --fs none
    /// the device. After a line `ACK TEXT` on standard output, which sets a mark, it reads a line
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

impl CrashTestArgs {
    /// Returns the number of devices.
    pub(super) fn devices(&self) -> usize {
        self.group.unwrap_or(1)
    }

    /// Returns the arguments with the recordings of all devices.
    pub(super) fn with_recordings(&self) -> CrashTestArgs {
        let mut args = self.clone();
        let others = (1..self.devices()).map(|device| nth_file(&self.crashes.recording, device));
        args.crashes.others = others.collect();
        args
    }
}

/// Parses a number of devices.
fn devices(text: &str) -> Result<usize, Failure> {
    let number = text.parse().ok();
    let number = number.filter(|number| (2..=DEVICES_MAX).contains(number));
    number.ok_or_else(|| {
        Failure::usage(format!(
            "a group has 2 to {DEVICES_MAX} devices; for one leave --group out"
        ))
    })
}

/// The recording, if none is named.
pub(super) const RECORDING: &str = "crash-test.rec";

/// Changes the arguments of `ftld crashes`, whose recording exists, to those of one that is made.
fn for_new_recording(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "recording" => arg
            .long("record")
            .value_name("FILE")
            .required(false)
            .default_value(RECORDING)
            .help("The recording, a new file; the next run replaces the default one. With --group FILE.2 is that of the second device"),
        "case" | "keep" | "cut_off" | "ledger" => arg.hide(true),
        _ => arg,
    }
}

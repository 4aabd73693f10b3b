//! Faults on the command line.

use clap::{Args, Subcommand};
use ftld_device::faults::{Clear, FlushFails, Hang, Hits, Slow};
use ftld_device::inject::{BadBlock, BitErrors, Injection, PowerCut};

/// What can go wrong.
#[derive(Debug, Subcommand)]
pub(crate) enum Inject {
    /// Cut the flash's power: the device is removed and its daemon ends; restart to recover
    PowerCut(On<PowerCut>),
    /// Make blocks fail at their next program or erase
    #[command(
        override_usage = "ftld inject bad-block [OPTIONS]\n       <--block <N>|--count <K>> [NAME]"
    )]
    BadBlock(On<BadBlock>),
    /// Add bit errors to page reads
    #[command(
        override_usage = "ftld inject bit-errors [OPTIONS]\n       <--block <N>|--count <K>|--factor <F>> [NAME]"
    )]
    BitErrors(On<BitErrors>),
    /// Let FLUSHes fail with EIO
    FlushFails(On<FlushFails>),
    /// Let writes and trims fail with EIO
    WriteErrors(On<Hits>),
    /// Let reads fail with EIO
    ReadErrors(On<Hits>),
    /// Let requests take longer
    Slow(On<Slow>),
    /// Let requests wait
    Hang(On<Hang>),
    /// End faults of requests
    Clear(On<Clear>),
}

impl Inject {
    /// Returns the name of the instance, if one is given, and its fault.
    pub(crate) fn into_parts(self) -> (Option<String>, Injection) {
        match self {
            Inject::PowerCut(on) => (on.name, Injection::PowerCut(on.fault)),
            Inject::BadBlock(on) => (on.name, Injection::BadBlock(on.fault)),
            Inject::BitErrors(on) => (on.name, Injection::BitErrors(on.fault)),
            Inject::FlushFails(on) => (on.name, Injection::FlushFails(on.fault)),
            Inject::WriteErrors(on) => (on.name, Injection::WriteErrors(on.fault)),
            Inject::ReadErrors(on) => (on.name, Injection::ReadErrors(on.fault)),
            Inject::Slow(on) => (on.name, Injection::Slow(on.fault)),
            Inject::Hang(on) => (on.name, Injection::Hang(on.fault)),
            Inject::Clear(on) => (on.name, Injection::Clear(on.fault)),
        }
    }
}

/// A fault, and who suffers it.
#[derive(Args, Debug)]
pub(crate) struct On<F: Args> {
    /// Name of the instance; not needed if only one is running
    pub(crate) name: Option<String>,
    /// The fault.
    #[command(flatten)]
    pub(crate) fault: F,
}

//! Options of the faults of the flash, on the command line and over the control socket.

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args};
use nand_model::{EraseCut, PartnerCut, ProgramCut};
use serde::{Deserialize, Serialize};

pub(super) const PROGRAM_CUTS: [(&str, ProgramCut); 7] = [
    ("not-started", ProgramCut::NotStarted),
    ("prefix", ProgramCut::Prefix),
    ("random-bits", ProgramCut::RandomBits),
    ("unstable", ProgramCut::Unstable(2)),
    ("data-torn", ProgramCut::DataTorn),
    ("oob-torn", ProgramCut::OobTorn),
    ("complete", ProgramCut::Complete),
];
pub(super) const PARTNER_CUTS: [(&str, PartnerCut); 3] = [
    ("intact", PartnerCut::Intact),
    ("unstable", PartnerCut::Unstable(2)),
    ("destroyed", PartnerCut::Destroyed),
];
pub(super) const ERASE_CUTS: [(&str, EraseCut); 6] = [
    ("not-started", EraseCut::NotStarted),
    ("mixed", EraseCut::Mixed),
    ("all-but-one", EraseCut::AllButOne),
    ("only-one", EraseCut::OnlyOne),
    ("looks-blank", EraseCut::LooksBlank),
    ("complete", EraseCut::Complete),
];

fn names<T, const N: usize>(menu: &'static [(&'static str, T); N]) -> PossibleValuesParser {
    menu.iter().map(|(name, _)| *name).into()
}

/// A power cut. All requests fail, the device is removed, and the daemon exits with code 9.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct PowerCut {
    /// Complete N more programs and erases of the flash, then interrupt the next; without it power
    /// fails at once, between two operations
    #[arg(long, value_name = "N")]
    pub after: Option<u64>,
    /// State of an interrupted program [default: random]
    #[arg(long, value_name = "OUTCOME", requires = "after", value_parser = names(&PROGRAM_CUTS))]
    pub program: Option<String>,
    /// Effect of an interrupted MSB program on the older pages of its word line [default: random]
    #[arg(long, value_name = "OUTCOME", requires = "after", value_parser = names(&PARTNER_CUTS))]
    pub partner: Option<String>,
    /// State of an interrupted erase [default: random]
    #[arg(long, value_name = "OUTCOME", requires = "after", value_parser = names(&ERASE_CUTS))]
    pub erase: Option<String>,
    /// Seed of random choices, those of a write cache included [default: a new one, printed in the
    /// answer]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Blocks that fail at their next program or erase.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[command(group = ArgGroup::new("blocks").args(["block", "count"]).required(true))]
pub struct BadBlock {
    /// This block; repeatable
    #[arg(long, value_name = "N")]
    pub block: Vec<u32>,
    /// This many blocks at random
    #[arg(long, value_name = "K", conflicts_with = "block")]
    pub count: Option<u32>,
    /// Seed of random choices [default: a new one, printed in the answer]
    #[arg(long, value_name = "N", requires = "count")]
    pub seed: Option<u64>,
    /// Chip of the random blocks, from 0 on; needed if the device has several shards
    #[arg(long, value_name = "K")]
    pub shard: Option<u32>,
}

/// Bits that are wrong when pages are read.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[command(group = ArgGroup::new("pages").args(["block", "count", "factor"]).required(true))]
pub struct BitErrors {
    /// Block of the page with the bit errors, which last until it is erased
    #[arg(long, value_name = "N", requires = "page")]
    pub block: Option<u32>,
    /// Page number inside the block
    #[arg(long, value_name = "P", requires = "block")]
    pub page: Option<u32>,
    /// Instead of a named page, this many programmed pages at random
    #[arg(long, value_name = "K", conflicts_with_all = ["block", "page", "factor"])]
    pub count: Option<u32>,
    /// Wrong bits in one codeword of each page [default: more than the part can correct, so that
    /// the data is lost]
    #[arg(long, value_name = "BITS", conflicts_with = "factor")]
    pub bits: Option<u32>,
    /// Instead of named pages, all: F times the raw bit errors of the profile's part at its wear,
    /// age and reads; 0 for none
    #[arg(long, value_name = "F", conflicts_with_all = ["block", "page"])]
    pub factor: Option<f64>,
    /// Seed of random choices [default: a new one, printed in the answer]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Chip of the random pages, from 0 on; needed with --count if the device has several shards
    #[arg(long, value_name = "K")]
    pub shard: Option<u32>,
}

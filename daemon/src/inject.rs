//! Fault injection into a running device: `ftld inject`.
//!
//! An injection changes the chip or its fault plan between two extents, under the volume's lock.
//! Requests then meet the resulting chip behaviour, as with spontaneous faults. All random choices
//! come from a seed, which the answer contains, so an injection can be repeated.
//!
//! After an injected power cut the image contains the state that the chip kept. The next start
//! mounts that state.

use crate::convert::{index, nanos, to_u64, to_usize};
use crate::failure::{Exit, Failure};
use crate::faults::{Clear, FaultCommand, FlushFails, Hang, Hits, Slow};
use clap::Args;
use clap::builder::PossibleValuesParser;
use nand_model::{
    BlockFault, Chip, Cut, EraseCut, Fault, NandError, PartnerCut, Pbn, Ppn, ProgramCut, SplitMix,
    Store,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
use strum::{EnumCount, IntoStaticStr, VariantArray, VariantNames};

/// Kinds of faults.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray, VariantNames,
)]
#[strum(serialize_all = "snake_case")]
#[repr(usize)]
pub enum Kind {
    /// The flash loses power.
    PowerCut,
    /// A block fails.
    BadBlock,
    /// Bit errors.
    BitErrors,
    /// A FLUSH fails.
    FlushFails,
    /// A write fails.
    WriteErrors,
    /// A read fails.
    ReadErrors,
    /// A request takes longer.
    Slow,
    /// A request waits.
    Hang,
}

impl Kind {
    /// Returns the index in a table with one entry per kind.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the lower-case name, as in metric labels.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Injection requested over the control socket.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Injection {
    /// The flash loses power.
    PowerCut(PowerCut),
    /// Blocks fail.
    BadBlock(BadBlock),
    /// Bit errors.
    BitErrors(BitErrors),
    /// FLUSHes fail.
    FlushFails(FlushFails),
    /// Writes and trims fail.
    WriteErrors(Hits),
    /// Reads fail.
    ReadErrors(Hits),
    /// Requests take longer.
    Slow(Slow),
    /// Requests wait.
    Hang(Hang),
    /// Faults of requests end.
    Clear(Clear),
}

/// Result of an injection.
#[derive(Clone, Debug, PartialEq)]
pub struct Injected {
    /// Kind of fault.
    pub kind: Kind,
    /// Number of affected blocks or pages; otherwise 1.
    pub count: u64,
    /// Human-readable text.
    pub text: String,
    /// Machine-readable result, with the random choices made.
    pub facts: Value,
    /// Seed of a power cut.
    pub cut_seed: Option<u64>,
}

impl Injected {
    /// Returns what was injected into these shards of a device with `count`, as one.
    pub(crate) fn of_shards(mut all: Vec<Injected>, shards: &[usize], count: usize) -> Injected {
        assert_eq!(all.len(), shards.len(), "a fault for each shard");
        if count == 1 {
            return all.remove(0);
        }
        let is_cut = all.iter().any(|injected| injected.kind == Kind::PowerCut);
        let of =
            |(shard, injected): (&usize, &Injected)| format!("shard {shard}: {}", injected.text);
        let texts: Vec<_> = shards.iter().zip(&all).map(of).collect();
        let with_shard = |(shard, injected): (&usize, &Injected)| {
            let mut facts = injected.facts.clone();
            facts["shard"] = (*shard).into();
            facts
        };
        let facts: Vec<_> = shards.iter().zip(&all).map(with_shard).collect();
        Injected {
            kind: all[0].kind,
            count: if is_cut {
                1
            } else {
                all.iter().map(|injected| injected.count).sum()
            },
            text: texts.join("; "),
            facts: json!({"shards": facts}),
            cut_seed: all[0].cut_seed,
        }
    }
}

const PROGRAM_CUTS: [(&str, ProgramCut); 7] = [
    ("not-started", ProgramCut::NotStarted),
    ("prefix", ProgramCut::Prefix),
    ("random-bits", ProgramCut::RandomBits),
    ("unstable", ProgramCut::Unstable(2)),
    ("data-torn", ProgramCut::DataTorn),
    ("oob-torn", ProgramCut::OobTorn),
    ("complete", ProgramCut::Complete),
];
const PARTNER_CUTS: [(&str, PartnerCut); 3] = [
    ("intact", PartnerCut::Intact),
    ("unstable", PartnerCut::Unstable(2)),
    ("destroyed", PartnerCut::Destroyed),
];
const ERASE_CUTS: [(&str, EraseCut); 6] = [
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

/// Returns the entry of this name, or a random one.
fn choose<T: Copy>(
    menu: &[(&'static str, T)],
    name: Option<&str>,
    rng: &mut SplitMix,
) -> Result<(&'static str, T), Failure> {
    let by_chance = to_usize(rng.below(to_u64(menu.len())));
    let Some(name) = name else {
        return Ok(menu[by_chance]);
    };
    menu.iter()
        .find(|entry| entry.0 == name)
        .copied()
        .ok_or_else(|| {
            let names: Vec<_> = menu.iter().map(|entry| entry.0).collect();
            Failure::usage(format!(
                "no outcome {name:?}; there are {}",
                names.join(", ")
            ))
        })
}

fn fresh_seed() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    SplitMix::new(nanos(now)).below(1 << 32)
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
pub struct BadBlock {
    /// This block; repeatable
    #[arg(long, value_name = "N", required_unless_present = "count")]
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
pub struct BitErrors {
    /// Block of the page with the bit errors, which last until it is erased
    #[arg(long, value_name = "N", requires = "page", required_unless_present_any = ["count", "factor"])]
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

impl Injection {
    /// Returns the command on faults of requests, if it is one.
    pub fn of_requests(&self) -> Option<FaultCommand> {
        Some(match self.clone() {
            Injection::FlushFails(fails) => FaultCommand::FlushFails(fails),
            Injection::WriteErrors(hits) => FaultCommand::WriteErrors(hits),
            Injection::ReadErrors(hits) => FaultCommand::ReadErrors(hits),
            Injection::Slow(slow) => FaultCommand::Slow(slow),
            Injection::Hang(hang) => FaultCommand::Hang(hang),
            Injection::Clear(clear) => FaultCommand::Clear(clear),
            Injection::PowerCut(_) | Injection::BadBlock(_) | Injection::BitErrors(_) => {
                return None;
            }
        })
    }

    /// Returns the blocks that it names, and the shard.
    fn named(&self) -> (Vec<u32>, Option<u32>) {
        match self {
            Injection::BadBlock(bad) => (bad.block.clone(), bad.shard),
            Injection::BitErrors(errors) => (errors.block.into_iter().collect(), errors.shard),
            _ => (Vec::new(), None),
        }
    }

    /// Returns the shards that the fault is for, of a device with `count`, each of `blocks` blocks.
    /// Blocks are numbered shard by shard.
    ///
    /// # Errors
    /// The shard or a block does not exist, a block is in another shard, or the fault names neither
    /// and needs one.
    pub(crate) fn shards(&self, count: usize, blocks: u32) -> Result<Vec<usize>, Failure> {
        let (named, shard) = self.named();
        let shard = shard.map(index);
        if let Some(shard) = shard.filter(|&shard| shard >= count) {
            return Err(Failure::usage(format!(
                "no shard {shard}; the device has 0 to {}",
                count - 1
            )));
        }
        let is_of_all = match self {
            Injection::BadBlock(_) => false,
            Injection::BitErrors(errors) => errors.factor.is_some(),
            _ => true,
        };
        let mut of_blocks = Vec::new();
        for block in named {
            let own = index(block / blocks);
            if own >= count {
                let last = to_u64(count) * u64::from(blocks) - 1;
                return Err(Failure::usage(format!(
                    "no block {block}; the flash has 0 to {last}"
                )));
            }
            if let Some(shard) = shard.filter(|&shard| shard != own) {
                return Err(Failure::usage(format!(
                    "block {block} is in shard {own}, not {shard}; leave --shard out"
                )));
            }
            of_blocks.push(own);
        }
        of_blocks.sort_unstable();
        of_blocks.dedup();
        match shard {
            _ if !of_blocks.is_empty() => Ok(of_blocks),
            Some(shard) => Ok(vec![shard]),
            None if is_of_all || count == 1 => Ok((0..count).collect()),
            None => Err(Failure::usage(format!(
                "the device has {count} shards; add --shard K, from 0 to {}",
                count - 1
            ))),
        }
    }

    /// Returns the seed of its random choices, on the first shard.
    pub(crate) fn seed(&self) -> u64 {
        let seed = match self {
            Injection::PowerCut(cut) => cut.seed,
            Injection::BadBlock(bad) => bad.seed,
            Injection::BitErrors(errors) => errors.seed,
            _ => None,
        };
        seed.unwrap_or_else(fresh_seed)
    }

    /// Returns the fault of one of several shards, of `blocks` blocks each: with a seed and blocks
    /// of its own.
    pub(crate) fn for_shard(&self, seed: u64, shard: usize, blocks: u32) -> Injection {
        let mut of = self.clone();
        let seed = Some(seed.wrapping_add(to_u64(shard)));
        match &mut of {
            Injection::PowerCut(cut) => cut.seed = seed,
            Injection::BadBlock(bad) => {
                bad.seed = seed;
                bad.block.retain(|block| index(block / blocks) == shard);
            }
            Injection::BitErrors(errors) => errors.seed = seed,
            _ => {}
        }
        of
    }

    /// Checks, without a change, that the chip can take the injection; as [`Injection::apply`]. Only
    /// named blocks are on several shards and may be refused on one of them.
    ///
    /// # Errors
    /// A block is bad, or fails already.
    pub(crate) fn check<S: Store>(&self, chip: &Chip<S>, before: u32) -> Result<(), Failure> {
        match self {
            Injection::BadBlock(bad) if bad.count.is_none() => bad.named(chip, before).map(drop),
            _ => Ok(()),
        }
    }

    /// Applies the injection to the chip. The shards before it have `before` blocks, which the
    /// numbers of blocks count.
    ///
    /// # Errors
    /// It is a fault of requests, the block or page does not exist, or its state does not allow the
    /// fault.
    pub fn apply<S: Store>(&self, chip: &mut Chip<S>, before: u32) -> Result<Injected, Failure> {
        match self {
            Injection::PowerCut(cut) => cut.apply(chip),
            Injection::BadBlock(bad) => bad.apply(chip, before),
            Injection::BitErrors(errors) => errors.apply(chip, before),
            _ => Err(Failure::usage(
                "a fault of requests does not reach the flash",
            )),
        }
    }
}

impl PowerCut {
    fn apply<S: Store>(&self, chip: &mut Chip<S>) -> Result<Injected, Failure> {
        let seed = self.seed.unwrap_or_else(fresh_seed);
        let injected = |text: String, facts| Injected {
            kind: Kind::PowerCut,
            count: 1,
            text,
            facts,
            cut_seed: Some(seed),
        };
        let Some(at_op) = self.after else {
            chip.power_off();
            let text = "power cut: device removed; restart to recover";
            return Ok(injected(text.into(), json!({"after": null, "seed": seed})));
        };
        let mut rng = SplitMix::new(seed);
        let (program_name, program) = choose(&PROGRAM_CUTS, self.program.as_deref(), &mut rng)?;
        let (partner_name, partner) = choose(&PARTNER_CUTS, self.partner.as_deref(), &mut rng)?;
        let (erase_name, erase) = choose(&ERASE_CUTS, self.erase.as_deref(), &mut rng)?;
        chip.update_faults(|plan| {
            plan.cut = Some(Cut {
                at_op,
                program,
                partner,
                erase,
                seed,
            })
        });
        Ok(injected(
            format!(
                "power fails after {at_op} more programs or erases; the next is left {program_name} with its partner \
                 {partner_name} if it is a program, {erase_name} if it is an erase (seed {seed})"
            ),
            json!({
                "after": at_op, "program": program_name, "partner": partner_name, "erase": erase_name, "seed": seed,
            }),
        ))
    }
}

impl BadBlock {
    /// Returns the named blocks, which can still go bad.
    fn named<S: Store>(&self, chip: &Chip<S>, before: u32) -> Result<Vec<Pbn>, Failure> {
        let doomed = doomed(chip);
        let blocks = self.block.iter();
        blocks
            .map(|&block| good_block(chip, &doomed, block, before))
            .collect()
    }

    fn apply<S: Store>(&self, chip: &mut Chip<S>, before: u32) -> Result<Injected, Failure> {
        let seed = self.seed.unwrap_or_else(fresh_seed);
        let blocks = match self.count {
            Some(count) => {
                let doomed = doomed(chip);
                let good = chip
                    .geometry()
                    .all_blocks()
                    .filter(|b| chip.bad(*b).is_none() && !doomed.contains(b));
                sample(good.collect(), count, seed, "good blocks")?
            }
            None => self.named(chip, before)?,
        };
        chip.update_faults(|plan| {
            for block in &blocks {
                plan.block_faults.extend(
                    [Fault::ProgramFail, Fault::EraseFail]
                        .map(|fault| BlockFault::next(*block, fault)),
                );
            }
        });
        assert!(
            blocks.iter().all(|block| chip.bad(*block).is_none()),
            "a fault is planned for a bad block"
        );
        let numbers: Vec<_> = blocks.iter().map(|block| before + block.raw()).collect();
        let list = list(numbers.iter().map(u32::to_string));
        Ok(Injected {
            kind: Kind::BadBlock,
            count: to_u64(numbers.len()),
            text: format!("at the next program or erase these blocks go bad: {list}"),
            facts: json!({"blocks": numbers, "seed": self.count.map(|_| seed)}),
            cut_seed: None,
        })
    }
}

/// Lists the first items, human-readable.
fn list(items: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 8;
    let more = items.len().saturating_sub(SHOWN);
    let shown = items.take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 {
        format!("{shown} and {more} more")
    } else {
        shown
    }
}

/// Returns the blocks that fail at their next program or erase.
fn doomed<S: Store>(chip: &Chip<S>) -> Vec<Pbn> {
    let faults = chip.faults().map_or(&[][..], |plan| &plan.block_faults);
    faults.iter().map(|fault| fault.block).collect()
}

/// Returns the block with this number, if it can still go bad.
fn good_block<S: Store>(
    chip: &Chip<S>,
    doomed: &[Pbn],
    number: u32,
    before: u32,
) -> Result<Pbn, Failure> {
    let block = a_block(chip, number, before)?;
    if chip.bad(block).is_some() {
        return Err(Failure::failed(format!("block {number} is bad already")));
    }
    if doomed.contains(&block) {
        return Err(Failure::failed(format!(
            "block {number} fails at its next program or erase already"
        )));
    }
    Ok(block)
}

fn a_block<S: Store>(chip: &Chip<S>, number: u32, before: u32) -> Result<Pbn, Failure> {
    let blocks = chip.geometry().blocks;
    match number.checked_sub(before) {
        Some(own) if own < blocks => Ok(Pbn::new(own)),
        _ => Err(Failure::usage(format!(
            "no block {number}; the flash has {before} to {}",
            before + blocks - 1
        ))),
    }
}

/// Draws `count` items at random.
fn sample<T>(mut from: Vec<T>, count: u32, seed: u64, what: &str) -> Result<Vec<T>, Failure> {
    if count == 0 || index(count) > from.len() {
        return Err(Failure::usage(format!(
            "--count {count}: there are {} {what}",
            from.len()
        )));
    }
    let mut rng = SplitMix::new(seed);
    Ok((0..count)
        .map(|_| from.swap_remove(to_usize(rng.below(to_u64(from.len())))))
        .collect())
}

impl BitErrors {
    fn apply<S: Store>(&self, chip: &mut Chip<S>, before: u32) -> Result<Injected, Failure> {
        let seed = self.seed.unwrap_or_else(fresh_seed);
        if let Some(factor) = self.factor {
            return everywhere(chip, factor, seed);
        }
        let pages = match (self.count, self.block, self.page) {
            (Some(count), ..) => sample(programmed_pages(chip), count, seed, "programmed pages")?,
            (None, Some(block), Some(page)) => vec![programmed_page(chip, block, page, before)?],
            _ => {
                return Err(Failure::usage(
                    "bit errors need a page (--block, --page), --count or --factor",
                ));
            }
        };
        let bits = self.bits.unwrap_or(u32::MAX);
        if bits == 0 {
            return Err(Failure::usage("--bits 0 would change nothing"));
        }
        assert!(!pages.is_empty(), "bit errors in no page");
        let mut corrected = true;
        for page in &pages {
            corrected = chip
                .flip_bits(*page, bits)
                .map_err(|error| nand_failure(&error))?;
        }
        let geometry = chip.geometry();
        let named: Vec<_> = pages
            .iter()
            .map(|ppn| {
                let block = before + geometry.block_of(*ppn).raw();
                [block, geometry.offset_of(*ppn)]
            })
            .collect();
        let list = list(named.iter().map(|[block, page]| format!("{block}:{page}")));
        let fate = if corrected {
            "corrected when they are read"
        } else {
            "lost, reading them is an error"
        };
        Ok(Injected {
            kind: Kind::BitErrors,
            count: to_u64(pages.len()),
            text: format!(
                "these pages (BLOCK:PAGE) are {fate} until their blocks are erased: {list}"
            ),
            facts: json!({"pages": named, "corrected": corrected, "seed": self.count.map(|_| seed)}),
            cut_seed: None,
        })
    }
}

fn everywhere<S: Store>(chip: &mut Chip<S>, factor: f64, seed: u64) -> Result<Injected, Failure> {
    if !(0.0..=1e9).contains(&factor) {
        return Err(Failure::usage(format!(
            "--factor {factor} is not a number from 0 to 1e9"
        )));
    }
    chip.update_faults(|plan| (plan.bit_errors, plan.seed) = (factor, seed));
    Ok(Injected {
        kind: Kind::BitErrors,
        count: 1,
        text: format!(
            "raw bit errors are {factor} times those of the profile's part (seed {seed})"
        ),
        facts: json!({"factor": factor, "seed": seed}),
        cut_seed: None,
    })
}

fn programmed_pages<S: Store>(chip: &Chip<S>) -> Vec<Ppn> {
    let geometry = *chip.geometry();
    let pages = |block| (0..geometry.pages_per_block).map(move |page| geometry.page(block, page));
    geometry
        .all_blocks()
        .flat_map(pages)
        .filter(|ppn| chip.is_programmed(*ppn))
        .collect()
}

fn programmed_page<S: Store>(
    chip: &Chip<S>,
    number: u32,
    page: u32,
    before: u32,
) -> Result<Ppn, Failure> {
    let (block, pages) = (
        a_block(chip, number, before)?,
        chip.geometry().pages_per_block,
    );
    if page >= pages {
        return Err(Failure::usage(format!(
            "no page {page}; a block has 0 to {}",
            pages - 1
        )));
    }
    let ppn = chip.geometry().page(block, page);
    if chip.is_programmed(ppn) {
        Ok(ppn)
    } else {
        Err(Failure::failed(format!(
            "page {page} of block {number} is erased and has no bits to corrupt"
        )))
    }
}

fn nand_failure(error: &NandError) -> Failure {
    Failure::new(Exit::Failed, error.to_string())
}

#[cfg(test)]
mod tests;

//! States that some drives leave and a device with a unit of atomicity does not: each is off unless
//! `--loss` names it.
//!
//! In the list of a unit, damaged contents follow the whole ones, in an order given by the
//! options. So a case's name keeps its meaning.

use super::args::Loss;
use super::content::{Content, Contents};
use super::cursor::{OpenUnit, Point};
use ftld_kit::convert::{index, to_u32, to_u64, to_usize};
use nand_model::SplitMix;
use std::io;

/// Smallest part of a unit that a drive programs as a whole, in bytes.
const SECTOR: usize = 512;
/// Eighths of a shorn unit that are new: what Zheng et al., "Understanding the Robustness of SSDs
/// under Power Fault" (FAST 2013), saw on drives.
const SHORN_EIGHTHS: [usize; 2] = [3, 7];
/// Channels of a recorded device that has one, or whose flash is not known.
const CHANNELS: u32 = 8;

/// Losses beyond whole contents.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    shorn: bool,
    garbage: bool,
    /// Number of channels, whose last writes are lost together; 0 for no such loss.
    channels: u32,
}

impl Losses {
    /// `channels`: those of the recorded flash.
    pub(super) fn new(wanted: &[Loss], channels: Option<u32>) -> Losses {
        let has = |loss| wanted.contains(&loss);
        let channels = channels.filter(|count| *count > 1).unwrap_or(CHANNELS);
        Losses {
            shorn: has(Loss::Shorn),
            garbage: has(Loss::Garbage),
            channels: if has(Loss::Channel) { channels } else { 0 },
        }
    }

    /// Adds the damaged contents of every open unit.
    ///
    /// # Errors
    /// The file of contents is full.
    pub(super) fn damage(&self, point: &mut Point, contents: &Contents) -> io::Result<()> {
        if !self.shorn && !self.garbage {
            return Ok(());
        }
        let bytes = contents.unit_bytes();
        let (mut old, mut new) = (vec![0; bytes], vec![0; bytes]);
        for unit in &mut point.open {
            let whole = unit.candidates.len();
            for at in 1..whole {
                if !self.shorn {
                    break;
                }
                contents.read(unit.candidates[at - 1], &mut old)?;
                contents.read(unit.candidates[at], &mut new)?;
                for eighths in SHORN_EIGHTHS {
                    let from = shorn_at(bytes, eighths);
                    let mut mixed = new.clone();
                    mixed[from..].copy_from_slice(&old[from..]);
                    unit.candidates.push(contents.id_of(&mixed)?);
                }
            }
            if self.garbage {
                unit.candidates.push(garbage(unit.unit, contents)?);
            }
        }
        Ok(())
    }

    /// Draws a choice with one damaged unit, or with one channel lost; `None` without such losses.
    pub(super) fn draw(&self, point: &Point, rng: &mut SplitMix) -> Option<Vec<u32>> {
        let below = |rng: &mut SplitMix, count: usize| to_usize(rng.below(to_u64(count)));
        let newest = point.open.iter().map(|unit| unit.newest);
        let damaged: Vec<usize> = (0..point.open.len())
            .filter(|at| point.open[*at].candidates.len() > point.open[*at].requests.len())
            .collect();
        let by_channel = self.channels > 0 && (damaged.is_empty() || rng.below(2) == 0);
        if by_channel && !point.open.is_empty() {
            let of = point.open[below(rng, point.open.len())].unit % self.channels;
            let lost = |unit: &OpenUnit| match unit.unit % self.channels == of {
                true => 0,
                false => unit.newest,
            };
            return Some(point.open.iter().map(lost).collect());
        }
        if damaged.is_empty() {
            return None;
        }
        let at = damaged[below(rng, damaged.len())];
        let unit = &point.open[at];
        let whole = unit.requests.len();
        let mut choice: Vec<u32> = newest.collect();
        choice[at] = to_u32(whole + below(rng, unit.candidates.len() - whole));
        Some(choice)
    }

    /// Returns what a damaged content is, in words, and the request whose content it damages.
    pub(super) fn explain(&self, unit: &OpenUnit, candidate: u32) -> Option<(String, u64)> {
        let whole = unit.requests.len();
        let number = index(candidate).checked_sub(whole)?;
        let shorn = if self.shorn { 2 * (whole - 1) } else { 0 };
        match number < shorn {
            true => {
                let at = number / 2 + 1;
                let eighths = SHORN_EIGHTHS[number % 2];
                Some((format!("the first {eighths} eighths"), unit.requests[at]))
            }
            false => Some(("garbage instead".into(), unit.requests[whole - 1])),
        }
    }
}

/// The first byte that is old.
fn shorn_at(bytes: usize, eighths: usize) -> usize {
    (bytes * eighths / 8).next_multiple_of(SECTOR).min(bytes)
}

/// Bytes that nobody wrote, the same for a unit at every point.
fn garbage(unit: u32, contents: &Contents) -> io::Result<Content> {
    let mut rng = SplitMix::new(0x6A72_6261_6765 ^ u64::from(unit) << 8);
    let words = (0..contents.unit_bytes() / 8).map(|_| rng.below(u64::MAX));
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    contents.id_of(&bytes)
}

//! Reads of blocks: the counts that read disturb depends on, and the scrub.
//!
//! Invariants: the store notes a block's reads at every multiple of [`READS_PER_NOTE`], so a kill
//! loses fewer than that; a clean stop loses none. After a note that the host refused, only the
//! next one counts: a session in which the disk failed is not compared. A device that is idle in
//! every session reads each full block once per `scrub.hours`, however short the sessions are.

use super::{Runner, Verdict};
use crate::swarm::oracle::Cost;
use crate::swarm::world::World;
use crate::workload::HostOp;
use ftl_core::BlockUse;
use nand_model::Chip;

/// Reads of a block between two notes of the store (`chip/bit_errors.rs`).
const READS_PER_NOTE: u32 = 1024;

/// Erases and reads of a block.
type Counts = (u32, u32);

/// Reads, idle times and scrubs of a run, as the runner counts them.
#[derive(Default)]
pub(super) struct Exposure {
    /// Counts when the device went down; whether it stopped cleanly.
    left: Option<(Vec<Counts>, bool)>,
    /// Whether the host may have refused a note in this session.
    pub(super) notes_refused: bool,
    /// Whether the last idle time left nothing to do.
    pub(super) is_idle: bool,
    /// Hour up to which all idle time was used, and the one since when.
    attended: (u32, u32),
    /// Largest number of hours between two idle times.
    widest: u32,
    /// Sessions since then.
    sessions: u32,
    /// Erases of each block, and the hour of its last read by the scrub, or since when it is full.
    scrubbed: Vec<(u32, u32)>,
}

impl Exposure {
    /// A host crash may undo erases and notes.
    pub(super) fn forget(&mut self) {
        self.left = None;
    }
}

fn counts(chip: &Chip) -> Vec<Counts> {
    let blocks = chip.geometry().all_blocks();
    let reads = |block| match chip.frontier(block) {
        // A block without a programmed page has no reads that matter.
        0 => 0,
        _ => chip.exposure(0, block).1,
    };
    blocks
        .map(|block| (chip.erase_count(block), reads(block)))
        .collect()
}

impl<'p, W: World> Runner<'p, W> {
    fn counts_reads(&self) -> bool {
        self.plan.parts.bit_errors > 0
    }

    /// Remembers the read counts of a device that goes down.
    pub(super) fn remember_reads(&mut self, cleanly: bool) {
        self.exposure.left = match &self.ftl {
            Some(ftl)
                if self.counts_reads() && !self.host_fails() && !self.exposure.notes_refused =>
            {
                Some((counts(ftl.chip()), cleanly))
            }
            _ => None,
        };
    }

    /// Compares the read counts of an opened chip with those before.
    pub(super) fn compare_reads(&mut self, chip: &Chip) -> Verdict {
        let Some((left, cleanly)) = self.exposure.left.take() else {
            return Ok(());
        };
        for (block, (before, now)) in left.into_iter().zip(counts(chip)).enumerate() {
            if before.0 != now.0 {
                continue;
            }
            let noted = match cleanly {
                true => before.1,
                false => before.1 / READS_PER_NOTE * READS_PER_NOTE,
            };
            let is_blank = chip.frontier(nand_model::Pbn::new(block as u32)) == 0;
            if now.1 < noted && !is_blank {
                return Err(format!(
                    "block {block} had {} reads, {} after the restart",
                    before.1, now.1
                ));
            }
            if noted > 0 && !cleanly {
                self.classes.note("read counts after a kill");
            }
        }
        Ok(())
    }

    /// A mount succeeded.
    pub(super) fn begin_session(&mut self) {
        if !self.counts_reads() {
            return;
        }
        let chip = self.ftl.as_ref().expect("the device serves").chip();
        let hour = chip.hour(0);
        let exposure = &mut self.exposure;
        exposure.notes_refused = self.disk_fails;
        exposure.sessions += 1;
        if hour > exposure.attended.0 {
            // Time passed that no idle time used.
            exposure.scrubbed.clear();
            exposure.attended = (hour, hour);
            (exposure.sessions, exposure.widest) = (1, 0);
        }
    }

    /// Read counts before a request that may read in the background.
    pub(super) fn reads_before(&mut self, op: &HostOp) -> Option<Vec<Counts>> {
        self.exposure.is_idle = false;
        let watches = self.counts_reads() && !matches!(op, HostOp::Read { .. });
        watches.then(|| counts(self.chip()))
    }

    /// Notes which blocks the scrub read during the last request. After idle time, no block may be
    /// overdue.
    pub(super) fn note_background_reads(&mut self, before: Option<Vec<Counts>>) -> Verdict {
        let (Some(before), hours) = (before, self.plan.scrub_hours()) else {
            return Ok(());
        };
        let now = self.latest;
        let ftl = self.ftl.as_ref().expect("the device serves");
        let (chip, hour) = (ftl.chip(), ftl.chip().hour(now));
        let exposure = &mut self.exposure;
        let after = counts(chip);
        exposure.scrubbed.resize(after.len(), (u32::MAX, hour));
        for ((scrubbed, before), after) in exposure.scrubbed.iter_mut().zip(&before).zip(&after) {
            if scrubbed.0 != after.0 || after.1 > before.1 {
                *scrubbed = (after.0, hour);
            }
        }
        if !std::mem::take(&mut exposure.is_idle) {
            return Ok(());
        }
        let stats = ftl.stats();
        exposure.widest = exposure
            .widest
            .max(hour.saturating_sub(exposure.attended.0));
        exposure.attended.0 = exposure.attended.0.max(hour);
        let checks = hours > 0 && self.oracle.cost() == Cost::Nothing && stats.read_only.is_none();
        let most = hours + exposure.widest;
        for (block, scrubbed) in chip.geometry().all_blocks().zip(&mut exposure.scrubbed) {
            let is_full = !matches!(
                ftl.block(block).used,
                BlockUse::Free | BlockUse::Open | BlockUse::Released | BlockUse::Bad
            );
            if !is_full {
                *scrubbed = (scrubbed.0, hour);
            } else if checks && hour.saturating_sub(scrubbed.1) > most {
                return Err(format!(
                    "the scrub did not read block {block} for {} hours of use",
                    hour - scrubbed.1
                ));
            }
        }
        if checks && exposure.sessions > 3 && hour.saturating_sub(exposure.attended.1) > most {
            self.classes.note("scrub round of short sessions");
            exposure.attended.1 = hour;
            exposure.sessions = 1;
        }
        Ok(())
    }
}

//! Counts the events of cuts, chip and scheme, and the classes of flash content.

use super::Runner;
use super::decay::read_role;
use crate::rig::Cells;
use crate::swarm::world::World;
use crate::workload::HostOp;
use ftl_core::format::Role;
use nand_model::{Cause, CutHits, EraseCut, Fault, PartnerCut, ProgramCut};
use std::collections::BTreeSet;

fn program_class(outcome: ProgramCut) -> &'static str {
    match outcome {
        ProgramCut::NotStarted => "program not started",
        ProgramCut::Prefix => "program torn: the first bytes",
        ProgramCut::RandomBits => "program torn: some bits",
        ProgramCut::Unstable(_) => "program unstable",
        ProgramCut::Flickering(_) => "program flickers",
        ProgramCut::DataTorn => "program torn: the data",
        ProgramCut::OobTorn => "program torn: the spare bytes",
        ProgramCut::Complete => "program complete, not acknowledged",
    }
}

fn partner_class(outcome: PartnerCut) -> Option<&'static str> {
    match outcome {
        PartnerCut::Intact => None,
        PartnerCut::Unstable(_) => Some("word line unstable"),
        PartnerCut::Flickering(_) => Some("word line flickers"),
        PartnerCut::Destroyed => Some("word line destroyed"),
        PartnerCut::DestroyedOne(_) => Some("one page of the word line destroyed"),
    }
}

fn erase_class(outcome: EraseCut) -> &'static str {
    match outcome {
        EraseCut::NotStarted => "erase not started",
        EraseCut::Mixed => "erase left some pages",
        EraseCut::AllButOne => "erase left all pages but one",
        EraseCut::OnlyOne => "erase left one page",
        EraseCut::LooksBlank => "erase incomplete, all blank",
        EraseCut::Complete => "erase complete, not acknowledged",
    }
}

impl<'p, W: World> Runner<'p, W> {
    /// Counts the cut's hits besides its operation.
    pub(super) fn note_in_flight(&mut self) {
        let CutHits {
            program,
            erase,
            programs,
            erases,
        } = self.chip().cut_hits();
        let (all_programs, all_erases) = (
            programs + program.is_some() as u32,
            erases + erase.is_some() as u32,
        );
        // Several erases are in flight only on planes together: otherwise each waits until the
        // programs before it have ended, and requests end with a program.
        let classes = [
            ("operations in flight on other dies", programs + erases > 0),
            ("several programs in flight", all_programs > 1),
            (
                "programs and erases in flight",
                all_programs.min(all_erases) > 0,
            ),
        ];
        let outcomes = [
            program.map(|(own, _)| program_class(own)),
            erase.map(erase_class),
        ];
        outcomes
            .into_iter()
            .flatten()
            .for_each(|class| self.classes.note(class));
        program
            .and_then(|(_, partner)| partner_class(partner))
            .into_iter()
            .for_each(|class| self.classes.note(class));
        classes
            .into_iter()
            .filter(|(_, happened)| *happened)
            .for_each(|(class, _)| self.classes.note(class));
    }

    /// Counts the power cuts that followed each other at one logical page.
    pub(super) fn note_cut_page(&mut self, op: &HostOp) {
        self.cut_page = match (*op, self.cut_page) {
            (HostOp::Write { lpn, count: 1, .. }, Some((same, cuts))) if lpn == same => {
                Some((lpn, cuts + 1))
            }
            (HostOp::Write { lpn, count: 1, .. }, _) => Some((lpn, 1)),
            _ => None,
        };
        self.note_cuts_at_one_page();
    }

    pub(super) fn note_cuts_at_one_page(&mut self) {
        let many = self.cut_page.is_some_and(|(_, cuts)| cuts >= 3);
        self.classes
            .note_times("three cuts at one logical page", u64::from(many));
    }

    /// Counts a cut after a merge and an erase without a FLUSH between them, where pages are
    /// paired.
    pub(super) fn note_unflushed_merges(&mut self) {
        let (merges, erases) = self.merges_and_erases();
        let unflushed = merges > self.flushed_at.0 && erases > self.flushed_at.1;
        let paired = self.plan.device.cells() != Cells::Slc;
        self.classes.note_times(
            "merge and erase without FLUSH, then power cut",
            u64::from(unflushed && paired),
        );
    }

    pub(super) fn note_environment(&mut self) {
        let device = &self.plan.device;
        let (channels, ways) = device.dies;
        let classes = &mut *self.classes;
        classes.note(if device.on_disk { "image" } else { "memory" });
        classes.note(match device.cells() {
            Cells::Slc => "SLC",
            Cells::Mlc => "MLC",
            Cells::Tlc => "TLC",
            Cells::Qlc => "QLC",
        });
        let features = [
            ("several dies", channels * ways > 1),
            ("planes together", device.planes > 0),
            ("every bad block", device.worn),
            ("other pairing", device.has_other_pairing()),
            ("large device", device.is_large()),
        ];
        features
            .into_iter()
            .filter(|(_, has)| *has)
            .for_each(|(class, _)| classes.note(class));
    }

    pub(super) fn note_mount(&mut self) {
        let counters = self.ftl().chip().counters();
        let (programs, program_fails, erase_fails) = (
            counters.total().programs,
            counters.program_fails,
            counters.erase_fails,
        );
        self.classes
            .note_times("mount that programmed", u64::from(programs > 0));
        self.classes
            .note_times("program failure in a mount", program_fails);
        self.classes
            .note_times("erase failure in a mount", erase_fails);
    }

    /// Adds the counters of chip and scheme since they were opened.
    pub(super) fn tally(&mut self) {
        let Some(ftl) = &self.ftl else { return };
        let (counters, stats) = (ftl.chip().counters(), ftl.stats());
        let counts = [
            ("program failure", counters.program_fails),
            ("erase failure", counters.erase_fails),
            ("bits corrected", counters.corrected_bits),
            ("read retry", counters.read_retries),
            ("uncorrectable read", counters.uncorrectable_reads),
            ("lost program", counters.injected(Fault::LostProgram)),
            (
                "misdirected program",
                counters.injected(Fault::MisdirectedProgram),
            ),
            ("lost erase", counters.injected(Fault::LostErase)),
            ("stale read", counters.injected(Fault::StaleRead)),
            ("garbage collection", stats.gc_runs),
            ("checkpoint", stats.checkpoints),
            ("refresh", stats.refreshes),
            ("wear move", stats.wear_moves),
        ];
        counts
            .into_iter()
            .for_each(|(class, count)| self.classes.note_times(class, count));
    }

    /// Counts the chunks of the trim bitmap and the mapping pages of a large device when it goes
    /// down.
    pub(super) fn scan(&mut self) {
        if !self.plan.device.is_large() {
            return;
        }
        let Some(ftl) = &mut self.ftl else { return };
        let chip = ftl.chip_mut();
        let geometry = *chip.geometry();
        let (mut mapping, mut chunks) = (BTreeSet::new(), BTreeSet::new());
        let mut oob = vec![0; geometry.oob_bytes as usize];
        let mut data = vec![0; geometry.page_bytes as usize];
        for block in geometry.all_blocks() {
            let frontier = chip.frontier(block);
            for offset in 0..frontier {
                let page = geometry.page(block, offset);
                match read_role(chip, page, &mut oob) {
                    Some((Role::Map, lpn)) => drop(mapping.insert(lpn)),
                    Some((Role::Trim, lpn)) if lpn > 0 => {
                        let read = chip.read(0, page, &mut data, &mut [], Cause::Host);
                        if read.is_ok() && data.starts_with(b"TRBM") {
                            chunks.insert(lpn);
                        }
                    }
                    _ => {}
                }
            }
        }
        self.classes
            .note_times("later trim bitmap chunk at mount", chunks.len() as u64);
        self.classes.note_times(
            "more than 100 mapping pages",
            u64::from(mapping.len() > 100),
        );
    }
}

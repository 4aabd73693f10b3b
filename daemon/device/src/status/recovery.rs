//! The recovery of an image that was not closed cleanly, in figures and sentences: for the log, the
//! status and the page. Every figure is the mount's own.

use ftl_core::MountReport;
use ftld_kit::convert::to_f64;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long blocks stay marked after the start.
pub(super) const MARKED_FOR: Duration = Duration::from_secs(600);

/// A recovery. Of a device of several chips it has the sums, and the steps of the slowest chip.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// `power cut` of the emulated flash, or `unclean`: the daemon or its host ended.
    pub cause: String,
    /// What the mount did, in order.
    pub steps: Vec<RecoveryStep>,
    /// Pages whose record was read.
    pub pages_scanned: u64,
    /// Logical pages that hold data after the recovery.
    pub pages_kept: u64,
    /// Programmed pages that the recovery does not use.
    pub pages_dropped: u64,
    /// Pages rewritten because they could have become unreadable.
    pub pages_rewritten: u64,
    /// Blocks that these were in.
    pub blocks_rewritten: u64,
}

/// A step of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecoveryStep {
    /// Its name.
    pub step: String,
    /// Emulated duration, ns.
    pub nanoseconds: u64,
    /// What it did, in a sentence.
    pub text: String,
}

impl Recovery {
    /// Returns the recovery by this mount of an image that was not clean.
    pub fn of(mount: &MountReport, power_cut: bool) -> Recovery {
        let step = |(name, nanoseconds): &(&str, u64)| RecoveryStep {
            step: (*name).into(),
            nanoseconds: *nanoseconds,
            text: sentence(name, mount),
        };
        Recovery {
            cause: if power_cut { "power cut" } else { "unclean" }.into(),
            steps: mount.steps.iter().map(step).collect(),
            pages_scanned: mount.pages_scanned,
            pages_kept: mount.pages_kept,
            pages_dropped: mount.pages_dropped,
            pages_rewritten: mount.pages_rewritten,
            blocks_rewritten: mount.blocks_rewritten,
        }
    }

    /// Returns all of it in one sentence, without a full stop.
    pub fn text(&self) -> String {
        let cause = match &*self.cause {
            "unclean" => "a kill or a crash",
            other => &format!("a {other}"),
        };
        let ns = self.steps.iter().map(|step| step.nanoseconds).sum();
        format!(
            "recovered after {cause}: scanned {} in {} emulated; kept {} with data; dropped {}; \
             rewrote {} of {}",
            pages(self.pages_scanned),
            shown(ns),
            pages(self.pages_kept),
            grouped(self.pages_dropped),
            pages(self.pages_rewritten),
            of(self.blocks_rewritten, "block"),
        )
    }

    /// Returns each step as a line, with its emulated duration.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.steps.iter().map(|step| {
            let text = step.text.trim_end_matches('.');
            format!("recovery: {text} ({} emulated)", shown(step.nanoseconds))
        })
    }
}

/// Returns what a step did.
fn sentence(step: &str, mount: &MountReport) -> String {
    let chosen = || {
        let (kept, dropped) = (pages(mount.pages_kept), grouped(mount.pages_dropped));
        format!("kept {kept} with data; dropped {dropped}, unreadable or uncommitted")
    };
    let rewritten = || match mount.pages_rewritten {
        0 => "no page had to be rewritten".into(),
        count => format!(
            "rewrote {} of {}, which could have become unreadable",
            pages(count),
            of(mount.blocks_rewritten, "block")
        ),
    };
    let text = match step {
        "scan heads" => "read the first record of every block".into(),
        "load checkpoint" => "looked for the newest checkpoint".into(),
        "scan window" => "read the records of all blocks newer than the checkpoint".into(),
        "scan pages" => "read the records of all blocks".into(),
        "resolve versions" => format!(
            "chose the newest readable version of every page: {}",
            chosen()
        ),
        "rewrite suspects" => rewritten(),
        "refill pool" => "collected garbage until enough blocks were free".into(),
        "rebuild tables" => format!("{}; {}; built the tables", chosen(), rewritten()),
        other => other.into(),
    };
    let (first, rest) = text.split_at(1);
    format!("{}{rest}.", first.to_uppercase())
}

fn pages(count: u64) -> String {
    of(count, "page")
}

/// Returns a count of things.
fn of(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", grouped(count))
}

/// Returns a count with a comma every three digits.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let comma = |(at, digit): (usize, char)| {
        let is_due = at > 0 && (digits.len() - at).is_multiple_of(3);
        is_due.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(comma).collect()
}

/// Returns a duration in ms, or in s from ten seconds on.
fn shown(ns: u64) -> String {
    match to_f64(ns) / 1e6 {
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms if ms < 1e4 => format!("{ms:.0} ms"),
        ms => format!("{:.0} s", ms / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftl_core::schemes::SCHEMES;
    use ftl_core::{BlockMark, FtlConfig, Lpn, Params, Start};
    use nand_model::store::MemStore;
    use nand_model::{Chip, Cut, FaultPlan, Profile};

    #[test]
    fn a_recovery_is_one_sentence_and_one_for_each_step() {
        let mount = MountReport {
            steps: vec![
                ("scan heads", 4_120_000),
                ("rewrite suspects", 13_000_000_000),
            ],
            pages_scanned: 1_234_567,
            pages_kept: 1,
            pages_dropped: 3,
            pages_rewritten: 2,
            blocks_rewritten: 1,
            ..MountReport::default()
        };
        assert_eq!(
            Recovery::of(&mount, true).text(),
            "recovered after a power cut: scanned 1,234,567 pages in 13 s emulated; kept 1 page with \
             data; dropped 3; rewrote 2 pages of 1 block"
        );
        let killed = Recovery::of(&mount, false);
        assert!(
            killed
                .text()
                .starts_with("recovered after a kill or a crash: ")
        );
        let lines: Vec<_> = killed.lines().collect();
        assert_eq!(
            lines,
            [
                "recovery: Read the first record of every block (4.1 ms emulated)",
                "recovery: Rewrote 2 pages of 1 block, which could have become unreadable \
                 (13 s emulated)",
            ]
        );
        assert_eq!(
            sentence("rewrite suspects", &MountReport::default()),
            "No page had to be rewritten."
        );
    }

    /// Cuts the power at many operations, in each way that the page in flight can end.
    #[test]
    fn every_scheme_tells_what_a_power_cut_cost_and_names_the_blocks() {
        let profile = Profile::find("torture").unwrap().with_blocks(100);
        let config = FtlConfig {
            logical_pages: 300,
            params: Params::default(),
        };
        let data = vec![7; profile.geometry.page_len()];
        for scheme in SCHEMES {
            let mut seen = Vec::new();
            let cuts = [21, 70].into_iter().flat_map(|op| Cut::menu(op, op));
            for cut in cuts {
                let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
                let mut ftl = scheme.start(chip, &config, Start::Format).unwrap();
                ftl.chip_mut().set_faults(FaultPlan {
                    cut: Some(cut),
                    ..FaultPlan::default()
                });
                let mut lpns = (0..300u32).map(|n| Lpn::new(n * 7 % 90));
                while lpns
                    .next()
                    .is_some_and(|lpn| ftl.write(0, lpn, &data).is_ok())
                {}
                let mut chip = ftl.into_chip();
                chip.power_on();
                let mut ftl = scheme.start(chip, &config, Start::Mount).unwrap();
                let mount = ftl.stats().mount;
                let mapped = (0..300).filter(|n| ftl.is_mapped(Lpn::new(*n)).unwrap());
                assert_eq!(mount.pages_kept, mapped.count() as u64, "{}", scheme.name);
                assert_eq!(mount.blocks_rewritten == 0, mount.pages_rewritten == 0);
                for step in Recovery::of(&mount, true).steps {
                    assert!(step.text.len() > step.step.len() + 5, "{step:?}");
                }
                seen.extend(mount.marks.iter().map(|(_, mark)| *mark));
                let has = |mark| mount.marks.iter().any(|(_, own)| *own == mark);
                assert_eq!(has(BlockMark::Rewritten), mount.pages_rewritten > 0);
                let is_dropped = has(BlockMark::Torn) || has(BlockMark::Dropped);
                assert_eq!(is_dropped, mount.pages_dropped > 0);
            }
            for mark in [BlockMark::Torn, BlockMark::Rewritten] {
                assert!(seen.contains(&mark), "{}: {mark:?}", scheme.name);
            }
        }
    }
}

//! Flash that wears out, ages and is read until bits fail: data is rewritten in time, wear is
//! spread, and a device at its end of life stays readable.

use crate::host::{Host, Trouble};
use crate::model::Model;
use crate::power_cuts::slc_rig;
use crate::rig::{Cells, Rig, has_param};
use crate::verdicts::{Budget, Verdicts};
use crate::workload::HostOp;
use ftl_core::schemes::Scheme;
use ftl_core::{FtlError, Lpn, Start};
use nand_model::{BlockFacts, Chip, FaultPlan, Geometry, Profile, SplitMix, Store};

/// Writes between two FLUSHes.
const FLUSH_EVERY: u64 = 32;

/// A third of the device is never written again; nine of ten writes go to a tenth of the rest.
struct Load {
    pages: u32,
    rng: SplitMix,
    writes: u64,
    /// Wear at the last FLUSH.
    worn: Wear,
}

impl Load {
    fn new(rig: &Rig) -> Self {
        Load {
            pages: rig.config.logical_pages,
            rng: SplitMix::new(rig.seed),
            writes: 0,
            worn: Wear::default(),
        }
    }

    /// Writes everything once, then single pages for the given number of writes.
    fn run(&mut self, host: &mut Host, writes: u64) -> Result<(), Trouble> {
        while self.writes < writes {
            let lpn = match self.writes {
                first if first < self.pages as u64 => first as u32,
                _ => self.choose(),
            };
            host.run(&HostOp::Write {
                lpn,
                count: 1,
                fua: false,
            })?;
            self.writes += 1;
            if self.writes.is_multiple_of(FLUSH_EVERY) {
                host.run(&HostOp::Flush)?;
                self.worn = wear(host.ftl.chip());
            }
        }
        Ok(())
    }

    fn choose(&mut self) -> u32 {
        let warm = self.pages as u64 * 2 / 3;
        let hot = warm / 10;
        let lpn = if self.rng.one_in(10) {
            hot + self.rng.below(warm - hot)
        } else {
            self.rng.below(hot)
        };
        lpn as u32
    }
}

/// Spread of the erase counts of good blocks.
#[derive(Clone, Copy, Default)]
struct Wear {
    spread: u32,
    mean: f64,
}

fn wear(chip: &Chip) -> Wear {
    let good = chip
        .geometry()
        .all_blocks()
        .filter(|block| chip.bad(*block).is_none());
    let counts: Vec<u32> = good.map(|block| chip.erase_count(block)).collect();
    let (min, max) = (
        counts.iter().min().expect("blocks are left"),
        counts.iter().max().expect("as before"),
    );
    Wear {
        spread: max - min,
        mean: counts.iter().sum::<u32>() as f64 / counts.len() as f64,
    }
}

/// The chips to wear out: a small one; in the long form also those of real size, with a rated life
/// of a thousand cycles.
fn rigs(scheme: &'static Scheme, cells: Cells, budget: &Budget) -> Vec<Rig> {
    let (small, endurance) = match cells {
        Cells::Mlc => (*Profile::find("torture").expect("a built-in profile"), 20),
        Cells::Slc | Cells::Tlc | Cells::Qlc => (cells.profile(), budget.pick(40, 40, 100)),
    };
    let small = Profile { endurance, ..small };
    let mut rigs = vec![
        Rig::on_profile(scheme, cells, small, 512, budget.params(&[]), budget.seed)
            .variant("small", |_| {}),
    ];
    if budget.is_long() {
        let name = cells.part();
        let part = Profile {
            endurance: 1_000,
            ..*Profile::find(name).expect("a built-in profile")
        };
        // The largest number of logical pages that gives at most 256 blocks.
        let layout =
            |pages| Rig::on_profile(scheme, cells, part, pages, budget.params(&[]), budget.seed);
        let step = part.geometry.pages_per_block;
        let pages = (1..)
            .map(|n| n * step)
            .take_while(|pages| layout(*pages).profile.geometry.blocks <= 256)
            .last();
        rigs.push(layout(pages.expect("some device has 256 blocks")).variant(name, |_| {}));
    }
    rigs
}

/// Writes until the device is read-only.
fn wear_out(rig: &Rig, host: &mut Host) -> Result<Load, String> {
    host.set_faults(FaultPlan {
        wear_out: 1.0,
        seed: rig.seed,
        ..FaultPlan::default()
    });
    let mut load = Load::new(rig);
    match load.run(host, u64::MAX) {
        Err(Trouble::Refused(FtlError::ReadOnly(_))) => Ok(load),
        Err(other) => Err(format!(
            "after {} writes: {}",
            load.writes,
            String::from(other)
        )),
        Ok(()) => unreachable!("the load has no end"),
    }
}

/// Checks that everything is readable and every write is refused.
fn is_read_only(host: &mut Host) -> Result<(), String> {
    host.settle_all()?;
    host.check()?;
    let page = vec![0x5A; host.ftl.chip().geometry().page_bytes as usize];
    let refused = [
        host.ftl.write(0, Lpn::new(0), &page),
        host.ftl.trim(0, Lpn::new(1), 1),
    ];
    if let Some(other) = refused
        .iter()
        .find(|outcome| !matches!(outcome, Err(FtlError::ReadOnly(_))))
    {
        return Err(format!("a request to a device at its end: {other:?}"));
    }
    host.run(&HostOp::Flush)?;
    host.settle_all()
}

/// Writes to chips until they are read-only: everything stays readable, also after a restart, and
/// wear was spread.
pub fn worn_out(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) {
    for rig in rigs(scheme, cells, verdicts.budget()) {
        let mut notes = Vec::new();
        verdicts.case(&format!("{}/worn_out", rig.path()), || {
            wears_out_evenly(&rig, &mut notes)
        });
        verdicts.note(notes);
    }
    for rig in rigs_with_region(scheme, cells, verdicts.budget()) {
        let mut notes = Vec::new();
        verdicts.case(&format!("{}/worn_out", rig.path()), || {
            let (load, bad) = reaches_its_end(&rig)?;
            notes.push(format!(
                "{}: read-only after {} writes, {bad} blocks bad",
                rig.path(),
                load.writes
            ));
            Ok(())
        });
        verdicts.note(notes);
    }
}

/// Chips with a region in SLC mode, if the scheme folds one: writes acknowledged on flash, and in a
/// buffer that a read-only device still has to empty.
fn rigs_with_region(scheme: &'static Scheme, cells: Cells, budget: &Budget) -> Vec<Rig> {
    if !has_param(scheme, "slc.victim") || !Cells::LONG_WORD_LINES.contains(&cells) {
        return Vec::new();
    }
    let rig = slc_rig(scheme, cells, false, budget).variant("slc_region", |rig| {
        rig.profile.endurance = 20;
    });
    let buffered = has_param(scheme, "leaftl.ack").then(|| {
        let rig = rig.clone().set("leaftl.ack", "buffer");
        rig.variant("slc_region_buffer", |_| {})
    });
    [rig].into_iter().chain(buffered).collect()
}

/// Writes until the device is read-only, restarts it, and does so again if the mount found space.
/// Returns the load until the first end, and the blocks that were bad then.
fn reaches_its_end(rig: &Rig) -> Result<(Load, u32), String> {
    let mut host = Host::format(rig);
    let load = wear_out(rig, &mut host)?;
    is_read_only(&mut host)?;
    let bad = host.ftl.stats().blocks.bad;
    let mut host = host.remount()?;
    if host.ftl.stats().read_only.is_none() {
        wear_out(rig, &mut host).map_err(|why| format!("after a restart: {why}"))?;
    }
    is_read_only(&mut host).map_err(|why| format!("after a restart: {why}"))?;
    Ok((load, bad))
}

fn wears_out_evenly(rig: &Rig, notes: &mut Vec<String>) -> Result<(), String> {
    let (Load { writes, worn, .. }, bad) = reaches_its_end(rig)?;
    notes.push(format!(
        "{}: read-only after {writes} writes, {bad} of {} blocks bad, {:.0} erases a block, \
         spread {}",
        rig.path(),
        rig.profile.geometry.blocks,
        worn.mean,
        worn.spread
    ));
    let allowed = f64::max(12.0, worn.mean / 10.0);
    if worn.spread as f64 > allowed {
        return Err(format!(
            "erase counts are {} apart, more than {allowed:.0}",
            worn.spread
        ));
    }
    // The same load without moves of cold data.
    let unlevelled = rig.clone().set("wear.policy", "none");
    let mut host = Host::format(&unlevelled);
    let mut load = Load::new(&unlevelled);
    load.run(&mut host, writes)?;
    let without = load.worn;
    notes.push(format!(
        "{}: without levelling spread {} at {:.0} erases",
        rig.path(),
        without.spread,
        without.mean
    ));
    if without.spread < 3 * worn.spread {
        return Err(format!(
            "levelling wins little: {} instead of {}",
            worn.spread, without.spread
        ));
    }
    Ok(())
}

/// Bit errors are this many times as frequent as in the real part.
const BIT_ERROR_FACTOR: f64 = 5.0;

/// A worn MLC device that alternates between storage and reads: one day at a time, for two years.
fn grow_old(rig: &Rig, days: u32, patrols: bool) -> Result<u64, String> {
    let mut chip = rig.blank();
    for block in rig.profile.geometry.all_blocks() {
        let facts = BlockFacts {
            erase_count: rig.profile.endurance,
            ..BlockFacts::default()
        };
        chip.store_mut()
            .set_facts(block, facts)
            .expect("memory does not fail");
    }
    let chip = rig.open(chip.into_store());
    let ftl = rig
        .scheme
        .start(chip, &rig.config, Start::Format)
        .map_err(|error| error.to_string())?;
    let mut host = Host::over(rig, ftl, Model::new(rig.config.logical_pages, rig.seed));
    host.set_faults(FaultPlan {
        bit_errors: BIT_ERROR_FACTOR,
        seed: rig.seed,
        ..FaultPlan::default()
    });
    for lpn in 0..rig.config.logical_pages {
        host.run(&HostOp::Write {
            lpn,
            count: 1,
            fua: false,
        })?;
    }
    host.run(&HostOp::Flush)?;
    for _ in 0..days {
        host.ftl.chip_mut().age(24);
        // Idle time of the host.
        while patrols && host.ftl.idle(0, 64).map_err(|error| error.to_string())? {}
    }
    host.compare_all().map_err(|trouble| {
        format!(
            "{}, {} refreshes",
            String::from(trouble),
            host.ftl.stats().refreshes
        )
    })?;
    host.check()?;
    Ok(host.ftl.stats().refreshes)
}

/// Data is rewritten before it decays. Schemes without `scrub.hours` have no such case.
pub fn retention_refresh(scheme: &'static Scheme, verdicts: &mut Verdicts) {
    if !has_param(scheme, "scrub.hours") {
        return;
    }
    let days = verdicts.budget().pick(120, 120, 730);
    let part = *Profile::find("mlc-4k").expect("a built-in profile");
    let profile = Profile {
        geometry: Geometry {
            pages_per_block: 32,
            ..part.geometry
        },
        ..part
    };
    let params = verdicts.budget().params(&[("scrub.hours", "24")]);
    let rig = Rig::on_profile(
        scheme,
        Cells::Mlc,
        profile,
        512,
        params,
        verdicts.budget().seed,
    )
    .variant("old", |_| {});
    let mut notes = Vec::new();
    verdicts.case(&rig.path(), || {
        let refreshes = grow_old(&rig, days, true)?;
        notes.push(format!(
            "{}: {refreshes} blocks refreshed, nothing lost",
            rig.path()
        ));
        match grow_old(&rig, days, false) {
            Err(why) if why.contains("lost") || why.contains("cannot be read") => Ok(()),
            other => Err(format!(
                "without patrols the same device should have lost data: {other:?}"
            )),
        }
    });
    verdicts.note(notes);
}

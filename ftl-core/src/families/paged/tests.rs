//! Common tests of the schemes of this family, with all tables compared after every step. They run
//! random operations against a plain table, and cuts in the operations and in the mounts after
//! them. The tests of the schemes call them.

use super::*;
use crate::config::{FtlConfig, Params};
use crate::ftl::Ftl;
use nand_model::store::MemStore;
use nand_model::{BlockFacts, Cut, FaultPlan, Health, Pbn, Profile, SplitMix, Store};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Starts a scheme under test.
pub(crate) type New<P> = fn(Chip, &FtlConfig, Start) -> Result<PagedFtl<P>, FtlError>;

pub(crate) fn profile(name: &str, blocks: u32) -> Profile {
    Profile::find(name).unwrap().with_blocks(blocks)
}

pub(crate) fn config(logical_pages: u32, params: &[(&str, &str)]) -> FtlConfig {
    let mut config = FtlConfig {
        logical_pages,
        params: Params::default(),
    };
    params
        .iter()
        .for_each(|(key, value)| config.params.set(key, value));
    config
}

pub(crate) fn format<P: Policy>(new: New<P>, profile: Profile, config: &FtlConfig) -> PagedFtl<P> {
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    new(chip, config, Start::Format).unwrap()
}

pub(crate) fn remount<P: Policy>(new: New<P>, ftl: PagedFtl<P>, config: &FtlConfig) -> PagedFtl<P> {
    let mut chip = Box::new(ftl).into_chip();
    chip.power_on();
    new(chip, config, Start::Mount).unwrap()
}

pub(crate) fn content(page_bytes: u32, n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(page_bytes as usize / 8)
}

pub(crate) fn write<P: Policy>(ftl: &mut PagedFtl<P>, lpn: u32, n: u64) {
    let page = content(ftl.space.geometry().page_bytes, n);
    ftl.write(0, Lpn::new(lpn), &page).unwrap();
}

pub(crate) fn read<P: Policy>(ftl: &mut PagedFtl<P>, lpn: u32) -> u64 {
    let mut page = vec![1; ftl.space.geometry().page_bytes as usize];
    ftl.read(0, Lpn::new(lpn), &mut page).unwrap();
    let n = u64::from_le_bytes(page[..8].try_into().unwrap());
    assert!(
        page.chunks_exact(8).all(|word| word == n.to_le_bytes()),
        "page {lpn} is mixed"
    );
    n
}

pub(crate) fn assert_sound<P: Policy>(ftl: &mut PagedFtl<P>) {
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

/// Compares random writes, trims, flushes, checks and mounts with a plain table.
pub(crate) fn agrees_with_a_model<P: Policy>(
    new: New<P>,
    profile: Profile,
    logical_pages: u32,
    steps: u64,
    seed: u64,
    params: &[(&str, &str)],
) -> u64 {
    let config = config(logical_pages, params);
    let mut ftl = format(new, profile, &config);
    let mut rng = SplitMix::new(seed);
    let mut model = vec![0; logical_pages as usize];
    let (mut converts, mut collections) = (0, 0);
    for step in 1..=steps {
        let lpn = rng.below(logical_pages as u64) as u32;
        let extent =
            |rng: &mut SplitMix, max: u64| (1 + rng.below(max) as u32).min(logical_pages - lpn);
        match rng.below(40) {
            0 => {
                let count = extent(
                    &mut rng,
                    if step % 7 == 0 {
                        logical_pages as u64
                    } else {
                        20
                    },
                );
                ftl.trim(0, Lpn::new(lpn), count).unwrap();
                model[lpn as usize..][..count as usize].fill(0);
            }
            1 => drop(ftl.flush(0).unwrap()),
            2 => {
                let count = extent(&mut rng, 40);
                let page_bytes = profile.geometry.page_bytes;
                let pages: Vec<u8> = (0..count).flat_map(|_| content(page_bytes, step)).collect();
                ftl.write(0, Lpn::new(lpn), &pages).unwrap();
                model[lpn as usize..][..count as usize].fill(step);
            }
            3 => drop(ftl.idle(0, 50).unwrap()),
            4..25 => {
                write(&mut ftl, lpn, step);
                model[lpn as usize] = step;
            }
            _ => assert_eq!(
                read(&mut ftl, lpn),
                model[lpn as usize],
                "page {lpn} at step {step}"
            ),
        }
        if step % 997 == 0 {
            assert_sound(&mut ftl);
            let clean = step % 1994 == 0;
            if clean {
                ftl.shutdown(0).unwrap();
            }
            converts += ftl.stats().converts;
            collections += ftl.stats().gc_runs;
            ftl = remount(new, ftl, &config);
            assert_eq!(ftl.stats().mount.clean, clean, "at step {step}");
            assert_sound(&mut ftl);
        }
    }
    for lpn in 0..logical_pages {
        assert_eq!(
            read(&mut ftl, lpn),
            model[lpn as usize],
            "page {lpn} at the end"
        );
    }
    assert!(collections > 100, "{collections} collections");
    converts
}

/// Flash that outlives its scheme, also after a failed mount.
#[derive(Clone)]
pub(crate) struct Shared {
    store: Arc<Mutex<MemStore>>,
    /// The host refuses the next erase.
    refused: Arc<AtomicBool>,
}

impl Shared {
    fn new(profile: &Profile) -> Self {
        Self::over(MemStore::new(profile.geometry))
    }
    fn over(store: MemStore) -> Self {
        Shared {
            store: Arc::new(Mutex::new(store)),
            refused: Arc::default(),
        }
    }
    /// Returns an independent copy.
    fn branch(&self) -> Self {
        Self::over(self.store.lock().unwrap().clone())
    }
    fn start<P: Policy>(
        &self,
        new: New<P>,
        profile: Profile,
        config: &FtlConfig,
        how: Start,
        cut: Option<Cut>,
    ) -> Result<PagedFtl<P>, FtlError> {
        let mut chip = Chip::over(profile, self.clone()).unwrap();
        chip.set_faults(FaultPlan {
            cut,
            ..FaultPlan::default()
        });
        new(chip, config, how)
    }
}

impl Store for Shared {
    fn load(&mut self, each: &mut dyn FnMut(Pbn, BlockFacts, &[u8])) -> io::Result<()> {
        self.store.lock().unwrap().load(each)
    }
    fn read(
        &mut self,
        first: Ppn,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        self.store.lock().unwrap().read(first, data, oobs, health)
    }
    fn program(&mut self, first: Ppn, count: u32, data: &[u8], oobs: &[u8]) -> io::Result<()> {
        self.store.lock().unwrap().program(first, count, data, oobs)
    }
    fn program_as(&mut self, ppn: Ppn, data: &[u8], oob: &[u8], health: Health) -> io::Result<()> {
        self.store
            .lock()
            .unwrap()
            .program_as(ppn, data, oob, health)
    }
    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()> {
        self.store.lock().unwrap().and_oob(ppn, oob)
    }
    fn set_health(&mut self, ppn: Ppn, health: Health) -> io::Result<()> {
        self.store.lock().unwrap().set_health(ppn, health)
    }
    fn erase(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        if self.refused.swap(false, Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.store.lock().unwrap().erase(block, facts)
    }
    fn set_facts(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        self.store.lock().unwrap().set_facts(block, facts)
    }
}

/// Contents that a logical page may have after a cut: the durable one first, then all submitted
/// since.
pub(crate) struct Oracle(Vec<Vec<u64>>);

impl Oracle {
    fn new(pages: u32) -> Self {
        Oracle(vec![vec![0]; pages as usize])
    }
    fn ask(&mut self, lpns: std::ops::Range<u32>, n: u64) {
        lpns.for_each(|lpn| self.0[lpn as usize].push(n));
    }
    fn flushed(&mut self) {
        self.0
            .iter_mut()
            .for_each(|values| drop(values.drain(..values.len() - 1)));
    }
    /// Compares every page; the content read now is the only one allowed from now on.
    fn compare<P: Policy>(&mut self, ftl: &mut PagedFtl<P>, story: &str) {
        for (lpn, values) in (0..).zip(&mut self.0) {
            let got = read(ftl, lpn);
            assert!(
                values.contains(&got),
                "{story}: page {lpn} reads {got}, allowed {values:?}"
            );
            *values = vec![got];
        }
    }
}

/// Runs random operations until power fails or `steps` are done. Returns whether power held.
pub(crate) fn work<P: Policy>(
    ftl: &mut PagedFtl<P>,
    oracle: &mut Oracle,
    rng: &mut SplitMix,
    steps: u64,
    stamp: u64,
) -> bool {
    let logical_pages = ftl.logical_pages;
    let page_bytes = ftl.space.geometry().page_bytes;
    for step in stamp..stamp + steps {
        let lpn = rng.below(logical_pages as u64) as u32;
        let max = if rng.one_in(4) { logical_pages } else { 6 };
        let count = (1 + rng.below(max as u64) as u32).min(logical_pages - lpn);
        let outcome = match rng.below(24) {
            0 => {
                oracle.ask(lpn..lpn + count, 0);
                ftl.trim(0, Lpn::new(lpn), count)
            }
            1 | 2 => ftl.flush(0).inspect(|_| oracle.flushed()),
            _ => {
                let count = count.min(24);
                oracle.ask(lpn..lpn + count, step);
                let pages: Vec<u8> = (0..count).flat_map(|_| content(page_bytes, step)).collect();
                ftl.write(0, Lpn::new(lpn), &pages)
            }
        };
        match outcome {
            Ok(_) => {}
            Err(FtlError::PowerLost) => return false,
            Err(other) => panic!("step {step}: {other}, {:?}", ftl.stats()),
        }
    }
    true
}

pub(crate) fn survives_cuts<P: Policy>(
    new: New<P>,
    profile: Profile,
    logical_pages: u32,
    seed: u64,
    cuts: u64,
    params: &[(&str, &str)],
) -> u64 {
    let config = config(logical_pages, params);
    let mut rng = SplitMix::new(seed);
    let flash = Shared::new(&profile);
    let mut oracle = Oracle::new(logical_pages);
    let mut ftl = flash
        .start(new, profile, &config, Start::Format, None)
        .unwrap();
    assert!(work(&mut ftl, &mut oracle, &mut rng, 500, 1));
    drop(ftl);
    let mut checkpoints = 0;
    for round in 0..cuts {
        let at_op = rng.below(if round % 3 == 0 { 40 } else { 500 });
        let workload = rng.next_u64();
        for (number, cut) in Cut::menu(at_op, rng.next_u64()).into_iter().enumerate() {
            let story = format!("seed {seed}, round {round}, outcome {number}, {cut:?}");
            let flash = flash.branch();
            let mut oracle = Oracle(oracle.0.clone());
            let mut rng = SplitMix::new(workload);
            // Cuts: in the operations or in the mount before them; then two in the mounts after
            // them, or soon after a mount.
            let second = Cut {
                at_op: rng.below(6),
                ..cut
            };
            let third = Cut {
                at_op: rng.below(12),
                ..cut
            };
            for (steps, cut) in [(150, cut), (5, second), (5, third)] {
                match flash.start(new, profile, &config, Start::Mount, Some(cut)) {
                    Ok(mut ftl) => {
                        oracle.compare(&mut ftl, &story);
                        let stamp = 1_000_000 + rng.below(1_000_000);
                        work(&mut ftl, &mut oracle, &mut rng, steps, stamp);
                        checkpoints += ftl.stats().checkpoints;
                    }
                    Err(FtlError::PowerLost) => {}
                    Err(other) => panic!("{story}: {other}"),
                }
            }
            let ftl = flash.start(new, profile, &config, Start::Mount, None);
            let mut ftl = ftl.unwrap_or_else(|e| panic!("{story}: {e}"));
            assert_eq!(ftl.check().unwrap(), Vec::<String>::new(), "{story}");
            oracle.compare(&mut ftl, &story);
            assert!(work(&mut ftl, &mut oracle, &mut rng, 60, 3_000_000));
            assert_eq!(ftl.check().unwrap(), Vec::<String>::new(), "{story}, later");
            drop(ftl);
            // A process exit is no cut: it loses no acknowledged data.
            oracle.flushed();
            let mut ftl = flash
                .start(new, profile, &config, Start::Mount, None)
                .unwrap_or_else(|e| panic!("{story}, after the end of a process: {e}"));
            oracle.compare(&mut ftl, &story);
        }
    }
    checkpoints
}

/// The host refuses the erase before a trim a few times. Then the next process writes the page.
pub(crate) fn a_refused_trim_uses_up_no_version<P: Policy>(new: New<P>, profile: Profile) {
    let config = config(400, &[]);
    let flash = Shared::new(&profile);
    let start = |how| flash.start(new, profile, &config, how, None).unwrap();
    drop(start(Start::Format));
    // After a process that just ended, free blocks are erased again before their use.
    let mut ftl = start(Start::Mount);
    write(&mut ftl, 0, 1);
    for _ in 0..4 {
        flash.refused.store(true, Relaxed);
        ftl.trim(0, Lpn::new(0), 1).unwrap_err();
    }
    ftl.trim(0, Lpn::new(0), 1).unwrap();
    drop(ftl);
    let mut ftl = start(Start::Mount);
    write(&mut ftl, 0, 2);
    drop(ftl);
    assert_eq!(read(&mut start(Start::Mount), 0), 2);
}

pub(crate) fn small_slc() -> Profile {
    let slc = profile("slc-2k", 72);
    Profile {
        geometry: Geometry {
            pages_per_block: 16,
            page_bytes: 512,
            ..slc.geometry
        },
        ..slc
    }
}

/// Runs [`agrees_with_a_model`] on both cell types; `cache` is the parameter for a small cache, and
/// its value.
pub(crate) fn cached_map_agrees_with_a_model<P: Policy>(new: New<P>, cache: (&str, &str)) {
    let small = [("ckpt.interval", "500"), cache, ("map.age_window", "32")];
    agrees_with_a_model(new, profile("torture", 64), 560, 40_000, 1, &small);
    agrees_with_a_model(new, small_slc(), 600, 40_000, 2, &small[..2]);
    agrees_with_a_model(new, small_slc(), 600, 20_000, 3, &[]);
}

/// Runs [`survives_cuts`] on both cell types, with checkpoints and with the age window alone.
pub(crate) fn cached_map_survives_cuts<P: Policy>(new: New<P>, cache: (&str, &str)) {
    let checkpointed = [("ckpt.interval", "120"), cache];
    let checkpoints = survives_cuts(new, profile("torture", 64), 400, 3, 20, &checkpointed);
    assert!(checkpoints > 40, "{checkpoints}");
    let window = [("ckpt.interval", "0"), ("map.age_window", "32"), cache];
    survives_cuts(new, profile("torture", 64), 400, 4, 20, &window);
    survives_cuts(new, small_slc(), 400, 5, 20, &checkpointed);
}

/// Runs [`agrees_with_a_model`] and [`survives_cuts`] under every placement except the default, on
/// both cell types.
pub(crate) fn every_placement_keeps_what_it_must<P: Policy>(new: New<P>) {
    for (seed, placement) in (6..).zip(["single", "age", "sepbit", "mida", "midas", "mdc"]) {
        let params = [("gc.placement", placement), ("ckpt.interval", "120")];
        agrees_with_a_model(new, profile("torture", 80), 560, 8_000, seed, &params);
        agrees_with_a_model(new, small_slc(), 400, 8_000, seed, &params[..1]);
        survives_cuts(new, profile("torture", 80), 400, seed, 4, &params);
    }
}

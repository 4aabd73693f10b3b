use super::*;
use crate::format::UNMAPPED;
use crate::schemes::{FlatMap, Ideal};
use nand_model::store::MemStore;
use nand_model::{Geometry, Nanos, Pbn, SplitMix, Suspend};

pub(super) fn start(chip: Chip, config: &FtlConfig, how: Start) -> Result<Box<dyn Ftl>, FtlError> {
    super::start::<Ideal>(chip, config, how)
}

pub(super) fn create_ideal(
    chip: Chip,
    config: &FtlConfig,
    how: Start,
) -> Result<PageMapFtl<FlatMap>, FtlError> {
    let own = own::<Ideal>(chip.geometry(), config.logical_pages);
    create(Ideal::NAME, own, chip, config, how, None)
}

fn torture(blocks: u32) -> Profile {
    Profile::find("torture").unwrap().with_blocks(blocks)
}

pub(super) fn config(logical_pages: u32, params: &[(&str, &str)]) -> FtlConfig {
    let mut config = FtlConfig {
        logical_pages,
        params: Params::default(),
    };
    params
        .iter()
        .for_each(|(key, value)| config.params.set(key, value));
    config
}

pub(super) fn format(profile: Profile, config: &FtlConfig) -> Box<dyn Ftl> {
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    start(chip, config, Start::Format).unwrap()
}

pub(super) fn page(geometry: &Geometry, n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(geometry.page_bytes as usize / 8)
}

#[test]
fn what_was_written_is_read_back_through_collections_and_mounts() {
    let profile = torture(40);
    let config = config(300, &[("ckpt.interval", "500")]);
    let mut ftl = format(profile, &config);
    let mut rng = SplitMix::new(1);
    let mut model = vec![None; 300];
    for step in 0..20_000u64 {
        let lpn = rng.below(300) as u32;
        match rng.below(20) {
            0 => {
                let count = rng.below(20).min(300 - lpn as u64) as u32;
                ftl.trim(0, Lpn::new(lpn), count).unwrap();
                model[lpn as usize..][..count as usize].fill(None);
            }
            1 => drop(ftl.flush(0).unwrap()),
            2..12 => {
                ftl.write(0, Lpn::new(lpn), &page(&profile.geometry, step))
                    .unwrap();
                model[lpn as usize] = Some(step);
            }
            _ => {
                let mut out = vec![1; 1024];
                ftl.read(0, Lpn::new(lpn), &mut out).unwrap();
                assert_eq!(
                    out,
                    page(&profile.geometry, model[lpn as usize].unwrap_or(0)),
                    "page {lpn} at {step}"
                );
            }
        }
        if step % 997 == 0 {
            assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
            if step % 1994 == 0 {
                ftl.shutdown(0).unwrap();
            }
            let mut chip = ftl.into_chip();
            chip.power_on();
            ftl = start(chip, &config, Start::Mount).unwrap();
            assert_eq!(ftl.stats().mount.clean, step % 1994 == 0, "at {step}");
        }
    }
    assert!(ftl.stats().mapped_pages > 100);
}

#[test]
fn lookups_cost_one_page_read_and_writes_one_program() {
    let profile = Profile::find("mnftl").unwrap().with_blocks(64);
    let mut ftl = format(profile, &config(1000, &[("ckpt.interval", "0")]));
    let data = page(&profile.geometry, 9);
    assert_eq!(ftl.write(0, Lpn::new(5), &data).unwrap(), 800_000);
    let mut out = vec![0; 2048];
    assert_eq!(
        ftl.read(1_000_000, Lpn::new(5), &mut out).unwrap(),
        1_060_000
    );
    assert_eq!(
        ftl.read(2_000_000, Lpn::new(6), &mut out).unwrap(),
        2_000_000,
        "an unmapped page costs nothing"
    );
}

#[test]
fn the_map_is_dense_and_unmapped_is_all_ones() {
    assert_eq!(UNMAPPED, u32::MAX);
}

/// Allowed values of each page: the newest value that a FLUSH covered, and all submitted after it.
struct Allowed(Vec<Vec<u64>>);

impl Allowed {
    fn submit(&mut self, lpn: u32, value: u64) {
        self.0[lpn as usize].push(value);
    }
    fn flushed(&mut self) {
        self.0
            .iter_mut()
            .for_each(|values| drop(values.drain(..values.len() - 1)));
    }
    fn check(&mut self, ftl: &mut dyn Ftl, context: &str) {
        for (lpn, allowed) in self.0.iter_mut().enumerate() {
            let mut out = vec![1; 1024];
            ftl.read(0, Lpn::new(lpn as u32), &mut out)
                .unwrap_or_else(|e| panic!("{context}: page {lpn}: {e}"));
            let value = u64::from_le_bytes(out[..8].try_into().unwrap());
            assert!(
                out.chunks_exact(8).all(|c| c == &out[..8]),
                "{context}: page {lpn} is a mixture"
            );
            assert!(
                allowed.contains(&value),
                "{context}: page {lpn} reads {value}, allowed {allowed:?}"
            );
            *allowed = vec![value];
        }
    }
}

/// Runs a seeded workload until it ends or power fails. Returns the flash and its allowed content.
fn run_until_cut(
    profile: Profile,
    config: &FtlConfig,
    cut: Option<nand_model::Cut>,
) -> (Chip, Allowed, u64) {
    let pages = config.logical_pages;
    let mut ftl = format(profile, config);
    ftl.chip_mut().set_faults(nand_model::FaultPlan {
        cut,
        ..Default::default()
    });
    let mut allowed = Allowed(vec![vec![0]; pages as usize]);
    let mut rng = SplitMix::new(3);
    for step in 1..900u64 {
        let lpn = rng.below(pages as u64) as u32;
        let outcome = match rng.below(24) {
            0 => {
                let count = (1 + rng.below(12) as u32).min(pages - lpn);
                (lpn..lpn + count).for_each(|lpn| allowed.submit(lpn, 0));
                ftl.trim(0, Lpn::new(lpn), count)
            }
            1 | 2 => {
                let done = ftl.flush(0);
                if done.is_ok() {
                    allowed.flushed();
                }
                done
            }
            _ => {
                allowed.submit(lpn, step);
                ftl.write(0, Lpn::new(lpn), &page(&profile.geometry, step))
            }
        };
        match outcome {
            Ok(_) => {}
            Err(FtlError::PowerLost) => break,
            Err(other) => panic!("step {step}: {other}"),
        }
    }
    let ops = ftl.chip().ops();
    let mut chip = ftl.into_chip();
    chip.power_on();
    (chip, allowed, ops)
}

#[test]
fn flushed_data_survives_cuts_with_every_outcome() {
    let profile = torture(40);
    survives_cuts(profile, &config(250, &[("ckpt.interval", "300")]));
    let paced = [("ckpt.interval", "300"), ("gc.pace", "even")];
    survives_cuts(profile, &config(250, &paced));
}

fn survives_cuts(profile: Profile, config: &FtlConfig) {
    let (_, _, ops) = run_until_cut(profile, config, None);
    assert!(ops > 1_000, "{ops} operations");
    for at_op in (0..ops).step_by(7) {
        for cut in nand_model::Cut::menu(at_op, at_op) {
            let context = format!("{cut:?}");
            let (chip, mut allowed, _) = run_until_cut(profile, config, Some(cut));
            let mut ftl = start(chip, config, Start::Mount)
                .unwrap_or_else(|e| panic!("{context}: mount: {e}"));
            assert_eq!(ftl.check().unwrap(), Vec::<String>::new(), "{context}");
            allowed.check(&mut *ftl, &context);
            for i in 0..32 {
                let lpn = (i * 37 + at_op as u32) % 250;
                allowed.submit(lpn, 5_000 + i as u64);
                ftl.write(0, Lpn::new(lpn), &page(&profile.geometry, 5_000 + i as u64))
                    .unwrap();
                if i % 5 == 0 {
                    ftl.flush(0).unwrap();
                    allowed.flushed();
                }
            }
            let mut chip = ftl.into_chip();
            chip.power_on();
            let mut ftl = start(chip, config, Start::Mount).unwrap();
            assert_eq!(ftl.check().unwrap(), Vec::<String>::new(), "{context}");
            allowed.check(&mut *ftl, &context);
        }
    }
}

/// A refresh would empty the open block of a unit; the streams of a placement belong to none.
#[test]
fn open_blocks_of_a_placement_are_no_units() {
    let profile = torture(40);
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    let config = config(250, &[("gc.placement", "sepbit")]);
    let mut ftl = create_ideal(chip, &config, Start::Format).unwrap();
    let mut rng = SplitMix::new(1);
    for step in 0..4_000 {
        let lpn = Lpn::new(rng.below(250) as u32);
        ftl.write(0, lpn, &page(&profile.geometry, step)).unwrap();
    }
    let open: Vec<_> = (0..ftl.space.streams())
        .filter_map(|stream| ftl.space.open_block(stream))
        .collect();
    assert!(open.len() > 3, "{open:?}");
    assert!(
        !open
            .iter()
            .any(|(block, _)| ftl.space.is_open_for_unit(*block))
    );
}

/// A host that writes every 10 ms and reads shortly after: GC takes longer than that at times.
/// Returns the emulated times of the reads, ascending, and the pages that GC moved.
fn reads_beside_gc(suspend: Suspend) -> (Vec<Nanos>, u64) {
    let mut profile = torture(40);
    profile.timing.suspend = suspend;
    let mut ftl = format(profile, &config(400, &[]));
    let (mut rng, mut times, mut now) = (SplitMix::new(5), Vec::new(), 0);
    let mut model = [0; 400];
    for step in 1..=4_000u64 {
        now += 10_000_000;
        let lpn = if step <= 400 {
            step - 1
        } else {
            rng.below(400)
        };
        let content = page(&profile.geometry, step);
        ftl.write(now, Lpn::new(lpn as u32), &content).unwrap();
        model[lpn as usize] = step;
        if step <= 400 {
            continue;
        }
        let (lpn, at) = (rng.below(400), now + rng.below(2_000_000));
        let mut out = vec![1; 1024];
        let done = ftl.read(at, Lpn::new(lpn as u32), &mut out).unwrap();
        assert_eq!(out, page(&profile.geometry, model[lpn as usize]));
        times.push(done - at);
    }
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
    times.sort_unstable();
    (times, ftl.stats().gc_pages_moved)
}

#[test]
fn reads_beside_gc_are_faster_on_a_device_that_suspends() {
    let (plain, moved) = reads_beside_gc(Suspend::NONE);
    let (suspended, moved_as_well) = reads_beside_gc(Suspend {
        erase_ns: Some(60_000),
        program_ns: Some(30_000),
        resume_ns: 10_000,
    });
    assert!(moved > 1_000, "GC moved {moved} pages");
    assert_eq!(moved, moved_as_well, "timing changes no decision");
    let part = |times: &[Nanos], percent: usize| times[times.len() * percent / 100];
    // Half of the reads wait for the program of the write before, or for GC.
    assert!(part(&plain, 90) > 5_000_000, "{} ns", part(&plain, 90));
    assert_eq!(part(&suspended, 90), 30_000 + 50_000);
    assert!(
        part(&suspended, 99) < part(&plain, 99) / 10,
        "{} ns, without suspension {} ns",
        part(&suspended, 99),
        part(&plain, 99)
    );
}

/// A host that writes at half the rate that the device sustains. Returns the times of its writes in
/// a GC steady state, ascending, and the pages that GC moved.
fn writes_beside_gc(pace: &str, is_idle_used: bool) -> (Vec<Nanos>, u64) {
    let profile = torture(60);
    let mut ftl = format(profile, &config(500, &[("gc.pace", pace)]));
    let (mut rng, mut times, mut now) = (SplitMix::new(5), Vec::new(), 0);
    let mut model = [0; 500];
    for step in 1..=8_000u64 {
        now += 8_000_000;
        let lpn = if step <= 500 {
            step - 1
        } else {
            rng.below(500)
        };
        let mut free = ftl.chip().busy_until();
        while is_idle_used && free < now && ftl.idle(free, 1).unwrap() {
            free = ftl.chip().busy_until().max(free + 1);
        }
        let content = page(&profile.geometry, step);
        let done = ftl.write(now, Lpn::new(lpn as u32), &content).unwrap();
        model[lpn as usize] = step;
        if step > 2_000 {
            times.push(done - now);
        }
    }
    for (lpn, step) in model.iter().enumerate() {
        let mut out = vec![1; 1024];
        ftl.read(now, Lpn::new(lpn as u32), &mut out).unwrap();
        assert_eq!(out, page(&profile.geometry, *step));
    }
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
    times.sort_unstable();
    (times, ftl.stats().gc_pages_moved)
}

#[test]
fn paced_gc_makes_no_write_wait_for_a_whole_victim() {
    let (at_once, moved) = writes_beside_gc("at_once", false);
    let (even, moved_evenly) = writes_beside_gc("even", false);
    let (idle, moved_when_idle) = writes_beside_gc("even", true);
    let part = |times: &[Nanos]| times[times.len() * 999 / 1000];
    let figures = format!(
        "p99.9 {} {} {} ns, moved {moved} {moved_evenly} {moved_when_idle} pages",
        part(&at_once),
        part(&even),
        part(&idle)
    );
    assert!(moved > 500, "{figures}");
    assert!(part(&even) < part(&at_once) / 2, "{figures}");
    assert!(part(&idle) <= part(&even), "{figures}");
    // One block more is free, so victims have more valid pages.
    assert!(moved_evenly < moved * 3 / 2, "{figures}");
}

/// FIFO takes blocks in the order of closing, and other rules take the oldest of equal blocks.
/// After a mount the order is that of opening, which is equal for one stream; it is not that of
/// block numbers.
#[test]
fn a_mount_keeps_the_order_of_blocks() {
    let profile = torture(40);
    let params = [
        ("gc.policy", "fifo"),
        ("gc.placement", "single"),
        ("ckpt.interval", "0"),
    ];
    let config = config(450, &params);
    let order =
        |ftl: &PageMapFtl<FlatMap>| -> Vec<Pbn> { ftl.space.table.victims_by_closing().collect() };
    for clean in [true, false] {
        let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
        let mut ftl = create_ideal(chip, &config, Start::Format).unwrap();
        let mut rng = SplitMix::new(3);
        for _ in 0..4_000 {
            let lpn = Lpn::new(rng.below(450) as u32);
            ftl.write(0, lpn, &page(&profile.geometry, 1)).unwrap();
        }
        let mut before = order(&ftl);
        assert!(before.len() > 20 && !before.is_sorted(), "{before:?}");
        if clean {
            ftl.shutdown(0).unwrap();
        }
        let mut chip = Box::new(ftl).into_chip();
        chip.power_on();
        let ftl = create_ideal(chip, &config, Start::Mount).unwrap();
        let mut after = order(&ftl);
        let ages: Vec<u32> = (after.iter())
            .map(|block| ftl.space.table.unchanged_for(*block))
            .collect();
        assert!(ages.is_sorted_by(|a, b| a > b), "clean: {clean}: {ages:?}");
        // A clean shutdown collects blocks for its checkpoint.
        after.retain(|block| before.contains(block));
        before.retain(|block| after.contains(block));
        assert!(before.len() > 20, "clean: {clean}: {before:?}");
        assert_eq!(after, before, "clean: {clean}");
    }
}

//! A page map over a device whose first blocks are in SLC mode.

use super::tests::{config, create_ideal, format, page, start};
use super::*;
use crate::schemes::{FlatMap, Scheme};
use crate::stats::StreamKind;
use nand_model::store::MemStore;
use nand_model::{Pairing, Pbn, SlcRegion, SplitMix};

const BLOCKS: u32 = 48;
const PAGES: u32 = 500;

/// Blocks of 24 pages in word lines of three; the first 8 of 48 blocks have 8 pages each.
fn part() -> Profile {
    let mut part = Profile::find("torture").unwrap().with_blocks(BLOCKS);
    part.geometry.pages_per_block = 24;
    part.pairing = Pairing::parse("staggered", 3).unwrap();
    part.timing.program_ns = [500_000, 1_300_000, 2_600_000, 2_600_000];
    part.slc = Some(SlcRegion::typical(&part, 1_600));
    part
}

fn new(params: &[(&str, &str)]) -> PageMapFtl<FlatMap> {
    let chip = Chip::over(part(), MemStore::new(part().geometry)).unwrap();
    create_ideal(chip, &config(PAGES, params), Start::Format).unwrap()
}

fn programs(ftl: &dyn Ftl, cause: Cause) -> u64 {
    ftl.chip().counters().of(cause).programs
}

fn write(ftl: &mut dyn Ftl, lpn: u32, value: u64) {
    let data = page(&part().geometry, value);
    ftl.write(0, Lpn::new(lpn), &data).unwrap();
}

#[test]
fn host_data_enters_the_region_and_folding_copies_it_out() {
    let mut ftl = new(&[("ckpt.interval", "0")]);
    assert_eq!((ftl.space.free_slc_blocks(), part().slc_blocks()), (8, 8));
    let in_region = |ftl: &PageMapFtl<FlatMap>, lpn| {
        let ppn = ftl.map.pages.get(Lpn::new(lpn)).unwrap();
        part().is_slc(part().geometry.block_of(ppn))
    };
    // The region takes 64 pages before the first block is folded.
    (0..64).for_each(|lpn| write(&mut ftl, lpn, u64::from(lpn)));
    assert!((0..64).all(|lpn| in_region(&ftl, lpn)));
    assert_eq!(programs(&ftl, Cause::Fold), 0);
    (64..300).for_each(|lpn| write(&mut ftl, lpn, u64::from(lpn)));
    assert!(in_region(&ftl, 299) && !in_region(&ftl, 0));
    // Oldest first, whole blocks of 8 pages; the copies became safe by later ones, without padding.
    let folded = (0..300).filter(|lpn| !in_region(&ftl, *lpn)).count() as u64;
    assert_eq!(programs(&ftl, Cause::Fold), folded);
    assert!(
        (0..folded as u32).all(|lpn| !in_region(&ftl, lpn)),
        "in order"
    );
    assert!(programs(&ftl, Cause::Pad) < 60);
    assert_eq!(ftl.chip().counters().of(Cause::Gc).erases, 0);
    assert!(ftl.chip().counters().of(Cause::Fold).erases >= folded / 8 - 2);
    let copies = ftl
        .streams()
        .iter()
        .find(|view| view.kind == StreamKind::Copies);
    assert!(copies.unwrap().pages >= folded);
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_block_without_valid_pages_is_erased_without_a_copy() {
    let mut ftl = new(&[("ckpt.interval", "0")]);
    for value in 0..2_000 {
        write(&mut ftl, value as u32 % 8, value);
    }
    assert_eq!(programs(&ftl, Cause::Fold), 0);
    assert!(ftl.chip().counters().of(Cause::Fold).erases > 200);
}

#[test]
fn writes_go_to_the_other_blocks_if_the_region_is_full_and_folding_waits_for_idle_time() {
    let mut ftl = new(&[("slc.full", "direct")]);
    (0..300).for_each(|lpn| write(&mut ftl, lpn, 7));
    assert_eq!(programs(&ftl, Cause::Fold), 0);
    assert_eq!(ftl.space.free_slc_blocks(), 0);
    while ftl.idle(0, 8).unwrap() {}
    assert!(ftl.space.free_slc_blocks() + ftl.space.released_slc_blocks() >= 4);
    assert!(programs(&ftl, Cause::Fold) > 0);
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

#[test]
fn content_survives_folding_mounts_and_wear_levelling_which_leaves_the_region_alone() {
    for (victim, full) in [("fifo", "fold"), ("greedy", "fold"), ("fifo", "direct")] {
        let params = [
            ("slc.victim", victim),
            ("slc.full", full),
            ("ckpt.interval", "500"),
        ];
        let config = config(PAGES, &params);
        let mut ftl = format(part(), &config);
        let mut rng = SplitMix::new(1);
        let mut model = vec![None; PAGES as usize];
        for step in 0..12_000u64 {
            let lpn = rng.below(u64::from(PAGES)) as u32;
            match rng.below(20) {
                0 => {
                    let count = rng.below(20).min(u64::from(PAGES - lpn)) as u32;
                    ftl.trim(0, Lpn::new(lpn), count).unwrap();
                    model[lpn as usize..][..count as usize].fill(None);
                }
                1 => drop(ftl.flush(0).unwrap()),
                2 => drop(ftl.idle(0, 20).unwrap()),
                3..14 => {
                    write(&mut *ftl, lpn, step);
                    model[lpn as usize] = Some(step);
                }
                _ => {
                    let mut out = vec![1; 1024];
                    ftl.read(0, Lpn::new(lpn), &mut out).unwrap();
                    let value = model[lpn as usize].unwrap_or(0);
                    assert_eq!(out, page(&part().geometry, value), "page {lpn} at {step}");
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
        let counters = ftl.chip().counters();
        assert!(counters.of(Cause::Fold).programs > 500, "{victim} {full}");
        // Programs of copies never went to the region: its blocks have the host's erases only.
        let of_region = (0..8).map(|block| ftl.chip().erase_count(Pbn::new(block)));
        assert!(of_region.sum::<u32>() > 0);
    }
}

#[test]
fn what_a_region_cannot_be_is_refused_before_anything_is_made() {
    let scheme = |name| Scheme::find(name).unwrap();
    let params = |list: &[(&str, &str)]| config(0, list).params;
    let tlc = Profile::find("tlc-16k").unwrap();
    let with = |share| Profile {
        slc: Some(SlcRegion::typical(tlc, share)),
        ..*tlc
    };
    let refused = |name, profile: &Profile, list: &[(&str, &str)]| {
        let layout = scheme(name).layout(profile, 256 << 20, 0.07, &params(list));
        layout.unwrap_err().to_string()
    };
    let text = refused("bast", &with(500), &[]);
    assert!(text.contains("scheme bast cannot fold") && text.contains("pagemap"));
    let text = refused("pagemap", &with(500), &[]);
    assert!(text.contains("open at a time need 5"), "{text}");
    let text = refused("pagemap", &with(2_000), &[("gc.placement", "single")]);
    assert!(text.contains("copies_apart"), "{text}");
    let text = refused("pagemap", tlc, &[("slc.full", "direct")]);
    assert!(text.contains("slc.full: the device has no SLC region"));
    let text = refused("pagemap", &with(5_001), &[]);
    assert!(text.contains("50.01 %"), "{text}");
}

/// The region's blocks count as the pages that they can take.
#[test]
fn effective_over_provisioning_counts_the_pages_of_slc_mode() {
    let tlc = Profile::find("tlc-16k").unwrap();
    let part = Profile {
        slc: Some(SlcRegion::typical(tlc, 1_000)),
        ..*tlc
    };
    let (scheme, none) = (Scheme::find("pagemap").unwrap(), Params::default());
    for (size, op) in [(1 << 30, 0.28), (4 << 30, 0.28), (16 << 30, 1.0)] {
        let of = |op: f64| scheme.layout_effective(&part, size, op, &none);
        let (op, layout) = match of(op) {
            Ok(layout) => (op, layout),
            Err(refused) => {
                let text = refused.to_string();
                let (_, range) = text.split_once("can have ").unwrap();
                let least: f64 = range.split(' ').next().unwrap().parse().unwrap();
                assert!(least > op * 100.0, "{text}");
                (least / 100.0, of(least / 100.0).unwrap())
            }
        };
        let profile = layout.profile;
        let found = layout.effective_op_percent(profile.factory_bad_blocks()) / 100.0;
        let block = 385.0 / f64::from(layout.logical_pages);
        assert!(found >= op && found < op + block, "{found}, not {op}");
        let all = Profile {
            slc: None,
            ..profile
        }
        .geometry
        .pages();
        let counted = f64::from(layout.logical_pages) * (1.0 + found);
        let in_slc = f64::from(profile.slc_blocks() * 256);
        let bad = f64::from(profile.factory_bad_blocks() * 384);
        assert!((all as f64 - counted - in_slc - bad).abs() < 385.0 * 20.0);
    }
    for size in [1u64 << 30, 8 << 30] {
        let layout = scheme.layout(&part, size, 0.07, &none).unwrap();
        let (profile, blocks) = (layout.profile, layout.profile.geometry.blocks);
        let without = scheme.layout(tlc, size, 0.07, &none).unwrap();
        let others = blocks - profile.slc_blocks();
        let bad = profile.slc_blocks() * profile.max_bad_permille / 1000 + 2;
        let without = without.profile.geometry.blocks;
        assert!((without..=without + bad).contains(&others), "on top");
        let raw = profile.geometry.data_bytes();
        let on = scheme.layout_on(&part, size, raw, &none).unwrap();
        assert_eq!(on.profile, profile);
    }
}

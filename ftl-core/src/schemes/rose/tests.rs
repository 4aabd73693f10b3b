//! The paper's example of a swap, its charges, and the equality of ROSE-M and ROSE.

use crate::addr::Lpn;
use crate::config::{FtlConfig, Params};
use crate::events::EventKind;
use crate::families::hybrid::tests::{Device, agrees_with_a_model};
use crate::ftl::{Ftl, Start};
use crate::schemes::Scheme;
use nand_model::store::MemStore;
use nand_model::{Chip, Geometry, PageOrder, Profile, SplitMix};

const US: u64 = 1_000;

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model("rose", &[]);
    for (key, value) in [
        ("rose.victim", "rr"),
        ("rose.victim", "cat"),
        ("rose.victim", "last"),
        ("rose.fpr", "off"),
    ] {
        agrees_with_a_model(
            "rose",
            &[
                (key, value),
                ("rose.cheap_merge", "off"),
                ("rose.ebw", "off"),
            ],
        );
    }
}

fn start(profile: Profile, logical_pages: u32, params: &[(&str, &str)]) -> Box<dyn Ftl<MemStore>> {
    let mut config = FtlConfig {
        logical_pages,
        params: Params::default(),
    };
    [("wear.policy", "none")]
        .iter()
        .chain(params)
        .for_each(|(key, value)| config.params.set(key, value));
    let chip = Chip::open(profile, MemStore::new(profile.geometry)).unwrap();
    Scheme::find("rose")
        .unwrap()
        .start(chip, &config, Start::Format)
        .unwrap()
}

/// Returns ROSE's part with `blocks` blocks of `pages_per_block` pages.
fn part(blocks: u32, pages_per_block: u32) -> Profile {
    let rose = *Profile::find("rose").unwrap();
    Profile {
        geometry: Geometry {
            blocks,
            pages_per_block,
            ..rose.geometry
        },
        ..rose
    }
}

fn write(ftl: &mut dyn Ftl<MemStore>, lpn: u32, count: u32, n: u64) -> u64 {
    let at = ftl.chip().busy_until();
    ftl.write(
        at,
        Lpn::new(lpn),
        &n.to_le_bytes().repeat(256 * count as usize),
    )
    .unwrap()
        - at
}

fn work(ftl: &dyn Ftl<MemStore>) -> (u64, u64) {
    let total = ftl.chip().counters().total();
    (total.programs, total.erases)
}

#[test]
fn a_logical_block_is_merged_for_the_papers_charges() {
    let mut device = Device::new(
        "rose",
        "rose",
        60,
        20 * 64,
        &[("wear.policy", "none"), ("log.blocks", "2")],
    );
    device.write(0, 20 * 64, 1);
    (0..64)
        .rev()
        .for_each(|page| _ = device.write(64 + page, 1, 2));
    (0..64).for_each(|page| _ = device.write(64 * (2 + page % 16) + page, 1, 2));
    // The first log block has pages of one logical block, the second those of many.
    assert_eq!(device.write(5, 1, 3), (263 + 64 * 351 + 2 * 2000) * US);
    device.assert_sound();
}

/// Age counts log blocks reclaimed since this one was opened. Of two with equal cost, the older is
/// merged.
#[test]
fn of_equal_costs_the_older_log_block_is_merged() {
    let mut device = Device::new(
        "rose",
        "rose",
        60,
        20 * 64,
        &[("wear.policy", "none"), ("log.blocks", "2")],
    );
    device.write(0, 20 * 64, 1);
    let mut logs = Vec::new();
    for lbn in 1..=4 {
        device.write(64 * lbn + 63, 1, 2);
        let chip = device.ftl.chip();
        logs.extend(
            chip.geometry()
                .all_blocks()
                .find(|block| chip.programmed(*block) == 1),
        );
        (0..63)
            .rev()
            .for_each(|page| _ = device.write(64 * lbn + page, 1, 2));
    }
    let collected = device
        .ftl
        .events()
        .since(0)
        .filter(|(_, event)| event.kind == EventKind::Gc);
    assert!(
        collected
            .filter_map(|(_, event)| event.block)
            .eq(logs[..2].iter().copied()),
        "{logs:?}"
    );
}

/// Figure 4: three logical blocks of four pages, and three log blocks. Block M has one page, of
/// logical block 2, whose data block has three free pages; log block L has one valid page.
#[test]
fn a_swap_copies_one_page_and_gains_two() {
    let sequence = [0, 1, 0, 1, 4, 5, 8, 4, 5, 0, 1, 0, 8, 0, 1, 4, 4, 6];
    let run = |fpr: &str| {
        let mode = [("gc.free_threshold", "2"), ("nand.pair_policy", "none")];
        let params = [&mode[..], &[("log.blocks", "3"), ("rose.fpr", fpr)]].concat();
        let mut ftl = start(part(64, 4), 12, &params);
        (0..)
            .zip(sequence)
            .for_each(|(n, lpn)| _ = write(&mut *ftl, lpn, 1, n));
        let before = work(&*ftl);
        write(&mut *ftl, 6, 1, 99);
        let after = work(&*ftl);
        // Pages written before the next reclamation.
        let mut room = 0;
        while work(&*ftl).1 == after.1 {
            write(&mut *ftl, 6, 1, 100);
            room += 1;
        }
        assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
        ((after.0 - before.0, after.1 - before.1), room)
    };
    let (with, without) = (run("on"), run("off"));
    assert_eq!(without.0, (2, 2), "the page and a copy; M and C are erased");
    assert_eq!(with.0, (3, 2), "and one copy more; M and L are erased");
    assert_eq!(with.1 - without.1, 2);
}

/// Every decision depends on page counts and on the pages that a data block has. So the program
/// order of a part does not change the programs and erases.
#[test]
fn rose_m_programs_and_erases_as_often_as_rose() {
    const BLOCKS: u32 = 30;
    let mut rng = SplitMix::new(11);
    for round in 0..12 {
        let in_order = Profile {
            order: PageOrder::Consecutive,
            nop: 1,
            ..part(60, 16)
        };
        let params: &[(&str, &str)] = match round % 4 {
            0 => &[],
            1 => &[("rose.fpr", "off")],
            2 => &[("maro.age_weight", "4"), ("log.blocks", "5")],
            _ => &[("rose.cheap_merge", "off"), ("rose.ebw", "off")],
        };
        let mut rose = start(part(60, 16), BLOCKS * 16, params);
        let mut rose_m = start(in_order, BLOCKS * 16, params);
        for n in 0..4_000 {
            let hot = rng.one_in(2);
            let lpn = rng.below(if hot { 64 } else { (BLOCKS * 16) as u64 }) as u32;
            let (lpn, count) = match rng.below(20) {
                0 => (lpn / 16 * 16, 16),
                1 => (lpn, (1 + rng.below(20) as u32).min(BLOCKS * 16 - lpn)),
                _ => (lpn, 1),
            };
            assert_eq!(
                write(&mut *rose, lpn, count, n),
                write(&mut *rose_m, lpn, count, n),
                "write {n} of round {round}"
            );
            assert_eq!(
                work(&*rose),
                work(&*rose_m),
                "after write {n} of round {round}"
            );
        }
        assert!(rose.stats().gc_runs > 30, "{} merges", rose.stats().gc_runs);
        assert_eq!(
            (rose.check().unwrap(), rose_m.check().unwrap()),
            (vec![], vec![])
        );
    }
}

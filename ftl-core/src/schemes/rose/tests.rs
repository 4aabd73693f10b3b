//! The paper's example of a swap, its charges, and the equality of ROSE-M and ROSE.

use super::*;
use crate::addr::Lpn;
use crate::events::EventKind;
use crate::families::hybrid::tests::{
    self, Device, agrees_with_a_model, part_of_rose, started, victim_rank, work,
};
use nand_model::store::MemStore;
use nand_model::{PageOrder, Profile, SplitMix};

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

fn start(profile: Profile, logical_pages: u32, params: &[(&str, &str)]) -> Box<dyn Ftl> {
    let mut config = FtlConfig {
        logical_pages,
        params: Params::default(),
    };
    [("wear.policy", "none")]
        .iter()
        .chain(params)
        .for_each(|(key, value)| config.params.set(key, value));
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    Scheme::find("rose")
        .unwrap()
        .start(chip, &config, Start::Format)
        .unwrap()
}

fn write(ftl: &mut dyn Ftl, lpn: u32, count: u32, n: u64) -> u64 {
    let at = ftl.chip().busy_until();
    ftl.write(
        at,
        Lpn::new(lpn),
        &n.to_le_bytes().repeat(256 * count as usize),
    )
    .unwrap()
        - at
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

/// Figure 4's writes: single pages to three logical blocks of four.
const FIGURE_4: [u32; 18] = [0, 1, 0, 1, 4, 5, 8, 4, 5, 0, 1, 0, 8, 0, 1, 4, 4, 6];

/// Starts ROSE with blocks of four pages, so that tests can ask its policy, and writes single
/// pages.
fn asked(writes: &[u32], params: &[(&str, &str)]) -> HybridFtl<Rose> {
    let mode = [
        ("gc.free_threshold", "2"),
        ("nand.pair_policy", "none"),
        ("wear.policy", "none"),
    ];
    let params = [&mode[..], params].concat();
    let (mut own, part) = (Params::default(), part_of_rose(64, 4));
    params.iter().for_each(|(key, value)| own.set(key, value));
    let policy = Rose::new(&own, &part.timing, 4).unwrap();
    let mut ftl = started(policy, part, 12, &params);
    writes
        .iter()
        .for_each(|lpn| tests::write(&mut ftl, *lpn, 1));
    ftl
}

/// Returns the scores of the log blocks, the oldest first.
fn scores(ftl: &mut HybridFtl<Rose>) -> Vec<f64> {
    ftl.map.with_policy_view(&ftl.space, |policy, view| {
        let score = |log| policy.score(log, view);
        view.logs.iter().map(score).collect()
    })
}

/// Equation 5 on the state of Figure 4, with Table 1's values: a copy takes 88 + 263 = 351 us, an
/// erase 2,000 us, the age weight is 1, alpha 0.5. By data block, live and dead pages: A 0 and 2, B
/// 1 and 2, C 0 and 1. Log block L has a live page of B, M one of C, N pages of A and B:
///
/// - L: -(1 + 0.5 x 2) x 351 - 2 x 2,000 = -4,702
/// - M: -(0 + 0.5 x 1) x 351 - 2 x 2,000 = -4,175.5, so M is merged, as in the figure
/// - N: -((0 + 0.5 x 2) + (1 + 0.5 x 2)) x 351 - 3 x 2,000 = -7,053
///
/// After the merge of M the others have age 1. Page 6 is in a new log block of age 0, and dead in
/// B, which has 0 live and 3 dead pages:
///
/// - L: 1 - 1.5 x 351 - 4,000 = -4,525.5
/// - N: 1 - (1 + 1.5) x 351 - 6,000 = -6,876.5
/// - the new one: 0 - 1.5 x 351 - 4,000 = -4,526.5: of equal costs the older is preferred
#[test]
fn the_score_is_that_of_equation_5() {
    let mut ftl = asked(&FIGURE_4, &[("log.blocks", "3"), ("rose.fpr", "off")]);
    assert_eq!(scores(&mut ftl), [-4_702.0, -4_175.5, -7_053.0]);
    assert_eq!(victim_rank(&mut ftl), Some(1), "M");
    tests::write(&mut ftl, 6, 1);
    assert_eq!(scores(&mut ftl), [-4_525.5, -6_876.5, -4_526.5]);
}

/// Two log blocks with pages of one logical block each. The first one's data block has 2 live and 2
/// dead pages, the second one's 0 and 4. With alpha 0.5 the copies count 2 + 0.5 x 2 = 3 and 0.5 x
/// 4 = 2 pages: the second is merged. If dead pages counted in full, it would be 4 and 4, and the
/// older one.
#[test]
fn dead_pages_count_half() {
    let full: Vec<u32> = (0..12).collect();
    let writes = [&full[..], &[0, 1, 0, 1], &[4, 5, 6, 7]].concat();
    let logs = ("log.blocks", "2");
    assert_eq!(victim_rank(&mut asked(&writes, &[logs])), Some(1));
    let mut in_full = asked(&writes, &[logs, ("maro.alpha", "1")]);
    assert_eq!(victim_rank(&mut in_full), Some(0));
}

/// Cost-age-time on a new device. The older log block has 3 of 4 pages valid, the other 2: u / (1 -
/// u) is 3 and 1 at equal ages and erase counts, so the other is merged. Age alone, which is what
/// plain erase counts of 0 leave, would take the older one, and so does round robin.
#[test]
fn cost_age_time_weighs_utilisation_on_a_new_device() {
    let full: Vec<u32> = (0..12).collect();
    let writes = [&full[..], &[1, 0, 3, 5], &[5, 4, 4, 4]].concat();
    for (rule, rank) in [("cat", 1), ("rr", 0)] {
        let mut ftl = asked(&writes, &[("log.blocks", "2"), ("rose.victim", rule)]);
        assert_eq!(victim_rank(&mut ftl), Some(rank), "{rule}");
    }
}

/// The third log block was opened after a merge, so the three have different ages.
#[test]
fn round_robin_takes_the_oldest_log_block() {
    let writes = [&FIGURE_4[..], &[6, 6, 6, 6]].concat();
    let params = [
        ("log.blocks", "3"),
        ("rose.fpr", "off"),
        ("rose.victim", "rr"),
    ];
    let mut ftl = asked(&writes, &params);
    let ages = ftl.map.with_policy_view(&ftl.space, |_, view| {
        let age = |log: &LogBlock| view.logs.reclaimed() - log.reclaimed_before;
        view.logs.iter().map(age).collect::<Vec<_>>()
    });
    assert_eq!(ages, [1, 1, 0]);
    assert_eq!(victim_rank(&mut ftl), Some(0));
}

/// Figure 3 (b): three data blocks with a free page each, two log blocks. Pages 0 to 3 arrive as
/// one request and take a new data block, then 5, 9, 4 and 8 take a log block. Cleaning is one
/// erase and no copy; FAST needs two and three (its own test).
#[test]
fn a_request_for_a_whole_block_costs_one_erase() {
    let mut ftl = asked(&[0, 1, 2, 4, 5, 6, 8, 9, 10], &[("log.blocks", "2")]);
    let before = work(&ftl);
    tests::write(&mut ftl, 0, 4);
    [5, 9, 4, 8]
        .iter()
        .for_each(|lpn| tests::write(&mut ftl, *lpn, 1));
    let after = work(&ftl);
    assert_eq!((after.0 - before.0, after.1 - before.1), (8, 1));
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

/// Figure 4: three logical blocks of four pages, and three log blocks. Block M has one page, of
/// logical block 2, whose data block has three free pages; log block L has one valid page.
#[test]
fn a_swap_copies_one_page_and_gains_two() {
    let run = |fpr: &str| {
        let mode = [("gc.free_threshold", "2"), ("nand.pair_policy", "none")];
        let params = [&mode[..], &[("log.blocks", "3"), ("rose.fpr", fpr)]].concat();
        let mut ftl = start(part_of_rose(64, 4), 12, &params);
        (0..)
            .zip(FIGURE_4)
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
            ..part_of_rose(60, 16)
        };
        let params: &[(&str, &str)] = match round % 4 {
            0 => &[],
            1 => &[("rose.fpr", "off")],
            2 => &[("maro.age_weight", "4"), ("log.blocks", "5")],
            _ => &[("rose.cheap_merge", "off"), ("rose.ebw", "off")],
        };
        let mut rose = start(part_of_rose(60, 16), BLOCKS * 16, params);
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

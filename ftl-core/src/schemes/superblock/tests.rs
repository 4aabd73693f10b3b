//! The numbers of the sources: charges and the limits of lists.

use super::*;
use crate::addr::Lpn;
use crate::ftl::Ftl;
use nand_model::store::MemStore;
use nand_model::{Geometry, Pbn, SplitMix};

const US: u64 = 1_000;

/// Returns MNFTL's device with blocks of 64 pages, so that all entries fit into its OOB area.
fn device(blocks: u32) -> Profile {
    let profile = *Profile::find("mnftl").unwrap();
    let geometry = Geometry {
        blocks,
        pages_per_block: 64,
        ..profile.geometry
    };
    Profile {
        geometry,
        ..profile
    }
}

fn format(
    profile: Profile,
    logical_pages: u32,
    more: &[(&str, &str)],
) -> Result<UnitFtl<Superblock>, FtlError> {
    let mut config = FtlConfig {
        logical_pages,
        params: Params::default(),
    };
    let mode = [
        ("gc.free_threshold", "2"),
        ("wear.policy", "none"),
        ("nand.pair_policy", "none"),
    ];
    mode.iter()
        .chain(more)
        .for_each(|(key, value)| config.params.set(key, value));
    create(
        Chip::over(profile, MemStore::new(profile.geometry)).unwrap(),
        &config,
        Start::Format,
    )
}

/// Returns the emulated time of one write.
fn write(ftl: &mut UnitFtl<Superblock>, lpn: u32, n: u64) -> u64 {
    let at = ftl.space.flash.chip().busy_until();
    ftl.write(at, Lpn::new(lpn), &n.to_le_bytes().repeat(256))
        .unwrap()
        - at
}

fn read(ftl: &mut UnitFtl<Superblock>, lpn: u32) -> (u64, u64) {
    let at = ftl.space.flash.chip().busy_until();
    let mut out = vec![1; 2048];
    let done = ftl.read(at, Lpn::new(lpn), &mut out).unwrap();
    (done - at, u64::from_le_bytes(out[..8].try_into().unwrap()))
}

#[test]
fn reads_and_writes_cost_two_reads_of_spare_bytes_more() {
    let mut ftl = format(device(40), 1024, &[]).unwrap();
    assert_eq!(
        write(&mut ftl, 300, 1),
        800 * US,
        "the first of its directory"
    );
    assert_eq!(write(&mut ftl, 330, 2), 820 * US, "the first of its table");
    assert_eq!(write(&mut ftl, 301, 3), 840 * US);
    assert_eq!(write(&mut ftl, 331, 4), 840 * US);
    assert_eq!(read(&mut ftl, 300), (100 * US, 1));
    assert_eq!(
        read(&mut ftl, 330),
        (80 * US, 2),
        "one page has directory and table"
    );
    assert_eq!(read(&mut ftl, 500), (20 * US, 0), "no table");
    assert_eq!(read(&mut ftl, 10), (0, 0), "no directory");
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_superblock_has_no_more_than_n_and_k_blocks_and_all_together_no_more_than_the_limit() {
    let (logical, total) = (8 * 256, "5");
    let mut ftl = format(device(80), logical, &[("sftl.total", total)]).unwrap();
    (0..logical).for_each(|lpn| _ = write(&mut ftl, lpn, 0));
    let mut rng = SplitMix::new(1);
    for n in 0..6_000 {
        let among = if n % 2 == 0 { 256 } else { logical };
        write(&mut ftl, rng.below(among as u64) as u32, n);
        let lengths: Vec<u32> = (0..8).map(|unit| ftl.map.lists.length(unit)).collect();
        assert!(
            lengths.iter().all(|length| *length <= 6),
            "write {n}: {lengths:?}"
        );
        let beyond: u32 = lengths.iter().map(|length| length.saturating_sub(4)).sum();
        assert!(beyond <= 5 + 1, "write {n}: {lengths:?}");
    }
    assert!(ftl.stats().gc_runs > 50);
    assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
}

#[test]
fn the_superblock_that_was_written_least_recently_is_collected() {
    let mut lists = Lists::new(3, 6, 3, 3);
    (0..6).for_each(|block| lists.add(block / 2, Pbn::new(block), 1 + block as u64, None));
    let mut policy = Superblock {
        n: 1,
        k: 2,
        total: 0,
        written: vec![0; 3],
        now: 0,
    };
    [2, 0, 1, 0]
        .into_iter()
        .for_each(|unit| policy.on_write(unit));
    assert_eq!(policy.choose(&lists, &|_| true), Some(2));
    assert_eq!(
        policy.choose(&lists, &|unit| unit != 2),
        Some(1),
        "the next that can shrink"
    );
}

#[test]
fn a_part_with_too_few_spare_bytes_is_refused() {
    let profile = *Profile::find("mnftl").unwrap();
    let profile = Profile {
        geometry: Geometry {
            blocks: 40,
            ..profile.geometry
        },
        ..profile
    };
    let refused = format(profile, 1280, &[("sftl.entries", "16")])
        .map(drop)
        .unwrap_err();
    assert!(refused.to_string().contains("68 spare bytes"), "{refused}");
    let mut ftl = format(profile, 1280, &[]).unwrap();
    (0..1280).for_each(|lpn| _ = write(&mut ftl, lpn, lpn as u64));
    assert_eq!(
        (write(&mut ftl, 300, 1), read(&mut ftl, 300)),
        (840 * US, (80 * US, 1))
    );
    assert_eq!(read(&mut ftl, 700), (100 * US, 700));
}

#[test]
fn directories_outlast_a_clean_stop_and_a_cut() {
    let mut ftl = format(device(40), 1024, &[]).unwrap();
    (0..1024).for_each(|lpn| _ = write(&mut ftl, lpn, lpn as u64));
    let mut config = FtlConfig {
        logical_pages: 1024,
        params: Params::default(),
    };
    config.params.set("gc.free_threshold", "5");
    for clean in [true, false] {
        if clean {
            ftl.shutdown(0).unwrap();
        }
        let mut chip = ftl.space.flash.into_chip();
        chip.power_on();
        ftl = create(chip, &config, Start::Mount).unwrap();
        assert_eq!(ftl.stats().mount.clean, clean);
        assert!(
            ftl.map.groups_in_ram_and_trim_pages().0 <= if clean { 0 } else { 2 },
            "{} directories in RAM",
            ftl.map.groups_in_ram_and_trim_pages().0
        );
        (0..1024).for_each(|lpn| assert_eq!(read(&mut ftl, lpn).1, lpn as u64));
        assert_eq!(ftl.check().unwrap(), Vec::<String>::new());
        write(&mut ftl, 7, 7);
    }
}

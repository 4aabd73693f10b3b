//! Bit errors from wear, age and reads.

use super::*;

/// A chip with one full block, worn as after this many erases.
fn worn_chip<S: Store>(mut chip: Chip<S>, erases: u32) -> Chip<S> {
    for _ in 0..erases {
        erase(&mut chip, 0).unwrap();
    }
    fill(&mut chip, 0);
    chip
}

fn fill<S: Store>(chip: &mut Chip<S>, block: u32) {
    for page in 0..16 {
        program(chip, block, page, page as u64).unwrap();
    }
}

/// Returns the bits corrected while every page of the block is read once.
fn corrected_in<S: Store>(chip: &mut Chip<S>, block: u32) -> u64 {
    let before = chip.counters().corrected_bits;
    for page in 0..16 {
        let _ = read(chip, block, page);
    }
    chip.counters().corrected_bits - before
}

fn read_often<S: Store>(chip: &mut Chip<S>, times: u32) {
    for _ in 0..times {
        let _ = read(chip, 0, 3);
    }
}

fn decaying(bit_errors: f64) -> FaultPlan {
    FaultPlan {
        bit_errors,
        seed: 11,
        ..FaultPlan::default()
    }
}

#[test]
fn reads_store_the_hours_of_use() {
    let mut chip = worn_chip(in_memory(small("torture")), 1);
    chip.set_faults(decaying(1.0));
    let mut data = vec![0; chip.geometry().page_len()];
    let three_hours = 3 * 3_600_000_000_000 + 5;
    let page = chip.geometry().page(Pbn::new(0), 3);
    chip.read(three_hours, page, &mut data, &mut [], Cause::Host)
        .unwrap();
    // A killed process only keeps what the store has.
    assert_eq!(chip.store().hour(), 3);
}

#[test]
fn data_decays_with_age_and_is_refreshed_by_writing_it_anew() {
    let mut chip = worn_chip(in_memory(small("torture")), 3_000);
    chip.set_faults(decaying(15.0));
    let readable =
        |chip: &mut Chip<MemStore>| (0..16).filter(|page| read(chip, 0, *page).is_ok()).count();
    assert_eq!(
        (readable(&mut chip), chip.blocks_to_refresh().len()),
        (16, 0)
    );
    assert!(chip.counters().corrected_bits > 0 && chip.counters().read_retries == 0);
    let (mut warned_on, mut lost_on) = (None, None);
    for day in 1..90 {
        chip.age(24);
        assert_eq!(chip.hour(0), day * 24);
        let seen = readable(&mut chip);
        warned_on = warned_on.or((!chip.blocks_to_refresh().is_empty()).then_some(day));
        lost_on = lost_on.or((seen < 16).then_some(day));
    }
    let (warned, lost) = (warned_on.expect("a warning"), lost_on.expect("a loss"));
    assert!(
        warned + 5 < lost,
        "warned on day {warned}, lost on day {lost}"
    );
    assert!(chip.counters().read_retries > 0 && chip.blocks_to_refresh().contains(&Pbn::new(0)));
    erase(&mut chip, 0).unwrap();
    assert!(chip.blocks_to_refresh().is_empty());
    fill(&mut chip, 0);
    assert_eq!(
        (readable(&mut chip), chip.blocks_to_refresh().len()),
        (16, 0),
        "young again"
    );
}

#[test]
fn reading_a_block_disturbs_it_until_it_is_erased() {
    let mut chip = worn_chip(in_memory(small("torture")), 3_000);
    chip.set_faults(decaying(20.0));
    let fresh = corrected_in(&mut chip, 0);
    read_often(&mut chip, 50_000);
    let disturbed = corrected_in(&mut chip, 0);
    assert!(
        disturbed > fresh,
        "{fresh} bits, after many reads {disturbed}"
    );
}

#[test]
fn a_read_retry_takes_as_long_as_a_read() {
    let mut chip = worn_chip(in_memory(small("torture")), 3_000);
    let read_ns = chip.profile().timing.read_ns[0];
    chip.age(24 * 60);
    chip.set_faults(decaying(15.0));
    let (mut waited, mut at) = (0, 1 << 40);
    for page in 0..16 {
        let ppn = chip.geometry().page(Pbn::new(0), page);
        let before = chip.counters().read_retries;
        if let Ok(done) = chip.read(at, ppn, &mut [0; 512], &mut [], Cause::Host) {
            let retries = chip.counters().read_retries - before;
            assert_eq!(done - at, read_ns * (1 + retries));
            waited += retries;
        }
        at += 1 << 30;
    }
    let mut health = [Health::Good; 16];
    let before = chip.counters().read_retries;
    let first = chip.geometry().page(Pbn::new(0), 0);
    let done = chip
        .read_run(
            at,
            first,
            &mut [0; 16 * 512],
            &mut [],
            &mut health,
            Cause::Host,
        )
        .unwrap();
    let retries = chip.counters().read_retries - before;
    assert!(waited > 0 && retries >= waited);
    assert_eq!(
        done - at,
        read_ns * (16 + retries),
        "a run waits for the retries of all its pages"
    );
}

#[test]
fn decay_repeats_from_its_seed_and_is_off_by_default() {
    let run = |plan: FaultPlan| {
        let mut chip = worn_chip(in_memory(small("torture")), 3_000);
        chip.age(24 * 70);
        chip.set_faults(plan);
        let seen: Vec<_> = (0..200)
            .map(|i| read(&mut chip, 0, i * 7 % 16).is_ok())
            .collect();
        (
            seen,
            chip.counters().corrected_bits,
            chip.counters().read_retries,
        )
    };
    let first = run(decaying(25.0));
    assert_eq!(first, run(decaying(25.0)));
    assert_ne!(
        first,
        run(FaultPlan {
            seed: 12,
            ..decaying(25.0)
        })
    );
    assert!(first.0.contains(&false) && first.0.contains(&true));
    let (seen, corrected, retries) = run(FaultPlan::default());
    assert!(seen.iter().all(|good| *good) && (corrected, retries) == (0, 0));
}

/// Over many pages, the corrected bits match the published rate.
#[test]
fn corrected_bits_are_those_of_the_rate() {
    let mut profile = *Profile::find("mlc-4k").unwrap();
    profile.geometry.blocks = 40;
    let store = nand_model::store::OobOnlyStore::new(profile.geometry);
    let mut chip = Chip::open(profile, store).unwrap();
    let page = vec![0; 4096];
    for block in chip.geometry().all_blocks() {
        for _ in 0..3_000 {
            chip.erase(0, block, Cause::Gc).unwrap();
        }
        for offset in 0..128 {
            chip.program(
                0,
                chip.geometry().page(block, offset),
                &page,
                &[1],
                Cause::Host,
            )
            .unwrap();
        }
    }
    chip.age(24 * 30);
    chip.set_faults(decaying(1.0));
    let (mut data, mut reads) = (vec![0; 128 * 4096], 0u64);
    for block in chip.geometry().all_blocks() {
        let first = chip.geometry().page(block, 0);
        chip.read_run(
            0,
            first,
            &mut data,
            &mut [],
            &mut [Health::Good; 128],
            Cause::Host,
        )
        .unwrap();
        reads += 128;
    }
    let days = (chip.hour(0) - chip.hour(0) % 24) as f64 / 24.0;
    let wanted = profile.error_model.rber(3_000, days, 128) * reads as f64 * 4096.0 * 8.0;
    let seen = chip.counters().corrected_bits as f64;
    assert!(
        (seen / wanted - 1.0).abs() < 0.02,
        "{seen} bits, expected {wanted}"
    );
    assert!(chip.counters().uncorrectable_reads == 0 && chip.blocks_to_refresh().is_empty());
}

#[test]
fn age_and_reads_outlive_the_process() {
    for clean in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut chip = worn_chip(in_file(small("torture"), folder.path()), 1_000);
        chip.age(24 * 50);
        fill(&mut chip, 1);
        chip.set_faults(decaying(30.0));
        read_often(&mut chip, 3_000);
        let before = [0, 1].map(|block| corrected_in(&mut chip, block));
        let mut chip = reopened(chip, folder.path(), clean);
        assert_eq!(chip.hour(0), 24 * 50);
        chip.set_faults(decaying(30.0));
        let after = [0, 1].map(|block| corrected_in(&mut chip, block));
        assert_eq!(before, after, "clean: {clean}");
        assert!(
            before[0] > before[1],
            "{before:?}: block 0 is older and was read more"
        );
    }
}

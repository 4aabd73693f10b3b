//! Readers outside the store, and slots that erases free under them.

use super::*;
use nand_model::Geometry;
use nand_model::store::Disk;

/// Programs the first pages of a block with the content of these seeds.
fn fill(store: &mut FileStore, block: u32, seeds: std::ops::Range<u64>) {
    let geometry = store.info().profile.geometry;
    let all = |bytes: usize| -> Vec<u8> { seeds.clone().flat_map(|s| content(s, bytes)).collect() };
    let count = (seeds.end - seeds.start) as u32;
    let (data, oobs) = (all(geometry.page_len()), all(geometry.oob_len()));
    let first = geometry.page(Pbn::new(block), 0);
    store.program(first, count, &data, &oobs).unwrap();
}

/// Reads a placed run; returns whether it has the content of these seeds.
fn finds(
    geometry: &Geometry,
    (reader, pin): (&PageReader, &Pin),
    run: &PlacedRun,
    seeds: std::ops::Range<u64>,
) -> bool {
    let mut data = vec![0; run.count() as usize * geometry.page_len()];
    let mut oobs = Vec::new();
    let good = reader.read(pin, run, &mut Vec::new(), &mut data, |_, oob| {
        oobs.extend_from_slice(oob);
        true
    });
    let all = |bytes: usize| -> Vec<u8> { seeds.clone().flat_map(|s| content(s, bytes)).collect() };
    good && data == all(geometry.page_len()) && oobs == all(geometry.oob_len())
}

fn erase(store: &mut FileStore, block: u32) {
    store.erase(Pbn::new(block), BlockFacts::default()).unwrap();
}

/// Changes a byte of the file under the store.
fn rot(disk: &SimDisk, at: u64) {
    disk.write_at(at, &[0xAA]).unwrap();
}

/// Makes all erases so far durable.
fn settle(store: &FileStore) {
    store
        .sync_handle()
        .settle(store.sync_handle().last_seq())
        .unwrap();
}

#[test]
fn a_slot_is_not_written_under_a_reader_whatever_is_erased() {
    const SPARE: u32 = 6;
    for profile in shapes() {
        let (_disk, mut store) = fresh(profile, SPARE);
        (0..profile.geometry.blocks).for_each(|block| fill(&mut store, block, 1..4));
        let rewrite = |store: &mut FileStore, seed| {
            erase(store, 1);
            fill(store, 1, seed..seed + 3);
            settle(store);
        };
        let reader = store.reader().unwrap();
        let pin = store.pin().unwrap();
        let run = store
            .place(profile.geometry.page(Pbn::new(0), 0), 3)
            .unwrap();
        erase(&mut store, 0);
        settle(&store);
        for seed in 1..u64::from(SPARE) {
            rewrite(&mut store, 10 * seed);
            assert!(
                finds(&profile.geometry, (&reader, &pin), &run, 1..4),
                "{seed}"
            );
        }
        assert_eq!(
            store.trim_free_slots(100).unwrap(),
            0,
            "room under a reader"
        );
        assert!(finds(&profile.geometry, (&reader, &pin), &run, 1..4));
        // Once the reader has ended, its slot is free, and the first to give its room back.
        drop(pin);
        assert!(store.trim_free_slots(100).unwrap() > 0);
        let pin = store.pin().unwrap();
        assert!(!finds(&profile.geometry, (&reader, &pin), &run, 1..4));
    }
}

#[test]
fn an_erase_waits_for_a_reader_if_no_other_slot_is_left() {
    let [profile, _] = shapes();
    let (_disk, mut store) = fresh(profile, 2);
    (0..profile.geometry.blocks).for_each(|block| fill(&mut store, block, 1..2));
    let pin = store.pin().unwrap();
    // Two slots are free; the third erase needs one that was freed under the reader.
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            ended.store(true, std::sync::atomic::Ordering::SeqCst);
            drop(pin);
        });
        for _ in 0..3 {
            erase(&mut store, 0);
            settle(&store);
        }
        assert!(
            ended.load(std::sync::atomic::Ordering::SeqCst),
            "a slot was written under a reader"
        );
    });
}

#[test]
fn what_is_not_good_is_left_to_the_store() {
    let [profile, _] = shapes();
    let (disk, mut store) = fresh(profile, 3);
    fill(&mut store, 0, 1..4);
    let reader = store.reader().unwrap();
    let pin = store.pin().unwrap();
    let page = |page| profile.geometry.page(Pbn::new(0), page);
    let run = store.place(page(0), 3).unwrap();
    assert!(finds(&profile.geometry, (&reader, &pin), &run, 1..4));
    // Refused: a page of another address, a page that the caller rejects, a changed byte, an error.
    let moved = store.place(page(1), 2).unwrap();
    assert!(!finds(&profile.geometry, (&reader, &pin), &moved, 1..3));
    let mut data = vec![0; 3 * profile.geometry.page_len()];
    let refused = reader.read(&pin, &run, &mut Vec::new(), &mut data, |i, _| i != 1);
    assert!(!refused);
    disk.fail_reads(ReadFault {
        range: 0..u64::MAX,
        after: 0,
        count: 1,
    });
    assert!(
        !finds(&profile.geometry, (&reader, &pin), &run, 1..4),
        "the host's error"
    );
    assert!(finds(&profile.geometry, (&reader, &pin), &run, 1..4));
    let page_1 = content(2, profile.geometry.page_len());
    rot(&disk, place_of(&disk, &page_1));
    assert!(
        !finds(&profile.geometry, (&reader, &pin), &run, 1..4),
        "a byte that rotted"
    );
    // A store with a marked page names no place: reading it may change the mark.
    store.set_health(page(2), Health::Unstable(1)).unwrap();
    assert_eq!(store.place(page(0), 1), None);
    drop((pin, store));
    let (read_only, _) = open(&disk, Access::ReadOnly).unwrap();
    assert_eq!(read_only.place(page(0), 1), None);
}

#[test]
fn verified_once_a_page_is_checked_again_in_its_next_life_alone() {
    let [profile, _] = shapes();
    let (disk, mut store) = fresh(profile, 2);
    store.set_verify(Verify::Once);
    fill(&mut store, 0, 1..4);
    let reader = store.reader().unwrap();
    // Where the second page of block 0 is: its seeds begin with `first`.
    let place = |first: u64| place_of(&disk, &content(first + 1, profile.geometry.page_len()));
    let reads = |store: &FileStore| {
        let (pin, page) = (store.pin().unwrap(), profile.geometry.page(Pbn::new(0), 0));
        let run = store.place(page, 3).unwrap();
        let mut data = vec![0; 3 * profile.geometry.page_len()];
        reader.read(&pin, &run, &mut Vec::new(), &mut data, |_, _| true)
    };
    let first_place = place(1);
    rot(&disk, first_place);
    assert!(!reads(&store), "the first read checks");
    erase(&mut store, 0);
    fill(&mut store, 0, 11..14);
    let verified = place(11);
    assert!(reads(&store));
    rot(&disk, verified);
    assert!(reads(&store), "the second one does not");
    // The slot's next life begins unchecked.
    let mut seed = 11;
    loop {
        seed += 10;
        erase(&mut store, 0);
        fill(&mut store, 0, seed..seed + 3);
        settle(&store);
        if place(seed) == verified {
            break;
        }
    }
    rot(&disk, verified);
    assert!(!reads(&store), "places {first_place} and {verified}");
}

/// Blocks of more pages than a word has bits: no page behind the first word stays verified.
#[test]
fn the_last_page_of_a_long_block_is_checked_in_its_next_life_too() {
    let [mut profile, _] = shapes();
    profile.geometry.pages_per_block = 70;
    let (disk, mut store) = fresh(profile, 2);
    store.set_verify(Verify::Once);
    let reader = store.reader().unwrap();
    let reads = |store: &FileStore| {
        let pin = store.pin().unwrap();
        let run = store.place(profile.geometry.page(Pbn::new(0), 0), 70);
        let mut data = vec![0; 70 * profile.geometry.page_len()];
        reader.read(&pin, &run.unwrap(), &mut Vec::new(), &mut data, |_, _| true)
    };
    fill(&mut store, 0, 1..71);
    assert!(reads(&store));
    let place = |first: u64| place_of(&disk, &content(first + 69, profile.geometry.page_len()));
    let verified = place(1);
    let mut seed = 1;
    loop {
        seed += 100;
        erase(&mut store, 0);
        fill(&mut store, 0, seed..seed + 70);
        settle(&store);
        if place(seed) == verified {
            break;
        }
    }
    rot(&disk, verified);
    assert!(!reads(&store), "page 69 has not been checked in this life");
}

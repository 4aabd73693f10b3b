//! Journals, host space, blank pages, and places.

use super::*;
use crate::{Cause, Chip, Profile};

#[test]
fn a_journal_replayed_gives_the_same_flash() {
    let profile = Profile::find("slc-2k").unwrap().with_blocks(4);
    let begin = MemStore::new(profile.geometry);
    let mut chip = Chip::open(profile, begin.clone()).unwrap();
    chip.store_mut().record();
    let first = profile.geometry.page(Pbn::new(1), 0);
    chip.program_run(0, first, 2, &[7; 4096], &[1, 2], Cause::Host)
        .unwrap();
    chip.program_oob(0, first, &[0], Cause::Host).unwrap();
    chip.erase(0, Pbn::new(2), Cause::Gc).unwrap();
    chip.store_mut()
        .set_health(first, Health::Unstable(3))
        .unwrap();
    chip.store_mut()
        .read(first, &mut [], &mut [0; 4], &mut [Health::Good])
        .unwrap();
    chip.mark_factory_bad_block(Pbn::new(3)).unwrap();
    let cells = Cells {
        data: vec![1; 2048],
        oob: vec![2; 64],
        tag: 7,
    };
    chip.store_mut()
        .put_cells(profile.geometry.page(Pbn::new(0), 0), &cells)
        .unwrap();
    let mut end = chip.into_store();
    let recorded = end.recorded().len();
    let journal = end.take_record();
    assert_eq!((recorded, journal.len()), (8, 8), "{journal:?}");
    let mut again = begin;
    journal
        .iter()
        .for_each(|change| again.replay(change).unwrap());
    let pages = |store: &mut MemStore| -> Vec<_> {
        let all = profile.geometry.all_blocks();
        let all = all.flat_map(|block| profile.geometry.page(block, 0).run(64));
        all.map(|ppn| store.cells(ppn).unwrap()).collect()
    };
    let counts = |store: &mut MemStore| {
        let mut counts = Vec::new();
        let each = &mut |_, facts, programs: &[u8]| counts.push((facts, programs.to_vec()));
        store.load(each).unwrap();
        counts
    };
    assert_eq!(pages(&mut again), pages(&mut end));
    assert_eq!(counts(&mut again), counts(&mut end));
    assert_eq!(
        (again.unhealthy, again.erase_generations),
        (end.unhealthy, end.erase_generations)
    );
}

#[test]
fn a_host_without_room_refuses_programs_and_blank_pages_have_no_health() {
    let profile = Profile::find("slc-2k").unwrap().with_blocks(4);
    let mut store = MemStore::new(profile.geometry);
    let page = |offset| profile.geometry.page(Pbn::new(1), offset);
    let programs = |store: &mut MemStore, offset, count: u32| {
        let refused = store
            .program(page(offset), count, &vec![7; count as usize * 2048], &[])
            .err();
        refused.map(|error| error.kind())
    };
    store.set_room(Some(3));
    let full = io::ErrorKind::StorageFull;
    assert_eq!(
        [
            programs(&mut store, 0, 2),
            programs(&mut store, 2, 2),
            programs(&mut store, 2, 1)
        ],
        [None, Some(full), None]
    );
    assert_eq!(
        store
            .program_as(page(3), &[7; 2048], &[], Health::Lost)
            .unwrap_err()
            .kind(),
        full
    );
    store.set_room(None);
    assert_eq!(programs(&mut store, 3, 4), None);
    store.set_health(page(9), Health::Lost).unwrap();
    store.and_oob(page(9), &[0]).unwrap();
    let mut oob = [0; 4];
    let mut health = [Health::Good];
    store.read(page(9), &mut [], &mut oob, &mut health).unwrap();
    assert_eq!(
        (oob, health, store.cells(page(9)).unwrap()),
        ([0xFF; 4], [Health::Lost], None)
    );
    assert_eq!(
        (store.erase_credit(), store.erase_credit_full()),
        (u32::MAX, u32::MAX)
    );
}

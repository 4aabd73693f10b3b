//! Batches: what is written, when, and what the host refuses.

use super::*;

/// Programs pages of block 0 from this one on, one by one, each filled with its number.
fn program(store: &mut FileStore, pages: std::ops::Range<u32>) {
    let geometry = store.info().profile.geometry;
    for page in pages {
        let data = vec![page as u8; geometry.page_bytes as usize];
        let ppn = geometry.page(Pbn::new(0), page);
        store.program(ppn, 1, &data, &[page as u8]).unwrap();
    }
}

/// The first bytes of data and OOB of pages of block 0, read in one run and one by one.
fn read(store: &mut FileStore, count: u32) -> Vec<(u8, u8)> {
    let geometry = store.info().profile.geometry;
    let (page, pages) = (geometry.page_bytes as usize, count as usize);
    let first = geometry.page(Pbn::new(0), 0);
    let (mut data, mut oobs) = (vec![0; pages * page], vec![0; pages]);
    let mut health = vec![Health::Lost; pages];
    store
        .read(first, &mut data, &mut oobs, &mut health)
        .unwrap();
    assert_eq!(health, vec![Health::Good; pages]);
    let (mut again, mut oobs_again) = (vec![0; pages * page], vec![0; pages]);
    let each: Vec<Ppn> = (0..count).map(|i| geometry.page(Pbn::new(0), i)).collect();
    let mut health = vec![Health::Lost; pages];
    store
        .read_pages(&each, &mut again, &mut oobs_again, &mut health)
        .unwrap();
    assert_eq!(health, vec![Health::Good; pages]);
    assert!(again == data && oobs_again == oobs);
    let bytes = data.iter().step_by(page).copied();
    bytes.zip(oobs).collect()
}

fn pages(count: u8) -> Vec<(u8, u8)> {
    (0..count).map(|page| (page, page)).collect()
}

#[test]
fn consecutive_programs_are_two_writes_and_an_erase_comes_after_them() {
    let (disk, mut store) = fresh(shapes()[0], 3);
    store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
    let begun = disk.writes();
    store.begin_batch();
    program(&mut store, 0..4);
    // The first page of one request is written at once: often there is no other.
    assert_eq!(disk.writes() - begun, 2);
    store.end_batch().unwrap();
    assert_eq!(disk.writes() - begun, 4);
    store.begin_batch();
    store.begin_batch();
    program(&mut store, 4..7);
    store.end_batch().unwrap();
    assert_eq!(
        (disk.writes() - begun, store.sync_handle().last_seq()),
        (4, 5)
    );
    // A kill here loses them, and nothing else.
    let killed = open(&disk.copy(), Access::ReadOnly).unwrap();
    assert_eq!(killed.0.sync_handle().last_seq(), 5);
    store.erase(Pbn::new(1), BlockFacts::default()).unwrap();
    assert_eq!(
        (disk.writes() - begun, store.sync_handle().last_seq()),
        (7, 9)
    );
    store.end_batch().unwrap();
    assert_eq!(read(&mut store, 7), pages(7));
}

#[test]
fn what_the_host_refuses_is_read_back_and_written_before_the_next_operation() {
    let (disk, mut store) = fresh(shapes()[0], 3);
    store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
    program(&mut store, 0..2);
    store.begin_batch();
    store.begin_batch();
    program(&mut store, 2..5);
    store.end_batch().unwrap();
    disk.fail_writes(WriteFault {
        after: 0,
        count: u64::MAX,
        arrives: 600,
        errno: ENOSPC,
        needs_room: false,
        longest: usize::MAX,
    });
    let refused = store.end_batch().unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(ENOSPC));
    assert_eq!(read(&mut store, 5), pages(5), "the store has them");
    let given = store.sync_handle().last_seq();
    store.begin_batch();
    let refused = store.end_batch();
    assert!(refused.is_err(), "acknowledged on the word of the memory");
    let refused = store.erase(Pbn::new(1), BlockFacts::default());
    assert!(refused.is_err() && store.sync_handle().last_seq() == given);
    let first = store.info().profile.geometry.page(Pbn::new(0), 2);
    assert!(
        store.place(first, 1).is_none(),
        "no reader finds it in the file"
    );
    disk.clear_faults();
    store.erase(Pbn::new(1), BlockFacts::default()).unwrap();
    assert_eq!(store.sync_handle().last_seq(), given + 4);
    assert_eq!(read(&mut store, 5), pages(5));
    store.close().unwrap();
    let (mut store, _) = open(&disk, Access::ReadOnly).unwrap();
    assert_eq!(read(&mut store, 5), pages(5));
}

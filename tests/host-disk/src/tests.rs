//! The simulated disk itself: its crashes, frozen copies and failing calls.

use super::*;
use nand_model::{BlockFacts, Pbn, Profile, Store};

const PAGE: u64 = 4096;
const ENOSPC: i32 = 28;

fn fresh() -> (SimDisk, FileStore) {
    let spec = ImageSpec {
        profile: Profile::find("torture").unwrap().with_blocks(6),
        size: 4096,
        scheme: "none".into(),
        params: String::new(),
    };
    SimDisk::create(&spec, 3).unwrap()
}

/// A frozen disk has the state right before a call, with all writes that a crash may still lose.
#[test]
fn a_disk_is_frozen_right_before_a_write_or_a_sync() {
    let (disk, mut store) = fresh();
    let handle = store.sync_handle();
    handle.settle(handle.last_seq()).unwrap();
    let (writes, syncs, before) = (disk.writes(), disk.syncs(), disk.bytes());
    let unsynced = disk.unsynced();
    for (call, wanted) in [
        (Freeze::Write(0), 0),
        (Freeze::Write(2), 2),
        (Freeze::Sync(0), 3),
        (Freeze::Sync(1), 1),
    ] {
        disk.freeze_at(call);
        assert!(disk.take_frozen().is_none(), "{call:?}: not yet");
        let begun = disk.unsynced();
        // Three writes in all: slot header, data, record.
        store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
        let bytes = store.info().profile.geometry.page_bytes as usize;
        store
            .program(
                store.info().profile.geometry.page(Pbn::new(0), 0),
                1,
                &vec![1; bytes],
                &[],
            )
            .unwrap();
        handle.sync_through(handle.last_seq()).unwrap();
        handle.settle(handle.last_seq()).unwrap();
        let frozen = disk
            .take_frozen()
            .unwrap_or_else(|| panic!("{call:?}: it came"));
        let more = if call == Freeze::Sync(1) { 0 } else { begun };
        assert_eq!(frozen.unsynced(), more + wanted, "{call:?}");
        assert!(disk.take_frozen().is_none(), "only once");
        frozen
            .crashed(Crash::Nothing)
            .open(Access::ReadWrite)
            .unwrap();
        frozen.open(Access::ReadWrite).unwrap();
    }
    assert!(disk.writes() >= writes + 12 && disk.syncs() >= syncs + 4);
    assert!(unsynced <= 1 && disk.bytes() != before);
}

#[test]
fn writes_fail_as_often_as_asked_and_reads_and_punches_too() {
    let disk = SimDisk::holding(vec![7; 4 * PAGE as usize]);
    let write = |page: u64| disk.write_at(page * PAGE, &[1; 1024]);
    let fault = WriteFault {
        after: 1,
        count: 2,
        arrives: 600,
        errno: ENOSPC,
        needs_room: false,
        longest: usize::MAX,
    };
    disk.fail_writes(fault);
    let seen: Vec<_> = (0..4)
        .map(|page| write(page).err().map(|e| (e.done, e.error.raw_os_error())))
        .collect();
    let failed = |done| Some((done, Some(ENOSPC)));
    assert_eq!(
        seen,
        [None, failed(512), failed(600), None],
        "a sector is torn by the last one only"
    );
    assert_eq!(
        disk.bytes()[PAGE as usize..][511..513],
        [1, 7],
        "a short write"
    );
    disk.fail_writes(WriteFault {
        after: 0,
        count: u64::MAX,
        ..fault
    });
    assert!((0..20).all(|page| write(page % 4).is_err()));
    assert!(
        disk.punch(0, PAGE).is_err() && disk.bytes()[0] == 1,
        "a punch that fails does nothing"
    );
    disk.clear_faults();
    write(0).unwrap();

    // A full disk: pages with allocated space can be overwritten; punched pages have none any more.
    disk.sync().unwrap();
    disk.punch(PAGE, 2 * PAGE).unwrap();
    let states: Vec<_> = (0..2)
        .map(|kept| disk.crashed(Crash::Mask(!0 << 1 | kept)).bytes()[PAGE as usize])
        .collect();
    assert_eq!(states, [1, 0], "a crash may undo a punch");
    let is_torn = |seed| {
        let left = disk.crashed(Crash::Sectors(seed)).bytes();
        left[PAGE as usize..3 * PAGE as usize].contains(&0) && left != disk.bytes()
    };
    assert!((0..20).any(is_torn), "or a part of it");
    disk.fail_writes(WriteFault {
        after: 0,
        count: u64::MAX,
        arrives: 0,
        errno: ENOSPC,
        needs_room: true,
        longest: usize::MAX,
    });
    assert_eq!(
        [0, 1, 2, 3].map(|page| write(page).is_ok()),
        [true, false, false, true]
    );
    disk.punch(3 * PAGE, PAGE).unwrap();
    assert!(write(3).is_err());
    disk.clear_faults();
    write(1).unwrap();
    assert!(write(3).is_ok());

    let mut byte = [0];
    let mut read = |at: u64| {
        disk.read_at(at, &mut byte)
            .map_err(|error| error.raw_os_error().unwrap())
    };
    disk.fail_reads(ReadFault {
        range: 100..200,
        after: 0,
        count: 1,
    });
    disk.fail_reads(ReadFault {
        range: 5000..5001,
        after: 0,
        count: u64::MAX,
    });
    assert_eq!(
        [read(99), read(150), read(150), read(200)],
        [Ok(()), Err(EIO), Ok(()), Ok(())]
    );
    assert_eq!(
        [read(5000), read(5000), read(5001)],
        [Err(EIO), Err(EIO), Ok(())]
    );
    disk.clear_faults();
    assert_eq!(read(5000), Ok(()));
}

/// After a failed sync the writes are in the cache and partly on the disk; the rest reaches the
/// disk only if its sector is written again.
#[test]
fn a_failed_sync_leaves_a_part_on_the_disk_and_loses_the_rest() {
    let sectors = 64;
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..8 {
        let disk = SimDisk::holding(vec![0; sectors * 512]);
        disk.fail_syncs_as(SyncFault {
            after: 1,
            count: 2,
            seed: Some(seed),
        });
        disk.sync().unwrap();
        (0..sectors as u64).for_each(|sector| disk.write_at(sector * 512, &[1; 512]).unwrap());
        assert!(disk.sync().is_err() && disk.sync().is_err());
        disk.sync().unwrap();
        assert!(
            disk.bytes().iter().all(|&byte| byte == 1),
            "reads still return it"
        );
        let left = disk.crashed(Crash::Sectors(1)).bytes();
        assert_eq!(
            left,
            disk.crashed(Crash::Nothing).bytes(),
            "nothing is left to be written"
        );
        assert!(
            left.chunks(512)
                .all(|sector| sector.iter().all(|&byte| byte == sector[0]))
        );
        kept += left.chunks(512).filter(|sector| sector[0] == 1).count();
        lost += left.chunks(512).filter(|sector| sector[0] == 0).count();
        let first = left.chunks(512).position(|sector| sector[0] == 0);
        if let Some(sector) = first {
            disk.write_at(sector as u64 * 512 + 7, &[9]).unwrap();
            disk.sync().unwrap();
            let back = disk.crashed(Crash::Nothing).bytes();
            assert_eq!(
                back[sector * 512..][6..9],
                [1, 9, 1],
                "a sector is written whole"
            );
        }
    }
    assert!(kept > 100 && lost > 5, "{kept} sectors kept, {lost} lost");
}

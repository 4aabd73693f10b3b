//! Every failing call of the host, one at a time, in every operation of a store and every way of
//! opening. The error is returned, nothing of the request counts, and the same request succeeds
//! later.

mod open;
mod verbs;

use crate::host::{EIO, ENOSPC, content, fresh, shapes};
use ftld_host_disk::{Crash, End, ReadFault, SimDisk, SyncFault, WriteFault};
use nand_model::{
    Access, Bad, BlockFacts, BlockFault, Cause, Cells, Chip, Fault, FileStore, Health, ImageError,
    NandError, Nanos, Pbn, Ppn, Profile, Store, SyncError,
};
use std::io;

/// A failure of one call of the host.
#[derive(Clone, Copy, Debug)]
enum Call {
    Read,
    /// Bytes that reach the file.
    Write(usize),
    Sync,
}

const CALLS: [Call; 6] = [
    Call::Read,
    Call::Write(0),
    Call::Write(40),
    Call::Write(600),
    Call::Write(5000),
    Call::Sync,
];

/// Makes `count` calls of a kind fail after `after` successful ones.
fn fail(disk: &SimDisk, call: Call, after: u64, count: u64) {
    match call {
        Call::Read => disk.fail_reads(ReadFault {
            range: 0..u64::MAX,
            after,
            count,
        }),
        Call::Write(arrives) => {
            disk.fail_writes(WriteFault {
                after,
                count,
                arrives,
                errno: ENOSPC,
                needs_room: false,
                longest: usize::MAX,
            });
        }
        Call::Sync => disk.fail_syncs_as(SyncFault {
            after,
            count,
            seed: None,
        }),
    }
}

type Verb = (&'static str, Box<dyn Fn(&mut FileStore) -> io::Result<()>>);

/// Every operation, on pages and blocks of all kinds in [`used`].
fn verbs(profile: &Profile) -> Vec<Verb> {
    let geometry = profile.geometry;
    let page = move |block, offset| geometry.page(Pbn::new(block), offset);
    let (bytes, oob_bytes) = (geometry.page_bytes as usize, geometry.oob_bytes as usize);
    let (data, oob) = (content(1, bytes), content(2, oob_bytes));
    let grown = BlockFacts {
        erase_count: 9,
        bad: Some(Bad::FailedErase),
        ..BlockFacts::default()
    };
    let read = move |store: &mut FileStore, first, pages: usize| {
        let (mut data, mut oobs) = (vec![0; pages * bytes], vec![0; pages * oob_bytes]);
        store.read(first, &mut data, &mut oobs, &mut vec![Health::Good; pages])
    };
    let near = move |store: &mut FileStore, pages: &[Ppn], bytes: usize| {
        let (mut data, mut oobs) = (
            vec![0; pages.len() * bytes],
            vec![0; pages.len() * oob_bytes],
        );
        store.read_pages(
            pages,
            &mut data,
            &mut oobs,
            &mut vec![Health::Good; pages.len()],
        )
    };
    let program = move |store: &mut FileStore, first: Ppn, health| {
        store.program_as(first, &data, &oob, health)
    };
    let (again, cells) = (
        program.clone(),
        Cells {
            data: content(3, bytes),
            oob: content(4, oob_bytes),
            tag: 7,
        },
    );
    let stray = cells.clone();
    let run = geometry.pages_per_block as usize;
    let (data_run, oob_run) = (content(5, run * bytes), content(6, run * oob_bytes));
    let mut verbs: Vec<Verb> = vec![
        ("read", Box::new(move |store| read(store, page(0, 0), 4))),
        (
            "read a page that is unstable",
            Box::new(move |store| read(store, page(1, 0), 2)),
        ),
        (
            "read a block that was never used",
            Box::new(move |store| read(store, page(3, 0), 1)),
        ),
        (
            "read pages",
            Box::new(move |store| near(store, &[page(0, 0), page(0, 2), page(1, 0)], bytes)),
        ),
        (
            "read records of pages",
            Box::new(move |store| near(store, &[page(0, 1), page(0, 2)], 0)),
        ),
        (
            "read pages of a block that was never used",
            Box::new(move |store| near(store, &[page(3, 0)], bytes)),
        ),
        (
            "program",
            Box::new(move |store| program(store, page(0, 4), Health::Good)),
        ),
        (
            "program a block that was never used",
            Box::new(move |store| again(store, page(3, 0), Health::DataLost)),
        ),
        (
            "program a run",
            Box::new(move |store| store.program(page(2, 0), run as u32, &data_run, &oob_run)),
        ),
        (
            "program over",
            Box::new(move |store| store.put_cells(page(0, 1), &cells)),
        ),
        (
            "program astray",
            Box::new(move |store| store.put_cells(page(2, 1), &stray)),
        ),
        (
            "spoil",
            Box::new(move |store| store.spoil(page(0, 3), &[(page(0, 0), Health::Lost)])),
        ),
        (
            "mark",
            Box::new(move |store| store.set_health(page(0, 1), Health::OobLost)),
        ),
        (
            "mark a blank page",
            Box::new(move |store| store.set_health(page(2, 0), Health::Lost)),
        ),
        (
            "take a mark back",
            Box::new(move |store| store.set_health(page(1, 0), Health::Good)),
        ),
        (
            "cells",
            Box::new(move |store| store.cells(page(0, 3)).map(drop)),
        ),
        (
            "erase",
            Box::new(move |store| store.erase(Pbn::new(0), BlockFacts::default())),
        ),
        (
            "erase a block with marks",
            Box::new(move |store| store.erase(Pbn::new(1), BlockFacts::default())),
        ),
        (
            "facts",
            Box::new(move |store| store.set_facts(Pbn::new(0), grown)),
        ),
        (
            "facts of a block that was never used",
            Box::new(move |store| store.set_facts(Pbn::new(3), grown)),
        ),
        (
            "give room back",
            Box::new(move |store| (0..2).try_for_each(|_| store.trim_free_slots(100).map(drop))),
        ),
        (
            "give some room back",
            Box::new(move |store| (0..4).try_for_each(|_| store.trim_free_slots(1).map(drop))),
        ),
    ];
    if profile.nop > 1 {
        verbs.push((
            "clear bits",
            Box::new(move |store| store.and_oob(page(0, 0), &[0xF0])),
        ));
        verbs.push((
            "clear bits of a blank page",
            Box::new(move |store| store.and_oob(page(2, 0), &[0xF0])),
        ));
    }
    verbs
}

/// A disk with a used image: block 0 has pages, block 1 marks, block 2 is erased, block 3 was never
/// used, and the slots of the others had several lives. Everything is synced.
fn used(profile: Profile) -> SimDisk {
    let (disk, mut store) = fresh(profile, 3);
    let geometry = profile.geometry;
    let (bytes, oob_bytes) = (geometry.page_bytes as usize, geometry.oob_bytes as usize);
    for (round, block) in (0..3).flat_map(|round| [0, 1, 2, 4, 5].map(|block| (round, block))) {
        for page in 0..4 {
            let seed = round * 100 + block as u64 * 10 + page as u64;
            let first = geometry.page(Pbn::new(block), page);
            store
                .program(first, 1, &content(seed, bytes), &content(!seed, oob_bytes))
                .unwrap();
        }
        if round < 2 || block >= 2 {
            store
                .erase(
                    Pbn::new(block),
                    BlockFacts {
                        erase_count: round as u32 + 1,
                        ..Default::default()
                    },
                )
                .unwrap();
        }
    }
    store
        .set_health(geometry.page(Pbn::new(1), 0), Health::Unstable(200))
        .unwrap();
    store
        .spoil(
            geometry.page(Pbn::new(1), 3),
            &[(geometry.page(Pbn::new(1), 1), Health::DataLost)],
        )
        .unwrap();
    let handle = store.sync_handle();
    handle.settle(handle.last_seq()).unwrap();
    drop(store);
    disk.ended(End::Kill)
}

fn reopened(disk: &SimDisk) -> FileStore {
    disk.open(Access::ReadWrite).unwrap().0
}

/// A block's facts, which of its pages are programmed, and what these hold.
type Sight = (BlockFacts, Vec<u8>, Vec<(Health, Option<Cells>)>);

/// The visible state of a store.
fn sight(store: &mut FileStore) -> Vec<Sight> {
    let geometry = store.info().profile.geometry;
    let mut blocks = Vec::new();
    // The number of bit-clearing programs of a page is a hint.
    let programmed = |counts: &[u8]| {
        counts
            .iter()
            .map(|&count| count.min(1))
            .collect::<Vec<u8>>()
    };
    store
        .load(&mut |_, facts, counts| blocks.push((facts, programmed(counts), Vec::new())))
        .unwrap();
    for (block, (_, counts, pages)) in (0..).map(Pbn::new).zip(&mut blocks) {
        for page in (0..geometry.pages_per_block).filter(|page| counts[*page as usize] > 0) {
            let (ppn, mut health) = (geometry.page(block, page), [Health::Good]);
            store
                .read(
                    ppn,
                    &mut vec![0; geometry.page_bytes as usize],
                    &mut [],
                    &mut health,
                )
                .unwrap();
            // The remaining reads of an unstable page depend on the number of earlier reads.
            let health = if matches!(health, [Health::Unstable(_)]) {
                Health::Unstable(1)
            } else {
                health[0]
            };
            pages.push((health, store.cells(ppn).unwrap()));
        }
    }
    blocks
}

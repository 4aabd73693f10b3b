//! The store on a simulated host disk that loses what a crash may lose: between two syncs every
//! 512-byte sector keeps any of the contents it had. Whatever it keeps, opening must find the state
//! after some number of operations, at least the synced ones.

use super::sim::{Crash, Freeze, ReadFault, SimDisk, SyncFault, WriteFault};
use super::*;
use crate::image::ImageSpec;
use crate::profile::Profile;
use crate::rng::SplitMix;
use std::collections::HashSet;

pub(super) const EIO: i32 = 5;
pub(super) const ENOSPC: i32 = 28;

/// What is in every block after one operation.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    erase_counts: Vec<u32>,
    /// Seed of each page's content, 0 = erased.
    pages: Vec<Vec<u64>>,
}

struct Rig {
    profile: Profile,
    disk: SimDisk,
    store: Option<FileStore>,
    /// By sequence number.
    history: Vec<Model>,
    /// Whether cells are programmed that do not belong where they are.
    stray: bool,
    /// Pages that were programmed over: what is left of them is not part of the sequence.
    hit: HashSet<u64>,
    rng: SplitMix,
}

/// Seeds of pages that were programmed for another place.
const STRAY: u64 = 1 << 63;

/// Small shapes: few pages and three spare slots, so that slots are reused all the time.
pub(super) fn shapes() -> [Profile; 2] {
    let mut mlc = Profile::find("torture").unwrap().with_blocks(6);
    mlc.geometry.page_bytes = 1024;
    mlc.geometry.pages_per_block = 8;
    let mut slc = Profile::find("slc-2k").unwrap().with_blocks(6);
    (
        slc.geometry.pages_per_block,
        slc.geometry.page_bytes,
        slc.geometry.oob_bytes,
    ) = (6, 512, 16);
    [mlc, slc]
}

pub(super) fn fresh(profile: Profile, spare_slots: u32) -> (SimDisk, FileStore) {
    let spec = ImageSpec {
        profile,
        size: 4096,
        scheme: "none".into(),
        params: String::new(),
    };
    SimDisk::create(&spec, spare_slots).unwrap()
}

fn open(disk: &SimDisk, access: Access) -> Result<(FileStore, OpenReport), ImageError> {
    disk.open(access)
}

pub(super) fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut rng = SplitMix::new(seed);
    (0..bytes).map(|_| rng.next_u64() as u8).collect()
}

impl Rig {
    fn new(profile: Profile, seed: u64) -> Rig {
        let (disk, store) = fresh(profile, 3);
        let geometry = profile.geometry;
        let blank = Model {
            erase_counts: vec![0; geometry.blocks as usize],
            pages: vec![vec![0; geometry.pages_per_block as usize]; geometry.blocks as usize],
        };
        let (stray, hit) = (false, HashSet::new());
        Rig {
            profile,
            disk,
            store: Some(store),
            history: vec![blank],
            stray,
            hit,
            rng: SplitMix::new(seed),
        }
    }

    fn store(&mut self) -> &mut FileStore {
        self.store.as_mut().unwrap()
    }

    fn now(&self) -> Model {
        self.history.last().unwrap().clone()
    }

    /// Operations the store counted that change nothing to be seen: the first taking of a slot.
    fn catch_up(&mut self, visible: usize) {
        let given = self.store().sync.last_seq() as usize;
        let state = self.now();
        while self.history.len() + visible < given + 1 {
            self.history.push(state.clone());
        }
    }

    fn step(&mut self) {
        let geometry = self.profile.geometry;
        let block = self.rng.below(geometry.blocks as u64) as usize;
        if self.stray && self.rng.one_in(8) {
            return self.go_astray(block);
        }
        match self.rng.below(100) {
            0..70 => self.program(block),
            70..92 => self.erase(block),
            92..95 if self.profile.nop > 1 => self.hint(block),
            _ => {
                let handle = self.store().sync_handle();
                handle.sync_through(handle.last_seq()).unwrap();
            }
        }
    }

    fn program(&mut self, block: usize) {
        let geometry = self.profile.geometry;
        let mut model = self.now();
        let Some(page) = model.pages[block].iter().position(|&seed| seed == 0) else {
            return self.erase(block);
        };
        let free = model.pages[block][page..]
            .iter()
            .take_while(|&&seed| seed == 0)
            .count();
        let count = 1 + self.rng.below(free.min(3) as u64) as usize;
        let seeds: Vec<u64> = (0..count)
            .map(|_| self.rng.next_u64() & !STRAY | 1)
            .collect();
        let gather = |bytes| {
            seeds
                .iter()
                .flat_map(|&seed| content(seed, bytes))
                .collect::<Vec<u8>>()
        };
        let (data, oobs) = (
            gather(geometry.page_bytes as usize),
            gather(geometry.oob_bytes as usize),
        );
        let first = geometry.page(Pbn::new(block as u32), page as u32);
        self.store()
            .program(first, count as u32, &data, &oobs)
            .unwrap();
        self.catch_up(count);
        for (i, seed) in seeds.into_iter().enumerate() {
            model.pages[block][page + i] = seed;
            self.history.push(model.clone());
        }
    }

    fn erase(&mut self, block: usize) {
        let mut model = self.now();
        model.erase_counts[block] += 1;
        model.pages[block].fill(0);
        let facts = BlockFacts {
            erase_count: model.erase_counts[block],
            ..BlockFacts::default()
        };
        self.store().erase(Pbn::new(block as u32), facts).unwrap();
        self.history.push(model);
    }

    /// Programs cells that were meant for another page, over whatever is there.
    fn go_astray(&mut self, block: usize) {
        let geometry = self.profile.geometry;
        let page = self.rng.below(geometry.pages_per_block as u64) as usize;
        let seed = self.rng.next_u64() | STRAY;
        let (data, oob) = (
            content(seed, geometry.page_bytes as usize),
            content(seed, geometry.oob_bytes as usize),
        );
        let ppn = geometry.page(Pbn::new(block as u32), page as u32);
        self.store()
            .put_cells(ppn, &Cells { data, oob, tag: 7 })
            .unwrap();
        let mut model = self.now();
        match &mut model.pages[block][page] {
            blank @ 0 => {
                *blank = seed;
                self.catch_up(1);
                self.history.push(model);
            }
            &mut struck => drop(self.hit.insert(struck)),
        }
    }

    fn hint(&mut self, block: usize) {
        let geometry = self.profile.geometry;
        if let Some(page) = self.now().pages[block].iter().position(|&seed| seed != 0) {
            self.store()
                .and_oob(geometry.page(Pbn::new(block as u32), page as u32), &[0xF0])
                .unwrap();
        }
    }

    /// Opens a crash state and checks it; returns the operation it stands at.
    fn check(&self, disk: &SimDisk, floor: u64, how: &dyn std::fmt::Debug) -> (FileStore, u64) {
        let (mut store, report) =
            open(disk, Access::ReadWrite).unwrap_or_else(|e| panic!("{how:?}: {e}"));
        let cut = store.sync.last_seq();
        let given = self.history.len() as u64 - 1;
        assert!(
            (floor..=given).contains(&cut),
            "{how:?}: cut {cut}, synced {floor}, given {given}, {report:?}"
        );
        expect(&mut store, &self.history[cut as usize], &self.hit, how);
        (store, cut)
    }
}

fn expect(store: &mut FileStore, model: &Model, hit: &HashSet<u64>, how: &dyn std::fmt::Debug) {
    let geometry = store.layout.geometry;
    let in_order = store.info.profile.order == PageOrder::Consecutive;
    let mut blocks = Vec::new();
    store
        .load(&mut |block, facts, counts| blocks.push((block, facts, counts.to_vec())))
        .unwrap();
    for (block, facts, counts) in blocks {
        assert_eq!(
            facts.erase_count,
            model.erase_counts[block.index()],
            "{how:?}: erase count of {block}"
        );
        let pages = &model.pages[block.index()];
        for (page, (&count, &seed)) in counts.iter().zip(pages).enumerate() {
            // In order, everything below a programmed page counts as programmed.
            let passed = in_order && pages[page..].iter().any(|&later| later != 0);
            assert_eq!(
                count > 0,
                seed != 0 || passed,
                "{how:?}: page {page} of {block}"
            );
            if count == 0 {
                continue;
            }
            let (mut data, mut oob) = (
                vec![0; geometry.page_bytes as usize],
                vec![0; geometry.oob_bytes as usize],
            );
            let mut health = [Health::Lost];
            store
                .read(
                    geometry.page(block, page as u32),
                    &mut data,
                    &mut oob,
                    &mut health,
                )
                .unwrap();
            if seed == 0 || seed & STRAY != 0 {
                assert_eq!(
                    health,
                    [Health::Lost],
                    "{how:?}: page {page} of {block} belongs elsewhere"
                );
                continue;
            }
            if hit.contains(&seed) && health == [Health::Lost] {
                continue;
            }
            assert_eq!(health, [Health::Good], "{how:?}: page {page} of {block}");
            assert!(
                data == content(seed, data.len()),
                "{how:?}: data of page {page} of {block}"
            );
            let mut wanted = content(seed, oob.len());
            if count > 1 {
                wanted[0] &= 0xF0;
            }
            assert_eq!(oob, wanted, "{how:?}: OOB of page {page} of {block}");
        }
    }
}

#[test]
fn whatever_a_host_crash_keeps_is_a_prefix_with_everything_synced() {
    let (mut states, mut dropped, mut erases) = (0, 0u64, 0u32);
    for (shape, profile) in shapes().into_iter().enumerate() {
        for seed in 0..16 {
            let mut rig = Rig::new(profile, seed);
            rig.stray = seed >= 12;
            for round in 0..6u64 {
                for step in 0..60 {
                    rig.step();
                    if rig.rng.one_in(6) {
                        let floor = rig.store().sync.synced_seq();
                        for how in Crash::kinds(rig.rng.next_u64()) {
                            let label = (shape, seed, round, step, how);
                            let disk = rig.disk.crashed(how);
                            let (store, cut) = rig.check(&disk, floor, &label);
                            drop(store);
                            let (store, again) = rig.check(&disk, cut, &label);
                            assert_eq!(
                                (cut, &store.sync.last_seq()),
                                (again, &cut),
                                "{label:?}: opening twice"
                            );
                            states += 1;
                            dropped += rig.history.len() as u64 - 1 - cut;
                        }
                    }
                }
                // Go on from one crash: leftovers of dropped operations must not come back later.
                let floor = rig.store().sync.synced_seq();
                let how = Crash::kinds(rig.rng.next_u64())[1 + rig.rng.below(5) as usize];
                let disk = rig.disk.crashed(how);
                let (store, cut) = rig.check(&disk, floor, &(shape, seed, round, how));
                erases += rig.now().erase_counts.iter().sum::<u32>();
                rig.history.truncate(cut as usize + 1);
                (rig.store, rig.disk) = (Some(store), disk);
            }
        }
    }
    println!("{states} crash states, {dropped} operations dropped, {erases} erases");
    assert!(states > 3000 && dropped > 5000 && erases > 2000);
}

#[test]
fn syncs_beside_the_work_promise_no_more_than_they_did() {
    for (seed, profile) in (0..8).flat_map(|seed| shapes().map(|profile| (seed, profile))) {
        let mut rig = Rig::new(profile, 300 + seed);
        let handle = rig.store().sync_handle();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for settle in [true, false] {
                let (handle, done) = (&handle, &done);
                scope.spawn(move || {
                    while !done.load(std::sync::atomic::Ordering::Acquire) {
                        let seq = handle.last_seq();
                        if settle {
                            handle.settle(seq)
                        } else {
                            handle.sync_through(seq)
                        }
                        .unwrap();
                        assert!(handle.synced_seq() >= seq);
                        std::thread::yield_now();
                    }
                });
            }
            // Also when a check fails: the other threads must end for that to be told.
            let _end = Finally(&done);
            for step in 0..400 {
                rig.step();
                if rig.rng.one_in(8) {
                    let floor = handle.synced_seq();
                    for how in Crash::kinds(rig.rng.next_u64()) {
                        rig.check(&rig.disk.crashed(how), floor, &(seed, step, how));
                    }
                }
            }
        });
    }
}

struct Finally<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Finally<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Release);
    }
}

#[test]
fn an_interrupted_open_is_followed_by_one_that_finds_the_same() {
    let mut interrupted = 0;
    for (shape, profile) in shapes().into_iter().enumerate() {
        for seed in 0..10 {
            let mut rig = Rig::new(profile, 1000 + seed);
            (0..80).for_each(|_| rig.step());
            let floor = rig.store().sync.synced_seq();
            let crashed = rig.disk.crashed(Crash::Sectors(seed)).bytes();
            let (_, cut) = rig.check(&SimDisk::holding(crashed.clone()), floor, &(shape, seed));
            for writes in 0..40 {
                let disk = SimDisk::holding(crashed.clone());
                disk.fail_write(writes, 0, EIO);
                match open(&disk, Access::ReadWrite) {
                    Ok(_) if disk.fuse_is_whole() => break,
                    _ => disk.mend(),
                }
                interrupted += 1;
                for how in Crash::kinds(seed ^ writes) {
                    let (_, again) =
                        rig.check(&disk.crashed(how), cut, &(shape, seed, writes, how));
                    assert_eq!(again, cut, "{:?}", (shape, seed, writes, how));
                }
            }
        }
    }
    assert!(interrupted > 50, "{interrupted}");
}

#[test]
fn the_death_of_the_process_loses_nothing_and_a_clean_close_is_found() {
    for (profile, stray) in shapes().into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let mut rig = Rig::new(profile, 5);
        rig.stray = stray;
        for round in 0..10 {
            (0..50).for_each(|_| rig.step());
            let given = rig.history.len() as u64 - 1;
            let store = rig.store.take().unwrap();
            if round % 2 == 0 {
                drop(store)
            } else {
                store.close().unwrap()
            }
            if round % 2 == 1 {
                rig.disk = rig.disk.crashed(Crash::Nothing);
            }
            assert_eq!(
                open(&rig.disk, Access::ReadOnly).unwrap().1.was_clean,
                round % 2 == 1
            );
            let (store, cut) = rig.check(&rig.disk, given, &round);
            assert_eq!(cut, given);
            rig.store = Some(store);
        }
    }
}

#[test]
fn a_damaged_header_copy_does_not_bring_an_old_state_back() {
    for profile in shapes() {
        for seed in 0..20 {
            let mut rig = Rig::new(profile, 50 + seed);
            (0..100).for_each(|_| rig.step());
            let given = rig.history.len() as u64 - 1;
            for copy in [0, 1] {
                let mut bytes = rig.disk.bytes();
                bytes[copy * PAGE as usize + 100] ^= 1;
                let (_, cut) = rig.check(&SimDisk::holding(bytes), given, &(seed, copy));
                assert_eq!(cut, given, "seed {seed} copy {copy}");
            }
        }
    }
}

#[test]
fn a_read_only_open_writes_nothing_and_takes_every_verb() {
    for profile in shapes() {
        let mut rig = Rig::new(profile, 9);
        (0..70).for_each(|_| rig.step());
        let disk = rig.disk.crashed(Crash::Sectors(3));
        let before = disk.bytes();
        let (store, report) = open(&disk, Access::ReadOnly).unwrap();
        let cut = store.sync.last_seq();
        assert!(!report.was_clean && store.is_read_only());
        let mut inside = Rig {
            profile,
            disk: disk.clone(),
            store: Some(store),
            history: rig.history[..=cut as usize].to_vec(),
            stray: false,
            hit: HashSet::new(),
            rng: SplitMix::new(4),
        };
        (0..200).for_each(|_| inside.step());
        let model = inside.now();
        expect(inside.store(), &model, &HashSet::new(), &"overlay");
        inside.store.take().unwrap().close().unwrap();
        assert!(disk.bytes() == before && disk.unsynced() == 0);
        let (_, again) = rig.check(&disk, cut, &"after");
        assert_eq!(again, cut);
    }
}

#[test]
fn a_full_host_leaves_nothing_programmed_and_the_same_verb_works_later() {
    for profile in shapes() {
        for (writes, arrives) in
            (0..4).flat_map(|writes| [0, 1, 40, 300, 600].map(|arrives| (writes, arrives)))
        {
            let mut rig = Rig::new(profile, 77);
            let geometry = profile.geometry;
            let block = 3;
            if arrives % 2 == 0 {
                // A block with a slot that had a life before.
                (0..30).for_each(|_| rig.step());
                rig.erase(block);
            }
            let (first, count) = (geometry.page(Pbn::new(block as u32), 0), 3);
            let (data, oobs) = (
                vec![7; 3 * geometry.page_bytes as usize],
                vec![8; 3 * geometry.oob_bytes as usize],
            );
            rig.disk.fail_write(writes, arrives, ENOSPC);
            let result = rig.store().program(first, count, &data, &oobs);
            let spent = !rig.disk.fuse_is_whole();
            rig.disk.mend();
            assert_eq!(
                result.as_ref().err().and_then(io::Error::raw_os_error),
                spent.then_some(ENOSPC)
            );
            if result.is_err() {
                rig.catch_up(0);
                let given = rig.history.len() as u64 - 1;
                let (_, cut) = rig.check(
                    &SimDisk::holding(rig.disk.bytes()),
                    given,
                    &(writes, arrives),
                );
                assert_eq!(cut, given);
                // Another operation gets the number; the refused one must not answer to it.
                rig.erase((block + 1) % 6);
                let given = rig.history.len() as u64 - 1;
                rig.check(
                    &SimDisk::holding(rig.disk.bytes()),
                    given,
                    &(writes, arrives),
                );
                rig.store().program(first, count, &data, &oobs).unwrap();
            }
            let mut seen = vec![0; data.len()];
            rig.store()
                .read(first, &mut seen, &mut [], &mut [Health::Lost; 3])
                .unwrap();
            assert_eq!(seen, data);
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_is_accepted_and_only_what_was_synced_comes_back() {
    for profile in shapes() {
        let mut rig = Rig::new(profile, 21);
        (0..60).for_each(|_| rig.step());
        let handle = rig.store().sync_handle();
        handle.settle(handle.last_seq()).unwrap();
        let good = handle.synced_seq();
        (0..3).for_each(|block| rig.erase(block));
        handle.fail_next_sync();
        assert_eq!(
            handle.sync_through(handle.last_seq()),
            Err(SyncError::Failed(EIO))
        );
        assert_eq!(
            handle.sync_through(handle.last_seq()),
            Err(SyncError::Failed(EIO))
        );
        assert_eq!(handle.sync_through(good), Ok(()));
        let refused = rig
            .store()
            .erase(Pbn::new(0), BlockFacts::default())
            .unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(EIO));
        rig.store = None;
        let (store, report) = open(&rig.disk, Access::ReadOnly).unwrap();
        assert!(report.sync_failed && store.info().sync_failed && report.ops_dropped == 3);
        let (store, cut) = rig.check(&rig.disk, good, &"failed sync");
        assert_eq!(cut, good);
        rig.history.truncate(cut as usize + 1);
        rig.store = Some(store);
        (0..30).for_each(|_| rig.step());
        let (_, report) = open(&SimDisk::holding(rig.disk.bytes()), Access::ReadOnly).unwrap();
        assert!(!report.sync_failed);
    }
}

#[test]
fn a_disk_that_fails_its_sync_is_told_the_same_way() {
    let mut rig = Rig::new(shapes()[0], 3);
    (0..20).for_each(|_| rig.step());
    rig.disk.fail_syncs(u64::MAX);
    rig.erase(0);
    let handle = rig.store().sync_handle();
    assert_eq!(
        handle.sync_through(handle.last_seq()),
        Err(SyncError::Failed(EIO))
    );
    rig.disk.mend();
    assert_eq!(
        handle.settle(handle.last_seq()),
        Err(SyncError::Failed(EIO))
    );
    assert!(rig.store.take().unwrap().close().is_err());
}

#[test]
fn erase_credit_counts_down_and_comes_back_after_two_syncs() {
    let (_, mut store) = fresh(shapes()[0], 5);
    let handle = store.sync_handle();
    let page = store.layout.geometry.page_bytes as usize;
    for block in 0..6 {
        store
            .program(
                store.layout.geometry.page(Pbn::new(block), 0),
                1,
                &vec![0; page],
                &[],
            )
            .unwrap();
    }
    for left in (0..5).rev() {
        store.erase(Pbn::new(left), BlockFacts::default()).unwrap();
        assert_eq!(store.erase_credit(), left);
    }
    handle.sync_through(handle.last_seq()).unwrap();
    assert_eq!(store.erase_credit(), 0);
    let before = handle.stats().count;
    handle.settle(handle.last_seq()).unwrap();
    assert_eq!(
        (store.erase_credit(), handle.stats().count - before),
        (5, 1)
    );
    // Without credit an erase helps itself.
    (0..11).for_each(|i| store.erase(Pbn::new(i % 6), BlockFacts::default()).unwrap());
}

/// The device's hour is in the file as soon as it changes, or as a sync under way ends, and never
/// behind what a block says.
#[test]
fn the_hour_survives_a_stop_and_is_never_behind_what_a_block_says() {
    let (disk, mut store) = fresh(shapes()[0], 3);
    let hour = |disk: &SimDisk| {
        open(&SimDisk::holding(disk.bytes()), Access::ReadOnly)
            .unwrap()
            .0
            .hour()
    };
    store.set_hour(40);
    assert_eq!(hour(&disk), 40);
    let handle = store.sync_handle();
    handle.set_sync_delay(std::time::Duration::from_millis(20));
    for begun in [false, true] {
        std::thread::scope(|scope| {
            store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
            let seq = handle.last_seq();
            let syncing = scope.spawn({
                let handle = handle.clone();
                move || handle.settle(seq)
            });
            while begun && !handle.is_running() && handle.durable_seq() < seq {
                std::thread::yield_now();
            }
            store.set_hour(41 + begun as u32);
            syncing.join().unwrap().unwrap();
        });
        assert_eq!(hour(&disk), 41 + begun as u32);
    }
    store
        .erase(
            Pbn::new(1),
            BlockFacts {
                since: 77,
                ..BlockFacts::default()
            },
        )
        .unwrap();
    drop(store);
    assert_eq!(hour(&disk), 77, "a block was erased in hour 77");
    let (mut store, _) = open(&disk, Access::ReadWrite).unwrap();
    store.set_hour(90);
    store.close().unwrap();
    assert_eq!(hour(&disk.crashed(Crash::Nothing)), 90);
}

#[test]
fn marks_and_bad_blocks_survive_a_stop_and_a_close() {
    for (profile, close) in shapes().into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let (disk, mut store) = fresh(profile, 3);
        let geometry = profile.geometry;
        let (page, last) = (geometry.page_bytes as usize, Pbn::new(5));
        store
            .program(geometry.page(last, 0), 3, &vec![1; 3 * page], &[])
            .unwrap();
        store
            .set_health(geometry.page(last, 1), Health::Unstable(2))
            .unwrap();
        store
            .set_health(geometry.page(last, 2), Health::DataLost)
            .unwrap();
        store
            .set_health(geometry.page(last, 0), Health::Flickering(255))
            .unwrap();
        store
            .set_facts(
                Pbn::new(2),
                BlockFacts {
                    bad: Some(super::super::Bad::Factory),
                    ..BlockFacts::default()
                },
            )
            .unwrap();
        store
            .set_facts(
                last,
                BlockFacts {
                    erase_count: 7,
                    weak: true,
                    since: 4,
                    reads: 9,
                    bad: None,
                },
            )
            .unwrap();
        store
            .set_facts(
                Pbn::new(1),
                BlockFacts {
                    erase_count: 3,
                    weak: true,
                    ..BlockFacts::default()
                },
            )
            .unwrap();
        if close {
            store.close().unwrap()
        } else {
            drop(store)
        }
        let (mut store, _) = open(&disk, Access::ReadWrite).unwrap();
        let mut facts = Vec::new();
        store.load(&mut |_, own, _| facts.push(own)).unwrap();
        assert_eq!(facts[2].bad, Some(super::super::Bad::Factory));
        assert_eq!(
            (
                facts[5].erase_count,
                facts[5].weak,
                facts[1].erase_count,
                facts[1].weak
            ),
            (7, true, 3, true)
        );
        assert_eq!((facts[5].since, facts[5].reads), (4, 9));
        let mut seen = [Health::Good; 3];
        store
            .read(
                geometry.page(last, 0),
                &mut vec![0; 3 * page],
                &mut [],
                &mut seen,
            )
            .unwrap();
        assert_eq!(
            seen,
            [
                Health::Flickering(255),
                Health::Unstable(2),
                Health::DataLost
            ]
        );
        store
            .read(geometry.page(last, 0), &mut [], &mut [0; 3], &mut seen)
            .unwrap();
        assert_eq!(seen[..2], [Health::Flickering(0), Health::Unstable(1)]);
    }
}

/// A torn page counts with its mark or not at all, and what its program did to an earlier page goes
/// with it.
#[test]
fn a_host_crash_keeps_a_torn_page_with_its_marks_or_not_at_all() {
    for profile in shapes() {
        let (disk, mut store) = fresh(profile, 3);
        let (geometry, block) = (profile.geometry, Pbn::new(1));
        let page = |offset| geometry.page(block, offset);
        let bytes = geometry.page_bytes as usize;
        store.program(page(0), 2, &vec![1; 2 * bytes], &[]).unwrap();
        let handle = store.sync_handle();
        handle.settle(handle.last_seq()).unwrap();
        handle.sync_through(handle.last_seq()).unwrap();
        let before = disk.unsynced();
        store
            .program_as(page(2), &vec![3; bytes], &[], Health::DataLost)
            .unwrap();
        store
            .spoil(page(2), &[(page(0), Health::Unstable(2))])
            .unwrap();
        let writes = disk.unsynced() - before;
        assert_eq!(
            writes, 3,
            "data, record with its mark, mark of the other page"
        );
        let torn = (Health::DataLost, 3);
        for kept in 0..1u64 << writes {
            let crashed = disk.crashed(Crash::Mask(!0 << writes | kept));
            // Whoever programs the page again must not find the mark of the other one.
            for again in [false, true] {
                let (mut store, _) = open(&crashed, Access::ReadWrite).unwrap();
                let mut counts = vec![];
                store
                    .load(&mut |own, _, n| {
                        if own == block {
                            counts = n.to_vec()
                        }
                    })
                    .unwrap();
                let programmed = counts[2] > 0;
                let mut seen = [Health::Lost; 3];
                store
                    .read(page(0), &mut vec![0; 3 * bytes], &mut [], &mut seen)
                    .unwrap();
                assert_eq!(programmed, again || kept & 0b110 == 0b110, "{kept:b}");
                if again {
                    assert_eq!(seen, [Health::Good; 3], "{kept:b}");
                } else if programmed {
                    let first = if kept & 1 == 1 {
                        Health::Unstable(2)
                    } else {
                        Health::Good
                    };
                    assert_eq!((seen[0], seen[2]), (first, torn.0), "{kept:b}");
                    break;
                } else {
                    assert_eq!(seen[..2], [Health::Good; 2], "{kept:b}");
                    store.program(page(2), 1, &vec![4; bytes], &[]).unwrap();
                }
            }
        }
    }
}

/// A program over programmed pages is no operation, and the operations of those pages stay whole:
/// what was synced behind them survives any host crash, also when no header on the disk says yet
/// that it was synced.
#[test]
fn programs_over_programmed_pages_leave_the_sequence_unbroken() {
    for (profile, lost_erase) in shapes()
        .into_iter()
        .flat_map(|profile| [(profile, false), (profile, true)])
    {
        let (disk, mut store) = fresh(profile, 3);
        let geometry = profile.geometry;
        let page = |block, offset| geometry.page(Pbn::new(block), offset);
        let bytes = geometry.page_bytes as usize;
        let oob = vec![0x5A; geometry.oob_bytes as usize];
        store
            .program(page(0, 0), 4, &vec![1; 4 * bytes], &oob.repeat(4))
            .unwrap();
        if lost_erase {
            let kept: Vec<_> = (0..4)
                .map(|offset| (page(0, offset), store.cells(page(0, offset)).unwrap()))
                .collect();
            store
                .erase(
                    Pbn::new(0),
                    BlockFacts {
                        erase_count: 1,
                        ..BlockFacts::default()
                    },
                )
                .unwrap();
            kept.iter()
                .for_each(|(ppn, cells)| store.put_cells(*ppn, cells.as_ref().unwrap()).unwrap());
        }
        store.program(page(1, 0), 1, &vec![2; bytes], &oob).unwrap();
        let handle = store.sync_handle();
        let synced = handle.last_seq();
        handle.sync_through(synced).unwrap();
        let tag = store.tag(page(2, 1)).unwrap();
        for offset in [1, 3] {
            store
                .put_cells(
                    page(0, offset),
                    &Cells {
                        data: vec![4; bytes],
                        oob: oob.clone(),
                        tag,
                    },
                )
                .unwrap();
        }
        store.program(page(0, 2), 1, &vec![8; bytes], &oob).unwrap();
        assert_eq!(handle.last_seq(), synced, "none of these is an operation");
        let lost = [false, true, true, true].map(|over| over || lost_erase);
        let health = |store: &mut FileStore| {
            let mut seen = [Health::Good; 4];
            store
                .read(page(0, 0), &mut vec![0; 4 * bytes], &mut [], &mut seen)
                .unwrap();
            seen.map(|health| health == Health::Lost)
        };
        assert_eq!(health(&mut store), lost);
        assert_eq!(store.cells(page(0, 1)).unwrap().unwrap().tag, NOBODY);
        let writes = disk.unsynced();
        assert!((4..12).contains(&writes), "{writes}");
        for kept in 0..1 << writes {
            let (mut store, report) =
                open(&disk.crashed(Crash::Mask(kept)), Access::ReadWrite).unwrap();
            let seen = (store.sync_handle().last_seq(), report.ops_dropped);
            assert_eq!(
                seen,
                (synced, 0),
                "writes {kept:b} kept, lost erase: {lost_erase}"
            );
            let mut one = vec![0; bytes];
            let mut good = [Health::Lost];
            store
                .read(page(1, 0), &mut one, &mut [], &mut good)
                .unwrap();
            assert_eq!((good, one[0]), ([Health::Good], 2));
            assert!(
                health(&mut store)
                    .into_iter()
                    .zip(lost)
                    .all(|(seen, lost)| !seen || lost)
            );
        }
    }
}

#[test]
fn parts_whose_check_holds_but_that_cannot_be_are_refused() {
    let (disk, mut store) = fresh(shapes()[1], 3);
    let (layout, page) = (store.layout, store.layout.geometry.page_bytes as usize);
    store
        .program(layout.geometry.page(Pbn::new(0), 0), 1, &vec![1; page], &[])
        .unwrap();
    let slot = store.blocks[0].slot.unwrap();
    let unclean = disk.bytes();
    store.close().unwrap();
    let refused = |bytes: &[u8], at: u64, part: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at as usize..][..part.len()].copy_from_slice(part);
        let error = open(&SimDisk::holding(bytes), Access::ReadOnly)
            .map(|_| ())
            .unwrap_err();
        assert!(matches!(error, ImageError::Damaged { .. }), "{error}");
    };
    let entry = TableEntry::decode(
        0,
        &disk.bytes()[layout.entry_at(0) as usize..][..TABLE_ENTRY_BYTES],
    )
    .unwrap();
    let facts = BlockFacts {
        erase_count: u32::MAX,
        ..entry.facts
    };
    for wrong in [
        TableEntry {
            slot: Some(layout.slots),
            ..entry
        },
        TableEntry {
            slot: Some(u32::MAX - 1),
            marked: true,
            ..entry
        },
        TableEntry {
            slot: None,
            ..entry
        },
        TableEntry {
            erase_seq: 1 << 50,
            ..entry
        },
        TableEntry {
            counts_check: 0,
            ..entry
        },
        TableEntry { facts, ..entry },
    ] {
        refused(&disk.bytes(), layout.entry_at(0), &wrong.encode(0));
    }
    let other = TableEntry {
        counts_check: crc32c(&[0; 6]),
        ..entry
    };
    refused(&disk.bytes(), layout.entry_at(1), &other.encode(1));
    let head = SlotHeader::new(0, 1, BlockFacts::default());
    for wrong in [
        SlotHeader { block: 6, ..head },
        SlotHeader {
            erase_seq: 0,
            ..head
        },
        SlotHeader {
            erase_seq: u64::MAX,
            ..head
        },
        SlotHeader {
            erase_count: u32::MAX,
            ..head
        },
    ] {
        refused(&unclean, layout.slot_at(slot), &wrong.encode(slot));
    }
    refused(&unclean, layout.slot_at(slot), &[1]);
}

#[test]
fn room_comes_back_for_what_stays_free() {
    let (disk, mut store) = fresh(shapes()[0], 4);
    let geometry = store.layout.geometry;
    let page = geometry.page_bytes as usize;
    let handle = store.sync_handle();
    for _ in 0..4 {
        for block in 0..6 {
            store
                .program(geometry.page(Pbn::new(block), 0), 1, &vec![3; page], &[])
                .unwrap();
            store.erase(Pbn::new(block), BlockFacts::default()).unwrap();
        }
    }
    (0..2).for_each(|_| handle.write_clean(false).unwrap());
    store.trim_free_slots(100).unwrap();
    let given = store.trim_free_slots(100).unwrap();
    assert!(given >= 3, "{given}");
    let roomy = store.slots.roomy.iter().filter(|&&roomy| roomy).count();
    assert!(roomy <= 4, "{roomy} of 10 slots keep room");
    drop(store);
    let (mut store, _) = open(&disk, Access::ReadWrite).unwrap();
    for block in 0..6 {
        store
            .program(geometry.page(Pbn::new(block), 0), 1, &vec![3; page], &[])
            .unwrap();
    }
}

#[test]
fn waiters_share_a_sync_and_a_closed_store_lets_none_run() {
    let (_, mut store) = fresh(shapes()[0], 4);
    let handle = store.sync_handle();
    handle.set_sync_delay(std::time::Duration::from_millis(30));
    let begun = handle.stats().count;
    store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| handle.sync_through(1).unwrap());
        }
    });
    assert!(handle.stats().count - begun <= 2 && handle.stats().last_ns > 0);
    store.erase(Pbn::new(0), BlockFacts::default()).unwrap();
    drop(store);
    assert_eq!(
        (handle.sync_through(1), handle.sync_through(2)),
        (Ok(()), Err(SyncError::Closed))
    );
}

/// The disk as it was right before a call, with everything that a crash may still lose.
#[test]
fn a_disk_is_frozen_right_before_a_write_or_a_sync() {
    let (disk, mut store) = fresh(shapes()[0], 3);
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
        let bytes = store.layout.geometry.page_bytes as usize;
        store
            .program(
                store.layout.geometry.page(Pbn::new(0), 0),
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
        open(&frozen.crashed(Crash::Nothing), Access::ReadWrite).unwrap();
        open(&frozen, Access::ReadWrite).unwrap();
    }
    assert!(disk.writes() >= writes + 12 && disk.syncs() >= syncs + 4);
    assert!(unsynced <= 1 && disk.bytes() != before);
}

/// A restart of the process finds the cache. What was unsynced stays so until a sync, whoever wrote
/// it: a crash of the host at any moment of the open loses older and newer writes alike, and never
/// what was synced.
#[test]
fn unsynced_writes_stay_unsynced_over_a_restart() {
    let mut moments = 0;
    for (shape, profile) in shapes().into_iter().enumerate() {
        for seed in 0..8 {
            let mut rig = Rig::new(profile, 700 + seed);
            (0..60).for_each(|_| rig.step());
            while rig.store().sync.synced_seq() == rig.store().sync.last_seq() {
                rig.step();
            }
            let (floor, given) = (rig.store().sync.synced_seq(), rig.store().sync.last_seq());
            rig.store = None;
            let unsynced = rig.disk.unsynced();
            for call in (0..4).map(Freeze::Write).chain((0..3).map(Freeze::Sync)) {
                let label = (shape, seed, call);
                // A process that is killed, too: the next one starts on the cache that both left.
                let copy = rig.disk.copy();
                copy.freeze_at(call);
                drop(open(&copy, Access::ReadWrite).unwrap());
                let Some(frozen) = copy.take_frozen() else {
                    continue;
                };
                moments += 1;
                let first_sync = call == Freeze::Sync(0);
                assert!(
                    !first_sync || frozen.unsynced() >= unsynced,
                    "{label:?}: nothing was synced on the way"
                );
                let (_, cut) = rig.check(&frozen.copy(), given, &label);
                assert_eq!(cut, given, "{label:?}: the page cache survives the process");
                for how in Crash::kinds(seed) {
                    rig.check(&frozen.crashed(how), floor, &(label, how));
                }
                if first_sync {
                    let (_, cut) = rig.check(&frozen.crashed(Crash::Nothing), floor, &label);
                    assert!(
                        cut < given,
                        "{label:?}: the last operations were not synced"
                    );
                }
            }
        }
    }
    assert!(moments >= 48, "{moments}");
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
    disk.mend();
    write(0).unwrap();

    // A full disk: pages that have room can be overwritten, punched pages have none any more.
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
    });
    assert_eq!(
        [0, 1, 2, 3].map(|page| write(page).is_ok()),
        [true, false, false, true]
    );
    disk.punch(3 * PAGE, PAGE).unwrap();
    assert!(write(3).is_err());
    disk.mend();
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
    disk.mend();
    assert_eq!(read(5000), Ok(()));
}

/// What a failed sync should have written is in the cache and partly on the disk; the rest never
/// gets there, unless its sector is written again.
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

/// A host crash that undoes the programs before an interrupted erase undoes what the erase left,
/// too.
#[test]
fn an_interrupted_erase_is_undone_with_what_came_before_it() {
    use crate::{Cause, Chip, Cut, EraseCut, FaultPlan, PartnerCut, ProgramCut};
    for (profile, erase) in shapes()
        .into_iter()
        .flat_map(|p| [EraseCut::Mixed, EraseCut::AllButOne, EraseCut::OnlyOne].map(|e| (p, e)))
    {
        let (disk, store) = fresh(profile, 3);
        let mut chip = Chip::open(profile, store).unwrap();
        let geometry = profile.geometry;
        let page = |block, offset| geometry.page(Pbn::new(block), offset);
        let bytes = vec![5; geometry.page_bytes as usize];
        for offset in 0..4 {
            chip.program(0, page(1, offset), &bytes, &[1], Cause::Host)
                .unwrap();
        }
        let handle = chip.store().sync_handle();
        handle.settle(handle.last_seq()).unwrap();
        handle.sync_through(handle.last_seq()).unwrap();
        for offset in 0..4 {
            chip.program(0, page(2, offset), &bytes, &[1], Cause::Gc)
                .unwrap();
        }
        let (program, partner) = (ProgramCut::Complete, PartnerCut::Intact);
        chip.set_faults(FaultPlan {
            cut: Some(Cut {
                at_op: 0,
                program,
                partner,
                erase,
                seed: 3,
            }),
            ..Default::default()
        });
        assert!(chip.erase(0, Pbn::new(1), Cause::Gc).is_err());
        drop(chip);
        let (mut undone, mut begun) = (0, 0);
        let writes = disk.unsynced() as u64;
        for kept in (0..=writes)
            .map(|lost| u64::MAX << lost)
            .chain((0..200).map(|seed| SplitMix::new(seed).next_u64()))
        {
            let (mut store, _) = open(&disk.crashed(Crash::Mask(kept)), Access::ReadWrite).unwrap();
            let mut good = |block| {
                (0..4).all(|offset| {
                    let mut health = [Health::Lost];
                    store
                        .read(
                            page(block, offset),
                            &mut bytes.clone(),
                            &mut [0],
                            &mut health,
                        )
                        .unwrap();
                    health == [Health::Good]
                })
            };
            let (old, new) = (good(1), good(2));
            assert!(old || new, "{erase:?}, writes {kept:b} kept");
            undone += u32::from(!new);
            begun += u32::from(!old);
        }
        assert!(
            undone > 0 && begun > 0,
            "{erase:?}: {undone} undone, {begun} begun"
        );
    }
}

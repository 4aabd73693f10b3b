//! Several stores in one file: one sync serves all of them, and each loses other operations in a
//! host crash.

use super::*;
use nand_model::crc32c_append;

/// One rig per shard, on one disk.
struct Shards {
    disk: SimDisk,
    rigs: Vec<Rig>,
    rng: SplitMix,
    /// Slots that opens did not have to read.
    sealed: std::cell::Cell<u32>,
}

fn spec(profile: Profile) -> ImageSpec {
    ImageSpec {
        profile,
        size: 1 << 16,
        scheme: "none".into(),
        params: String::new(),
    }
}

fn striping(count: u32) -> Option<Striping> {
    let stripe_bytes = 4096;
    Some(Striping {
        count,
        stripe_bytes,
    })
}

impl Shards {
    fn new(profile: Profile, count: u32, seed: u64) -> Shards {
        let (disk, stores) = SimDisk::create_shards(&spec(profile), striping(count), 3).unwrap();
        assert_eq!(stores.len(), count as usize);
        let rigs = (seed * 100..).zip(stores);
        let rigs = rigs.map(|(seed, store)| Rig::on(profile, disk.clone(), store, seed));
        let rng = SplitMix::new(!seed);
        Shards {
            rigs: rigs.collect(),
            disk,
            rng,
            sealed: std::cell::Cell::default(),
        }
    }

    fn step(&mut self) {
        let place = self.rng.index(self.rigs.len());
        self.rigs[place].step();
    }

    fn handles(&mut self) -> Vec<SyncHandle> {
        let rigs = self.rigs.iter_mut();
        rigs.map(|rig| rig.store().sync_handle()).collect()
    }

    fn synced(&mut self) -> Vec<u64> {
        self.handles().iter().map(SyncHandle::synced_seq).collect()
    }

    fn last(&mut self) -> Vec<u64> {
        self.handles().iter().map(SyncHandle::last_seq).collect()
    }

    /// Opens a crash state and checks every shard; returns their last operations.
    fn check(
        &self,
        disk: &SimDisk,
        floors: &[u64],
        how: &dyn std::fmt::Debug,
    ) -> (Vec<FileStore>, Vec<u64>) {
        let (mut stores, report) = disk
            .open_shards(Access::ReadWrite)
            .unwrap_or_else(|e| panic!("{how:?}: {e}"));
        self.sealed.set(self.sealed.get() + report.slots_sealed);
        let mut cuts = Vec::new();
        for ((store, rig), &floor) in stores.iter_mut().zip(&self.rigs).zip(floors) {
            let cut = store.sync_handle().last_seq();
            let given = rig.history.len() as u64 - 1;
            let shard = cuts.len();
            assert!(
                (floor..=given).contains(&cut),
                "{how:?}: shard {shard}: cut {cut}, synced {floor}, given {given}, {report:?}"
            );
            expect(store, &rig.history[cut as usize], &rig.hit, &(how, shard));
            cuts.push(cut);
        }
        (stores, cuts)
    }

    /// Continues with these stores on another disk.
    fn continue_on(&mut self, disk: SimDisk, stores: Vec<FileStore>, cuts: &[u64]) {
        for ((rig, store), &cut) in self.rigs.iter_mut().zip(stores).zip(cuts) {
            rig.history.truncate(cut as usize + 1);
            (rig.store, rig.disk) = (Some(store), disk.clone());
        }
        self.disk = disk;
    }

    /// Syncs through one shard, whatever has changed.
    fn force(&mut self, place: usize) {
        self.rigs[place].store().cache_area().sync().unwrap();
    }

    fn drop_stores(&mut self) {
        self.rigs.iter_mut().for_each(|rig| rig.store = None);
    }
}

#[test]
fn a_host_crash_cuts_each_shard_on_its_own_and_never_what_was_synced() {
    let (mut states, mut apart, mut sealed) = (0, 0, 0);
    for (profile, count) in shapes().into_iter().zip([2, 4]) {
        for seed in 0..12 {
            let mut shards = Shards::new(profile, count, seed);
            for round in 0..5 {
                for step in 0..80 {
                    shards.step();
                    if !shards.rng.one_in(8) {
                        continue;
                    }
                    let floors = shards.synced();
                    for how in Crash::kinds(shards.rng.next_u64()) {
                        let label = (count, seed, round, step, how);
                        let disk = shards.disk.crashed(how);
                        let (stores, cuts) = shards.check(&disk, &floors, &label);
                        drop(stores);
                        let (_, again) = shards.check(&disk, &cuts, &label);
                        assert_eq!(cuts, again, "{label:?}: opening twice");
                        let lost = |place: usize| {
                            cuts[place] < shards.rigs[place].history.len() as u64 - 1
                        };
                        apart += u32::from(lost(0) != lost(1));
                        states += 1;
                    }
                }
                let floors = shards.synced();
                let how = Crash::kinds(shards.rng.next_u64())[1 + shards.rng.index(5)];
                let disk = shards.disk.crashed(how);
                let (stores, cuts) = shards.check(&disk, &floors, &(count, seed, round, how));
                shards.continue_on(disk, stores, &cuts);
            }
            sealed += shards.sealed.get();
        }
    }
    println!("{states} crash states, {apart} with one of two shards cut, {sealed} slots sealed");
    assert!(
        states > 5000 && apart > 500 && sealed > 1000,
        "{states} {apart} {sealed}"
    );
}

/// The number of slots that an open does not have to read, by the seal map of each part as
/// docs/FORMAT.md has it. The block table and the counts of six blocks fit in a page each.
fn seals(shards: &Shards) -> Vec<u32> {
    const SECTOR_AT: usize = 4 * PAGE as usize;
    let bytes = shards.disk.bytes();
    let parts = bytes.chunks_exact(bytes.len() / shards.rigs.len());
    let sealed = |part: &[u8]| {
        let (sector, check) = part[SECTOR_AT..][..512].split_at(508);
        let number = crc32c_append(0, &0u32.to_le_bytes());
        assert_eq!(check, crc32c_append(number, sector).to_le_bytes());
        sector[8..].iter().map(|byte| byte.count_ones()).sum()
    };
    parts.map(sealed).collect()
}

#[test]
fn each_shard_has_seals_of_its_own_and_any_sync_writes_those_of_all() {
    let mut shards = Shards::new(shapes()[0], 3, 11);
    for (place, block) in [(0, 0), (2, 0), (2, 1), (2, 2)] {
        let rig = &mut shards.rigs[place];
        while rig.now().pages[block].contains(&0) {
            rig.program(block);
        }
    }
    assert_eq!(seals(&shards), [0, 0, 0], "no sync has covered anything");
    shards.force(1);
    assert_eq!(seals(&shards), [1, 0, 3], "a sync by another shard");
    // The slot with the same number in another shard keeps its seal.
    shards.rigs[2].erase(0);
    shards.force(1);
    assert_eq!(seals(&shards), [1, 0, 2]);
    let floors = shards.synced();
    for how in Crash::kinds(7) {
        let disk = shards.disk.crashed(how);
        shards.check(&disk, &floors, &how);
    }
    // A cleared seal is on the disk before a mark is written: that takes one sync.
    let ppn = shapes()[0].geometry.page(Pbn::new(0), 0);
    let before = shards.disk.syncs();
    shards.rigs[0]
        .store()
        .set_health(ppn, Health::DataLost)
        .unwrap();
    assert_eq!(shards.disk.syncs() - before, 1);
    assert_eq!(seals(&shards), [0, 0, 2]);
}

/// Slots of a shard are used again only when their seal is cleared on the disk, also if the host
/// refuses to write the map or the header of one of the shards for a while.
#[test]
fn a_seal_or_header_that_cannot_be_written_holds_up_its_shard_alone() {
    for seed in 0..24 {
        let mut shards = Shards::new(shapes()[0], 2, 4000 + seed);
        (0..160).for_each(|_| shards.step());
        let handles = shards.handles();
        let settle_all = || {
            for handle in &handles {
                let _ = handle.settle(handle.last_seq());
            }
        };
        settle_all();
        shards.rigs.iter_mut().for_each(|rig| rig.erase(0));
        shards.disk.fail_writes(WriteFault {
            after: seed % 4,
            count: 1,
            arrives: 0,
            errno: ENOSPC,
            needs_room: false,
            longest: usize::MAX,
        });
        shards.force(0);
        let last = shards.last();
        assert_eq!(shards.synced(), last, "the data of both is synced");
        shards.force(1);
        let mut durable = handles.iter().map(SyncHandle::durable_seq).zip(&last);
        assert!(durable.any(|(durable, &last)| durable == last));
        settle_all();
        shards.disk.clear_faults();
        for step in 0..40 {
            shards.step();
            let floors = shards.synced();
            for how in Crash::kinds(seed * 100 + step) {
                let label = (seed, step, how);
                shards.check(&shards.disk.crashed(how), &floors, &label);
            }
        }
    }
}

#[test]
fn one_sync_serves_all_shards() {
    for count in [2, 4, 16] {
        let mut shards = Shards::new(shapes()[0], count, 1);
        (0..400).for_each(|_| shards.step());
        shards.rigs.iter_mut().for_each(|rig| rig.erase(0));
        let (last, handles) = (shards.last(), shards.handles());
        let before = shards.disk.syncs();
        for (handle, &last) in handles.iter().zip(&last) {
            handle.sync_through(last).unwrap();
        }
        assert_eq!(shards.disk.syncs() - before, 1);
        assert_eq!(shards.synced(), last);
        // A header per shard, then a sync of all headers: the space of all erases is free.
        for (handle, &last) in handles.iter().zip(&last) {
            handle.settle(last).unwrap();
        }
        assert_eq!(shards.disk.syncs() - before, 2);
        assert_eq!(handles[0].stats(), handles[1].stats());
        // A shard without changes costs a sync nothing.
        let writes = shards.disk.writes();
        shards.force(0);
        assert_eq!(shards.disk.writes(), writes);
        shards.rigs[1].erase(1);
        let writes = shards.disk.writes();
        shards.force(0);
        assert_eq!(shards.disk.writes(), writes + 1);
    }
}

#[test]
fn syncs_beside_the_work_of_all_shards_promise_no_more_than_they_did() {
    for (seed, profile) in (0..6).flat_map(|seed| shapes().map(|profile| (seed, profile))) {
        let mut shards = Shards::new(profile, 2, 40 + seed);
        let handles = shards.handles();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (place, handle) in handles.iter().enumerate() {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(std::sync::atomic::Ordering::Acquire) {
                        let seq = handle.last_seq();
                        if place == 0 {
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
            let _end = crash::Finally(&done);
            for step in 0..400 {
                shards.step();
                if shards.rng.one_in(8) {
                    let floors: Vec<_> = handles.iter().map(SyncHandle::synced_seq).collect();
                    for how in Crash::kinds(shards.rng.next_u64()) {
                        shards.check(&shards.disk.crashed(how), &floors, &(seed, step, how));
                    }
                }
            }
        });
    }
}

#[test]
fn a_failed_sync_ends_all_shards_and_the_cache_area() {
    for (seed, profile) in (0..6).flat_map(|seed| shapes().map(|profile| (seed, profile))) {
        let mut shards = Shards::new(profile, 3, seed);
        (0..120).for_each(|_| shards.step());
        let handles = shards.handles();
        let area = shards.rigs[0].store().cache_area();
        area.attach(4096, |area| area.write_at(0, &[7; 4096]))
            .unwrap();
        handles[0].sync_through(handles[0].last_seq()).unwrap();
        let good = shards.synced();
        shards.rigs.iter_mut().for_each(|rig| rig.erase(1));
        handles[(seed % 3) as usize].fail_next_sync();
        // The process may die before all parts have recorded it.
        shards.disk.freeze_at(Freeze::Write(1));
        let last = handles[2].last_seq();
        assert_eq!(handles[2].sync_through(last), Err(SyncError::Failed(EIO)));
        for rig in &mut shards.rigs {
            let refused = rig.store().erase(Pbn::new(0), BlockFacts::default());
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(EIO));
        }
        shards.drop_stores();
        let half = shards.disk.take_frozen().unwrap();
        let disk = shards.disk.copy();
        // An open that is killed after part 0, one that opens all, and one after that.
        let killed = disk.copy();
        killed.fail_write(4, 0, EIO);
        let _ = killed.open_shards(Access::ReadWrite);
        for (disk, is_recorded) in [(disk, true), (killed, true), (half, false)] {
            disk.clear_faults();
            let (stores, report) = disk.open_shards(Access::ReadOnly).unwrap();
            assert!(report.sync_failed && stores.iter().all(|store| store.info().sync_failed));
            drop(stores);
            let (stores, cuts) = shards.check(&disk, &good, &seed);
            // A part whose header does not record the failure keeps what is whole in the file.
            assert!(cuts == good || !is_recorded, "{seed}: {cuts:?}, {good:?}");
            assert_eq!(stores[0].cache_area().section(), None);
            drop(stores);
            let (stores, report) = disk.open_shards(Access::ReadOnly).unwrap();
            assert!(!report.sync_failed && stores[0].info().cache_area.is_none());
        }
    }
}

/// The host fails while the headers record a failed sync: some of them reach the disk, and the
/// other parts have headers from before the last FLUSH.
#[test]
fn a_failure_recorded_in_one_part_alone_undoes_nothing_that_another_has_synced() {
    let mut stale = 0;
    for (seed, profile) in (0..6).flat_map(|seed| shapes().map(|profile| (seed, profile))) {
        let mut shards = Shards::new(profile, 2, 300 + seed);
        (0..120).for_each(|_| shards.step());
        let handles = shards.handles();
        handles[0].sync_through(handles[0].last_seq()).unwrap();
        // After this sync the disk still has the headers of the one before.
        shards.rigs.iter_mut().for_each(|rig| rig.erase(1));
        handles[0].sync_through(handles[0].last_seq()).unwrap();
        let flushed = shards.synced();
        stale += u64::from(handles[0].durable_seq() < flushed[0]);
        shards.rigs[1].erase(1);
        handles[1].fail_next_sync();
        shards.disk.freeze_at(Freeze::Sync(0));
        let last = handles[1].last_seq();
        assert_eq!(handles[1].sync_through(last), Err(SyncError::Failed(EIO)));
        let recording = shards.disk.take_frozen().unwrap();
        let masks = (0..8).map(Crash::Mask);
        for how in masks.chain(Crash::kinds(seed)) {
            shards.check(&recording.crashed(how), &flushed, &(seed, how));
        }
    }
    assert!(stale > 0, "every header was on the disk");
}

#[test]
fn an_interrupted_open_of_all_shards_is_followed_by_one_that_finds_the_same() {
    let mut interrupted = 0;
    for (shape, profile) in shapes().into_iter().enumerate() {
        for seed in 0..6 {
            let mut shards = Shards::new(profile, 2, 70 + seed);
            (0..160).for_each(|_| shards.step());
            let floors = shards.synced();
            let crashed = shards.disk.crashed(Crash::Sectors(seed)).bytes();
            let label = (shape, seed);
            let (stores, cuts) = shards.check(&SimDisk::holding(crashed.clone()), &floors, &label);
            drop(stores);
            for writes in 0..40 {
                let disk = SimDisk::holding(crashed.clone());
                disk.fail_write(writes, 0, EIO);
                match disk.open_shards(Access::ReadWrite) {
                    Ok(_) if disk.has_write_faults() => break,
                    _ => disk.clear_faults(),
                }
                interrupted += 1;
                for how in Crash::kinds(seed ^ writes) {
                    let label = (label, writes, how);
                    let (_, again) = shards.check(&disk.crashed(how), &cuts, &label);
                    assert_eq!(again, cuts, "{label:?}");
                }
            }
        }
    }
    assert!(interrupted > 50, "{interrupted}");
}

#[test]
fn a_closed_shard_writes_nothing_and_a_clean_close_is_one_of_all() {
    for close in [false, true] {
        let mut shards = Shards::new(shapes()[1], 3, 9);
        (0..150).for_each(|_| shards.step());
        let given = shards.last();
        let handles = shards.handles();
        let bytes = shards.disk.bytes().len() / shards.rigs.len();
        let first = shards.rigs[0].store.take().unwrap();
        if close {
            first.close().unwrap();
        } else {
            drop(first);
        }
        let before = shards.disk.bytes()[..bytes].to_vec();
        assert_eq!(handles[0].sync_through(u64::MAX), Err(SyncError::Closed));
        shards.rigs[1].erase(2);
        handles[1].settle(handles[1].last_seq()).unwrap();
        assert!(before == shards.disk.bytes()[..bytes], "part 0 changed");
        for rig in &mut shards.rigs[1..] {
            let store = rig.store.take().unwrap();
            if close {
                store.close().unwrap();
            }
        }
        let (stores, report) = shards.disk.open_shards(Access::ReadOnly).unwrap();
        drop(stores);
        assert_eq!(report.was_clean, close);
        let (_, cuts) = shards.check(&shards.disk, &given, &close);
        assert_eq!(cuts, [given[0], given[1] + 1, given[2]]);
    }
}

#[test]
fn parts_that_are_moved_missing_or_of_another_image_are_refused_by_name() {
    let mut shards = Shards::new(shapes()[0], 3, 5);
    (0..50).for_each(|_| shards.step());
    let bytes = shards.disk.bytes().len() / shards.rigs.len();
    shards.drop_stores();
    let image = shards.disk.bytes();
    let mut other = Shards::new(shapes()[0], 3, 5);
    other.drop_stores();
    let other = other.disk.bytes();
    let refused = |parts: [&[u8]; 3]| {
        let disk = SimDisk::holding(parts.concat());
        let error = disk.open_shards(Access::ReadWrite).err().unwrap();
        assert_eq!(disk.writes(), 0, "a wrong image is not changed");
        error.to_string()
    };
    let part = |number: usize| &image[number * bytes..][..bytes];
    let error = refused([part(1), part(0), part(2)]);
    assert!(
        error.contains("part 1 of 3: part 0 is in its place"),
        "{error}"
    );
    let error = refused([part(0), part(2), part(1)]);
    assert!(
        error.contains("part 1 of 3: part 2 is in its place"),
        "{error}"
    );
    let error = refused([part(1), part(1), part(2)]);
    assert!(
        error.contains("part 0 of 3: part 1 is in its place"),
        "{error}"
    );
    let error = refused([part(0), &other[bytes..2 * bytes], part(2)]);
    assert!(
        error.contains("part 1 of 3: it belongs to another image"),
        "{error}"
    );
    let error = refused([part(0), part(1), &vec![0; bytes]]);
    assert!(error.contains("part 2 of 3: it has no header"), "{error}");
    let mut damaged = part(2).to_vec();
    (damaged[100], damaged[100 + PAGE as usize]) =
        (damaged[100] ^ 1, damaged[100 + PAGE as usize] ^ 1);
    let error = refused([part(0), part(1), &damaged]);
    assert!(error.contains("part 2 of 3: both header copies"), "{error}");
    let (_, stores) = SimDisk::create_shards(&spec(shapes()[0]), None, 3).unwrap();
    drop(stores);
    let (single, store) = fresh(shapes()[0], 3);
    drop(store);
    let error = refused([part(0), part(1), &single.bytes()]);
    assert!(
        error.contains("part 2 of 3: it belongs to another image"),
        "{error}"
    );
    let short = SimDisk::holding(image[..3 * bytes - 1].to_vec());
    let error = short.open_shards(Access::ReadWrite).err().unwrap();
    assert!(matches!(error, ImageError::TooShort { .. }), "{error}");
}

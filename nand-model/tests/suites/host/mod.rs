//! The store on a simulated host disk that loses unsynced writes in a crash: between two syncs
//! every 512-byte sector keeps any of its contents. In every case, opening must find the state
//! after some number of operations, at least the synced ones.

mod batch;
mod cache_area;
mod crash;
mod open;
mod readers;
mod seals;
mod shards;
mod sync;

use ftld_host_disk::{Crash, End, Freeze, ReadFault, SimDisk, WriteFault};
use nand_model::{
    Access, Bad, BlockFacts, CacheArea, Cells, FileStore, Health, ImageError, ImageSpec,
    OpenReport, PageOrder, PageReader, Pbn, Pin, PlacedRun, Ppn, Profile, SplitMix, Store,
    Striping, SyncError, SyncHandle, Verify,
};
use std::collections::HashSet;
use std::io;

/// The host's unit of space.
const PAGE: u64 = 4096;

pub(super) const EIO: i32 = 5;
pub(super) const ENOSPC: i32 = 28;

/// The content of every block after one operation.
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
    /// Models by sequence number.
    history: Vec<Model>,
    /// Whether cells contain pages of other addresses.
    stray: bool,
    /// Whether programs come in batches.
    batches: bool,
    /// Whether a batch has begun.
    in_batch: bool,
    /// Pages that were programmed over: their content is not part of the sequence.
    hit: HashSet<u64>,
    rng: SplitMix,
}

/// Marks seeds of pages that were meant for another address.
const STRAY: u64 = 1 << 63;

/// Small shapes with few pages and three spare slots, so that slots are reused often.
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

/// The place in the file of bytes that only one page has.
fn place_of(disk: &SimDisk, bytes: &[u8]) -> u64 {
    let all = disk.bytes();
    let mut places = (0..all.len()).filter(|&at| all[at..].starts_with(bytes));
    let place = places.next().expect("they are in the file");
    assert_eq!(places.next(), None, "they are there once");
    place as u64
}

impl Rig {
    fn new(profile: Profile, seed: u64) -> Rig {
        let (disk, store) = fresh(profile, 3);
        Rig::on(profile, disk, store, seed)
    }

    /// A rig on a new store.
    fn on(profile: Profile, disk: SimDisk, store: FileStore, seed: u64) -> Rig {
        let geometry = profile.geometry;
        let blank = Model {
            erase_counts: vec![0; geometry.blocks as usize],
            pages: vec![vec![0; geometry.pages_per_block as usize]; geometry.blocks as usize],
        };
        Rig {
            profile,
            disk,
            store: Some(store),
            history: vec![blank],
            stray: false,
            batches: false,
            in_batch: false,
            hit: HashSet::new(),
            rng: SplitMix::new(seed),
        }
    }

    fn store(&mut self) -> &mut FileStore {
        self.store.as_mut().unwrap()
    }

    fn now(&self) -> Model {
        self.history.last().unwrap().clone()
    }

    /// Counts operations of the store without visible effect: the first assignment of a slot.
    fn catch_up(&mut self, visible: usize) {
        let given = self.store().sync_handle().last_seq() as usize;
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
        if self.batches && self.rng.one_in(6) {
            self.begin_or_end_batch();
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
        // A batch keeps them: their numbers are not given yet.
        self.catch_up(if self.in_batch { 0 } else { count });
        for (i, seed) in seeds.into_iter().enumerate() {
            model.pages[block][page + i] = seed;
            self.history.push(model.clone());
        }
    }

    /// Batches of several requests: what a request programs is the second level.
    fn begin_or_end_batch(&mut self) {
        self.in_batch = !self.in_batch;
        let begins = self.in_batch;
        for _ in 0..2 {
            match begins {
                true => self.store().begin_batch(),
                false => self.store().end_batch().unwrap(),
            }
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

    /// Programs cells meant for another page over the existing content.
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

    /// Opens a crash state and checks it; returns its last operation.
    fn check(&self, disk: &SimDisk, floor: u64, how: &dyn std::fmt::Debug) -> (FileStore, u64) {
        let (mut store, report) =
            open(disk, Access::ReadWrite).unwrap_or_else(|e| panic!("{how:?}: {e}"));
        let cut = store.sync_handle().last_seq();
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
    let geometry = store.info().profile.geometry;
    let in_order = store.info().profile.order == PageOrder::Consecutive;
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
            // In ordered blocks, all pages below a programmed page count as programmed.
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

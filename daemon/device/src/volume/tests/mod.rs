//! Tests of the volume over a table as scheme.

mod cache;
mod control;
mod flushes;
mod places;
mod requests;
mod shards;
mod time;

use super::*;
use ftl_core::{
    BlockUse, BlockView, Event, EventKind, EventLog, Lpn, RamReport, SchemeStats, StreamView,
};
use nand_model::store::{AnyStore, MemStore};
use nand_model::{Chip, Nanos, Pbn, Ppn, Profile};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Condvar, Mutex};

const PAGE: usize = 1024;
const PAGES: u32 = 64;

/// A scheme that keeps its pages in a table and takes injected traps.
struct Toy {
    chip: Chip,
    /// A write of page 0 is an event.
    events: EventLog,
    pages: HashMap<u32, Vec<u8>>,
    calls: Arc<Mutex<Vec<String>>>,
    /// Page and behaviour of the next trap.
    trap: Arc<Mutex<Option<(u32, Trap)>>>,
    /// Turns of background work left.
    work: Arc<AtomicU64>,
    /// Slowdown factor.
    slow: u64,
}

/// The place of a trap in the end of a batch.
const END_OF_BATCH: u32 = u32::MAX - 2;

#[derive(Clone)]
enum Trap {
    Fail(FtlError),
    Panic,
    /// Blocks until another thread releases the mutex.
    Hang(Arc<Mutex<()>>),
}

#[derive(Clone, Default)]
struct Handles {
    calls: Arc<Mutex<Vec<String>>>,
    trap: Arc<Mutex<Option<(u32, Trap)>>>,
    work: Arc<AtomicU64>,
}

impl Handles {
    fn set(&self, page: u32, trap: Trap) {
        *self.trap.lock().unwrap() = Some((page, trap));
    }
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl Toy {
    /// Counts a change in the store's hour, so that marks number the changes.
    fn changed(&mut self) {
        let store = self.chip.store_mut();
        store.set_hour(store.hour() + 1);
    }
    fn note(&self, verb: &str, first: Lpn, count: u32) -> Result<(), FtlError> {
        self.calls
            .lock()
            .unwrap()
            .push(format!("{verb} {first}+{count}"));
        self.spring(first, count)
    }

    /// Does what the trap of one of these pages does.
    fn spring(&self, first: Lpn, count: u32) -> Result<(), FtlError> {
        let hit = |page: u32| (first.raw()..first.raw() + count.max(1)).contains(&page);
        let trap = self.trap.lock().unwrap().clone();
        match trap {
            Some((page, Trap::Fail(error))) if hit(page) => Err(error),
            Some((page, Trap::Panic)) if hit(page) => panic!("NAND rule: page {page}"),
            Some((page, Trap::Hang(until))) if hit(page) => {
                drop(until.lock().unwrap());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Ftl for Toy {
    fn scheme(&self) -> &'static str {
        "toy"
    }
    fn logical_pages(&self) -> u32 {
        PAGES
    }
    fn read(&mut self, at: Nanos, first: Lpn, out: &mut [u8]) -> Result<Nanos, FtlError> {
        self.note("read", first, (out.len() / PAGE) as u32)?;
        for (i, out) in out.chunks_mut(PAGE).enumerate() {
            match self.pages.get(&(first.raw() + i as u32)) {
                Some(page) => out.copy_from_slice(page),
                None => out.fill(0),
            }
        }
        Ok(at + 50_000 * self.slow)
    }
    fn write(&mut self, at: Nanos, first: Lpn, data: &[u8]) -> Result<Nanos, FtlError> {
        self.note("write", first, (data.len() / PAGE) as u32)?;
        for (i, page) in data.chunks(PAGE).enumerate() {
            self.pages.insert(first.raw() + i as u32, page.to_vec());
        }
        self.changed();
        if first.raw() == 0 {
            self.events.note(Event {
                kind: EventKind::Gc,
                block: Some(Pbn::new(3)),
                pages: 2,
                at,
                took: 7,
            });
        }
        Ok(at + 500_000 * self.slow)
    }
    fn begin_batch(&mut self) {}
    fn end_batch(&mut self) -> Result<(), FtlError> {
        self.spring(Lpn::new(END_OF_BATCH), 1)
    }
    fn trim(&mut self, at: Nanos, first: Lpn, count: u32) -> Result<Nanos, FtlError> {
        self.note("trim", first, count)?;
        (first.raw()..first.raw() + count).for_each(|page| drop(self.pages.remove(&page)));
        self.changed();
        Ok(at)
    }
    fn flush(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.note("flush", Lpn::new(u32::MAX - 1), 0)?;
        self.changed();
        Ok(at + 1_000_000 * (self.slow - 1))
    }
    fn idle(&mut self, _at: Nanos, _budget: u32) -> Result<bool, FtlError> {
        let left = |left: u64| left.checked_sub(1);
        Ok(self.work.fetch_update(Relaxed, Relaxed, left).is_ok())
    }
    fn shutdown(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.note("shutdown", Lpn::new(u32::MAX - 1), 0)?;
        self.changed();
        Ok(at)
    }
    fn is_mapped(&mut self, lpn: Lpn) -> Result<bool, FtlError> {
        Ok(self.pages.contains_key(&lpn.raw()))
    }
    fn stats(&self) -> SchemeStats {
        SchemeStats {
            mapped_pages: self.pages.len() as u64,
            ..SchemeStats::default()
        }
    }
    fn block(&self, _: Pbn) -> BlockView {
        BlockView {
            used: BlockUse::Free,
            valid: 0,
            age: 0,
        }
    }
    fn is_valid(&self, _: Ppn) -> bool {
        false
    }
    fn events(&self) -> &EventLog {
        &self.events
    }
    fn streams(&self) -> &[StreamView] {
        &[]
    }
    fn ram_report(&self) -> RamReport {
        Vec::new()
    }
    fn check(&mut self) -> Result<Vec<String>, FtlError> {
        Ok(Vec::new())
    }
    fn chip(&self) -> &Chip {
        &self.chip
    }
    fn chip_mut(&mut self) -> &mut Chip {
        &mut self.chip
    }
    fn into_chip(self: Box<Self>) -> Chip {
        self.chip
    }
}

fn toy(durable: Option<Arc<dyn Durable>>, read_only: bool) -> (Volume, Handles) {
    make(
        durable,
        VolumeOptions {
            size: PAGES as u64 * PAGE as u64 - 512,
            read_only,
            emulate: false,
        },
        1,
    )
}

/// Creates a volume with emulated latency whose requests take hours.
fn slow_toy(durable: Option<Arc<dyn Durable>>) -> Volume {
    make(
        durable,
        VolumeOptions {
            size: PAGES as u64 * PAGE as u64,
            read_only: false,
            emulate: true,
        },
        SLOW,
    )
    .0
}

/// Factor by which the shortest operation takes an hour.
const SLOW: u64 = 3_600_000_000_000 / 50_000;

fn make(durable: Option<Arc<dyn Durable>>, options: VolumeOptions, slow: u64) -> (Volume, Handles) {
    let (ftl, handles) = toy_on_chip(slow);
    (Volume::new(ftl, options, durable), handles)
}

fn toy_on_chip(slow: u64) -> (Box<dyn Ftl>, Handles) {
    let profile = Profile::find("torture").unwrap().with_blocks(8);
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    let handles = Handles::default();
    let Handles { calls, trap, work } = handles.clone();
    let ftl = Toy {
        chip,
        events: EventLog::default(),
        pages: HashMap::new(),
        calls,
        trap,
        work,
        slow,
    };
    (Box::new(ftl), handles)
}

fn errno_of<T>(result: io::Result<T>) -> i32 {
    result.err().expect("an error").raw_os_error().unwrap()
}

/// A store whose sync blocks until the gate opens. Its marks count the verbs that changed the
/// store.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    moved: Condvar,
    waits: AtomicU64,
    /// Marks of all waits.
    marks: Mutex<Vec<u64>>,
    fails: AtomicBool,
    synced: AtomicU64,
    panics: AtomicBool,
}

impl Durable for Gate {
    fn mark(&self, store: &mut AnyStore) -> u64 {
        store.hour().into()
    }
    fn synced(&self) -> u64 {
        self.synced.load(Relaxed)
    }
    fn wait(&self, mark: u64) -> io::Result<()> {
        self.marks.lock().unwrap().push(mark);
        self.waits.fetch_add(1, Relaxed);
        assert!(!self.panics.load(Relaxed), "planted");
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.moved.wait(open).unwrap();
        }
        if self.fails.load(Relaxed) {
            Err(io::Error::from_raw_os_error(EIO))
        } else {
            Ok(())
        }
    }
    fn wait_for_erased_space(&self, mark: u64) -> io::Result<()> {
        self.wait(mark)
    }
    fn failed(&self) -> bool {
        self.fails.load(Relaxed)
    }
}

impl Gate {
    fn closed() -> Arc<Self> {
        Arc::default()
    }
    fn let_go(&self) {
        *self.open.lock().unwrap() = true;
        self.moved.notify_all();
    }
}

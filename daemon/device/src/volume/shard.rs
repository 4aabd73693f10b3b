//! One chip of a device with its scheme, behind a lock of its own.
//!
//! Invariants: nobody holds the locks of two shards. A shard has its own sequence numbers, free
//! blocks and map; the order of requests to two shards is that of their locks.

use super::locked::Core;
use super::snapshot::{FlashSnapshot, Wear, WearScan};
use super::watch::{BlockMap, BlockScan};
use super::write_cache::{CacheView, WriteCache};
use super::{Clock, Durable};
use ftl_core::Ftl;
use ftld_kit::convert::to_usize;
use nand_model::{PageReader, Store};
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// One chip of a device, with its scheme and what it has published. The next shard, which another
/// thread uses, has other cache lines.
#[repr(align(128))]
pub(super) struct Shard {
    /// Number of the shard, from 0 on.
    pub(super) number: usize,
    core: Mutex<Option<Core>>,
    pub(super) durable: Option<Arc<dyn Durable>>,
    /// Copies pages outside the lock, where the store permits it.
    pub(super) reader: Option<PageReader>,
    /// Whether there is a write cache; set before the first request.
    pub(super) has_cache: bool,
    /// Whether erases run short.
    pub(super) short: AtomicBool,
    /// Events recorded, as far as they are known without the lock.
    pub(super) events: AtomicU64,
    pub(super) published: Mutex<Arc<FlashSnapshot>>,
    /// Locked only by [`Volume::publish`](super::Volume::publish), before the request lock.
    pub(super) scan: Mutex<BlockScan>,
    pub(super) map: Mutex<Arc<BlockMap>>,
}

/// A shard whose lock is held.
pub(super) struct Locked<'a> {
    pub(super) shard: &'a Shard,
    core: MutexGuard<'a, Option<Core>>,
}

impl Shard {
    /// Creates a shard with the clock of the device; a map of its blocks has at most `cells` cells.
    pub(super) fn new(
        number: usize,
        ftl: Box<dyn Ftl>,
        durable: Option<Arc<dyn Durable>>,
        clock: Clock,
        cells: u32,
    ) -> Self {
        let geometry = *ftl.chip().geometry();
        let reader = ftl.chip().store().reader();
        let mut core = Core {
            ftl,
            scratch: vec![0; to_usize(u64::from(geometry.page_bytes))],
            clock,
            scan: WearScan::default(),
            wear: Wear::default(),
            last_write: None,
            cache: None,
            last_cache: CacheView::default(),
        };
        while !core.look_at_wear() {}
        Shard {
            number,
            published: Mutex::new(Arc::new(FlashSnapshot::take(&core, 0))),
            core: Mutex::new(Some(core)),
            durable,
            reader,
            has_cache: false,
            short: AtomicBool::new(false),
            events: AtomicU64::new(0),
            scan: Mutex::new(BlockScan::new(geometry.blocks, cells)),
            map: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        Locked {
            shard: self,
            core: self.core.lock(),
        }
    }

    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        let core = self.core.try_lock()?;
        Some(Locked { shard: self, core })
    }

    /// Returns the state under the lock, before the first request.
    pub(super) fn get_mut(&mut self) -> Option<&mut Core> {
        self.core.get_mut().as_mut()
    }

    /// Takes the write cache away: later requests go to the flash. Called before the first request.
    pub(super) fn take_cache(&mut self) -> Option<Box<WriteCache>> {
        self.has_cache = false;
        let core = self.get_mut()?;
        let cache = core.cache.take()?;
        core.last_cache = CacheView {
            capacity_bytes: 0,
            dirty_bytes: 0,
            ..cache.view()
        };
        Some(cache)
    }

    /// Returns the bytes that wait in the write cache.
    pub(super) fn dirty_bytes(&self) -> u64 {
        let guard = self.lock();
        let cache = guard.as_ref().and_then(|core| core.cache.as_ref());
        cache.map_or(0, |cache| cache.view().dirty_bytes)
    }
}

/// Returns the prefix of a message about one of `count` shards: empty if there is only one.
pub fn shard_text(number: usize, count: usize) -> String {
    match count {
        1 => String::new(),
        _ => format!("shard {number} of {count}: "),
    }
}

impl Locked<'_> {
    /// Records how many events there are.
    pub(super) fn note_events(&self) {
        if let Some(core) = self.as_ref() {
            self.shard.events.store(core.ftl.events().total(), Relaxed);
        }
    }

    /// Returns the number of the newest operation in the store; 0 without a sync.
    pub(super) fn mark(&mut self) -> u64 {
        match (&self.shard.durable, self.core.as_mut()) {
            (Some(durable), Some(core)) => durable.mark(core.ftl.chip_mut().store_mut()),
            _ => 0,
        }
    }
}

impl Deref for Locked<'_> {
    type Target = Option<Core>;
    fn deref(&self) -> &Option<Core> {
        &self.core
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Option<Core> {
        &mut self.core
    }
}

//! A volume with a write cache over the toy scheme.

use super::*;
use crate::device::{BlockDevice, FlushOf};
use crate::volume::write_cache::{
    Area, CacheOptions, CutCounts, Loaded, Model, Opening, Reason, Shape, WriteCache,
};
use std::time::Instant;

/// A cache area in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Area for Memory {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.copy_from_slice(&self.0.lock().unwrap()[at as usize..][..buf.len()]);
        Ok(())
    }
    fn write_at(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap()[at as usize..][..buf.len()].copy_from_slice(buf);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn detach(&self) -> io::Result<()> {
        self.0.lock().unwrap().clear();
        Ok(())
    }
    fn fail(&self, error: &io::Error) {
        panic!("the area failed: {error}");
    }
}

const RING: u64 = 64 << 10;

fn options(model: Model, protected: bool) -> CacheOptions {
    CacheOptions {
        bytes: RING,
        model,
        tear: Some(512),
        protected,
    }
}

fn with_cache(volume: &mut Volume, options: CacheOptions) -> Memory {
    let memory = Memory::default();
    let area_bytes = WriteCache::area_bytes(options.bytes) as usize;
    memory.0.lock().unwrap().resize(area_bytes, 0);
    let shape = Shape {
        options,
        unit: options.unit(PAGE as u32),
        page_bytes: PAGE as u32,
        logical_bytes: u64::from(PAGES) * PAGE as u64,
    };
    let area = Box::new(memory.clone());
    volume.set_caches(vec![Some(
        WriteCache::format(area, shape, [1; 16], "boot", 5).unwrap(),
    )]);
    memory
}

fn cached() -> (Volume, Handles, Memory) {
    let (mut volume, handles) = toy(None, false);
    let memory = with_cache(&mut volume, options(Model::Any, false));
    (volume, handles, memory)
}

fn load(memory: &Memory, boot_id: &str) -> Loaded {
    let opening = Opening {
        uuid: [1; 16],
        boot_id,
        sync_failed: false,
        page_bytes: PAGE as u32,
        logical_bytes: u64::from(PAGES) * PAGE as u64,
    };
    let bytes = memory.0.lock().unwrap().len() as u64;
    WriteCache::load(Box::new(memory.clone()), bytes, &opening).unwrap()
}

fn flush(volume: &Volume) -> io::Result<()> {
    volume.flush(FlushOf::Everything)?.wait().map(drop)
}

#[test]
fn writes_wait_for_a_flush_and_units_of_a_page_are_written_together() {
    let (volume, handles, _) = cached();
    volume.write(2 * 1024, &[1; 512]).unwrap();
    volume.write(2 * 1024 + 512, &[2; 512]).unwrap();
    volume.write(5 * 1024 + 100, &[3; 10]).unwrap();
    assert_eq!(handles.calls(), ["read 5+1"], "the rest of a unit");
    let mut page = [0; 1024];
    volume.read(2 * 1024, &mut page).unwrap();
    assert!(page[..512] == [1; 512] && page[512..] == [2; 512]);
    assert_eq!(handles.calls(), [""; 0]);
    flush(&volume).unwrap();
    let calls = handles.calls();
    assert_eq!(
        calls,
        ["write 2+1", "read 5+1", "write 5+1", "flush 4294967294+0"]
    );
    volume.publish(true);
    let view = volume.flash().cache;
    assert_eq!((view.dirty_bytes, view.read_hit_bytes), (0, 1024));
    assert_eq!(view.written_back_bytes, [0, 0, 1536, 0, 0, 0]);
}

#[test]
fn zeros_of_a_part_of_a_unit_wait_for_a_trim_that_the_host_refused() {
    let (volume, handles, _) = cached();
    handles.set(END_OF_BATCH, Trap::Fail(FtlError::HostFull));
    let zeros = volume.write_zeroes(9 * 1024 + 100, 100);
    assert_eq!((errno_of(zeros), handles.calls()), (ENOSPC, Vec::new()));
}

#[test]
fn a_restart_finds_the_entry_that_fills_the_ring() {
    let (volume, handles, memory) = cached();
    let entries = RING / (512 + 512);
    for unit in 0..entries {
        volume.write(unit * 512, &[7; 512]).unwrap();
    }
    assert_eq!(handles.calls(), [""; 0], "all of them are in the ring");
    let Loaded::Pending(pending) = load(&memory, "boot") else {
        panic!("the same boot");
    };
    assert_eq!((pending.entries, pending.units), (entries, entries));
}

#[test]
fn a_flush_covers_a_write_that_a_later_one_superseded() {
    let (volume, handles, _) = cached();
    volume.write(0, &[1; 1024]).unwrap();
    volume.write(8 * 1024, &[1; 1024]).unwrap();
    let mut guard = volume.shards[0].lock();
    let (cache, mut io) = guard.as_mut().unwrap().cached().unwrap();
    let target = cache.begin_flush();
    // Between two steps of the FLUSH other requests take the lock.
    cache.write(&mut io, 0, 20 * 1024, &[2; 1024]).unwrap();
    cache.write(&mut io, 0, 8 * 1024, &[2; 1024]).unwrap();
    while !cache.has_flushed(target) {
        cache.write_back(&mut io, 0, Reason::Flush).unwrap();
    }
    assert_eq!(handles.calls(), ["write 0+1", "write 8+1"]);
}

#[test]
fn age_writes_back_unless_a_cut_loses_everything() {
    let (volume, handles, _) = cached();
    volume.write(0, &[1; 1024]).unwrap();
    volume.write_back_aged(Duration::from_secs(60));
    assert_eq!(handles.calls(), [""; 0]);
    volume.write_back_aged(Duration::ZERO);
    assert_eq!(handles.calls(), ["write 0+1"]);
    let (mut volume, handles) = toy(None, false);
    with_cache(&mut volume, options(Model::Lost, false));
    volume.write(0, &[1; 1024]).unwrap();
    volume.write_back_aged(Duration::ZERO);
    assert_eq!(handles.calls(), [""; 0]);
}

#[test]
fn a_trim_writes_dirty_units_back_first_and_a_replay_does_not_undo_it() {
    let (volume, handles, memory) = cached();
    volume.write(1024, &[1; 1024]).unwrap();
    volume.trim(1024, 512).unwrap();
    volume.trim(3 * 1024 + 7, 9).unwrap();
    assert_eq!(handles.calls(), ["write 1+1", "read 1+1", "write 1+1"]);
    let Loaded::Pending(pending) = load(&memory, "boot") else {
        panic!("the same boot");
    };
    assert_eq!(
        (pending.entries, pending.units),
        (2, 1),
        "the trim is an entry"
    );
    assert!(matches!(load(&memory, "other"), Loaded::Lost(lost) if lost.units == 1));
}

#[test]
fn a_flush_ends_the_entries_that_it_covers_although_newer_ones_wait() {
    let (volume, _, memory) = cached();
    volume.write(1024, &[1; 1024]).unwrap();
    let mut guard = volume.shards[0].lock();
    let core = guard.as_mut().unwrap();
    let (cache, mut io) = core.cached().unwrap();
    let target = cache.begin_flush();
    cache.write(&mut io, 0, 5 * 1024, &[2; 1024]).unwrap();
    while !cache.has_flushed(target) {
        cache.write_back(&mut io, 0, Reason::Flush).unwrap();
    }
    core.flush(0).unwrap();
    drop(guard);
    let Loaded::Pending(pending) = load(&memory, "boot") else {
        panic!("the same boot");
    };
    assert_eq!((pending.entries, pending.units), (1, 2));
}

#[test]
fn a_flash_that_takes_no_more_writes_keeps_what_is_acknowledged_readable() {
    let (volume, handles, memory) = cached();
    volume.write(1024, &[7; 1024]).unwrap();
    handles.set(1, Trap::Fail(FtlError::ReadOnly("worn out")));
    assert_eq!(errno_of(flush(&volume)), EPERM);
    assert_eq!(errno_of(volume.write(4096, &[1; 512])), EPERM, "refused");
    let mut page = [0; 1024];
    volume.read(1024, &mut page).unwrap();
    assert_eq!(page, [7; 1024]);
    volume.publish(true);
    assert_eq!(volume.flash().cache.failed_write_backs, 1);
    volume.close().unwrap();
    let Loaded::Pending(pending) = load(&memory, "another boot") else {
        panic!("a clean shutdown keeps them for every boot");
    };
    assert_eq!(pending.units, 2);
    *handles.trap.lock().unwrap() = None;
    let (mut again, handles) = toy(None, false);
    again.set_caches(vec![Some(pending.cache)]);
    assert_eq!(
        errno_of(again.write(0, &[1; 512])),
        EPERM,
        "not before a replay"
    );
    assert!(again.replay_cache().unwrap().is_empty());
    assert!(handles.calls().contains(&"write 1+1".to_owned()));
}

#[test]
fn what_was_acknowledged_is_durable_once_the_kernel_sends_no_flush() {
    let (volume, handles, _) = cached();
    volume.write(0, &[1; 1024]).unwrap();
    assert!(volume.has_volatile_cache());
    volume.set_write_through(true);
    assert_eq!(handles.calls(), ["write 0+1", "flush 4294967294+0"]);
    assert!(!volume.has_volatile_cache(), "transports flush from now on");
    volume.set_write_through(false);
    assert!(volume.has_volatile_cache());
    // Pages that no padding has committed are as volatile as a cache.
    let (volume, handles) = toy(None, false);
    volume.write(0, &[1; 1024]).unwrap();
    volume.set_write_through(true);
    assert_eq!(handles.calls(), ["write 0+1", "flush 4294967294+0"]);
    volume.announce_no_cache();
    assert!(!volume.has_volatile_cache());
}

#[test]
fn a_delayed_write_takes_the_time_of_the_cache_until_it_is_full() {
    let mut volume = slow_toy(None);
    with_cache(&mut volume, options(Model::Any, false));
    let hour = Duration::from_secs(3600);
    let due = |page: u64| {
        let done = volume.write(page % 64 * 1024, &[1; 1024]).unwrap();
        done.map_or(Duration::ZERO, |done| done.due() - Instant::now())
    };
    let fast = (0..).take_while(|page| due(*page) < hour).count() as u64;
    let room = RING / (1024 + 512);
    assert!(
        (room - 2..=room).contains(&fast),
        "{fast} writes of {room} were fast"
    );
    let flushed = flush(&volume);
    assert!(flushed.is_ok());
}

#[test]
fn a_power_cut_counts_each_dirty_unit_once() {
    use crate::inject::{Injection, PowerCut};
    for (model, protected) in [
        (Model::Any, false),
        (Model::Ordered, false),
        (Model::Lost, false),
        (Model::Any, true),
    ] {
        let (mut volume, _) = toy(None, false);
        let memory = with_cache(&mut volume, options(model, protected));
        (0..8).for_each(|page| drop(volume.write(page * 1024, &[1; 2048]).unwrap()));
        let cut = PowerCut {
            seed: Some(3),
            ..PowerCut::default()
        };
        volume.inject(&Injection::PowerCut(cut)).unwrap();
        assert_eq!(errno_of(volume.read(0, &mut [0; 512])), EIO);
        let Loaded::Pending(pending) = load(&memory, "another boot") else {
            panic!("a cut is trusted under any boot");
        };
        let cut = pending.cut.unwrap();
        assert_eq!(cut.units(), 18, "{model:?}");
        let whole = CutCounts {
            new: 18,
            ..CutCounts::default()
        };
        assert_eq!(cut == whole, protected, "{model:?}");
        let lost = (cut.lost == 18, pending.units == 0);
        assert_eq!(
            lost,
            (model == Model::Lost, model == Model::Lost),
            "{model:?}"
        );
    }
}

#[test]
fn a_trim_that_a_cut_may_have_undone_reads_as_zeros_before_it_is_repeated() {
    use crate::inject::{Injection, PowerCut};
    let (mut volume, _) = toy(None, false);
    let memory = with_cache(&mut volume, options(Model::Ordered, false));
    volume.write(1024, &[1; 3 * 1024]).unwrap();
    volume.trim(2 * 1024, 1024).unwrap();
    volume
        .inject(&Injection::PowerCut(PowerCut::default()))
        .unwrap();
    let Loaded::Pending(pending) = load(&memory, "another boot") else {
        panic!("a cut is trusted under any boot");
    };
    let (mut again, handles) = toy(None, false);
    again.write(2 * 1024, &[7; 1024]).unwrap();
    again.set_caches(vec![Some(pending.cache)]);
    let expected = [[1; 1024], [0; 1024], [1; 1024]].concat();
    for replayed in [false, true] {
        let mut pages = [9; 3 * 1024];
        again.read(1024, &mut pages).unwrap();
        assert_eq!(pages[..], expected, "replayed: {replayed}");
        assert!(again.replay_cache().unwrap().is_empty());
    }
    assert!(handles.calls().contains(&"trim 2+1".to_owned()));
}

/// The flash has a trim at once: under the model `ordered`, all that was acknowledged before it
/// survives a cut, too.
#[test]
fn an_ordered_cache_keeps_all_that_is_before_a_trim() {
    use crate::inject::{Injection, PowerCut};
    for seed in 0..30 {
        let (mut volume, _) = toy(None, false);
        let memory = with_cache(&mut volume, options(Model::Ordered, false));
        for page in 0..4 {
            volume.write(page * 1024, &[page as u8 + 1; 1024]).unwrap();
        }
        volume.trim(9 * 1024, 1024).unwrap();
        let cut = PowerCut {
            seed: Some(seed),
            ..PowerCut::default()
        };
        volume.inject(&Injection::PowerCut(cut)).unwrap();
        let Loaded::Pending(pending) = load(&memory, "another boot") else {
            panic!("a cut is trusted under any boot");
        };
        // A flash that has lost what was written back without a FLUSH.
        let (mut again, _) = toy(None, false);
        again.set_caches(vec![Some(pending.cache)]);
        assert!(again.replay_cache().unwrap().is_empty());
        let mut pages = [0; 4 * 1024];
        again.read(0, &mut pages).unwrap();
        let first = [0, 1, 2, 3].map(|page| pages[page * 1024]);
        assert_eq!(first, [1, 2, 3, 4], "seed {seed}");
    }
}

/// Each number in the header of an area is checked before it is used: the check value holds, and
/// yet no cache wrote them.
#[test]
fn a_header_that_no_cache_wrote_is_damage_and_says_why() {
    let (volume, _, memory) = cached();
    volume.write(0, &[1; 512]).unwrap();
    let mut whole = memory.0.lock().unwrap().clone();
    let forge = |bytes: &mut [u8], at: usize, value: &[u8]| {
        for copy in [0, 2048] {
            let head = &mut bytes[copy..][..512];
            head[at..at + value.len()].copy_from_slice(value);
            let check = nand_model::crc32c_append(0, &head[..508]);
            head[508..].copy_from_slice(&check.to_le_bytes());
        }
    };
    let number = |value: u64| value.to_le_bytes();
    let halves = [number(1 << 63), number(1 << 63)].concat();
    for (at, value, part) in [
        (16, vec![9; 16], "another image"),
        (32, number(u64::MAX).into(), "cannot have been reached"),
        (40, number(1 << 38).into(), "a ring of 274877906944 bytes"),
        (40, number(512).into(), "a ring of 512 bytes"),
        (40, number(0).into(), "a ring of 0 bytes"),
        (48, number(0).into(), "units of 0 bytes"),
        (48, number(1 << 40).into(), "units of 0 bytes"),
        (64, number(7).into(), "entries from byte 7"),
        (64, number(u64::MAX - 511).into(), "entries from byte"),
        (72, number(u64::MAX).into(), "cannot have been reached"),
        (80, number(u64::MAX).into(), "a power cut of"),
        (80, halves, "a power cut of"),
    ] {
        let mut bytes = whole.clone();
        forge(&mut bytes, at, &value);
        match load(&Memory(Arc::new(Mutex::new(bytes))), "boot") {
            Loaded::Damaged(why) => assert!(why.contains(part), "byte {at}: {why}"),
            Loaded::Lost(lost) => panic!("byte {at}: lost because {}", lost.why),
            Loaded::Pending(_) => panic!("byte {at}: taken"),
        }
    }
    forge(&mut whole, 80, &number(128));
    let taken = load(&Memory(Arc::new(Mutex::new(whole))), "boot");
    assert!(matches!(taken, Loaded::Pending(_)), "as many units as fit");
}

/// A FLUSH that failed at the switch is repeated until one succeeds.
#[test]
fn a_flush_that_failed_at_the_switch_to_write_through_is_repeated() {
    let (volume, handles) = toy(None, false);
    volume.write(0, &[1; 1024]).unwrap();
    handles.set(u32::MAX - 1, Trap::Fail(FtlError::HostFull));
    volume.set_write_through(true);
    *handles.trap.lock().unwrap() = None;
    handles.calls();
    volume.set_write_through(true);
    assert_eq!(handles.calls(), ["flush 4294967294+0"]);
    volume.set_write_through(true);
    assert_eq!(handles.calls(), Vec::<String>::new(), "it is owed no more");
}

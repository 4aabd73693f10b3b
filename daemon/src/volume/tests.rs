use super::*;
use ftl_core::{BlockUse, BlockView, Event, EventKind, EventLog, RamReport, SchemeStats};
use nand_model::{Chip, Pbn, Profile, store::MemStore};
use std::collections::HashMap;
use std::sync::Condvar;
use std::sync::mpsc;

const PAGE: usize = 1024;
const PAGES: u32 = 64;

/// A scheme that keeps its pages in a table and does as it is told.
struct Toy {
    chip: Chip<MemStore>,
    /// A write of page 0 is an event.
    events: EventLog,
    pages: HashMap<u32, Vec<u8>>,
    calls: Arc<Mutex<Vec<String>>>,
    /// What the next verb on this page does.
    trap: Arc<Mutex<Option<(u32, Trap)>>>,
    /// How many times slower than usual.
    slow: u64,
}

#[derive(Clone)]
enum Trap {
    Fail(FtlError),
    Panic,
    /// Goes on when somebody else lets the lock go.
    Hang(Arc<Mutex<()>>),
}

#[derive(Clone, Default)]
struct Handles {
    calls: Arc<Mutex<Vec<String>>>,
    trap: Arc<Mutex<Option<(u32, Trap)>>>,
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
    /// A verb changed something: the store's hour counts such verbs, so that a mark can name them.
    fn changed(&mut self) {
        let store = self.chip.store_mut();
        store.set_hour(store.hour() + 1);
    }
    fn note(&self, verb: &str, first: Lpn, count: u32) -> Result<(), FtlError> {
        self.calls
            .lock()
            .unwrap()
            .push(format!("{verb} {first}+{count}"));
        let hit = |page: u32| (first.raw()..first.raw() + count.max(1)).contains(&page);
        let trap = self.trap.lock().unwrap().clone();
        match trap {
            Some((page, Trap::Fail(error))) if hit(page) => Err(error),
            Some((page, Trap::Panic)) if hit(page) => panic!("law: page {page}"),
            Some((page, Trap::Hang(until))) if hit(page) => {
                drop(until.lock().unwrap());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Ftl<MemStore> for Toy {
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
                kind: EventKind::Collect,
                block: Some(Pbn::new(3)),
                pages: 2,
                at,
                took: 7,
            });
        }
        Ok(at + 500_000 * self.slow)
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
        Ok(false)
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
    fn events(&self) -> &EventLog {
        &self.events
    }
    fn ram_report(&self) -> RamReport {
        Vec::new()
    }
    fn check(&mut self) -> Result<Vec<String>, FtlError> {
        Ok(Vec::new())
    }
    fn chip(&self) -> &Chip<MemStore> {
        &self.chip
    }
    fn chip_mut(&mut self) -> &mut Chip<MemStore> {
        &mut self.chip
    }
    fn into_chip(self: Box<Self>) -> Chip<MemStore> {
        self.chip
    }
}

fn toy(
    durable: Option<Arc<dyn Durable<MemStore>>>,
    read_only: bool,
) -> (Volume<MemStore>, Handles) {
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

/// One that emulates a flash on which a request takes hours.
fn slow_toy(durable: Option<Arc<dyn Durable<MemStore>>>) -> Volume<MemStore> {
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

/// Makes the shortest verb take an hour.
const SLOW: u64 = 3_600_000_000_000 / 50_000;

fn make(
    durable: Option<Arc<dyn Durable<MemStore>>>,
    options: VolumeOptions,
    slow: u64,
) -> (Volume<MemStore>, Handles) {
    let profile = Profile::find("torture").unwrap().with_blocks(8);
    let chip = Chip::open(profile, MemStore::new(profile.geometry)).unwrap();
    let handles = Handles::default();
    let Handles { calls, trap } = handles.clone();
    let ftl = Toy {
        chip,
        events: EventLog::default(),
        pages: HashMap::new(),
        calls,
        trap,
        slow,
    };
    (Volume::new(Box::new(ftl), options, durable), handles)
}

fn errno_of<T>(result: io::Result<T>) -> i32 {
    result.err().expect("an error").raw_os_error().unwrap()
}

#[test]
fn any_byte_extent_reads_back_as_written_and_its_neighbours_stay() {
    let (volume, _) = toy(None, false);
    let mut model = vec![0u8; volume.size() as usize];
    let mut rng = nand_model::SplitMix::new(7);
    for round in 0..500u32 {
        let offset = rng.below(model.len() as u64) as usize;
        let len = 1 + rng.below((model.len() - offset).min(5000) as u64) as usize;
        let range = offset..offset + len;
        match rng.below(4) {
            0 => {
                volume.trim(offset as u64, len as u64).unwrap();
                model[range.clone()].fill(0);
            }
            1 => {
                volume.write_zeroes(offset as u64, len as u64).unwrap();
                model[range.clone()].fill(0);
            }
            _ => {
                model[range.clone()].fill(round as u8 | 1);
                volume.write(offset as u64, &model[range.clone()]).unwrap();
            }
        }
        let mut all = vec![0xEE; model.len()];
        volume.read(0, &mut all).unwrap();
        assert!(all == model, "round {round}: {range:?}");
        let mut part = vec![0xEE; len];
        volume.read(offset as u64, &mut part).unwrap();
        assert!(part == model[range], "round {round}, read of the part");
    }
}

#[test]
fn whole_pages_reach_the_scheme_as_one_extent_and_parts_are_patched() {
    let (volume, handles) = toy(None, false);
    volume.write(512, &vec![1; 512 + 3 * PAGE + 100]).unwrap();
    assert_eq!(
        handles.calls(),
        [
            "read 0+1",
            "write 0+1",
            "write 1+3",
            "read 4+1",
            "write 4+1"
        ]
    );
    volume.trim(0, 6 * PAGE as u64 + 1).unwrap();
    assert_eq!(
        handles.calls(),
        ["trim 0+6"],
        "the page of the last byte holds nothing: nothing to patch"
    );
}

#[test]
fn beyond_the_end_reads_and_trims_are_invalid_and_writes_have_no_space() {
    let (volume, handles) = toy(None, false);
    let size = volume.size();
    assert_eq!(errno_of(volume.read(size - 1, &mut [0; 2])), EINVAL);
    assert_eq!(errno_of(volume.read(u64::MAX, &mut [0; 2])), EINVAL);
    assert_eq!(errno_of(volume.trim(size, 1)), EINVAL);
    assert_eq!(errno_of(volume.write(size - 1, &[0; 2])), ENOSPC);
    assert_eq!(errno_of(volume.write_zeroes(1, u64::MAX)), ENOSPC);
    assert_eq!(errno_of(volume.extents(size, 1, 1)), EINVAL);
    assert!(handles.calls().is_empty(), "nothing reached the scheme");
    volume.read(size, &mut []).unwrap();
    let host = volume.host();
    assert_eq!(host.of(Op::Read).errors[ErrorClass::Einval as usize], 2);
    assert_eq!(
        host.of(Op::WriteZeroes).errors[ErrorClass::Enospc as usize],
        1
    );
    assert!(host.ops.iter().all(|op| op.in_flight == 0));
}

#[test]
fn a_schemes_error_becomes_one_errno_and_service_goes_on() {
    let (volume, handles) = toy(None, false);
    for (error, errno) in [
        (FtlError::HostFull, ENOSPC),
        (FtlError::ReadOnly("worn out"), EPERM),
        (FtlError::MediaLost(3), EIO),
        (FtlError::Host(28), EIO),
        (FtlError::Corrupt("x".into()), EIO),
    ] {
        handles.set(3, Trap::Fail(error));
        assert_eq!(errno_of(volume.write(3 * PAGE as u64, &[0; PAGE])), errno);
        volume.write(0, &[9; PAGE]).unwrap();
    }
    assert_eq!(volume.trouble(), None);
}

#[test]
fn writes_fail_from_the_first_refusal_to_the_next_success() {
    let (volume, handles) = toy(None, false);
    for (error, state) in [
        (FtlError::HostFull, Some("disk-full")),
        (FtlError::Host(EIO), Some("host-error")),
        (FtlError::MediaLost(3), None),
    ] {
        handles.set(3, Trap::Fail(error));
        assert!(volume.write(3 * PAGE as u64, &[0; PAGE]).is_err());
        assert_eq!(volume.writes_failing().map(WritesFailing::state), state);
        // What changes nothing, or nothing on the flash, ends nothing.
        volume.read(0, &mut [0; PAGE]).unwrap();
        volume.flush().unwrap().wait().unwrap();
        volume.trim(5 * PAGE as u64, PAGE as u64).unwrap();
        assert!(volume.write(volume.size(), &[0; PAGE]).is_err());
        assert_eq!(volume.writes_failing().map(WritesFailing::state), state);
        volume.write(0, &[9; PAGE]).unwrap();
        assert_eq!(volume.writes_failing(), None);
    }
}

#[test]
fn a_panic_in_a_write_ends_data_service_and_is_told() {
    let (volume, handles) = toy(None, false);
    volume.write(0, &[9; PAGE]).unwrap();
    handles.set(3, Trap::Panic);
    assert_eq!(errno_of(volume.write(3 * PAGE as u64, &[0; PAGE])), EIO);
    handles.calls();
    assert_eq!(errno_of(volume.write(0, &[0; PAGE])), EPERM);
    assert_eq!(
        errno_of(volume.read(0, &mut [0; PAGE])),
        EIO,
        "the table may be half changed"
    );
    assert_eq!(errno_of(volume.flush()), EIO);
    assert!(handles.calls().is_empty(), "the scheme is left alone");
    assert!(volume.trouble().unwrap().contains("law: page 3"));
    assert!(volume.publish(true) && volume.idle(1) == Idle::Settled);
}

#[test]
fn a_panic_in_a_read_stops_writes_only() {
    let (volume, handles) = toy(None, false);
    volume.write(0, &[9; PAGE]).unwrap();
    handles.set(3, Trap::Panic);
    assert_eq!(errno_of(volume.read(3 * PAGE as u64, &mut [0; PAGE])), EIO);
    let mut page = [0; PAGE];
    volume.read(0, &mut page).unwrap();
    assert_eq!(page, [9; PAGE]);
    assert_eq!(errno_of(volume.write(0, &[0; PAGE])), EPERM);
}

#[test]
fn read_only_refuses_changes_and_closes_without_one() {
    let (volume, handles) = toy(None, true);
    assert_eq!(errno_of(volume.write(0, &[0; PAGE])), EPERM);
    assert_eq!(errno_of(volume.trim(0, 1)), EPERM);
    volume.flush().unwrap().wait().unwrap();
    volume.read(0, &mut [0; PAGE]).unwrap();
    volume.close().unwrap();
    assert_eq!(handles.calls(), ["read 0+1"]);
    assert_eq!(errno_of(volume.read(0, &mut [0; PAGE])), EIO, "closed");
}

/// A store whose sync blocks until it is let go. Its marks count the verbs that changed something.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    moved: Condvar,
    waits: AtomicU64,
    /// The marks that were waited for.
    marks: Mutex<Vec<u64>>,
    fails: AtomicBool,
}

impl Durable<MemStore> for Gate {
    fn mark(&self, store: &mut MemStore) -> u64 {
        store.hour().into()
    }
    fn wait(&self, mark: u64) -> io::Result<()> {
        self.marks.lock().unwrap().push(mark);
        self.waits.fetch_add(1, Relaxed);
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
    fn reclaim(&self, mark: u64) -> io::Result<()> {
        self.wait(mark)
    }
    fn failed(&self) -> bool {
        self.fails.load(Relaxed)
    }
    fn tidy(&self, _: &mut MemStore) -> io::Result<()> {
        Ok(())
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

#[test]
fn requests_and_snapshots_go_on_while_a_flush_waits() {
    let gate = Gate::closed();
    let (volume, _) = toy(Some(gate.clone()), false);
    volume.write(0, &[5; PAGE]).unwrap();
    let flush = volume.flush().unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || tell.send(flush.wait()).unwrap());
        while gate.waits.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        let mut page = [0; PAGE];
        volume.read(0, &mut page).unwrap();
        volume.write(0, &[6; PAGE]).unwrap();
        assert!(volume.publish(false));
        assert_eq!(volume.flash().scheme.mapped_pages, 1);
        assert_eq!(volume.host().of(Op::Flush).in_flight, 1);
        assert!(
            told.try_recv().is_err(),
            "the flush is not done before its sync"
        );
        gate.let_go();
        told.recv().unwrap().unwrap();
    });
    assert_eq!(volume.host().of(Op::Flush).completed, 1);
}

/// Verbs that changed something so far.
fn changes(volume: &Volume<MemStore>) -> u64 {
    volume
        .lock()
        .as_ref()
        .expect("not closed")
        .ftl
        .chip()
        .store()
        .hour()
        .into()
}

#[test]
fn a_flush_waits_for_a_mark_that_covers_its_own_flush_and_every_earlier_acknowledgement() {
    let gate = Gate::closed();
    gate.let_go();
    let (volume, _) = toy(Some(gate.clone()), false);
    let waited = || std::mem::take(&mut *gate.marks.lock().unwrap());
    let page = PAGE as u64;
    type Verb<'a> = &'a dyn Fn(&Volume<MemStore>) -> io::Result<Completion>;
    let verbs: [Verb<'_>; 4] = [
        &|volume| volume.write(0, &[1; PAGE]),
        &|volume| volume.write(3, &[2; 5]),
        &|volume| volume.trim(page, page),
        &|volume| volume.write_zeroes(1, 7),
    ];
    for verb in verbs {
        let before = changes(&volume);
        verb(&volume).unwrap();
        let answered = changes(&volume);
        let flush = volume.flush().unwrap();
        let own = changes(&volume);
        assert!(before < answered && answered < own, "every verb counts");
        volume.write(0, &[3; PAGE]).unwrap();
        flush.wait().unwrap();
        let marks = waited();
        assert!(
            matches!(marks[..], [mark] if mark >= own),
            "{marks:?}, flushed at {own}"
        );
    }
    let first = volume.flush().unwrap();
    volume.write(0, &[4; PAGE]).unwrap();
    let second = volume.flush().unwrap();
    let newest = changes(&volume);
    second.wait().unwrap();
    first.wait().unwrap();
    let marks = waited();
    assert!(
        matches!(marks[..], [two, one] if one < two && two >= newest),
        "two overlap: {marks:?} of {newest}"
    );
    volume.close().unwrap();
    assert!(
        matches!(waited()[..], [mark] if mark > newest),
        "a stop waits for its last change"
    );
}

#[test]
fn a_flush_among_writers_covers_what_any_of_them_was_told() {
    let gate = Gate::closed();
    gate.let_go();
    let (volume, _) = toy(Some(gate.clone()), false);
    let (told, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                let before = changes(&volume);
                volume.write(0, &[1; PAGE]).unwrap();
                told.fetch_max(before + 1, Relaxed);
            }
        });
        for _ in 0..500 {
            let acknowledged = told.load(Relaxed);
            volume.flush().unwrap().wait().unwrap();
            let mark = gate.marks.lock().unwrap().pop().expect("it waited");
            assert!(
                mark > acknowledged,
                "a mark of {mark} after an acknowledgement of {acknowledged}"
            );
        }
        ended.store(true, Relaxed);
    });
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged() {
    let gate = Gate::closed();
    gate.let_go();
    gate.fails.store(true, Relaxed);
    let (volume, _) = toy(Some(gate.clone()), false);
    volume.write(0, &[5; PAGE]).unwrap();
    let (first, second) = (volume.flush().unwrap(), volume.flush().unwrap());
    assert_eq!(errno_of(first.wait()), EIO);
    gate.fails.store(false, Relaxed);
    assert_eq!(
        errno_of(second.wait()),
        EIO,
        "a sync that succeeds later proves nothing"
    );
    assert_eq!(errno_of(volume.flush()), EIO);
    assert_eq!(errno_of(volume.write(0, &[5; PAGE])), EPERM);
    volume.read(0, &mut [0; PAGE]).unwrap();
    assert!(
        volume
            .trouble()
            .unwrap()
            .contains("sync of the image failed")
    );
    assert_eq!(
        volume.host().of(Op::Flush).errors[ErrorClass::Eio as usize],
        3
    );
}

#[test]
fn extents_tell_data_from_holes_and_obey_the_limit() {
    let (volume, _) = toy(None, false);
    volume.write(2 * PAGE as u64, &[1; 2 * PAGE]).unwrap();
    let hole = |len| Extent { len, mapped: false };
    let data = |len| Extent { len, mapped: true };
    let page = PAGE as u64;
    assert_eq!(
        volume.extents(100, 5 * page, 9).unwrap(),
        [hole(2 * page - 100), data(2 * page), hole(page + 100)]
    );
    assert_eq!(
        volume.extents(100, 5 * page, 1).unwrap(),
        [hole(2 * page - 100)]
    );
    assert_eq!(volume.extents(2 * page + 1, 7, 9).unwrap(), [data(7)]);
}

#[test]
fn emulated_time_is_counted_beside_wall_time() {
    let (volume, _) = toy(None, false);
    volume.write(0, &[1; PAGE]).unwrap();
    volume.read(0, &mut [0; PAGE]).unwrap();
    let host = volume.host();
    assert_eq!(
        (
            host.of(Op::Write).emulated.sum_ns,
            host.of(Op::Read).emulated.sum_ns
        ),
        (500_000, 50_000)
    );
    assert_eq!(
        (host.of(Op::Write).bytes, host.of(Op::Write).wall.count()),
        (PAGE as u64, 1)
    );
}

#[test]
fn a_held_request_is_under_way_until_its_client_hears_of_it() {
    let volume = slow_toy(None);
    let began = Instant::now();
    let hold = volume
        .write(0, &[1; PAGE])
        .unwrap()
        .expect("it takes ten hours");
    assert!(hold.due() >= began + Duration::from_nanos(500_000 * SLOW));
    let mut page = [0; PAGE];
    let read = volume
        .read(0, &mut page)
        .unwrap()
        .expect("it takes an hour");
    assert_eq!(page, [1; PAGE], "held is done, only not told");
    assert!(volume.publish(false), "nothing is locked meanwhile");
    let under_way = || [Op::Read, Op::Write].map(|op| volume.host().of(op).in_flight);
    assert_eq!(under_way(), [1, 1]);
    assert_eq!(volume.quiet_for(), Duration::ZERO);
    drop(read);
    assert_eq!(under_way(), [0, 1]);
    drop(hold);
    assert_eq!(under_way(), [0, 0]);
    let write = *volume.host().of(Op::Write);
    assert_eq!(
        (write.completed, write.held, write.emulated.sum_ns),
        (1, 1, 500_000 * SLOW)
    );
    assert!(
        write.wall.sum_ns >= write.emulated.sum_ns,
        "also when a longer hold took its place"
    );
}

#[test]
fn a_flush_is_held_after_its_sync_and_a_failed_one_is_told_at_once() {
    let gate = Gate::closed();
    gate.let_go();
    let volume = slow_toy(Some(gate.clone()));
    let hold = volume
        .flush()
        .unwrap()
        .wait()
        .unwrap()
        .expect("it takes hours");
    assert_eq!(volume.host().of(Op::Flush).in_flight, 1);
    drop(hold);
    let flush = volume.host().ops[Op::Flush as usize];
    assert_eq!((flush.in_flight, flush.completed, flush.held), (0, 1, 1));
    gate.fails.store(true, Relaxed);
    assert_eq!(errno_of(volume.flush().unwrap().wait()), EIO);
    assert_eq!(volume.host().of(Op::Flush).in_flight, 0);
    assert_eq!(errno_of(volume.write(0, &[1; PAGE])), EPERM);
}

#[test]
fn background_work_waits_for_the_emulated_flash() {
    // A scheme whose pages are really on the chip.
    let profile = Profile {
        timing: slow_timing(),
        ..Profile::find("torture").unwrap().with_blocks(64)
    };
    let start = |emulate| {
        let chip = Chip::open(profile, MemStore::new(profile.geometry)).unwrap();
        let config = ftl_core::FtlConfig {
            logical_pages: 256,
            params: ftl_core::Params::default(),
        };
        let scheme = ftl_core::schemes::Scheme::find("pagemap").unwrap();
        let ftl = scheme
            .start(chip, &config, ftl_core::Start::Format)
            .unwrap();
        Volume::new(
            ftl,
            VolumeOptions {
                size: 256 * PAGE as u64,
                read_only: false,
                emulate,
            },
            None,
        )
    };
    for emulate in [true, false] {
        let volume = start(emulate);
        drop(volume.write(0, &[1; PAGE]).unwrap());
        assert_eq!(matches!(volume.idle(1), Idle::After(_)), emulate);
    }
}

/// Every operation takes an hour.
fn slow_timing() -> nand_model::Timing {
    let hour = 3_600_000_000_000;
    nand_model::Timing {
        read_ns: hour,
        partial_read_ns: hour,
        program_ns: hour,
        program_msb_ns: hour,
        oob_program_ns: hour,
        erase_ns: hour,
        bus_ns: 0,
    }
}

/// A volume as HTTP sees it.
struct Seen(Volume<MemStore>);

impl crate::status::Observed for Seen {
    fn view(&self) -> crate::status::View {
        let mut view = crate::metrics::fresh_view();
        (view.host, view.flash, view.trouble) = (self.0.host(), self.0.flash(), self.0.trouble());
        (view.injected, view.paused) = (self.0.injected(), self.0.paused());
        view
    }
    fn watch(&self) {
        self.0.watch();
    }
    fn blocks(&self) -> Arc<BlockMap> {
        self.0.blocks()
    }
    fn events(&self, from: u64, most: usize) -> EventsView {
        self.0.events(from, most)
    }
}

#[test]
fn everything_that_http_has_is_answered_while_a_request_holds_the_lock() {
    let (volume, _) = toy(None, false);
    volume.pause(Duration::from_secs(60)).unwrap();
    volume.resume();
    volume.watch();
    volume.publish(true);
    let seen = Seen(volume);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let request = seen.0.lock();
        scope.spawn(|| {
            for path in [
                "/",
                "/metrics",
                "/healthz",
                "/status",
                "/api/device",
                "/api/blocks",
                "/api/events?since=0",
            ] {
                let answer = crate::metrics::http::get(path, Some("localhost"), &seen);
                tell.send((path, answer.status().as_u16())).unwrap();
            }
        });
        let mut answers = Vec::new();
        while answers.len() < 7 {
            match told.recv_timeout(Duration::from_secs(10)) {
                Ok(answer) => answers.push(answer),
                Err(_) => break,
            }
        }
        drop(request);
        assert_eq!(
            answers.len(),
            7,
            "after {answers:?} the next one waited for the lock"
        );
        assert!(
            answers.iter().all(|(_, status)| *status == 200),
            "{answers:?}"
        );
    });
}

#[test]
fn a_power_cut_fails_every_verb_and_the_store_can_still_be_had() {
    let cut = crate::inject::Injection::PowerCut(Default::default());
    let (volume, handles) = toy(None, false);
    volume.write(0, &[1; PAGE]).unwrap();
    volume.inject(&cut).unwrap();
    handles.calls();
    let mut buf = [0; PAGE];
    assert_eq!(errno_of(volume.read(0, &mut buf)), EIO);
    assert_eq!(errno_of(volume.write(0, &buf)), EIO);
    assert_eq!(errno_of(volume.trim(0, 512)), EIO);
    assert_eq!(errno_of(volume.write_zeroes(0, 512)), EIO);
    assert_eq!(errno_of(volume.flush().map(drop)), EIO);
    assert_eq!(errno_of(volume.extents(0, 512, 1)), EIO);
    assert!(volume.publish(true) && volume.idle(16) == Idle::Settled);
    assert_eq!(
        (volume.trouble().as_deref(), volume.is_powerless()),
        (Some("power cut injected"), true)
    );
    assert!(
        volume
            .inject(&cut)
            .unwrap_err()
            .message
            .contains("failed already (power cut injected)")
    );
    assert_eq!(volume.injected(), [1, 0, 0]);
    assert!(
        volume.close().is_ok() && handles.calls().is_empty(),
        "no verb reaches the scheme"
    );
}

#[test]
fn a_cut_that_strikes_a_verb_ends_the_device_and_one_taken_back_does_not() {
    let (volume, handles) = toy(None, false);
    handles.set(3, Trap::Fail(FtlError::PowerLost));
    assert_eq!(errno_of(volume.write(3 * PAGE as u64, &[1; PAGE])), EIO);
    assert!(volume.is_powerless() && !volume.keep_power());
    let (volume, _) = toy(None, false);
    let cut = crate::inject::PowerCut {
        after: Some(0),
        ..Default::default()
    };
    volume
        .inject(&crate::inject::Injection::PowerCut(cut))
        .unwrap();
    let armed = || {
        volume
            .lock()
            .as_ref()
            .unwrap()
            .ftl
            .chip()
            .faults()
            .is_some_and(|plan| plan.cut.is_some())
    };
    assert!(armed() && volume.keep_power() && !armed());
}

/// Waits until so many writes are done, and a little longer; returns how many are.
fn settled(volume: &Volume<MemStore>, wanted: u64) -> u64 {
    let writes = || volume.host().of(Op::Write).completed;
    let until = Instant::now() + Duration::from_secs(10);
    while writes() < wanted && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(30));
    writes()
}

#[test]
fn a_paused_device_waits_steps_and_goes_on_while_everything_else_works() {
    let (volume, _) = toy(None, false);
    volume.write(PAGE as u64, &[1; PAGE]).unwrap();
    assert!(
        volume
            .step(Step::Requests(1))
            .unwrap_err()
            .message
            .contains("`ftld pause`")
    );
    volume.pause(Duration::from_secs(60)).unwrap();
    std::thread::scope(|scope| {
        // Every third write is an event.
        scope.spawn(|| {
            (0..30).for_each(|i| drop(volume.write((i + 1) % 3 * PAGE as u64, &[2; PAGE]).unwrap()))
        });
        assert_eq!(settled(&volume, 1), 1, "paused");
        assert!(
            volume.publish(false),
            "a waiting request does not hold the lock"
        );
        assert!(matches!(volume.idle(16), Idle::After(_)), "the flash rests");
        assert_eq!(volume.host().of(Op::Write).in_flight, 1);
        volume.step(Step::Requests(4)).unwrap();
        assert_eq!(settled(&volume, 5), 5);
        volume.step(Step::Events(2)).unwrap();
        assert_eq!(
            settled(&volume, 10),
            10,
            "two of these wrote page 0, the last one did"
        );
        assert!(
            !volume.paused().unwrap().stepping
                && volume.paused().unwrap().left > Duration::from_secs(50)
        );
        assert!(volume.resume());
    });
    assert_eq!(settled(&volume, 31), 31);
    assert!(volume.paused().is_none() && !volume.resume());
    let mut page = [0; PAGE];
    volume.read(0, &mut page).unwrap();
    assert_eq!(page, [2; PAGE], "nothing was lost");
}

#[test]
fn a_stop_a_power_cut_and_time_end_a_pause() {
    let ended_by = |end: &(dyn Fn(&Volume<MemStore>) + Sync), length| {
        let (volume, _) = toy(None, false);
        volume.pause(length).unwrap();
        std::thread::scope(|scope| {
            let write = scope.spawn(|| {
                volume
                    .write(0, &[1; PAGE])
                    .map(drop)
                    .map_err(|error| error.raw_os_error())
            });
            assert_eq!(settled(&volume, 0), 0);
            end(&volume);
            write.join().unwrap()
        })
    };
    let long = Duration::from_secs(500);
    assert_eq!(
        ended_by(&|_| {}, Duration::from_millis(100)),
        Ok(()),
        "time"
    );
    let cut = crate::inject::Injection::PowerCut(Default::default());
    assert_eq!(
        ended_by(&|volume| drop(volume.inject(&cut).unwrap()), long),
        Err(Some(EIO)),
        "a power cut"
    );
    // Whether the write or the end comes first is open.
    let closed = ended_by(&|volume| drop(volume.close().unwrap()), long);
    assert!(matches!(closed, Ok(()) | Err(Some(EIO))), "{closed:?}");
    let (volume, _) = toy(None, false);
    volume.shared.fail(NO_WRITES, "sync failed".into());
    assert!(
        volume
            .pause(long)
            .unwrap_err()
            .message
            .contains("sync failed")
    );
}

#[test]
fn changes_that_wait_while_a_sync_fails_are_refused() {
    let gate = Gate::closed();
    let (volume, handles) = toy(Some(gate.clone()), false);
    volume.write(0, &[5; PAGE]).unwrap();
    let flush = volume.flush().unwrap();
    volume.pause(Duration::from_secs(500)).unwrap();
    handles.calls();
    std::thread::scope(|scope| {
        let waiting = [
            scope.spawn(|| errno_of(volume.write(0, &[6; PAGE]))),
            scope.spawn(|| errno_of(volume.trim(0, PAGE as u64))),
            scope.spawn(|| errno_of(volume.write_zeroes(0, PAGE as u64))),
        ];
        assert_eq!(settled(&volume, 0), 1);
        gate.fails.store(true, Relaxed);
        gate.let_go();
        assert_eq!(errno_of(flush.wait()), EIO);
        waiting
            .into_iter()
            .for_each(|change| assert_eq!(change.join().unwrap(), EPERM));
    });
    assert_eq!(
        handles.calls(),
        Vec::<String>::new(),
        "nothing reached the scheme"
    );
}

#[test]
fn blocks_and_events_are_published_while_somebody_looks() {
    let (volume, _) = toy(None, false);
    volume.write(0, &[1; PAGE]).unwrap();
    volume.publish(true);
    assert_eq!(
        (volume.blocks().generation, volume.events(0, 9)),
        (0, EventsView::default()),
        "nobody looks"
    );
    volume.watch();
    volume.publish(true);
    let (blocks, events) = (volume.blocks(), volume.events(0, 9));
    assert_eq!(
        (blocks.generation, blocks.blocks, blocks.cells.len()),
        (1, 8, 8)
    );
    assert_eq!(
        (events.next, events.events[0].1.block),
        (1, Some(Pbn::new(3)))
    );
    volume.publish(true);
    assert_eq!(
        (volume.blocks().generation, volume.events(1, 9).events),
        (1, vec![]),
        "nothing is new"
    );
}

#[test]
fn a_scheme_that_hangs_is_stuck_and_goes_on_when_it_does() {
    use crate::background::Background;
    use crate::notify::{Progress, Pulse};
    let (volume, handles) = toy(None, false);
    let volume = Arc::new(volume);
    let background = Background::start(&volume).unwrap();
    let turns = background.turns();
    let pulse = || Pulse {
        turns: turns.load(Relaxed),
        volume: volume.queue(),
        device: None,
        at_storage: volume.waits_for_storage(),
        paused: volume.paused().is_some(),
    };
    let until = |done: &dyn Fn() -> bool| {
        while !done() {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let hung = Arc::new(Mutex::new(()));
    let held = hung.lock().unwrap();
    handles.set(3, Trap::Hang(hung.clone()));
    std::thread::scope(|scope| {
        scope.spawn(|| volume.read(3 * PAGE as u64, &mut [0; PAGE]).unwrap());
        until(&|| !handles.calls().is_empty());
        let mut progress = Progress::default();
        // A turn that had begun may still end.
        let _ = progress.look(pulse());
        std::thread::sleep(Duration::from_millis(500));
        let _ = progress.look(pulse());
        std::thread::sleep(Duration::from_millis(500));
        assert!(progress.look(pulse()).unwrap_err().contains("request lock"));
        assert_eq!(
            volume.queue(),
            Queue {
                under_way: 1,
                answered: 0
            }
        );
        drop(held);
        let last = turns.load(Relaxed);
        until(&|| turns.load(Relaxed) > last && volume.queue().under_way == 0);
        assert_eq!(progress.look(pulse()), Ok(()));
        assert_eq!(
            volume.queue(),
            Queue {
                under_way: 0,
                answered: 1
            }
        );
    });
}

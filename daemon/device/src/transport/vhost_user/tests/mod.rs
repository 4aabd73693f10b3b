//! The server from its front-ends' side, over sockets, with files as guest memory.

mod front_end;
mod hostile;

use super::*;
use crate::device::{Completion, DelayedCompletion, Extent, Flush, FlushOf};
use front_end::*;
use nix::sys::eventfd::EfdFlags;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Instant;

const BYTES: u64 = 64 << 20;

/// A device in memory that notes its requests.
struct Ram {
    bytes: Mutex<Vec<u8>>,
    requests: Mutex<Vec<String>>,
    read_only: bool,
    is_cached: AtomicBool,
    is_broken: AtomicBool,
    /// Delay of completions.
    delay: Mutex<Option<Duration>>,
    /// Duration of each request, and of each sync, in the server.
    takes: Mutex<Duration>,
    syncs: Mutex<Duration>,
}

impl Ram {
    fn new() -> Self {
        Ram {
            bytes: Mutex::new(vec![0; BYTES as usize]),
            requests: Mutex::default(),
            read_only: false,
            is_cached: AtomicBool::new(true),
            is_broken: AtomicBool::new(false),
            delay: Mutex::default(),
            takes: Mutex::default(),
            syncs: Mutex::default(),
        }
    }

    fn note(&self, what: String) {
        self.requests.lock().push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock())
    }

    fn done(&self) -> Completion {
        (*self.delay.lock()).map(|delay| DelayedCompletion::until(Instant::now() + delay))
    }

    fn run(&self, offset: u64, len: u64, run: impl FnOnce(&mut [u8])) -> io::Result<Completion> {
        let end = offset.checked_add(len).filter(|end| *end <= BYTES);
        let end = end.filter(|_| !self.is_broken.load(SeqCst));
        let end = end.ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))?;
        run(&mut self.bytes.lock()[offset as usize..end as usize]);
        std::thread::sleep(*self.takes.lock());
        Ok(self.done())
    }

    fn change(&self, offset: u64, len: u64, run: impl FnOnce(&mut [u8])) -> io::Result<Completion> {
        match self.read_only {
            true => Err(io::Error::from_raw_os_error(libc::EPERM)),
            false => self.run(offset, len, run),
        }
    }
}

struct Synced(Completion, Duration);

impl Flush for Synced {
    fn wait(self: Box<Self>) -> io::Result<Completion> {
        std::thread::sleep(self.1);
        Ok(self.0)
    }
}

impl BlockDevice for Ram {
    fn size(&self) -> u64 {
        BYTES
    }
    fn logical_block(&self) -> u32 {
        512
    }
    fn physical_block(&self) -> u32 {
        4096
    }
    fn preferred_block(&self) -> u32 {
        16384
    }
    fn read_only(&self) -> bool {
        self.read_only
    }
    fn has_volatile_cache(&self) -> bool {
        self.is_cached.load(SeqCst)
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        self.note(format!("read {offset} {}", buf.len()));
        self.run(offset, buf.len() as u64, |bytes| buf.copy_from_slice(bytes))
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        self.note(format!("write {offset} {}", data.len()));
        self.change(offset, data.len() as u64, |bytes| {
            bytes.copy_from_slice(data)
        })
    }
    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.note(format!("trim {offset} {len}"));
        self.change(offset, len, |bytes| bytes.fill(0))
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.note(format!("zero {offset} {len}"));
        self.change(offset, len, |bytes| bytes.fill(0))
    }
    fn flush(&self, of: FlushOf) -> io::Result<Box<dyn Flush>> {
        self.note(format!("flush {of:?}"));
        Ok(Box::new(Synced(self.done(), *self.syncs.lock())))
    }
    fn extents(&self, _: u64, len: u64, _: usize) -> io::Result<Vec<Extent>> {
        Ok(vec![Extent { len, mapped: true }])
    }
}

fn event() -> EventFd {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).unwrap()
}

/// A server on a socket, on a thread of its own; stopped when dropped.
struct Rig {
    ram: Arc<Ram>,
    path: PathBuf,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        Rig::with(Ram::new())
    }

    fn with(ram: Ram) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vu");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (ram, stop) = (Arc::new(ram), Arc::new(event()));
        let (device, stopped) = (ram.clone(), stop.clone());
        let serve = move || serve(&listener, &*device, "disk", &stopped);
        Rig {
            ram,
            path,
            stop,
            thread: Some(std::thread::spawn(serve)),
            _folder: folder,
        }
    }

    fn front_end(&self) -> FrontEnd {
        FrontEnd::ready(&self.path)
    }

    fn works(&self) {
        let mut front_end = self.front_end();
        assert_eq!(front_end.request(1, 9, &[7; 512], 0), (0, vec![], 1));
        assert_eq!(front_end.request(0, 9, &[], 512), (0, vec![7; 512], 513));
        self.ram.take();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.write(1).unwrap();
        let ended = self.thread.take().unwrap().join();
        assert!(
            ended.is_ok() || std::thread::panicking(),
            "the server panicked"
        );
    }
}

const EVERYTHING: &str = "flush Everything";
const FLUSH: u64 = 1 << 9;

fn features(front_end: &FrontEnd) -> u64 {
    u64::from_le_bytes(front_end.ask(1, &[]).try_into().unwrap())
}

#[test]
fn requests_arrive_one_for_one() {
    let rig = Rig::new();
    let mut guest = rig.front_end();
    let data: Vec<u8> = (0..4096).map(|byte| byte as u8).collect();
    assert_eq!(guest.request(1, 16, &data, 0), (0, vec![], 1));
    assert_eq!(guest.request(4, 0, &[], 0), (0, vec![], 1));
    assert_eq!(guest.request(0, 16, &[], 4096), (0, data, 4097));
    for kind in [11, 13] {
        let range = [u64s(&[16]), u32s(&[8, 0])].concat();
        assert_eq!(guest.request(kind, 0, &range, 0).0, 0, "{kind}");
    }
    assert_eq!(guest.request(0, 16, &[], 512), (0, vec![0; 512], 513));
    assert_eq!(guest.request(4, 0, &[], 0).0, 0);
    let expected = [
        "write 8192 4096",
        EVERYTHING,
        "read 8192 4096",
        "trim 8192 4096",
        "zero 8192 4096",
        "read 8192 512",
        EVERYTHING,
    ];
    assert_eq!(rig.ram.take(), expected);
    let (status, serial, written) = guest.request(8, 0, &[], 20);
    assert_eq!((status, &serial[..5], written), (0, &b"disk\0"[..], 21));
}

#[test]
fn what_a_device_refuses_is_the_status_of_its_request() {
    let rig = Rig::new();
    let mut guest = rig.front_end();
    let range = |sectors, flags| [u64s(&[0]), u32s(&[sectors, flags])].concat();
    for (kind, sector, out, read, status) in [
        (99, 0, vec![], 0, 2),
        (11, 0, range(8, 1), 0, 2),
        (13, 0, range(8, 2), 0, 2),
        (13, 0, range(8, 1), 0, 0),
        (11, 0, range(0, 0), 0, 1),
        (11, 0, range(8, 0)[..15].to_vec(), 0, 1),
        (11, 0, range(8, 0).repeat(2), 0, 1),
        (0, BYTES / 512, vec![], 512, 1),
        (0, u64::MAX, vec![], 512, 1),
        (0, 0, vec![], 511, 1),
        (0, 0, vec![], 0, 1),
        (1, 0, vec![1; 513], 0, 1),
        (1, 0, vec![], 0, 1),
    ] {
        let found = guest.request(kind, sector, &out, read).0;
        assert_eq!(found, status, "{kind} {sector} {} {read}", out.len());
    }
    rig.ram.is_broken.store(true, SeqCst);
    assert_eq!(guest.request(1, 0, &[1; 512], 0), (1, vec![], 0));
    rig.ram.is_broken.store(false, SeqCst);
    drop(guest);
    rig.works();
}

#[test]
fn the_configuration_space_describes_the_device() {
    let rig = Rig::new();
    let guest = rig.front_end();
    let ask = |offset, size: u32| {
        let head = u32s(&[offset, size, 0]);
        let reply = guest.ask(24, &[&head[..], &vec![0; size as usize]].concat());
        assert_eq!(reply[..12], head);
        reply[12..].to_vec()
    };
    let space = ask(0, 60);
    let number = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().unwrap());
    assert_eq!(space[..8], (BYTES / 512).to_le_bytes());
    let fields = [8, 12, 20, 28, 36, 40, 44, 48, 52].map(number);
    let (most, segment) = (u32::MAX >> 9, 256 << 10);
    assert_eq!(fields, [segment, 126, 512, 32, most, 1, 8, most, 1]);
    assert_eq!((space[24], &space[26..28], space[56]), (3, &[8, 0][..], 1));
    assert_eq!(ask(8, 4), space[8..12]);
    assert_eq!(ask(56, 200).len(), 200);
}

#[test]
fn a_read_only_device_says_so_and_refuses() {
    let rig = Rig::with(Ram {
        read_only: true,
        ..Ram::new()
    });
    let mut guest = rig.front_end();
    assert_eq!(features(&guest) & (1 << 5 | 1 << 13 | 1 << 14), 1 << 5);
    assert_eq!(guest.request(1, 0, &[1; 512], 0).0, 1);
    assert_eq!(guest.request(0, 0, &[], 512).0, 0);
}

#[test]
fn without_a_volatile_cache_every_change_is_durable() {
    let request = "flush Request { offset: 0, len: 512 }";
    let rig = Rig::new();
    rig.ram.is_cached.store(false, SeqCst);
    let mut guest = rig.front_end();
    assert_eq!(features(&guest) & FLUSH, 0);
    assert_eq!(guest.request(1, 0, &[1; 512], 0).0, 0);
    assert_eq!(rig.ram.take(), ["write 0 512", request]);
    drop(guest);

    // A driver that does not take FLUSH expects the same.
    rig.ram.is_cached.store(true, SeqCst);
    let mut guest = FrontEnd::over(UnixStream::connect(&rig.path).unwrap());
    let offered = features(&guest);
    assert_eq!(offered & FLUSH, FLUSH);
    guest.start_with(offered & !FLUSH);
    assert_eq!(guest.request(1, 0, &[1; 512], 0).0, 0);
    assert_eq!(guest.request(0, 0, &[], 512).0, 0);
    assert_eq!(rig.ram.take(), ["write 0 512", request, "read 0 512"]);
}

#[test]
fn segments_of_any_length_are_one_request() {
    let rig = Rig::new();
    let mut guest = rig.front_end();
    let data: Vec<u8> = (0..1024).map(|byte| (byte % 251) as u8).collect();
    guest.put(DATA, &data);
    guest.header(1, 0);
    guest.chain(
        3,
        &[
            (HEADER, 5, false),
            (HEADER + 5, 11, false),
            (DATA, 1, false),
            (DATA, 0, false),
            (DATA + 1, 1023, false),
            (STATUS, 1, true),
        ],
    );
    guest.offer(3);
    guest.kick.write(1).unwrap();
    assert!(guest.interrupted(Duration::from_secs(10)));
    assert_eq!(
        (guest.used(), guest.get(STATUS, 1)),
        (Some((3, 1)), vec![0])
    );
    assert_eq!(rig.ram.take(), ["write 0 1024"]);
    guest.header(0, 0);
    guest.chain(
        0,
        &[
            (HEADER, 16, false),
            (DATA + 0x4000, 1000, true),
            (DATA + 0x5000, 25, true),
            (DATA + 0x6000, 0, true),
        ],
    );
    guest.offer(0);
    guest.kick.write(1).unwrap();
    assert!(guest.interrupted(Duration::from_secs(10)));
    assert_eq!(guest.used(), Some((0, 1025)));
    assert_eq!(guest.get(DATA + 0x4000, 1000), data[..1000]);
    let last = [&data[1000..], &[0]].concat();
    assert_eq!(
        guest.get(DATA + 0x5000, 25),
        last,
        "the status is the last byte"
    );
    assert_eq!(rig.ram.take(), ["read 0 1024"]);
}

#[test]
fn front_ends_follow_each_other_and_a_second_one_is_turned_away() {
    let rig = Rig::new();
    let mut first = rig.front_end();
    for _ in 0..3 {
        let second = FrontEnd::over(UnixStream::connect(&rig.path).unwrap());
        assert!(second.is_closed());
    }
    assert_eq!(first.request(1, 0, &[3; 512], 0).0, 0);
    drop(first);
    let mut next = rig.front_end();
    assert_eq!(next.request(0, 0, &[], 512).1, [3; 512]);
}

#[test]
fn a_stopped_queue_starts_again_where_it_ended() {
    let rig = Rig::new();
    let mut guest = rig.front_end();
    for _ in 0..70 {
        assert_eq!(guest.request(4, 0, &[], 0).0, 0);
    }
    assert_eq!(guest.ask(11, &u32s(&[0, 0])), u32s(&[0, 70]));
    // Offered while it is stopped, found when it is enabled, without a kick.
    let header = guest.header(4, 0);
    guest.chain(0, &[header, (STATUS, 1, true)]);
    guest.offer(0);
    guest.kick.write(1).unwrap();
    assert!(!guest.interrupted(Duration::from_millis(20)));
    guest.kick.read().unwrap();
    guest.send(&(10, u32s(&[0, 70]), 0));
    guest.send(&(12, u64s(&[0]), 1));
    guest.send(&(18, u32s(&[0, 1]), 0));
    assert!(guest.interrupted(Duration::from_secs(10)));
    assert_eq!(guest.used(), Some((0, 1)));
    assert_eq!(rig.ram.take(), [EVERYTHING; 71]);
}

#[test]
fn a_driver_that_polls_is_not_interrupted() {
    let rig = Rig::new();
    let mut guest = rig.front_end();
    guest.put(AVAILABLE, &1u16.to_le_bytes());
    let header = guest.header(4, 0);
    guest.chain(0, &[header, (STATUS, 1, true)]);
    guest.offer(0);
    guest.kick.write(1).unwrap();
    let start = Instant::now();
    while guest.used().is_none() {
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    assert!(!guest.interrupted(Duration::from_millis(20)));
}

#[test]
fn delayed_requests_complete_when_they_are_due_and_at_a_stop() {
    let rig = Rig::new();
    let mut guest = rig.front_end();
    let delay = Duration::from_millis(30);
    *rig.ram.delay.lock() = Some(delay);
    let start = Instant::now();
    let header = guest.header(4, 0);
    for head in [0, 2, 4] {
        guest.chain(head, &[header, (STATUS, 1, true)]);
        guest.offer(head);
    }
    guest.kick.write(1).unwrap();
    let mut done = Vec::new();
    while done.len() < 3 {
        assert!(guest.interrupted(Duration::from_secs(10)));
        assert!(start.elapsed() >= delay);
        assert_eq!(rig.ram.requests.lock().len(), 3, "one waits for another");
        done.extend(std::iter::from_fn(|| guest.used()));
    }
    assert_eq!(done, [(0, 1), (2, 1), (4, 1)]);
    *rig.ram.delay.lock() = Some(Duration::from_secs(3600));
    guest.offer(0);
    guest.kick.write(1).unwrap();
    while rig.ram.requests.lock().len() < 4 {
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    drop(rig);
    assert_eq!(guest.used(), Some((0, 1)));
}

#[test]
fn requests_that_arrive_together_are_acknowledged_together() {
    let rig = Rig::new();
    let mut guest = rig.front_end();
    // Within these requests both rings and their indices wrap around.
    assert_eq!(guest.ask(11, &u32s(&[0, 0])), u32s(&[0, 0]));
    (guest.next, guest.seen) = (u16::MAX - 9, u16::MAX - 9);
    guest.put(USED + 2, &guest.seen.to_le_bytes());
    guest.put(AVAILABLE + 2, &guest.next.to_le_bytes());
    guest.send(&(10, u32s(&[0, guest.next.into()]), 0));
    guest.send(&(12, u64s(&[0]), 1));
    guest.send(&(18, u32s(&[0, 1]), 0));
    guest.ask(1, &[]);
    let heads: Vec<u16> = (0..20).map(|number| 3 * number).collect();
    for head in &heads {
        let at = u64::from(*head);
        guest.put(HEADER + 16 * at, &[u32s(&[1, 0]), u64s(&[at])].concat());
        guest.put(DATA + 512 * at, &[*head as u8 + 1; 512]);
        guest.chain(
            *head,
            &[
                (HEADER + 16 * at, 16, false),
                (DATA + 512 * at, 512, false),
                (STATUS + at, 1, true),
            ],
        );
    }
    guest.put(STATUS, &[0xff; 64]);
    guest.offer_all(&heads);
    guest.kick.write(1).unwrap();
    let (mut used, mut interrupts) = (Vec::new(), 0);
    while used.len() < heads.len() {
        assert!(guest.is_interrupted(Duration::from_secs(10)));
        interrupts += guest.call.read().unwrap();
        used.extend(std::iter::from_fn(|| guest.used()));
    }
    let expected: Vec<_> = heads.iter().map(|head| (u32::from(*head), 1)).collect();
    assert_eq!(used, expected);
    // One, unless the machine is so busy that they take longer than a batch may.
    assert!(interrupts <= 10, "{interrupts} interrupts");
    let expected: Vec<_> = heads
        .iter()
        .map(|head| format!("write {} 512", 512 * u64::from(*head)))
        .collect();
    assert_eq!(rig.ram.take(), expected);
    for head in &heads {
        let at = 512 * usize::from(*head);
        assert_eq!(guest.get(STATUS + u64::from(*head), 1), [0]);
        assert_eq!(rig.ram.bytes.lock()[at..at + 512], [*head as u8 + 1; 512]);
    }
    assert_eq!(guest.ask(11, &u32s(&[0, 0])), u32s(&[0, 10]));
}

#[test]
fn no_finished_request_waits_for_another_ones_sync() {
    let rig = Rig::new();
    let mut guest = rig.front_end();
    *rig.ram.syncs.lock() = Duration::from_millis(300);
    let header = guest.header(0, 0);
    guest.chain(0, &[header, (DATA, 513, true)]);
    guest.put(HEADER + 16, &[u32s(&[4, 0]), u64s(&[0])].concat());
    guest.chain(3, &[(HEADER + 16, 16, false), (STATUS, 1, true)]);
    guest.offer_all(&[0, 3]);
    let start = Instant::now();
    guest.kick.write(1).unwrap();
    assert!(guest.interrupted(Duration::from_secs(10)));
    assert!(start.elapsed() < Duration::from_millis(300));
    assert_eq!((guest.used(), guest.used()), (Some((0, 513)), None));
    assert!(guest.interrupted(Duration::from_secs(10)));
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(guest.used(), Some((3, 1)));
}

/// Makes a request without data, or a WRITE of a sector, available later: its chain begins at
/// `head`.
fn prepare(guest: &FrontEnd, head: u16, kind: u32) {
    let at = u64::from(head);
    guest.put(HEADER + 16 * at, &[u32s(&[kind, 0]), u64s(&[at])].concat());
    let header = (HEADER + 16 * at, 16, false);
    let status = (STATUS + at, 1, true);
    match kind {
        1 => guest.chain(head, &[header, (DATA, 512, false), status]),
        _ => guest.chain(head, &[header, status]),
    }
}

/// Makes chains available at once, and waits until all are used.
fn run_all(guest: &mut FrontEnd, heads: &[u16]) {
    guest.offer_all(heads);
    guest.kick.write(1).unwrap();
    let mut used = Vec::new();
    while used.len() < heads.len() {
        assert!(
            guest.interrupted(Duration::from_secs(10)),
            "{used:?} are used, the others wait"
        );
        used.extend(std::iter::from_fn(|| guest.used()));
    }
    let expected: Vec<_> = heads.iter().map(|head| (u32::from(*head), 1)).collect();
    assert_eq!(used, expected);
}

#[test]
fn a_flush_keeps_its_place_among_the_writes_of_a_batch() {
    let rig = Rig::new();
    let mut guest = rig.front_end();
    for (head, kind) in [(0, 1), (3, 4), (6, 1), (9, 4)] {
        prepare(&guest, head, kind);
    }
    run_all(&mut guest, &[0, 3, 6, 9]);
    let expected = ["write 0 512", EVERYTHING, "write 3072 512", EVERYTHING];
    assert_eq!(rig.ram.take(), expected);
}

#[test]
fn without_flush_every_change_of_a_batch_is_durable() {
    let rig = Rig::new();
    let mut guest = FrontEnd::over(UnixStream::connect(&rig.path).unwrap());
    guest.start_with(features(&guest) & !FLUSH);
    let heads = [0, 3, 6];
    for head in heads {
        prepare(&guest, head, 1);
    }
    run_all(&mut guest, &heads);
    let expected = heads.map(|head| {
        let offset = 512 * u64::from(head);
        [
            format!("write {offset} 512"),
            format!("flush Request {{ offset: {offset}, len: 512 }}"),
        ]
    });
    assert_eq!(rig.ram.take(), expected.concat());
}

#[test]
fn requests_that_a_batch_has_no_time_for_need_no_other_kick() {
    let rig = Rig::new();
    let mut guest = rig.front_end();
    // Longer than a batch may take.
    *rig.ram.takes.lock() = Duration::from_millis(3);
    let heads = [0, 3, 6, 9];
    for head in heads {
        prepare(&guest, head, 1);
    }
    run_all(&mut guest, &heads);
}

#[test]
fn slow_requests_delay_neither_a_stop_nor_each_other() {
    let rig = Rig::new();
    let mut guest = rig.front_end();
    *rig.ram.takes.lock() = Duration::from_millis(30);
    let header = guest.header(0, 0);
    guest.chain(0, &[header, (DATA, 513, true)]);
    guest.offer_all(&[0; SIZE as usize]);
    let start = Instant::now();
    guest.kick.write(1).unwrap();
    assert!(guest.interrupted(Duration::from_secs(10)));
    drop(rig);
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "it waited for all requests"
    );
    let done = std::iter::from_fn(|| guest.used()).count();
    assert!((1..40).contains(&done), "{done} requests");
}

use std::time::Duration;

use super::*;
use crate::device::Extent;
use crate::transport::ublk::control::broken_promise;

/// A device in memory that counts FLUSHes and requests with FUA.
struct Ram {
    bytes: Mutex<Vec<u8>>,
    flushes: Mutex<u32>,
    fuas: Mutex<u32>,
    volatile: bool,
}

struct Instantly;

impl Flush for Instantly {
    fn wait(self: Box<Self>) -> io::Result<Completion> {
        Ok(None)
    }
}

impl Ram {
    fn new() -> Self {
        Self {
            bytes: Mutex::new(vec![7; 8192]),
            flushes: Mutex::new(0),
            fuas: Mutex::new(0),
            volatile: true,
        }
    }

    fn range<T>(&self, offset: u64, len: u64, work: impl FnOnce(&mut [u8]) -> T) -> io::Result<T> {
        let (start, end) = (offset as usize, (offset + len) as usize);
        let mut bytes = self.bytes.lock();
        bytes
            .get_mut(start..end)
            .map(work)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))
    }
}

impl BlockDevice for Ram {
    fn size(&self) -> u64 {
        8192
    }
    fn logical_block(&self) -> u32 {
        512
    }
    fn physical_block(&self) -> u32 {
        4096
    }
    fn preferred_block(&self) -> u32 {
        4096
    }
    fn read_only(&self) -> bool {
        false
    }
    fn has_volatile_cache(&self) -> bool {
        self.volatile
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        self.range(offset, buf.len() as u64, |bytes| buf.copy_from_slice(bytes))
            .map(|()| None)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        self.range(offset, data.len() as u64, |bytes| {
            bytes.copy_from_slice(data)
        })
        .map(|()| None)
    }
    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.range(offset, len, |bytes| bytes.fill(0))
            .map(|()| None)
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.trim(offset, len)
    }
    fn flush(&self, of: FlushOf) -> io::Result<Box<dyn Flush>> {
        *self.flushes.lock() += 1;
        *self.fuas.lock() += u32::from(of != FlushOf::Everything);
        Ok(Box::new(Instantly))
    }
    fn extents(&self, _: u64, len: u64, _: usize) -> io::Result<Vec<Extent>> {
        Ok(vec![Extent { len, mapped: true }])
    }
}

fn request(op: u32, offset: u64, len: u64) -> Request {
    Request {
        op,
        fua: false,
        offset,
        len,
    }
}

fn moved(step: Step) -> (bool, i32) {
    match step {
        Step::Done(moved, _) => (false, moved),
        Step::Wait(_, moved, _) => (true, moved),
    }
}

/// Makes what the kernel told of the device at its first start.
fn told(change: impl FnOnce(&mut abi::ublk_param_basic)) -> abi::ublk_param_basic {
    let mut told = abi::ublk_param_basic {
        physical_bs_shift: 12,
        dev_sectors: 16,
        ..Default::default()
    };
    change(&mut told);
    told
}

#[test]
fn a_device_is_reattached_only_if_it_keeps_what_its_users_were_told() {
    let ram = Ram::new();
    let refused = |ram: &Ram, told| broken_promise(0, &told, ram);
    assert_eq!(refused(&ram, told(|_| ())), None);
    assert_eq!(refused(&ram, told(|told| told.physical_bs_shift = 9)), None);
    let larger = refused(&ram, told(|told| told.physical_bs_shift = 14));
    assert!(larger.unwrap().contains("a unit of 16384 bytes"));
    let shorter = refused(&ram, told(|told| told.dev_sectors = 17));
    assert!(shorter.unwrap().contains("it has 8704 bytes"));
}

#[test]
fn reads_and_writes_move_their_length_and_others_nothing() {
    let (ram, mut buffer) = (Ram::new(), vec![1; 4096]);
    let mut run = |request| moved(perform(&ram, &request, &mut buffer).unwrap());
    assert_eq!(
        run(request(abi::UBLK_IO_OP_WRITE, 512, 1024)),
        (false, 1024)
    );
    assert_eq!(run(request(abi::UBLK_IO_OP_DISCARD, 512, 512)), (false, 0));
    assert_eq!(
        run(request(abi::UBLK_IO_OP_WRITE_ZEROES, 2048, 512)),
        (false, 0)
    );
    assert_eq!(run(request(abi::UBLK_IO_OP_READ, 0, 4096)), (false, 4096));
    let expected = [(7, 512), (0, 512), (1, 512), (7, 512), (0, 512), (7, 1536)];
    let expected: Vec<u8> = expected
        .iter()
        .flat_map(|&(byte, len)| vec![byte; len])
        .collect();
    assert_eq!(buffer, expected);
}

#[test]
fn flush_and_forced_unit_access_wait_and_a_forced_read_does_not() {
    let (ram, mut buffer) = (Ram::new(), vec![0; 4096]);
    let mut run = |op, fua| {
        moved(
            perform(
                &ram,
                &Request {
                    fua,
                    ..request(op, 0, 512)
                },
                &mut buffer,
            )
            .unwrap(),
        )
    };
    assert_eq!(run(abi::UBLK_IO_OP_FLUSH, false), (true, 0));
    assert_eq!(run(abi::UBLK_IO_OP_WRITE, true), (true, 512));
    assert_eq!(run(abi::UBLK_IO_OP_WRITE_ZEROES, true), (true, 0));
    assert_eq!(run(abi::UBLK_IO_OP_READ, true), (false, 512));
    assert_eq!((*ram.flushes.lock(), *ram.fuas.lock()), (3, 2));
}

#[test]
fn without_a_volatile_cache_every_change_waits_until_it_is_durable() {
    let mut ram = Ram::new();
    ram.volatile = false;
    let mut buffer = vec![0; 4096];
    let mut run = |op| moved(perform(&ram, &request(op, 0, 512), &mut buffer).unwrap());
    assert_eq!(run(abi::UBLK_IO_OP_WRITE), (true, 512));
    assert_eq!(run(abi::UBLK_IO_OP_DISCARD), (true, 0));
    assert_eq!(run(abi::UBLK_IO_OP_WRITE_ZEROES), (true, 0));
    assert_eq!(run(abi::UBLK_IO_OP_READ), (false, 512));
    assert_eq!(*ram.fuas.lock(), 3);
}

#[test]
fn a_flush_names_no_place() {
    let iod = abi::ublksrv_io_desc {
        op_flags: abi::UBLK_IO_OP_FLUSH,
        start_sector: u64::MAX,
        ..Default::default()
    };
    let request = Request::of(&iod);
    assert_eq!(
        (request.op, request.fua, request.len),
        (abi::UBLK_IO_OP_FLUSH, false, 0)
    );
}

#[test]
fn a_request_beyond_the_buffer_or_unknown_is_refused() {
    let (ram, mut buffer) = (Ram::new(), vec![0; 512]);
    let mut code = |op| {
        perform(&ram, &request(op, 0, 1024), &mut buffer)
            .err()
            .and_then(|e| e.raw_os_error())
    };
    assert_eq!(code(abi::UBLK_IO_OP_READ), Some(libc::EINVAL));
    assert_eq!(code(abi::UBLK_IO_OP_WRITE), Some(libc::EINVAL));
    assert_eq!(code(abi::UBLK_IO_OP_ZONE_RESET), Some(libc::EOPNOTSUPP));
}

#[test]
fn errors_keep_their_number_and_a_panic_is_an_io_error() {
    assert_eq!(
        guard(|| Err::<(), _>(io::Error::from_raw_os_error(libc::ENOSPC))),
        Err(-libc::ENOSPC)
    );
    assert_eq!(
        guard(|| -> io::Result<()> { panic!("scheme") }),
        Err(-libc::EIO)
    );
}

#[test]
fn a_closed_gate_waits_for_whom_it_let_in_and_lets_nobody_else_in() {
    let gate = Gate::default();
    let inside = gate.enter().unwrap();
    thread::scope(|scope| {
        let closing = scope.spawn(|| gate.close());
        thread::sleep(Duration::from_millis(20));
        assert!(!closing.is_finished());
        drop(inside);
        closing.join().unwrap();
    });
    assert!(gate.enter().is_none());
}

#[test]
fn a_finished_flush_signals_the_event() {
    struct Fails;
    impl Flush for Fails {
        fn wait(self: Box<Self>) -> io::Result<Completion> {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        }
    }
    let flusher = Flusher::start().unwrap();
    let due = Instant::now() + Duration::from_secs(9);
    let hold = Some(DelayedCompletion::until(due));
    flusher
        .wait(Job {
            tag: 3,
            moved: 512,
            hold,
            flush: Box::new(Instantly),
        })
        .unwrap();
    flusher
        .wait(Job {
            tag: 4,
            moved: 0,
            hold: None,
            flush: Box::new(Fails),
        })
        .unwrap();
    let timeout = Duration::from_secs(10);
    let (tag, answer) = flusher.finished.recv_timeout(timeout).unwrap();
    let (moved, hold) = answer.unwrap();
    assert_eq!(
        (tag, moved, hold.map(|hold| hold.due())),
        (3, 512, Some(due)),
        "the hold of the write goes on"
    );
    let (tag, answer) = flusher.finished.recv_timeout(timeout).unwrap();
    assert_eq!((tag, answer.err()), (4, Some(-libc::ENOSPC)));
    let start = Instant::now();
    while flusher.event.read().is_err() {
        assert!(start.elapsed() < timeout, "the event was never signalled");
        thread::yield_now();
    }
}

#[test]
fn a_queue_blocks_signals_but_not_those_of_its_own_faults() {
    let blocked = thread::spawn(|| {
        block_signals().unwrap();
        SigSet::thread_get_mask().unwrap()
    });
    let blocked = blocked.join().unwrap();
    assert!(blocked.contains(Signal::SIGTERM) && blocked.contains(Signal::SIGINT));
    assert!(!blocked.contains(Signal::SIGBUS) && !blocked.contains(Signal::SIGSEGV));
}

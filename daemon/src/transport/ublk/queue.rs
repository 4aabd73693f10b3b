//! One queue: a thread that takes requests from the driver and answers them, and a helper that waits for FLUSHes.
//!
//! The queue thread must never block on the host's storage and never end while the device lives: libublk would take the
//! device down. So it blocks all signals, outlives interrupted system calls, catches panics, and gives every wait to the
//! helper, which wakes it through an eventfd that the queue's own ring polls.

use std::any::Any;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, mpsc};
use std::{io, thread};

use io_uring::{opcode, types};
use libublk::helpers::IoBuf;
use libublk::io::{UblkDev, UblkIOCtx, UblkQueue};
use libublk::{BufDesc, BufDescList, UblkError, UblkIORes, UblkUringData, sys as abi};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::SigSet;
use tracing::error;

use crate::device::{BlockDevice, Flush};

const SECTOR: u64 = 512;

/// One request, as the driver describes it.
#[derive(Clone, Copy, Debug)]
struct Request {
    op: u32,
    fua: bool,
    offset: u64,
    len: u64,
}

impl Request {
    fn of(iod: &abi::ublksrv_io_desc) -> Self {
        Self {
            op: iod.op_flags & 0xff,
            fua: iod.op_flags & abi::UBLK_IO_F_FUA != 0,
            // A FLUSH names the last sector there can be.
            offset: iod.start_sector.saturating_mul(SECTOR),
            len: u64::from(iod.nr_sectors) * SECTOR,
        }
    }

    /// The part of a slot's buffer that this request moves. Lengths of discards lie far above any buffer.
    fn data<'b>(&self, buffer: &'b mut [u8]) -> io::Result<&'b mut [u8]> {
        let len = usize::try_from(self.len).ok();
        len.and_then(|len| buffer.get_mut(..len)).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }
}

/// What remains to be done for a request.
enum Step {
    /// Nothing: this many bytes were moved.
    Done(i32),
    /// The host's storage has to be waited for; then this many bytes.
    Wait(Box<dyn Flush>, i32),
}

/// The short half of a request, on the queue thread.
fn perform(device: &dyn BlockDevice, request: &Request, buffer: &mut [u8]) -> io::Result<Step> {
    let Request { offset, len, .. } = *request;
    let moved = match request.op {
        abi::UBLK_IO_OP_FLUSH => return Ok(Step::Wait(device.flush()?, 0)),
        abi::UBLK_IO_OP_READ => {
            device.read(offset, request.data(buffer)?)?;
            len as i32
        }
        abi::UBLK_IO_OP_WRITE => {
            device.write(offset, request.data(buffer)?)?;
            len as i32
        }
        abi::UBLK_IO_OP_DISCARD => {
            device.trim(offset, len)?;
            0
        }
        abi::UBLK_IO_OP_WRITE_ZEROES => {
            device.write_zeroes(offset, len)?;
            0
        }
        _ => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
    };
    let durable = request.fua && request.op != abi::UBLK_IO_OP_READ;
    if durable { Ok(Step::Wait(device.flush()?, moved)) } else { Ok(Step::Done(moved)) }
}

/// Closed before the process leaves a device to its successor: what arrives from then on, and FLUSHes still waited for, stay
/// unanswered, and the kernel hands them to the successor.
#[derive(Default)]
pub(super) struct Gate(RwLock<bool>);

impl Gate {
    /// Closes it; on return no request is under way on a queue thread.
    pub(super) fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = true;
    }

    fn enter(&self) -> Option<RwLockReadGuard<'_, bool>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner)).filter(|closed| !**closed)
    }
}

/// Serves queue `id` until the device stops; false if it had to end before.
pub(super) fn run(id: u16, dev: &UblkDev, device: &dyn BlockDevice, gate: &Gate, flusher: Flusher) -> bool {
    // Signal handlers belong on other threads.
    if let Err(error) = SigSet::all().thread_block() {
        error!(%error, queue = id, "cannot block signals on a ublk queue");
    }
    let _ = nix::sys::prctl::set_name(c"ftld-ublk");
    let bufs = dev.alloc_queue_io_bufs();
    let fetching =
        UblkQueue::new(id, dev).and_then(|q| q.submit_fetch_commands_unified(BufDescList::Slices(Some(&bufs))));
    match fetching {
        Ok(q) => Queue { q, device, gate, bufs, flusher }.run(),
        Err(error) => {
            error!(%error, queue = id, "cannot set up a ublk queue");
            // Without it the starting thread would wait for this queue for ever.
            dev.notify_buffer_registration_complete(true);
            false
        }
    }
}

struct Queue<'a> {
    q: UblkQueue<'a>,
    device: &'a dyn BlockDevice,
    gate: &'a Gate,
    bufs: Vec<IoBuf<u8>>,
    flusher: Flusher,
}

impl Queue<'_> {
    fn run(mut self) -> bool {
        let mut events = Vec::with_capacity(self.bufs.len() + 1);
        let mut result = self.arm();
        while result.is_ok() {
            result = match self.q.flush_and_wake_io_tasks(|data, cqe, _| events.push((data, cqe.result())), 1) {
                Err(UblkError::IOError(error)) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
                Err(UblkError::QueueIsDown) => return true,
                Err(error) => Err(error),
                Ok(_) => events.drain(..).try_for_each(|(data, res)| self.event(data, res)),
            };
        }
        error!(result = ?result.err(), queue = self.q.get_qid(), "a ublk queue failed");
        // The driver still has commands: it may write into their buffers, and to take the queue down would wait for them.
        std::mem::forget((self.q, self.bufs));
        false
    }

    /// Asks the ring for one event when the flusher has finished something. A poll has no buffer that could be written to
    /// after this thread has ended.
    fn arm(&self) -> Result<(), UblkError> {
        let poll = opcode::PollAdd::new(types::Fd(self.flusher.event.as_fd().as_raw_fd()), libc::POLLIN as u32);
        self.q.ublk_submit_sqe_sync(poll.build().user_data(UblkUringData::Target as u64))
    }

    fn event(&mut self, data: u64, res: i32) -> Result<(), UblkError> {
        let Some(entered) = self.gate.enter() else { return Ok(()) };
        if data & UblkUringData::Target as u64 != 0 {
            // Only to rearm it: what was finished is in the channel.
            let _ = self.flusher.event.read();
            for (tag, res) in self.flusher.finished.try_iter().collect::<Vec<_>>() {
                self.complete(tag, res)?;
            }
            return self.arm();
        }
        if res != abi::UBLK_IO_RES_OK as i32 {
            // The device is being stopped; libublk counts these and ends the loop.
            return Ok(());
        }
        let tag = UblkIOCtx::user_data_to_tag(data) as u16;
        let (iod, device, buffer) = (self.q.get_iod(tag), self.device, &mut self.bufs[usize::from(tag)]);
        let step = guard(|| perform(device, &Request::of(iod), buffer.as_mut_slice()));
        drop(entered);
        match step {
            Ok(Step::Done(moved)) => self.complete(tag, moved),
            Ok(Step::Wait(flush, moved)) => match self.flusher.wait(tag, moved, flush) {
                Ok(()) => Ok(()),
                Err(code) => self.complete(tag, code),
            },
            Err(code) => self.complete(tag, code),
        }
    }

    fn complete(&self, tag: u16, res: i32) -> Result<(), UblkError> {
        let buffer = BufDesc::Slice(self.bufs[usize::from(tag)].as_slice());
        self.q.complete_io_cmd_unified(tag, buffer, Ok(UblkIORes::Result(res)))
    }
}

/// Runs `work`; an error or a panic becomes a negative errno.
fn guard<T>(work: impl FnOnce() -> io::Result<T>) -> Result<T, i32> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| -crate::transport::errno(&error)),
        Err(panic) => {
            error!("a request panicked and is answered EIO: {}", message(panic.as_ref()));
            Err(-libc::EIO)
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// The thread that waits for FLUSHes, in the order they were asked for: a later one is covered by the same sync of the host's
/// storage or by a later one, so none waits longer for it.
pub(super) struct Flusher {
    jobs: mpsc::Sender<(u16, i32, Box<dyn Flush>)>,
    finished: mpsc::Receiver<(u16, i32)>,
    event: Arc<EventFd>,
}

impl Flusher {
    pub(super) fn start() -> io::Result<Self> {
        let event = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let (jobs, queue) = mpsc::channel::<(u16, i32, Box<dyn Flush>)>();
        let (done, finished) = mpsc::channel();
        let wake = event.clone();
        thread::Builder::new().name("ftld-flush".into()).spawn(move || {
            let _ = SigSet::all().thread_block();
            for (tag, moved, flush) in queue {
                let res = guard(|| flush.wait()).map_or_else(|code| code, |()| moved);
                if done.send((tag, res)).is_err() || wake.write(1).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { jobs, finished, event })
    }

    /// Has `flush` waited for; its result appears in `finished`.
    fn wait(&self, tag: u16, moved: i32, flush: Box<dyn Flush>) -> Result<(), i32> {
        self.jobs.send((tag, moved, flush)).map_err(|_| -libc::EIO)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::device::Extent;

    /// Bytes in memory, the number of FLUSHes asked for, and how each of them ends.
    struct Ram {
        bytes: Mutex<Vec<u8>>,
        flushes: Mutex<u32>,
    }

    struct Instantly;

    impl Flush for Instantly {
        fn wait(self: Box<Self>) -> io::Result<()> {
            Ok(())
        }
    }

    impl Ram {
        fn new() -> Self {
            Self { bytes: Mutex::new(vec![7; 8192]), flushes: Mutex::new(0) }
        }

        fn range<T>(&self, offset: u64, len: u64, work: impl FnOnce(&mut [u8]) -> T) -> io::Result<T> {
            let (start, end) = (offset as usize, (offset + len) as usize);
            let mut bytes = self.bytes.lock().unwrap();
            bytes.get_mut(start..end).map(work).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))
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
        fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.range(offset, buf.len() as u64, |bytes| buf.copy_from_slice(bytes))
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.range(offset, data.len() as u64, |bytes| bytes.copy_from_slice(data))
        }
        fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
            self.range(offset, len, |bytes| bytes.fill(0))
        }
        fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
            self.trim(offset, len)
        }
        fn flush(&self) -> io::Result<Box<dyn Flush>> {
            *self.flushes.lock().unwrap() += 1;
            Ok(Box::new(Instantly))
        }
        fn extents(&self, _: u64, len: u64, _: usize) -> io::Result<Vec<Extent>> {
            Ok(vec![Extent { len, mapped: true }])
        }
    }

    fn request(op: u32, offset: u64, len: u64) -> Request {
        Request { op, fua: false, offset, len }
    }

    fn moved(step: Step) -> (bool, i32) {
        match step {
            Step::Done(moved) => (false, moved),
            Step::Wait(_, moved) => (true, moved),
        }
    }

    #[test]
    fn reads_and_writes_move_their_length_and_others_nothing() {
        let (ram, mut buffer) = (Ram::new(), vec![1; 4096]);
        let mut run = |request| moved(perform(&ram, &request, &mut buffer).unwrap());
        assert_eq!(run(request(abi::UBLK_IO_OP_WRITE, 512, 1024)), (false, 1024));
        assert_eq!(run(request(abi::UBLK_IO_OP_DISCARD, 512, 512)), (false, 0));
        assert_eq!(run(request(abi::UBLK_IO_OP_WRITE_ZEROES, 2048, 512)), (false, 0));
        assert_eq!(run(request(abi::UBLK_IO_OP_READ, 0, 4096)), (false, 4096));
        let expected = [(7, 512), (0, 512), (1, 512), (7, 512), (0, 512), (7, 1536)];
        let expected: Vec<u8> = expected.iter().flat_map(|&(byte, len)| vec![byte; len]).collect();
        assert_eq!(buffer, expected);
    }

    #[test]
    fn flush_and_forced_unit_access_wait_and_a_forced_read_does_not() {
        let (ram, mut buffer) = (Ram::new(), vec![0; 4096]);
        let mut run = |op, fua| moved(perform(&ram, &Request { fua, ..request(op, 0, 512) }, &mut buffer).unwrap());
        assert_eq!(run(abi::UBLK_IO_OP_FLUSH, false), (true, 0));
        assert_eq!(run(abi::UBLK_IO_OP_WRITE, true), (true, 512));
        assert_eq!(run(abi::UBLK_IO_OP_WRITE_ZEROES, true), (true, 0));
        assert_eq!(run(abi::UBLK_IO_OP_READ, true), (false, 512));
        assert_eq!(*ram.flushes.lock().unwrap(), 3);
    }

    #[test]
    fn a_flush_names_no_place() {
        let iod =
            abi::ublksrv_io_desc { op_flags: abi::UBLK_IO_OP_FLUSH, start_sector: u64::MAX, ..Default::default() };
        let request = Request::of(&iod);
        assert_eq!((request.op, request.fua, request.len), (abi::UBLK_IO_OP_FLUSH, false, 0));
    }

    #[test]
    fn a_request_beyond_the_buffer_or_unknown_is_refused() {
        let (ram, mut buffer) = (Ram::new(), vec![0; 512]);
        let mut code = |op| perform(&ram, &request(op, 0, 1024), &mut buffer).err().and_then(|e| e.raw_os_error());
        assert_eq!(code(abi::UBLK_IO_OP_READ), Some(libc::EINVAL));
        assert_eq!(code(abi::UBLK_IO_OP_WRITE), Some(libc::EINVAL));
        assert_eq!(code(abi::UBLK_IO_OP_ZONE_RESET), Some(libc::EOPNOTSUPP));
    }

    #[test]
    fn errors_keep_their_number_and_a_panic_is_an_io_error() {
        assert_eq!(guard(|| Err::<(), _>(io::Error::from_raw_os_error(libc::ENOSPC))), Err(-libc::ENOSPC));
        assert_eq!(guard(|| -> io::Result<()> { panic!("scheme") }), Err(-libc::EIO));
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
            fn wait(self: Box<Self>) -> io::Result<()> {
                Err(io::Error::from_raw_os_error(libc::ENOSPC))
            }
        }
        let flusher = Flusher::start().unwrap();
        flusher.wait(3, 512, Box::new(Instantly)).unwrap();
        flusher.wait(4, 0, Box::new(Fails)).unwrap();
        let timeout = Duration::from_secs(10);
        assert_eq!(flusher.finished.recv_timeout(timeout), Ok((3, 512)));
        assert_eq!(flusher.finished.recv_timeout(timeout), Ok((4, -libc::ENOSPC)));
        let start = Instant::now();
        while flusher.event.read().is_err() {
            assert!(start.elapsed() < timeout, "the event was never signalled");
            thread::yield_now();
        }
    }
}

//! One queue: a thread that receives requests from the driver and answers them, and a helper that
//! waits for FLUSHes.
//!
//! The queue thread must never block on the host's storage and never end while the device exists:
//! libublk would take the device down. It therefore blocks all signals, retries interrupted system
//! calls, and catches panics. It passes every wait to the helper, which wakes it through an eventfd
//! that the queue's own ring polls. Delayed completions wait in a heap, for a timer that the ring
//! also polls.

use std::any::Any;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Instant;
use std::{io, thread};

use io_uring::{opcode, types};
use libublk::helpers::IoBuf;
use libublk::io::{UblkDev, UblkIOCtx, UblkQueue};
use libublk::{BufDesc, BufDescList, UblkError, UblkIORes, UblkUringData, sys as abi};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tracing::error;

use crate::device::{BlockDevice, Completion, DelayedCompletion, Flush, FlushOf};
use crate::transport::latency::{CompletionTimer, DelayQueue};

const SECTOR: u64 = 512;

/// User data of the ring's polls, besides that of the driver's commands.
const FLUSHED: u64 = UblkUringData::Target as u64;
const ALARM: u64 = FLUSHED | 1;

/// A request, as described by the driver.
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
            // A FLUSH contains the last possible sector.
            offset: iod.start_sector.saturating_mul(SECTOR),
            len: u64::from(iod.nr_sectors) * SECTOR,
        }
    }

    /// Returns the part of a slot's buffer that this request transfers. Lengths of discards far
    /// exceed any buffer.
    fn data<'b>(&self, buffer: &'b mut [u8]) -> io::Result<&'b mut [u8]> {
        let len = usize::try_from(self.len).ok();
        len.and_then(|len| buffer.get_mut(..len))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }
}

/// Remaining work of a request.
enum Step {
    /// None: this many bytes were transferred.
    Done(i32, Completion),
    /// A wait for the host's storage; then this many bytes were transferred.
    Wait(Box<dyn Flush>, i32, Completion),
}

/// Performs the short half of a request, on the queue thread.
fn perform(device: &dyn BlockDevice, request: &Request, buffer: &mut [u8]) -> io::Result<Step> {
    let Request { offset, len, .. } = *request;
    let (moved, hold) = match request.op {
        abi::UBLK_IO_OP_FLUSH => {
            return Ok(Step::Wait(device.flush(FlushOf::Everything)?, 0, None));
        }
        abi::UBLK_IO_OP_READ => (len as i32, device.read(offset, request.data(buffer)?)?),
        abi::UBLK_IO_OP_WRITE => (len as i32, device.write(offset, request.data(buffer)?)?),
        abi::UBLK_IO_OP_DISCARD => (0, device.trim(offset, len)?),
        abi::UBLK_IO_OP_WRITE_ZEROES => (0, device.write_zeroes(offset, len)?),
        _ => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
    };
    // Asked after the request: what was acknowledged before the answer changed is flushed then.
    let is_change = request.op != abi::UBLK_IO_OP_READ;
    if is_change && (request.fua || !device.has_volatile_cache()) {
        let flush = device.flush(FlushOf::Request { offset, len })?;
        Ok(Step::Wait(flush, moved, hold))
    } else {
        Ok(Step::Done(moved, hold))
    }
}

/// Gate that closes before the process leaves a device to its successor. Later requests, and those
/// that wait for a FLUSH or for the emulated flash, stay unanswered. The kernel passes them to the
/// successor.
#[derive(Default)]
pub(super) struct Gate {
    closed: RwLock<bool>,
    hurried: AtomicBool,
    /// Events that wake the queues.
    wakes: Mutex<Vec<Arc<EventFd>>>,
}

impl Gate {
    /// Closes the gate; on return no request is in progress on a queue thread.
    pub(super) fn close(&self) {
        *self.closed.write() = true;
    }

    /// Ends all delays: the device is about to be removed, and its removal waits for every request.
    pub(super) fn hurry(&self) {
        let wakes = self.wakes.lock();
        self.hurried.store(true, Relaxed);
        for wake in wakes.iter() {
            let _ = wake.write(1);
        }
    }

    fn enter(&self) -> Option<RwLockReadGuard<'_, bool>> {
        Some(self.closed.read()).filter(|closed| !**closed)
    }

    fn hurried(&self) -> bool {
        self.hurried.load(Relaxed)
    }

    fn join(&self, wake: Arc<EventFd>) {
        self.wakes.lock().push(wake);
    }
}

/// Blocks the signals that other threads handle, but not those of this thread's own faults. The map
/// of the image turns SIGBUS into an error of the request; blocked, it would kill the process.
fn block_signals() -> nix::Result<()> {
    let mut signals = SigSet::all();
    for fault in [
        Signal::SIGBUS,
        Signal::SIGSEGV,
        Signal::SIGILL,
        Signal::SIGFPE,
    ] {
        signals.remove(fault);
    }
    signals.thread_block()
}

/// Serves queue `id` until the device stops; returns false if it had to end before.
pub(super) fn run(
    id: u16,
    dev: &UblkDev,
    device: &dyn BlockDevice,
    gate: &Gate,
    helpers: Helpers,
) -> bool {
    // Other threads handle signals.
    if let Err(error) = block_signals() {
        error!(%error, queue = id, "cannot block signals on a ublk queue");
    }
    let _ = nix::sys::prctl::set_name(c"ftld-ublk");
    let bufs = dev.alloc_queue_io_bufs();
    let fetching = UblkQueue::new(id, dev)
        .and_then(|q| q.submit_fetch_commands_unified(BufDescList::Slices(Some(&bufs))));
    match fetching {
        Ok(q) => {
            let Helpers { flusher, alarm } = helpers;
            gate.join(flusher.event.clone());
            Queue {
                q,
                device,
                gate,
                bufs,
                flusher,
                holds: DelayQueue::default(),
                alarm,
                alarm_polled: false,
            }
            .run()
        }
        Err(error) => {
            error!(%error, queue = id, "cannot set up a ublk queue");
            // Otherwise the starting thread would wait for this queue forever.
            dev.notify_buffer_registration_complete(true);
            false
        }
    }
}

/// Resources of a queue; created before the device, so that no device is created without them.
pub(super) struct Helpers {
    flusher: Flusher,
    alarm: CompletionTimer,
}

impl Helpers {
    pub(super) fn start() -> io::Result<Self> {
        Ok(Helpers {
            flusher: Flusher::start()?,
            alarm: CompletionTimer::new()?,
        })
    }
}

struct Queue<'a> {
    q: UblkQueue<'a>,
    device: &'a dyn BlockDevice,
    gate: &'a Gate,
    bufs: Vec<IoBuf<u8>>,
    flusher: Flusher,
    /// Tags and results of delayed completions.
    holds: DelayQueue<(u16, i32)>,
    alarm: CompletionTimer,
    /// Whether the ring polls the alarm.
    alarm_polled: bool,
}

impl Queue<'_> {
    fn run(mut self) -> bool {
        let mut events = Vec::with_capacity(self.bufs.len() + 1);
        let mut result = self.poll(self.flusher.event.as_fd(), FLUSHED);
        while result.is_ok() {
            events.clear();
            result = match self
                .q
                .flush_and_wake_io_tasks(|data, cqe, _| events.push((data, cqe.result())), 1)
            {
                Err(UblkError::IOError(error)) if error.kind() == io::ErrorKind::Interrupted => {
                    Ok(())
                }
                Err(UblkError::QueueIsDown) => return true,
                Err(error) => Err(error),
                Ok(_) => self.serve(&events).and_then(|()| self.release()),
            };
        }
        error!(result = ?result.err(), queue = self.q.get_qid(), "a ublk queue failed");
        // The driver still has commands: it may write into their buffers, and taking the queue down
        // would wait for them.
        std::mem::forget((self.q, self.bufs));
        false
    }

    /// Requests one event from the ring when the file becomes readable. A poll has no buffer that
    /// could be written to after this thread has ended.
    fn poll(&self, file: BorrowedFd<'_>, data: u64) -> Result<(), UblkError> {
        let poll = opcode::PollAdd::new(
            types::Fd(file.as_raw_fd()),
            u32::from(libc::POLLIN.cast_unsigned()),
        );
        self.q.ublk_submit_sqe_sync(poll.build().user_data(data))
    }

    /// Serves the events that have arrived together, in order; consecutive writes are executed
    /// together.
    fn serve(&mut self, mut events: &[(u64, i32)]) -> Result<(), UblkError> {
        while let Some(&(data, res)) = events.first() {
            let writes = events
                .iter()
                .map_while(|&(data, res)| self.plain_write(data, res))
                .count();
            if writes > 1 && self.device.has_volatile_cache() {
                self.write_many(&events[..writes])?;
                events = &events[writes..];
            } else {
                self.event(data, res)?;
                events = &events[1..];
            }
        }
        Ok(())
    }

    /// Returns tag and request of an event that is a WRITE without FUA.
    fn plain_write(&self, data: u64, res: i32) -> Option<(u16, Request)> {
        if data == ALARM || data == FLUSHED || res != abi::UBLK_IO_RES_OK as i32 {
            return None;
        }
        let tag = UblkIOCtx::user_data_to_tag(data) as u16;
        let request = Request::of(self.q.get_iod(tag));
        (request.op == abi::UBLK_IO_OP_WRITE && !request.fua).then_some((tag, request))
    }

    fn write_many(&mut self, events: &[(u64, i32)]) -> Result<(), UblkError> {
        let Some(entered) = self.gate.enter() else {
            return Ok(());
        };
        let requests: Vec<_> = events
            .iter()
            .filter_map(|&(data, res)| self.plain_write(data, res))
            .collect();
        let mut results = Vec::with_capacity(requests.len());
        let outcome = guard(|| {
            let mut writes = Vec::with_capacity(requests.len());
            for (tag, request) in &requests {
                let buffer = self.bufs[usize::from(*tag)].as_slice();
                let length = usize::try_from(request.len).ok();
                let data = length.and_then(|length| buffer.get(..length));
                let data = data.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
                writes.push((request.offset, data));
            }
            self.device.write_many(&writes, &mut results);
            if !self.device.has_volatile_cache() {
                // The announcement changed during the batch: its writes are flushed here.
                self.device.flush(FlushOf::Everything)?.wait()?;
            }
            // A request without a result would never be answered.
            assert_eq!(
                results.len(),
                writes.len(),
                "a result for each write of a batch"
            );
            Ok(())
        });
        drop(entered);
        if let Err(code) = outcome {
            return requests
                .iter()
                .try_for_each(|(tag, _)| self.complete(*tag, code));
        }
        for ((tag, request), result) in requests.iter().zip(results) {
            let moved = request.len as i32;
            let answer = result.map(|hold| (moved, hold));
            self.answer(
                *tag,
                answer.map_err(|error| -crate::transport::errno(&error)),
            )?;
        }
        Ok(())
    }

    fn event(&mut self, data: u64, res: i32) -> Result<(), UblkError> {
        let Some(entered) = self.gate.enter() else {
            return Ok(());
        };
        if data == ALARM {
            self.alarm.went_off();
            self.alarm_polled = false;
            return Ok(());
        }
        if data == FLUSHED {
            // Only to rearm the event: the results are in the channel.
            let _ = self.flusher.event.read();
            while let Ok((tag, answer)) = self.flusher.finished.try_recv() {
                self.answer(tag, answer)?;
            }
            return self.poll(self.flusher.event.as_fd(), FLUSHED);
        }
        if res != abi::UBLK_IO_RES_OK as i32 {
            // The device is being stopped; libublk counts these completions and ends the loop.
            return Ok(());
        }
        let tag = UblkIOCtx::user_data_to_tag(data) as u16;
        assert!(
            usize::from(tag) < self.bufs.len(),
            "a request with tag {tag} in a queue of {}",
            self.bufs.len()
        );
        let (iod, device, buffer) = (
            self.q.get_iod(tag),
            self.device,
            &mut self.bufs[usize::from(tag)],
        );
        let step = guard(|| perform(device, &Request::of(iod), buffer.as_mut_slice()));
        drop(entered);
        match step {
            Ok(Step::Done(moved, hold)) => self.answer(tag, Ok((moved, hold))),
            Ok(Step::Wait(flush, moved, hold)) => match self.flusher.wait(Job {
                tag,
                moved,
                hold,
                flush,
            }) {
                Ok(()) => Ok(()),
                Err(code) => self.complete(tag, code),
            },
            Err(code) => self.complete(tag, code),
        }
    }

    /// Completes a request when it is due.
    fn answer(&mut self, tag: u16, answer: Answer) -> Result<(), UblkError> {
        match answer {
            Ok((moved, Some(hold))) => {
                assert!(
                    self.holds.len() < self.bufs.len(),
                    "{} delayed requests and tag {tag} in a queue of {}",
                    self.holds.len(),
                    self.bufs.len()
                );
                self.holds.push(hold, (tag, moved));
                Ok(())
            }
            Ok((moved, None)) => self.complete(tag, moved),
            Err(code) => self.complete(tag, code),
        }
    }

    /// Completes delayed requests that are due, and sets the timer for the next one.
    fn release(&mut self) -> Result<(), UblkError> {
        if self.holds.is_empty() {
            return Ok(());
        }
        let Some(_entered) = self.gate.enter() else {
            return Ok(());
        };
        assert!(
            self.holds.len() <= self.bufs.len(),
            "{} delayed requests in a queue of {}",
            self.holds.len(),
            self.bufs.len()
        );
        let now = Instant::now();
        while let Some((tag, moved)) = if self.gate.hurried() {
            self.holds.pop()
        } else {
            self.holds.pop_due(now)
        } {
            self.complete(tag, moved)?;
        }
        let Some(due) = self.holds.next_due() else {
            return Ok(());
        };
        self.alarm.set(due).map_err(UblkError::IOError)?;
        if !self.alarm_polled {
            self.poll(self.alarm.as_fd(), ALARM)?;
            self.alarm_polled = true;
        }
        Ok(())
    }

    fn complete(&self, tag: u16, res: i32) -> Result<(), UblkError> {
        let buffer = self.bufs[usize::from(tag)].as_slice();
        assert!(
            usize::try_from(res).is_ok_and(|moved| moved <= buffer.len()) || res < 0,
            "{res} bytes moved through a buffer of {}",
            buffer.len()
        );
        let buffer = BufDesc::Slice(buffer);
        self.q
            .complete_io_cmd_unified(tag, buffer, Ok(UblkIORes::Result(res)))
    }
}

/// Runs `work`; an error or a panic becomes a negative errno.
fn guard<T>(work: impl FnOnce() -> io::Result<T>) -> Result<T, i32> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| -crate::transport::errno(&error)),
        Err(panic) => {
            error!(
                "a request panicked and is answered EIO: {}",
                message(panic.as_ref())
            );
            Err(-libc::EIO)
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// The thread that waits for FLUSHes, in order of arrival. The same sync of the host's storage, or
/// a later one, covers a later FLUSH, so none waits longer because of the order.
struct Flusher {
    jobs: mpsc::Sender<Job>,
    finished: mpsc::Receiver<(u16, Answer)>,
    event: Arc<EventFd>,
}

/// A FLUSH, or the second half of a request with FUA.
struct Job {
    tag: u16,
    moved: i32,
    /// Delay of the first half.
    hold: Completion,
    flush: Box<dyn Flush>,
}

/// Bytes moved, or a negative errno.
type Answer = Result<(i32, Completion), i32>;

impl Flusher {
    fn start() -> io::Result<Self> {
        let event = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?);
        let (jobs, queue) = mpsc::channel::<Job>();
        let (done, finished) = mpsc::channel();
        let wake = event.clone();
        thread::Builder::new()
            .name("ftld-flush".into())
            .spawn(move || {
                let _ = block_signals();
                for Job {
                    tag,
                    moved,
                    hold,
                    flush,
                } in queue
                {
                    let answer = guard(|| flush.wait())
                        .map(|later| (moved, DelayedCompletion::later(hold, later)));
                    if done.send((tag, answer)).is_err() || wake.write(1).is_err() {
                        break;
                    }
                }
            })?;
        Ok(Self {
            jobs,
            finished,
            event,
        })
    }

    /// Passes a job to the thread; its result appears in `finished`.
    fn wait(&self, job: Job) -> Result<(), i32> {
        assert!(
            job.moved >= 0,
            "a request with error {} waits for a sync",
            job.moved
        );
        self.jobs.send(job).map_err(|_| -libc::EIO)
    }
}

#[cfg(test)]
mod tests;

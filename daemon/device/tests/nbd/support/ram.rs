//! A block device in memory, for tests and measurements of the transport alone.
//!
//! Knows per 4 KiB which parts were written. A test may make a range fail, hold flushes back, and
//! have completions wait.

use ftld_device::device::{BlockDevice, Completion, DelayedCompletion, Extent, Flush, FlushOf};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

const BLOCK: u64 = 4096;

pub(crate) struct Ram {
    state: Mutex<State>,
    size: u64,
    read_only: bool,
    volatile_cache: bool,
    /// Reads and writes that touch it fail with EIO.
    pub(crate) broken: Mutex<Option<Range<u64>>>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) flushes: AtomicU64,
    pub(crate) paused: AtomicBool,
    /// When completions are due, one after the other; `None` is at once.
    pub(crate) due: Mutex<Box<dyn Iterator<Item = Option<Instant>> + Send>>,
}

struct State {
    data: Vec<u8>,
    mapped: Vec<bool>,
}

impl Ram {
    pub(crate) fn new(size: u64) -> Self {
        let state = State {
            data: vec![0; size as usize],
            mapped: vec![false; size.div_ceil(BLOCK) as usize],
        };
        Ram {
            state: Mutex::new(state),
            size,
            read_only: false,
            volatile_cache: true,
            broken: Mutex::new(None),
            gate: Arc::default(),
            flushes: AtomicU64::new(0),
            paused: AtomicBool::new(false),
            due: Mutex::new(Box::new(std::iter::repeat(None))),
        }
    }

    #[allow(dead_code, reason = "not every user wants one")]
    pub(crate) fn read_only(size: u64) -> Self {
        Ram {
            read_only: true,
            ..Ram::new(size)
        }
    }

    #[allow(dead_code, reason = "not every user wants one")]
    pub(crate) fn without_volatile_cache(size: u64) -> Self {
        Ram {
            volatile_cache: false,
            ..Ram::new(size)
        }
    }

    fn completion(&self) -> Completion {
        self.due
            .lock()
            .unwrap()
            .next()
            .flatten()
            .map(DelayedCompletion::until)
    }

    fn check(&self, offset: u64, len: u64, beyond: i32) -> io::Result<Range<usize>> {
        let end = offset.checked_add(len).filter(|end| *end <= self.size);
        let end = end.ok_or_else(|| io::Error::from_raw_os_error(beyond))?;
        let broken = self.broken.lock().unwrap();
        if broken
            .as_ref()
            .is_some_and(|b| offset < b.end && b.start < end)
        {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(offset as usize..end as usize)
    }

    fn drop_range(&self, range: Range<usize>) {
        let state = &mut *self.state.lock().unwrap();
        let block = BLOCK as usize;
        let last = self.size.div_ceil(BLOCK) as usize;
        let whole_end = if range.end as u64 == self.size {
            last
        } else {
            range.end / block
        };
        for index in range.start.div_ceil(block)..whole_end {
            state.mapped[index] = false;
        }
        state.data[range].fill(0);
    }
}

impl BlockDevice for Ram {
    fn size(&self) -> u64 {
        self.size
    }
    fn logical_block(&self) -> u32 {
        512
    }
    fn physical_block(&self) -> u32 {
        BLOCK as u32
    }
    fn preferred_block(&self) -> u32 {
        BLOCK as u32
    }
    fn read_only(&self) -> bool {
        self.read_only
    }
    fn has_volatile_cache(&self) -> bool {
        self.volatile_cache
    }
    fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        let range = self.check(offset, buf.len() as u64, 22)?;
        buf.copy_from_slice(&self.state.lock().unwrap().data[range]);
        Ok(self.completion())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        let range = self.check(offset, data.len() as u64, 28)?;
        let state = &mut *self.state.lock().unwrap();
        let block = BLOCK as usize;
        state.mapped[range.start / block..range.end.div_ceil(block)].fill(true);
        state.data[range].copy_from_slice(data);
        Ok(self.completion())
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.drop_range(self.check(offset, len, 22)?);
        Ok(self.completion())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.drop_range(self.check(offset, len, 28)?);
        Ok(self.completion())
    }

    fn flush(&self, _of: FlushOf) -> io::Result<Box<dyn Flush>> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(RamFlush(self.gate.clone(), self.completion())))
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> io::Result<Vec<Extent>> {
        let range = self.check(offset, len, 22)?;
        let state = self.state.lock().unwrap();
        let (mut at, end) = (range.start as u64, range.end as u64);
        let mut extents: Vec<Extent> = Vec::new();
        while at < end {
            let mapped = state.mapped[(at / BLOCK) as usize];
            let next = ((at / BLOCK + 1) * BLOCK).min(end);
            let full = extents.len() == max;
            match extents.last_mut() {
                Some(last) if last.mapped == mapped => last.len += next - at,
                _ if full => break,
                _ => extents.push(Extent {
                    len: next - at,
                    mapped,
                }),
            }
            at = next;
        }
        Ok(extents)
    }
}

/// DelayQueue flushes back while closed.
#[derive(Default)]
pub(crate) struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    #[allow(dead_code, reason = "not every user holds flushes back")]
    pub(crate) fn set_closed(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }
}

struct RamFlush(Arc<Gate>, Completion);

impl Flush for RamFlush {
    fn wait(self: Box<Self>) -> io::Result<Completion> {
        let closed = self.0.closed.lock().unwrap();
        drop(self.0.changed.wait_while(closed, |closed| *closed).unwrap());
        Ok(self.1)
    }
}

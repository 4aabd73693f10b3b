//! The built-in load of `ftld demo`: a thread that sends requests to the device as a host would.
//!
//! It first writes the whole device once, in order, so that garbage collection begins at once; then
//! it keeps to a rate. Requests that fail do not end it: the device may serve later ones.

use clap::ValueEnum;
use ftld_device::device::{BlockDevice, Completion, FlushOf};
use ftld_kit::convert::{to_u64, to_usize};
use ftld_traces::workload::Requests;
use ftld_traces::{Op, Record, Workload};
use nand_model::SplitMix;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of a request, and of the unit of all addresses.
const PAGE: u64 = 4096;
/// Largest request.
const MOST: u64 = 64 << 10;
/// Requests are sent this often.
const TICK: Duration = Duration::from_millis(10);
/// Pause after a request that failed.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// Bounds of the rate, in requests per second.
pub(crate) const RATES: std::ops::RangeInclusive<u32> = 1..=100_000;

/// Where requests go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// Writes of 4 KiB, every address alike
    #[default]
    Uniform,
    /// Writes of 4 KiB, few addresses get most of them
    Zipf,
    /// Writes of 64 KiB, one behind the other
    Sequential,
    /// Files are made, changed and removed, with trims and FLUSHes
    Files,
    /// No requests
    None,
}

impl Pattern {
    /// Returns its name on the command line and on the page.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("no pattern is hidden");
        value.get_name().to_owned()
    }

    /// Returns the names of all.
    pub(crate) fn names() -> Vec<String> {
        Pattern::value_variants()
            .iter()
            .map(|pattern| pattern.name())
            .collect()
    }
}

/// A pattern and its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) pattern: Pattern,
    /// Requests per second.
    pub(crate) rate: u32,
}

impl Setting {
    /// Returns the setting of a query such as `pattern=zipf&rate=2000`, with this one's values
    /// where the query has none; `None` if it has a value that there is not.
    pub(crate) fn changed(self, query: &str) -> Option<Setting> {
        query
            .split('&')
            .try_fold(self, |setting, pair| match pair.split_once('=')? {
                ("pattern", name) => Some(Setting {
                    pattern: Pattern::from_str(name, false).ok()?,
                    ..setting
                }),
                ("rate", rate) => Some(Setting {
                    rate: rate.parse().ok().filter(|rate| RATES.contains(rate))?,
                    ..setting
                }),
                _ => None,
            })
    }
}

/// State that the thread shares with those who change it.
struct Shared {
    setting: Mutex<(Setting, bool)>,
    changed: Condvar,
}

/// A load; it ends when it is dropped.
pub struct Load {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Load {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host refuses a thread.
    pub(crate) fn start(setting: Setting, device: Arc<dyn BlockDevice>) -> io::Result<Load> {
        let shared = Arc::new(Shared {
            setting: Mutex::new((setting, false)),
            changed: Condvar::new(),
        });
        let own = shared.clone();
        let thread = std::thread::Builder::new()
            .name("ftld-load".into())
            .spawn(move || own.run(&*device))?;
        Ok(Load {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Returns what it does now.
    pub(crate) fn setting(&self) -> Setting {
        self.shared.setting.lock().0
    }

    /// Changes what it does.
    pub(crate) fn set(&self, setting: Setting) {
        self.shared.setting.lock().0 = setting;
        self.shared.changed.notify_all();
    }

    /// Ends it; a request in progress is completed.
    pub(crate) fn end(&self) {
        self.shared.setting.lock().1 = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // If it panicked, the requests have ended as well.
            drop(thread.join());
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn run(&self, device: &dyn BlockDevice) {
        let mut data = vec![0; to_usize(MOST)];
        let mut rng = SplitMix::new(1);
        self.fill(device, &mut data, &mut rng);
        let (mut pattern, mut stream) = (Pattern::None, Stream::Nothing);
        let (mut owed, mut last) = (0.0, Instant::now());
        while let Some(setting) = self.next(TICK) {
            let now = Instant::now();
            // What a slower device or a pause leaves undone is not made up for.
            let elapsed = (now - last).min(2 * TICK);
            last = now;
            if setting.pattern != pattern {
                pattern = setting.pattern;
                stream = Stream::of(pattern, device.size(), &mut rng);
            }
            owed += f64::from(setting.rate) * elapsed.as_secs_f64();
            let until = now + TICK;
            while owed >= 1.0 {
                owed -= 1.0;
                let Some(request) = stream.next(&mut rng) else {
                    owed = 0.0;
                    break;
                };
                if perform(device, &request, &mut data, &mut rng).is_err() {
                    self.next(AFTER_FAILURE);
                    break;
                }
                if Instant::now() > until {
                    // A slower device gets fewer requests.
                    owed = 0.0;
                }
            }
        }
    }

    /// Writes the whole device in order.
    fn fill(&self, device: &dyn BlockDevice, data: &mut [u8], rng: &mut SplitMix) {
        let mut offset = 0;
        while offset + PAGE <= device.size() && self.next(Duration::ZERO).is_some() {
            let length = MOST.min((device.size() - offset) / PAGE * PAGE);
            if perform(device, &Request::Write(offset, length), data, rng).is_err() {
                return;
            }
            offset += length;
        }
    }

    /// Waits, and returns what is to be done; `None` at the end.
    fn next(&self, wait: Duration) -> Option<Setting> {
        let mut setting = self.setting.lock();
        if !setting.1 && wait > Duration::ZERO {
            let _ = self.changed.wait_for(&mut setting, wait);
        }
        (!setting.1).then_some(setting.0)
    }
}

/// A request: first byte and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Read(u64, u64),
    Write(u64, u64),
    Trim(u64, u64),
    Flush,
}

/// Executes a request to its end.
fn perform(
    device: &dyn BlockDevice,
    request: &Request,
    data: &mut [u8],
    rng: &mut SplitMix,
) -> io::Result<()> {
    let done: Completion = match *request {
        Request::Read(offset, length) => device.read(offset, &mut data[..to_usize(length)])?,
        Request::Write(offset, length) => {
            let data = &mut data[..to_usize(length)];
            for page in data.chunks_mut(to_usize(PAGE)) {
                page[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
            }
            device.write(offset, data)?
        }
        Request::Trim(offset, length) => device.trim(offset, length)?,
        Request::Flush => device.flush(FlushOf::Everything)?.wait()?,
    };
    if let Some(done) = done {
        done.wait();
    }
    Ok(())
}

/// Requests of a pattern, without an end.
enum Stream {
    Nothing,
    /// A generator of `ftld workloads`, begun again at its end.
    Generated(Box<Workload>, u64, Box<Requests>),
    Files(Files),
}

impl Stream {
    /// Returns the stream of a pattern on a device of this size; nothing if it is too small.
    fn of(pattern: Pattern, size: u64, rng: &mut SplitMix) -> Stream {
        let size = size / MOST * MOST;
        let text = match pattern {
            Pattern::Uniform => "uniform",
            Pattern::Zipf => "zipf",
            Pattern::Sequential => "sequential:size=64KiB",
            Pattern::Files => return Files::on(size).map_or(Stream::Nothing, Stream::Files),
            Pattern::None => return Stream::Nothing,
        };
        let workload = Workload::parse(text).and_then(Result::ok);
        let begun = workload.and_then(|workload| {
            let requests = workload.begin(size, rng.next_u64()).ok()?;
            Some((workload, requests))
        });
        begun.map_or(Stream::Nothing, |(workload, requests)| {
            Stream::Generated(Box::new(workload), size, Box::new(requests))
        })
    }

    fn next(&mut self, rng: &mut SplitMix) -> Option<Request> {
        match self {
            Stream::Nothing => None,
            Stream::Files(files) => Some(files.next(rng)),
            Stream::Generated(workload, size, requests) => {
                let record = requests.next().or_else(|| {
                    **requests = workload.begin(*size, rng.next_u64()).ok()?;
                    requests.next()
                });
                record.map(|record| request_of(&record))
            }
        }
    }
}

fn request_of(record: &Record) -> Request {
    let (offset, length) = (record.offset_bytes, record.length_bytes.min(MOST));
    match record.op {
        Op::Read => Request::Read(offset, length),
        _ => Request::Write(offset, length),
    }
}

/// Room of a file.
const SLOT: u64 = 256 << 10;
/// A FLUSH comes after so many changes of files.
const FLUSH_EVERY: u64 = 32;

/// A small file system: files in slots of their own, and inodes in the first slot. Three slots of
/// four have a file.
struct Files {
    /// Bytes of the file in each slot; 0 without one.
    files: Vec<u64>,
    changes: u64,
    /// Requests of the change in progress, the next one last.
    waiting: Vec<Request>,
}

impl Files {
    fn on(size: u64) -> Option<Files> {
        let slots = to_usize(size / SLOT);
        (slots >= 2).then(|| Files {
            files: vec![0; slots],
            changes: 0,
            waiting: Vec::new(),
        })
    }

    fn next(&mut self, rng: &mut SplitMix) -> Request {
        loop {
            if let Some(request) = self.waiting.pop() {
                return request;
            }
            self.change(rng);
        }
    }

    /// Makes, changes, reads or removes a file.
    fn change(&mut self, rng: &mut SplitMix) {
        let slot = 1 + rng.below(to_u64(self.files.len()) - 1);
        let (begin, file) = (slot * SLOT, &mut self.files[to_usize(slot)]);
        self.changes += 1;
        match (*file, rng.below(12)) {
            (0, _) => {
                let pages = 1 + rng.below(SLOT / PAGE);
                *file = pages * PAGE;
                let mut offset = 0;
                while offset < *file {
                    let length = MOST.min(*file - offset);
                    self.waiting.push(Request::Write(begin + offset, length));
                    offset += length;
                }
                self.waiting.reverse();
            }
            (_, 0..4) => {
                *file = 0;
                self.waiting.push(Request::Trim(begin, SLOT));
            }
            (length, draw) => {
                let page = begin + rng.below(length / PAGE) * PAGE;
                self.waiting.push(match draw {
                    4..8 => Request::Write(page, PAGE),
                    _ => Request::Read(page, PAGE),
                });
            }
        }
        let inode = slot * 256 / PAGE * PAGE;
        self.waiting.insert(0, Request::Write(inode % SLOT, PAGE));
        if self.changes.is_multiple_of(FLUSH_EVERY) {
            self.waiting.insert(0, Request::Flush);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_every_pattern_are_whole_pages_on_the_device() {
        let mut rng = SplitMix::new(3);
        for size in [2 << 20, (3 << 20) + 512] {
            for &pattern in Pattern::value_variants() {
                let mut stream = Stream::of(pattern, size, &mut rng);
                let (mut trims, mut flushes) = (0, 0);
                for _ in 0..20_000 {
                    let (offset, length) = match stream.next(&mut rng) {
                        Some(Request::Read(offset, length) | Request::Write(offset, length)) => {
                            (offset, length)
                        }
                        Some(Request::Trim(offset, length)) => {
                            trims += 1;
                            (offset, length.min(MOST))
                        }
                        Some(Request::Flush) => {
                            flushes += 1;
                            continue;
                        }
                        None => break,
                    };
                    assert!(offset % PAGE == 0 && length % PAGE == 0, "{pattern:?}");
                    assert!(length > 0 && length <= MOST && offset + length <= size);
                }
                let has_files = pattern == Pattern::Files;
                assert_eq!((trims > 0, flushes > 0), (has_files, has_files));
                assert_eq!(stream.next(&mut rng).is_none(), pattern == Pattern::None);
            }
        }
    }

    #[test]
    fn a_query_changes_what_it_names_and_nonsense_changes_nothing() {
        let setting = Setting {
            pattern: Pattern::Zipf,
            rate: 10,
        };
        let changed = |query| setting.changed(query).map(|to| (to.pattern, to.rate));
        assert_eq!(changed("rate=7"), Some((Pattern::Zipf, 7)));
        assert_eq!(changed("pattern=none"), Some((Pattern::None, 10)));
        assert_eq!(changed("rate=9&pattern=files"), Some((Pattern::Files, 9)));
        for wrong in [
            "",
            "rate",
            "rate=0",
            "rate=100001",
            "rate=-1",
            "pattern=",
            "x=1",
        ] {
            assert_eq!(changed(wrong), None, "{wrong}");
        }
    }
}

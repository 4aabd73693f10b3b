//! The model `flash`: the recorded requests run through the recorded scheme on the recorded chip,
//! in memory. Power fails in one flash operation; the scheme mounts what the chip kept.
//!
//! Invariants: a run depends on the recording alone. Requests run one after the other, in the order
//! of their acknowledgements, so an operation has the same number in every run. Background work and
//! the write cache of the recorded device are left out.

use super::content::{Content, Contents, ZEROS};
use super::models::State;
use super::timeline::{Timeline, What};
use ftl_core::{DeferredRead, Ftl, FtlError, Lpn, Start};
use ftld_device::flash_device::FlashDevice;
use ftld_device::pages::{PageIo, extent_bytes, extent_end};
use ftld_device::sys;
use ftld_kit::convert::{index, narrow, to_u32, to_u64, to_usize};
use ftld_kit::failure::Failure;
use ftld_kit::size::show_size;
use ftld_traces::recording::Kind;
use nand_model::store::{Change, MemPage, MemStore};
use nand_model::{Chip, Cut, Nanos, SplitMix};
use parking_lot::RwLock;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Memory of a block and of a logical page in the tables of chip and scheme, at least.
const BLOCK_BYTES: u64 = 64;
const PAGE_BYTES: u64 = 8;

/// The recorded device without its content.
pub(super) struct Device {
    pub(super) flash: FlashDevice,
    known: Known,
}

/// Contents of programmed pages, unit by unit, by the number of the program. Its data does not
/// change.
#[derive(Default)]
struct Known(RwLock<Vec<Content>>);

/// Content of a page that no mount has read.
const UNKNOWN: Content = Content(u32::MAX);

impl Known {
    /// Finds the contents of a page; all of `found` is unknown before.
    ///
    /// # Errors
    /// The file of contents is full.
    fn contents_of(
        &self,
        page: MemPage<'_>,
        contents: &Contents,
        found: &mut [Content],
    ) -> Result<(), Failure> {
        if page.program >= MemStore::APART {
            return contents.ids_of(page.data, found);
        }
        let at = to_usize(page.program) * found.len();
        let at = at..at + found.len();
        if let Some(known) = self.0.read().get(at.clone()) {
            found.copy_from_slice(known);
        }
        if found.contains(&UNKNOWN) {
            contents.ids_of(page.data, found)?;
            let mut known = self.0.write();
            let len = known.len().max(at.end);
            known.resize(len, UNKNOWN);
            known[at].copy_from_slice(found);
        }
        Ok(())
    }
}

/// A device in memory that executes the recording.
pub(super) struct Run<'a> {
    device: Arc<Device>,
    timeline: &'a Timeline,
    ftl: Box<dyn Ftl>,
    scratch: Vec<u8>,
    now: Nanos,
}

/// Flash after a power cut, not mounted yet.
pub(super) struct Dead {
    pub(super) device: Arc<Device>,
    pub(super) store: MemStore,
}

/// Operations of one event, to be cut one after the other.
pub(super) struct Operations {
    changes: Vec<Change>,
    /// Flash after the first `done` of them, of which `ops` are programs and erases.
    store: MemStore,
    done: usize,
    ops: u32,
}

impl Device {
    /// Returns the device that a recording names.
    ///
    /// # Errors
    /// The recording names none, or one that this program does not know.
    pub(super) fn of(path: &Path, timeline: &Timeline) -> Result<Device, Failure> {
        let name = path.display();
        let flash = timeline.head.flash.as_ref().ok_or_else(|| {
            Failure::failed(format!(
                "{name}: names no flash; use --model cache or prefix"
            ))
        })?;
        let device = Device {
            flash: FlashDevice::recorded(flash, &name.to_string())?,
            known: Known::default(),
        };
        let (page, unit) = (to_u64(device.page()), u64::from(timeline.unit_bytes));
        let room = u64::from(flash.logical_pages) * page;
        if !page.is_multiple_of(unit) || timeline.head.size > room {
            return Err(Failure::failed(format!(
                "{name}: {} bytes in units of {unit} do not fit {} flash pages of {page}; the \
                 recording is damaged, or of an older ftld: use --model cache or prefix",
                timeline.head.size, flash.logical_pages
            )));
        }
        device.has_memory(&name.to_string())?;
        Ok(device)
    }

    /// Refuses a chip whose tables alone do not fit the memory.
    fn has_memory(&self, recording: &str) -> Result<(), Failure> {
        let blocks = u64::from(self.flash.profile.geometry.blocks) * BLOCK_BYTES;
        let wanted = blocks + u64::from(self.flash.config.logical_pages) * PAGE_BYTES;
        match sys::memory_available() {
            Some(free) if wanted > free => Err(Failure::failed(format!(
                "{recording}: its flash needs {} of memory, {} is available; use --model cache or \
                 prefix",
                show_size(wanted),
                show_size(free)
            ))),
            _ => Ok(()),
        }
    }

    fn page(&self) -> usize {
        index(self.flash.profile.geometry.page_bytes)
    }
}

fn of_run(error: FtlError) -> Failure {
    Failure::failed(format!("running the recording in memory: {error}"))
}

impl<'a> Run<'a> {
    /// Formats the device and writes the content that it had before the recording.
    ///
    /// # Errors
    /// The device cannot be formatted, or does not take the content.
    pub(super) fn start(device: Arc<Device>, timeline: &'a Timeline) -> Result<Run<'a>, Failure> {
        let store = MemStore::new(device.flash.profile.geometry);
        let ftl = device.flash.format_and_mount(store).map_err(of_run)?;
        let mut run = Run {
            scratch: vec![0; device.page()],
            device,
            timeline,
            ftl,
            now: 0,
        };
        let base = timeline.base.clone();
        for (unit, content) in timeline.written.iter().zip(base.iter()) {
            if *content != ZEROS {
                run.write_unit(*unit, *content)?;
            }
        }
        run.now = run.ftl.flush(run.now).map_err(of_run)?;
        Ok(run)
    }

    fn memory(&mut self) -> &mut MemStore {
        let store = self.ftl.chip_mut().store_mut();
        store
            .downcast_mut()
            .expect("the store that it was made with")
    }

    fn pages(&mut self) -> PageIo<'_> {
        PageIo {
            ftl: &mut *self.ftl,
            scratch: &mut self.scratch,
        }
    }

    fn write_unit(&mut self, unit: u32, content: Content) -> Result<(), Failure> {
        let bytes = index(self.timeline.unit_bytes);
        self.write(u64::from(unit) * to_u64(bytes), &[content])
    }

    /// Writes adjacent units as one request.
    fn write(&mut self, mut offset: u64, contents: &[Content]) -> Result<(), Failure> {
        let unit = index(self.timeline.unit_bytes);
        let mut data = vec![0; contents.len() * unit];
        for (content, part) in contents.iter().zip(data.chunks_mut(unit)) {
            let read = self.timeline.contents.read(*content, part);
            read.map_err(|error| Failure::io("contents", &error))?;
        }
        let slice = extent_bytes(&self.device.flash.profile.geometry);
        let (mut rest, end) = (&data[..], offset + to_u64(data.len()));
        let at = self.now;
        while offset < end {
            let next = extent_end(offset, end, slice);
            let (part, later) = rest.split_at(to_usize(next - offset));
            let done = self.pages().write(at, offset, part).map_err(of_run)?;
            self.now = self.now.max(done);
            (rest, offset) = (later, next);
        }
        Ok(())
    }

    /// Executes an event.
    ///
    /// # Errors
    /// The scheme refuses it: the recorded device took it.
    pub(super) fn step(&mut self, event: usize) -> Result<(), Failure> {
        let event = &self.timeline.events[event];
        match &event.what {
            What::Mark(_) | What::Change { certain: false, .. } => Ok(()),
            What::Flush { .. } => {
                self.now = self.ftl.flush(self.now).map_err(of_run)?;
                Ok(())
            }
            What::Change {
                kind: Kind::Write,
                parts,
                ..
            } => {
                let parts = &self.timeline.parts[parts.clone()];
                let Some((first, _)) = parts.first() else {
                    return Ok(());
                };
                let contents: Vec<_> = parts.iter().map(|(_, content)| *content).collect();
                let first = self.timeline.written[index(*first)];
                let offset = u64::from(first) * u64::from(self.timeline.unit_bytes);
                self.write(offset, &contents)
            }
            What::Change { .. } => {
                let (mut offset, end) = (event.offset, event.offset + event.length);
                let slice = extent_bytes(&self.device.flash.profile.geometry) * 128;
                let at = self.now;
                while offset < end {
                    let next = extent_end(offset, end, slice);
                    let done = self.pages().zero(at, offset, next - offset);
                    self.now = self.now.max(done.map_err(of_run)?);
                    offset = next;
                }
                Ok(())
            }
        }
    }

    /// Executes an event and keeps its flash operations.
    ///
    /// # Errors
    /// As [`Run::step`].
    pub(super) fn step_recorded(&mut self, event: usize) -> Result<Operations, Failure> {
        let store = self.memory().clone();
        self.memory().record();
        let stepped = self.step(event);
        let changes = self.memory().take_record();
        stepped?;
        Ok(Operations {
            changes,
            store,
            done: 0,
            ops: 0,
        })
    }

    /// Cuts power in one operation, not before that of the last call; the outcome is an index in
    /// the chip's menu for it.
    pub(super) fn cut(&self, operations: &mut Operations, op: u32, outcome: u32) -> Option<Dead> {
        assert!(operations.ops <= op, "cuts in ascending operations");
        let Operations {
            changes,
            store,
            done,
            ops,
        } = operations;
        for change in &changes[*done..] {
            if change.is_operation() {
                if *ops == op {
                    let cut = *self.menu(change, op).get(index(outcome))?;
                    let chip = Chip::open(self.device.flash.profile, store.clone())
                        .expect("memory does not fail");
                    let mut store = chip.cut_during(change, cut);
                    // What its mount programs is not seen again.
                    store.count_apart();
                    return Some(Dead {
                        device: self.device.clone(),
                        store,
                    });
                }
                *ops += 1;
            }
            store.replay(change).expect("memory does not fail");
            *done += 1;
        }
        None
    }

    /// Draws at most `most` cuts in these operations: operation and outcome.
    pub(super) fn draw(&self, operations: &Operations, most: u32, seed: u64) -> Vec<(u32, u32)> {
        let changes = operations.changes.iter();
        let changes = changes.filter(|change| change.is_operation());
        let mut all: Vec<(u32, u32)> = Vec::new();
        for (op, change) in (0..).zip(changes) {
            let outcomes = narrow(to_u64(self.menu(change, op).len()));
            all.extend((0..outcomes).map(|outcome| (op, outcome)));
        }
        let mut rng = SplitMix::new(seed);
        while all.len() > index(most) {
            let at = rng.below(to_u64(all.len()));
            all.swap_remove(to_usize(at));
        }
        all.sort_unstable();
        all
    }

    /// The different outcomes of a cut in this operation.
    fn menu(&self, change: &Change, op: u32) -> Vec<Cut> {
        Cut::menu_of_operation(&self.device.flash.profile, change, u64::from(op))
    }
}

impl Dead {
    /// Mounts the flash and reads everything. The state shares what it can with a `near` one.
    ///
    /// # Errors
    /// The scheme does not mount, a page cannot be read, or a unit has data that no request wrote:
    /// the text names it.
    pub(super) fn mount(self, timeline: &Timeline, near: Option<&State>) -> Result<State, Failure> {
        let foreign = |at| Failure::failed(format!("unit {at} has data that no request wrote"));
        let device = &self.device;
        let chip = Chip::over(device.flash.profile, self.store).map_err(Failure::failed)?;
        let FlashDevice { scheme, config, .. } = &device.flash;
        let ftl = scheme.start(chip, config, Start::Mount);
        let unit = u64::from(timeline.unit_bytes);
        let per_page = narrow(to_u64(device.page()) / unit);
        let units = narrow(timeline.head.size / unit);
        let mut mounted = Mounted {
            known: &device.known,
            ftl: ftl.map_err(Failure::failed)?,
            contents: &timeline.contents,
            page: device.page(),
            bytes: vec![0; RUN_PAGES * device.page()],
            found: vec![ZEROS; RUN_PAGES * index(per_page)],
            deferred: DeferredRead::default(),
            now: 0,
        };
        let mut durable = vec![ZEROS; timeline.written.len()];
        let mut slots = (0..).zip(timeline.written.iter()).peekable();
        let (mut next, pages) = (0, units.div_ceil(per_page));
        while next < pages {
            let run = mounted.run(next..pages)?;
            next = run.end;
            let from = run.start * per_page;
            for (at, &content) in (from..units).zip(mounted.read(run)?) {
                while slots.next_if(|(_, unit)| **unit < at).is_some() {}
                match slots.next_if(|(_, unit)| **unit == at) {
                    Some((slot, _)) => durable[slot] = content,
                    None if content == ZEROS => {}
                    None => return Err(foreign(at)),
                }
            }
        }
        Ok(State::found(durable, near, timeline))
    }
}

/// Largest number of pages that are read at once. A scheme finds them faster together.
const RUN_PAGES: usize = 32;

/// A mounted device that is read from its first to its last page.
struct Mounted<'a> {
    ftl: Box<dyn Ftl>,
    known: &'a Known,
    contents: &'a Contents,
    /// Bytes of a page.
    page: usize,
    /// Pages of the last run that were read, the others are undefined.
    bytes: Vec<u8>,
    /// Contents of the units of the last run.
    found: Vec<Content>,
    deferred: DeferredRead,
    now: Nanos,
}

impl Mounted<'_> {
    /// Returns the first mapped pages of these that can be read at once.
    fn run(&mut self, of: Range<u32>) -> Result<Range<u32>, Failure> {
        let (mut run, most) = (of.start..of.start, to_u32(RUN_PAGES));
        while run.end < of.end && to_u32(run.len()) < most {
            match self.ftl.is_mapped(Lpn::new(run.end)) {
                Ok(true) => run.end += 1,
                Ok(false) if run.is_empty() => run = run.end + 1..run.end + 1,
                Ok(false) => break,
                Err(error) => {
                    // A page before it that cannot be read is named first.
                    self.read(run)?;
                    return Err(Failure::failed(error));
                }
            }
        }
        Ok(run)
    }

    /// Finds the contents of mapped pages. What the store's page is known to have is not read.
    fn read(&mut self, run: Range<u32>) -> Result<&[Content], Failure> {
        let (first, count) = (Lpn::new(run.start), run.len());
        if count == 0 {
            return Ok(&[]);
        }
        let failed = |lpn: u32, error| Failure::failed(format!("logical page {lpn}: {error}"));
        let bytes = &mut self.bytes[..count * self.page];
        self.deferred.begin(first, 0);
        let read = self
            .ftl
            .read_deferred(self.now, first, bytes, &mut self.deferred);
        let units = self.page / self.contents.unit_bytes();
        let found = &mut self.found[..count * units];
        found.fill(UNKNOWN);
        let store: Option<&MemStore> = self.ftl.chip().store().downcast_ref();
        let store = store.expect("the store that it was made with");
        let mut again = Vec::new();
        for run in self.deferred.runs() {
            for i in 0..run.place().count() {
                let lpn = run.first().raw() + i;
                let found = &mut found[index(lpn - first.raw()) * units..][..units];
                match store
                    .page(run.place(), i)
                    .filter(|page| run.is_ours(i, page.oob))
                {
                    Some(page) => self.known.contents_of(page, self.contents, found)?,
                    None => again.push(lpn),
                }
            }
        }
        for lpn in again {
            let page = &mut bytes[index(lpn - first.raw()) * self.page..][..self.page];
            let read = self.ftl.read(self.now, Lpn::new(lpn), page);
            self.now = read.map_err(|error| failed(lpn, error))?;
        }
        self.now = read.map_err(|error| match error {
            FtlError::MediaLost(lpn) => failed(lpn, error),
            error => failed(first.raw(), error),
        })?;
        for (found, bytes) in found.chunks_mut(units).zip(bytes.chunks(self.page)) {
            if found[0] == UNKNOWN {
                self.contents.ids_of(bytes, found)?;
            }
        }
        Ok(found)
    }
}

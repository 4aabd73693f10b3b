//! A recording as changes of units, in the order in which requests were acknowledged.
//!
//! A unit is the device's unit of atomicity: a power cut leaves each unit with one of its contents.
//! A request that covers a part of a unit gives it a new content as a whole, as the device does.
//!
//! Memory grows with what the recording contains, not with the device: contents are kept by *slot*,
//! the number of a unit among those that ever had data. All other units are zeros at every moment.

use super::args::{CrashesArgs, Loss, Model};
use super::content::{Content, Contents, ZEROS};
use super::cursor::Point;
use super::group;
use super::losses::Losses;
use ftld_kit::convert::{index, narrow, to_u32, to_usize};
use ftld_kit::failure::Failure;
use ftld_kit::{interrupt, profile_file};
use ftld_traces::recording::{Entry, Head, Kind, Reader};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Smallest and largest unit of atomicity, in bytes.
pub(super) const UNIT_BYTES: std::ops::RangeInclusive<u32> = 512..=64 << 10;

/// One event: a change, a FLUSH or a mark.
pub(super) struct Event {
    /// Number of its entry in the recording, from 1; in a group, its own number.
    pub(super) number: u64,
    pub(super) what: What,
    /// Order of its begin and of its acknowledgement among all moments.
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Index in [`Timeline::devices`].
    pub(super) device: usize,
    /// First byte on the device and bytes, as requested.
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Effect of an event.
pub(super) enum What {
    /// Units get new contents.
    Change {
        kind: Kind,
        /// Index range in [`Timeline::parts`].
        parts: Range<usize>,
        /// Slots whose units become zeros as a whole.
        zeros: Range<u32>,
        /// False for a failed request: it may have happened, in part.
        certain: bool,
    },
    /// Everything acknowledged before its begin is durable; with a range, only these slots.
    Flush {
        covers: Option<Range<u32>>,
        /// The durable half of a request with FUA.
        fua: bool,
    },
    /// Index in [`Timeline::marks`].
    Mark(u32),
}

/// A recorded device.
pub(super) struct Device {
    /// Size in bytes.
    pub(super) size: u64,
    /// Its first unit: the units of the devices of a group have different numbers.
    pub(super) first: u32,
    /// Slots of its units.
    pub(super) slots: Range<u32>,
    /// Bytes of initial content that could not be read when the recording began.
    pub(super) unreadable: Vec<Range<u64>>,
}

impl Device {
    /// Returns where a unit begins on it, in bytes.
    pub(super) fn offset(&self, unit: u32, unit_bytes: u32) -> u64 {
        u64::from(unit - self.first) * u64::from(unit_bytes)
    }
}

/// A recording in memory, without its data, or a group of them.
pub(super) struct Timeline {
    /// Head of the first recording.
    pub(super) head: Head,
    pub(super) devices: Vec<Device>,
    pub(super) unit_bytes: u32,
    /// Units that ever had data, in order: the unit of each slot.
    pub(super) written: Arc<Vec<u32>>,
    /// Contents before the first event, by slot.
    pub(super) base: Arc<Vec<Content>>,
    pub(super) events: Vec<Event>,
    /// Events at which all devices were recorded.
    pub(super) whole: Range<usize>,
    /// Slots that changes cover in part or with data.
    pub(super) parts: Vec<(u32, Content)>,
    pub(super) marks: Vec<String>,
    /// For each event the smallest begin of it and all later ones.
    pub(super) earliest: Vec<u64>,
    pub(super) contents: Arc<Contents>,
    /// It is what a check did on a state, not a recording.
    pub(super) is_recovery: bool,
    pub(super) was_cut_off: bool,
    /// What a cut leaves beyond whole contents.
    pub(super) losses: Losses,
}

impl Timeline {
    /// Reads the recording of an exploration.
    ///
    /// # Errors
    /// As [`Timeline::read`], or the recording does not bear a loss that was asked for.
    pub(super) fn of(args: &CrashesArgs, scratch: &Path) -> Result<Timeline, Failure> {
        if !args.loss.is_empty() && args.model != Model::Cache {
            return Err(Failure::usage(
                "--loss: only the model cache has such losses; leave --model out",
            ));
        }
        let mut timeline = match args.others.is_empty() {
            true => Timeline::read(&args.recording, args.cut_off, scratch)?,
            false => group::read(args, scratch)?,
        };
        if args.loss.contains(&Loss::Shorn) && timeline.unit_bytes <= timeline.head.logical_block {
            return Err(Failure::usage(format!(
                "--loss shorn: the device writes its blocks of {} bytes as a whole; record one with \
                 a larger unit",
                timeline.unit_bytes
            )));
        }
        let flash = timeline.head.flash.as_ref();
        let profile = flash.and_then(|flash| profile_file::from_toml(&flash.profile).ok());
        let channels = profile.map(|profile| profile.geometry.channels);
        timeline.losses = Losses::new(&args.loss, channels);
        Ok(timeline)
    }

    /// Adds the damaged contents to a point.
    ///
    /// # Errors
    /// The scratch folder is full.
    pub(super) fn damaged(&self, mut point: Point) -> Result<Point, Failure> {
        let damaged = self.losses.damage(&mut point, &self.contents);
        damaged.map_err(|error| Failure::io("contents in the scratch folder", &error))?;
        Ok(point)
    }

    /// Reads a recording; contents go to a file in `scratch`.
    ///
    /// # Errors
    /// The recording cannot be read, has no data, or the scratch folder is full.
    pub(super) fn read(path: &Path, cut_off: bool, scratch: &Path) -> Result<Timeline, Failure> {
        let mut reader = open(path, cut_off)?;
        let head = reader.head().clone();
        let name = path.display().to_string();
        let entries = entries(&mut reader);
        let mut timeline = Timeline::of_entries(&name, head, entries, scratch)?;
        timeline.was_cut_off = reader.was_cut_off();
        Ok(timeline)
    }

    /// Takes the entries of a recording called `name`; contents go to a file in `scratch`.
    ///
    /// # Errors
    /// An entry is an error, there is none, the head is damaged, or the scratch folder is full.
    pub(super) fn of_entries(
        name: &str,
        head: Head,
        entries: impl Iterator<Item = Result<Entry, Failure>>,
        scratch: &Path,
    ) -> Result<Timeline, Failure> {
        check_head(name, &head)?;
        let contents = new_contents(scratch, head.physical_block)?;
        Timeline::build(name, head, entries, contents, BTreeMap::new())
    }

    /// Takes the requests of a check on a state: `base` has the contents of the units that they
    /// touch.
    ///
    /// # Errors
    /// There is none, or the scratch folder is full.
    pub(super) fn of_recovery(
        of: &Timeline,
        base: BTreeMap<u32, Content>,
        entries: Vec<Entry>,
    ) -> Result<Timeline, Failure> {
        let contents = Contents::of_recovery(&of.contents)
            .map_err(|error| Failure::io("contents in the scratch folder", &error))?;
        let entries = entries.into_iter().map(Ok);
        let (head, name) = (of.head.clone(), "the recovery");
        let timeline = Timeline::build(name, head, entries, contents, base)?;
        Ok(Timeline {
            is_recovery: true,
            losses: of.losses.clone(),
            ..timeline
        })
    }

    /// Takes the entries of one device. `base` are contents before the first one.
    fn build(
        name: &str,
        head: Head,
        entries: impl Iterator<Item = Result<Entry, Failure>>,
        contents: Contents,
        base: BTreeMap<u32, Content>,
    ) -> Result<Timeline, Failure> {
        let mut built = Built::of_entries(&head, entries, &contents, base)?;
        let events = std::mem::take(&mut built.events);
        Timeline::join(head, vec![(built, 0)], events, contents).ok_or_else(|| no_event(name))
    }

    /// Puts what was built of each recording, with the first unit of its device, and the events of
    /// all into a timeline; `None` without any event.
    pub(super) fn join(
        head: Head,
        built: Vec<(Built, u32)>,
        mut events: Vec<Event>,
        contents: Contents,
    ) -> Option<Timeline> {
        if events.is_empty() {
            return None;
        }
        let unit_bytes = head.physical_block;
        let mut base = BTreeMap::new();
        let (mut parts, mut marks): (Vec<(u32, Content)>, Vec<_>) = (Vec::new(), Vec::new());
        let (mut devices, mut offsets) = (Vec::new(), Vec::new());
        for (of, first) in built {
            offsets.push((parts.len(), to_u32(marks.len())));
            devices.push(Device {
                size: of.size,
                first,
                slots: 0..0,
                unreadable: of.unreadable,
            });
            let moved = |(unit, content): (u32, Content)| (unit + first, content);
            base.extend(of.base.into_iter().map(moved));
            parts.extend(of.parts.into_iter().map(moved));
            marks.extend(of.marks);
        }
        let units = base.keys().copied();
        let mut written: Vec<u32> = units.chain(parts.iter().map(|(unit, _)| *unit)).collect();
        written.sort_unstable();
        written.dedup();
        let slot = |unit: u32| to_u32(written.partition_point(|at| *at < unit));
        for (unit, _) in &mut parts {
            *unit = slot(*unit);
        }
        for device in &mut devices {
            let units = narrow(device.size / u64::from(unit_bytes));
            device.slots = slot(device.first)..slot(device.first + units);
        }
        for event in &mut events {
            let device = &devices[event.device];
            let (parts_before, marks_before) = offsets[event.device];
            let slots = |units: &Range<u32>| {
                slot(units.start + device.first)..slot(units.end + device.first)
            };
            match &mut event.what {
                What::Change { parts, zeros, .. } => {
                    *parts = parts.start + parts_before..parts.end + parts_before;
                    *zeros = slots(zeros);
                }
                What::Flush { covers, .. } => {
                    let all = (devices.len() > 1).then(|| device.slots.clone());
                    *covers = covers.as_ref().map(slots).or(all);
                }
                What::Mark(mark) => *mark += marks_before,
            }
        }
        let content = |unit| base.get(unit).copied().unwrap_or(ZEROS);
        let base = written.iter().map(content).collect();
        let mut earliest: Vec<_> = events.iter().map(|event| event.begin).collect();
        for at in (1..earliest.len()).rev() {
            earliest[at - 1] = earliest[at - 1].min(earliest[at]);
        }
        Some(Timeline {
            head,
            devices,
            unit_bytes,
            written: Arc::new(written),
            base: Arc::new(base),
            whole: 0..events.len(),
            events,
            parts,
            marks,
            earliest,
            contents: Arc::new(contents),
            is_recovery: false,
            was_cut_off: false,
            losses: Losses::default(),
        })
    }

    /// Returns the device that has a unit.
    pub(super) fn device_of(&self, unit: u32) -> usize {
        self.devices.partition_point(|device| device.first <= unit) - 1
    }

    /// Returns in words which device this is; nothing for the only one.
    pub(super) fn of_device(&self, device: usize) -> String {
        match self.devices.len() {
            1 => String::new(),
            _ => format!(" of device {}", device + 1),
        }
    }

    /// Returns the slots of a change with their new contents.
    pub(super) fn changed(&self, what: &What) -> impl Iterator<Item = (u32, Content)> {
        let (parts, zeros) = match what {
            What::Change { parts, zeros, .. } => (parts.clone(), zeros.clone()),
            _ => (0..0, 0..0),
        };
        let zeros = zeros.map(|slot| (slot, ZEROS));
        self.parts[parts].iter().copied().chain(zeros)
    }

    /// Counts the events of each kind: changes, FLUSHes, marks.
    pub(super) fn counts(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for event in &self.events {
            counts[match event.what {
                What::Change { .. } => 0,
                What::Flush { .. } => 1,
                What::Mark(_) => 2,
            }] += 1;
        }
        counts
    }
}

/// Opens a recording that has the data of its writes.
///
/// # Errors
/// It cannot be read, or has no data.
pub(super) fn open(path: &Path, cut_off: bool) -> Result<Reader, Failure> {
    let reader = Reader::open(path, cut_off).map_err(Failure::failed)?;
    match reader.head().has_data {
        true => Ok(reader),
        false => Err(Failure::failed(format!(
            "{}: recorded without data; record again without `--record-data off`",
            path.display()
        ))),
    }
}

/// Returns the entries of a recording, until the user interrupts.
pub(super) fn entries(reader: &mut Reader) -> impl Iterator<Item = Result<Entry, Failure>> {
    reader.map(|entry| match interrupt::came() {
        true => Err(Failure::failed(
            "interrupted while the recording was read; nothing is explored",
        )),
        false => entry.map_err(Failure::failed),
    })
}

/// Refuses the head of a device that cannot be.
pub(super) fn check_head(name: &str, head: &Head) -> Result<(), Failure> {
    let unit = head.physical_block;
    let is_unit = UNIT_BYTES.contains(&unit) && unit.is_power_of_two();
    if !is_unit || !head.size.is_multiple_of(u64::from(unit)) {
        return Err(Failure::failed(format!(
            "{name}: a device of {} bytes with units of {unit}; the recording is damaged",
            head.size
        )));
    }
    if u32::try_from(head.size / u64::from(unit)).is_err() {
        return Err(Failure::failed(format!(
            "{name}: the device is too large: {} bytes",
            head.size
        )));
    }
    Ok(())
}

/// Creates the file of the contents.
pub(super) fn new_contents(scratch: &Path, unit: u32) -> Result<Contents, Failure> {
    Contents::new(scratch, unit).map_err(|error| Failure::io(scratch.display(), &error))
}

/// Says that a recording has nothing to explore.
pub(super) fn no_event(name: &str) -> Failure {
    Failure::failed(format!(
        "{name}: no write, trim, FLUSH or mark in it; nothing can be lost"
    ))
}

/// What the entries of a recording are, by units of its device.
pub(super) struct Built {
    pub(super) size: u64,
    base: BTreeMap<u32, Content>,
    unreadable: Vec<Range<u64>>,
    pub(super) events: Vec<Event>,
    /// Begin and end of each event, in nanoseconds since the recording began.
    pub(super) times: Vec<[u64; 2]>,
    /// When its last entry ended, in nanoseconds since the recording began.
    pub(super) last_ns: u64,
    pub(super) parts: Vec<(u32, Content)>,
    pub(super) marks: Vec<String>,
}

impl Built {
    /// Takes the entries of a recording. `now` are contents before the first one.
    ///
    /// # Errors
    /// An entry is an error, or the scratch folder is full.
    pub(super) fn of_entries(
        head: &Head,
        entries: impl Iterator<Item = Result<Entry, Failure>>,
        contents: &Contents,
        now: BTreeMap<u32, Content>,
    ) -> Result<Built, Failure> {
        let mut builder = Builder {
            unit: u64::from(head.physical_block),
            size: head.size,
            now,
            base: None,
            unreadable: Vec::new(),
            events: Vec::new(),
            times: Vec::new(),
            last_ns: 0,
            parts: Vec::new(),
            marks: Vec::new(),
            contents,
            buffer: vec![0; index(head.physical_block)],
        };
        for (number, entry) in (1..).zip(entries) {
            let full = |error| Failure::io("contents in the scratch folder", &error);
            builder.add(number, &entry?).map_err(full)?;
        }
        Ok(Built {
            size: head.size,
            base: builder.base.unwrap_or(builder.now),
            unreadable: builder.unreadable,
            events: builder.events,
            times: builder.times,
            last_ns: builder.last_ns,
            parts: builder.parts,
            marks: builder.marks,
        })
    }
}

struct Builder<'a> {
    unit: u64,
    size: u64,
    /// Newest content of each unit that has had data.
    now: BTreeMap<u32, Content>,
    base: Option<BTreeMap<u32, Content>>,
    unreadable: Vec<Range<u64>>,
    events: Vec<Event>,
    times: Vec<[u64; 2]>,
    last_ns: u64,
    /// Parts, and the ranges of the events, by unit until all are known.
    parts: Vec<(u32, Content)>,
    marks: Vec<String>,
    contents: &'a Contents,
    buffer: Vec<u8>,
}

impl Builder<'_> {
    fn add(&mut self, number: u64, entry: &Entry) -> std::io::Result<()> {
        self.last_ns = entry.end.ns;
        if entry.kind == Kind::Read {
            return Ok(());
        }
        let parts = self.parts.len();
        let range = self.within(entry);
        if entry.kind == Kind::Base {
            if entry.errno == 0 {
                self.write(&range, &entry.data, true)?;
                self.parts.truncate(parts);
            } else if !range.is_empty() {
                self.unreadable.push(range);
            }
            return Ok(());
        }
        if self.base.is_none() {
            self.base = Some(self.now.clone());
        }
        let what = match entry.kind {
            Kind::Write | Kind::Trim | Kind::WriteZeroes => {
                let certain = entry.errno == 0;
                let zeros = match entry.kind {
                    Kind::Write => self.write(&range, &entry.data, certain).map(|()| 0..0)?,
                    _ => self.zero(&range, certain)?,
                };
                What::Change {
                    kind: entry.kind,
                    parts: parts..self.parts.len(),
                    zeros,
                    certain,
                }
            }
            Kind::Flush if entry.errno != 0 => return Ok(()),
            Kind::Flush => What::Flush {
                covers: entry.fua.then(|| self.touched(&range)),
                fua: entry.fua,
            },
            Kind::Mark => {
                let text = String::from_utf8_lossy(&entry.data);
                // No environment variable has a NUL.
                self.marks.push(text.replace('\0', "\u{fffd}"));
                What::Mark(to_u32(self.marks.len() - 1))
            }
            Kind::Read | Kind::Base => unreachable!("handled above"),
        };
        self.times.push([entry.begin.ns, entry.end.ns]);
        self.events.push(Event {
            number,
            what,
            begin: entry.begin.seq,
            end: entry.end.seq,
            device: 0,
            offset: entry.offset,
            length: entry.length,
        });
        Ok(())
    }

    /// The bytes of the device that an entry covers: a failed one may reach beyond its end.
    fn within(&self, entry: &Entry) -> Range<u64> {
        let end = entry.offset.saturating_add(entry.length);
        entry.offset.min(self.size)..end.min(self.size)
    }

    /// The units that a byte range touches.
    fn touched(&self, range: &Range<u64>) -> Range<u32> {
        match range.is_empty() {
            true => 0..0,
            false => narrow(range.start / self.unit)..narrow(range.end.div_ceil(self.unit)),
        }
    }

    /// Appends the new contents of a write to `parts`.
    fn write(&mut self, range: &Range<u64>, data: &[u8], certain: bool) -> std::io::Result<()> {
        for number in self.touched(range) {
            let start = u64::from(number) * self.unit;
            let (from, to) = (range.start.max(start), range.end.min(start + self.unit));
            let data = &data[to_usize(from - range.start)..to_usize(to - range.start)];
            self.part(number, to_usize(from - start), certain, |part| {
                part[..data.len()].copy_from_slice(data);
            })?;
        }
        Ok(())
    }

    /// Appends the new contents of units that become zeros in part to `parts`; returns the units
    /// that become zeros as a whole.
    fn zero(&mut self, range: &Range<u64>, certain: bool) -> std::io::Result<Range<u32>> {
        let touched = self.touched(range);
        let whole = narrow(range.start.div_ceil(self.unit))..narrow(range.end / self.unit);
        let whole = if whole.is_empty() { 0..0 } else { whole };
        // At most the first and the last one.
        let ends = [touched.start, touched.end.saturating_sub(1)];
        let ends = &ends[..touched.len().min(2)];
        for &number in ends.iter().filter(|number| !whole.contains(*number)) {
            let start = u64::from(number) * self.unit;
            let from = to_usize(range.start.max(start) - start);
            let to = to_usize(range.end.min(start + self.unit) - start);
            self.part(number, from, certain, |part| part[..to - from].fill(0))?;
        }
        if certain {
            let zeros: Vec<u32> = self
                .now
                .range(whole.clone())
                .map(|(unit, _)| *unit)
                .collect();
            for unit in zeros {
                self.now.remove(&unit);
            }
        }
        Ok(whole)
    }

    /// Appends the content of a unit with a change from one of its bytes on.
    fn part(
        &mut self,
        number: u32,
        from: usize,
        certain: bool,
        change: impl FnOnce(&mut [u8]),
    ) -> std::io::Result<()> {
        let old = self.now.get(&number).copied().unwrap_or(ZEROS);
        self.contents.read(old, &mut self.buffer)?;
        change(&mut self.buffer[from..]);
        let content = self.contents.id_of(&self.buffer)?;
        if certain {
            self.now.insert(number, content);
        }
        self.parts.push((number, content));
        Ok(())
    }
}

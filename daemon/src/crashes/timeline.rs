//! A recording as changes of units, in the order in which requests were acknowledged.
//!
//! A unit is the device's unit of atomicity: a power cut leaves each unit with one of its contents.
//! A request that covers a part of a unit gives it a new content as a whole, as the device does.

use super::content::{Content, Contents, ZEROS};
use crate::convert::{index, narrow, to_u64, to_usize};
use crate::failure::Failure;
use ftld_traces::recording::{Entry, Head, Kind, Reader};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// One event: a change, a FLUSH or a mark.
pub(super) struct Event {
    /// Number of its entry in the recording, from 1.
    pub(super) number: u64,
    pub(super) what: What,
    /// Order of its begin and of its acknowledgement among all moments.
    pub(super) begin: u64,
    pub(super) end: u64,
    /// First byte and bytes, as requested.
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// What an event does.
pub(super) enum What {
    /// Units get new contents.
    Change {
        kind: Kind,
        /// Index range in [`Timeline::parts`].
        parts: Range<usize>,
        /// Units that become zeros as a whole.
        zeros: Range<u32>,
        /// False for a failed request: it may have happened, in part.
        certain: bool,
    },
    /// Everything acknowledged before its begin is durable; with a range, only these units.
    Flush { covers: Option<Range<u32>> },
    /// Index in [`Timeline::marks`].
    Mark(u32),
}

/// A recording in memory, without its data.
pub(super) struct Timeline {
    pub(super) head: Head,
    pub(super) unit_bytes: u32,
    pub(super) units: u32,
    /// Contents before the first event.
    pub(super) base: Arc<Vec<Content>>,
    pub(super) events: Vec<Event>,
    /// Units that changes cover in part or with data.
    pub(super) parts: Vec<(u32, Content)>,
    pub(super) marks: Vec<String>,
    /// For each event the smallest begin of it and all later ones.
    pub(super) earliest: Vec<u64>,
    pub(super) contents: Contents,
    pub(super) was_cut_off: bool,
}

impl Timeline {
    /// Reads a recording; contents go to a file in `scratch`.
    ///
    /// # Errors
    /// The recording cannot be read, has no data, or the scratch folder is full.
    pub(super) fn read(path: &Path, cut_off: bool, scratch: &Path) -> Result<Timeline, Failure> {
        let failed = |error| Failure::failed(format!("{error}"));
        let mut reader = Reader::open(path, cut_off).map_err(failed)?;
        let head = reader.head().clone();
        let name = path.display();
        let unit = head.physical_block;
        if !head.has_data {
            return Err(Failure::failed(format!(
                "{name}: recorded without data; record again without `--record-data off`"
            )));
        }
        if unit < 512 || !unit.is_power_of_two() || !head.size.is_multiple_of(u64::from(unit)) {
            return Err(Failure::failed(format!(
                "{name}: a device of {} bytes with units of {unit}; the recording is damaged",
                head.size
            )));
        }
        let units = u32::try_from(head.size / u64::from(unit)).map_err(|_| {
            Failure::failed(format!(
                "{name}: the device is too large: {} bytes",
                head.size
            ))
        })?;
        let contents =
            Contents::new(scratch, unit).map_err(|error| Failure::io(scratch.display(), &error))?;
        let mut builder = Builder {
            unit,
            now: vec![ZEROS; index(units)],
            base: None,
            events: Vec::new(),
            parts: Vec::new(),
            marks: Vec::new(),
            contents: &contents,
            buffer: vec![0; index(unit)],
        };
        for (number, entry) in (1..).zip(&mut reader) {
            let full = |error| Failure::io(format!("{}: contents", scratch.display()), &error);
            let entry = entry.map_err(failed)?;
            let has_data = matches!(entry.kind, Kind::Write | Kind::Base);
            if has_data && to_u64(entry.data.len()) != entry.length {
                return Err(Failure::failed(format!(
                    "{name}: entry {number} has {} bytes of data for {}; the recording is damaged",
                    entry.data.len(),
                    entry.length
                )));
            }
            builder.add(number, &entry).map_err(full)?;
        }
        let Builder {
            now,
            base,
            events,
            parts,
            marks,
            ..
        } = builder;
        let mut earliest: Vec<_> = events.iter().map(|event| event.begin).collect();
        for at in (1..earliest.len()).rev() {
            earliest[at - 1] = earliest[at - 1].min(earliest[at]);
        }
        if events.is_empty() {
            return Err(Failure::failed(format!(
                "{name}: no write, trim, FLUSH or mark in it; nothing can be lost"
            )));
        }
        Ok(Timeline {
            head,
            unit_bytes: unit,
            units,
            base: Arc::new(base.unwrap_or(now)),
            events,
            parts,
            marks,
            earliest,
            contents,
            was_cut_off: reader.was_cut_off(),
        })
    }

    /// Returns the units of a change with their new contents.
    pub(super) fn changed(&self, what: &What) -> impl Iterator<Item = (u32, Content)> {
        let (parts, zeros) = match what {
            What::Change { parts, zeros, .. } => (parts.clone(), zeros.clone()),
            _ => (0..0, 0..0),
        };
        let zeros = zeros.map(|unit| (unit, ZEROS));
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

struct Builder<'a> {
    unit: u32,
    /// Newest content of each unit.
    now: Vec<Content>,
    base: Option<Vec<Content>>,
    events: Vec<Event>,
    parts: Vec<(u32, Content)>,
    marks: Vec<String>,
    contents: &'a Contents,
    buffer: Vec<u8>,
}

impl Builder<'_> {
    fn add(&mut self, number: u64, entry: &Entry) -> std::io::Result<()> {
        if entry.kind == Kind::Read {
            return Ok(());
        }
        let parts = self.parts.len();
        if entry.kind == Kind::Base {
            self.cover(entry, true)?;
            self.parts.truncate(parts);
            return Ok(());
        }
        if self.base.is_none() {
            self.base = Some(self.now.clone());
        }
        let what = match entry.kind {
            Kind::Write | Kind::Trim | Kind::WriteZeroes => {
                let zeros = self.cover(entry, entry.errno == 0)?;
                What::Change {
                    kind: entry.kind,
                    parts: parts..self.parts.len(),
                    zeros,
                    certain: entry.errno == 0,
                }
            }
            Kind::Flush if entry.errno != 0 => return Ok(()),
            Kind::Flush => What::Flush {
                covers: entry.fua.then(|| self.whole(entry.offset, entry.length)),
            },
            Kind::Mark => {
                let text = String::from_utf8_lossy(&entry.data).into_owned();
                self.marks.push(text);
                What::Mark(narrow(to_u64(self.marks.len() - 1)))
            }
            Kind::Read | Kind::Base => unreachable!("handled above"),
        };
        self.events.push(Event {
            number,
            what,
            begin: entry.begin.seq,
            end: entry.end.seq,
            offset: entry.offset,
            length: entry.length,
        });
        Ok(())
    }

    /// The units that a byte range touches.
    fn whole(&self, offset: u64, length: u64) -> Range<u32> {
        let unit = u64::from(self.unit);
        narrow(offset / unit)..narrow((offset + length).div_ceil(unit))
    }

    /// Appends the new contents of a change to `parts`; returns the units that become zeros.
    fn cover(&mut self, entry: &Entry, certain: bool) -> std::io::Result<Range<u32>> {
        let unit = u64::from(self.unit);
        let (begin, end) = (entry.offset, entry.offset + entry.length);
        let data = matches!(entry.kind, Kind::Write | Kind::Base).then_some(&entry.data[..]);
        let mut zeros = 0..0;
        for number in self.whole(begin, entry.length) {
            let start = u64::from(number) * unit;
            let (from, to) = (begin.max(start), end.min(start + unit));
            let is_whole = to - from == unit;
            let content = match data {
                None if is_whole => {
                    zeros.start = if zeros.is_empty() {
                        number
                    } else {
                        zeros.start
                    };
                    zeros.end = number + 1;
                    if certain {
                        self.now[index(number)] = ZEROS;
                    }
                    continue;
                }
                Some(data) if is_whole => {
                    let at = to_usize(from - begin);
                    self.contents.id_of(&data[at..at + index(self.unit)])?
                }
                _ => {
                    self.contents
                        .read(self.now[index(number)], &mut self.buffer)?;
                    let part = &mut self.buffer[to_usize(from - start)..to_usize(to - start)];
                    match data {
                        Some(data) => part
                            .copy_from_slice(&data[to_usize(from - begin)..to_usize(to - begin)]),
                        None => part.fill(0),
                    }
                    self.contents.id_of(&self.buffer)?
                }
            };
            if certain {
                self.now[index(number)] = content;
            }
            self.parts.push((number, content));
        }
        Ok(zeros)
    }
}

//! Walks along a timeline and knows, at every event, what a power cut there may leave.
//!
//! Invariant: `durable` is what every FLUSH so far guarantees. A dirty unit has newer contents, the
//! oldest first; a power cut leaves any one of them or the durable one.

use super::content::Content;
use super::timeline::{Timeline, What};
use ftld_kit::convert::{index, to_u32};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
struct Version {
    content: Content,
    /// Moment of its acknowledgement.
    end: u64,
    certain: bool,
    /// Number of its request.
    request: u64,
}

/// Position between two events.
pub(super) struct Cursor<'a> {
    timeline: &'a Timeline,
    next: usize,
    durable: Arc<Vec<Content>>,
    durable_sum: u128,
    /// By slot, as the durable contents.
    dirty: BTreeMap<u32, Vec<Version>>,
    mark: Option<u32>,
    /// Entry of the last FLUSH of each device as a whole; 0 before the first.
    last_flush: Vec<u64>,
}

/// A unit whose content is open at a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenUnit {
    pub(super) unit: u32,
    /// Index of the unit in lists by slot.
    pub(super) slot: u32,
    /// The durable content, then newer ones, then damaged ones.
    pub(super) candidates: Vec<Content>,
    /// Requests that wrote the candidates; 0 for the durable one. The damaged ones, at the end,
    /// have no entry.
    pub(super) requests: Vec<u64>,
    /// Index of the newest acknowledged content.
    pub(super) newest: u32,
}

/// Contents that a power cut may leave at one moment of the recording.
pub(super) struct Point {
    /// Number of the last acknowledged entry of the recording.
    pub(super) number: u64,
    pub(super) mark: Option<u32>,
    /// Entry of the last FLUSH of each device as a whole; 0 before the first.
    pub(super) last_flush: Vec<u64>,
    /// Durable content by slot.
    pub(super) durable: Arc<Vec<Content>>,
    pub(super) durable_sum: u128,
    /// In the order of units.
    pub(super) open: Vec<OpenUnit>,
}

impl<'a> Cursor<'a> {
    /// Starts before the first event.
    pub(super) fn new(timeline: &'a Timeline) -> Cursor<'a> {
        let durable = timeline.base.clone();
        let sum = |sum: u128, (unit, content): (&u32, &Content)| {
            sum.wrapping_add(timeline.contents.term(*unit, *content))
        };
        let durable_sum = timeline.written.iter().zip(durable.iter()).fold(0, sum);
        Cursor {
            timeline,
            next: 0,
            durable,
            durable_sum,
            dirty: BTreeMap::new(),
            mark: None,
            last_flush: vec![0; timeline.devices.len()],
        }
    }

    /// Takes the next event; returns its index, `None` at the end.
    pub(super) fn step(&mut self) -> Option<usize> {
        let at = self.next;
        let event = self.timeline.events.get(at)?;
        self.next += 1;
        match &event.what {
            What::Change { certain, .. } => {
                for (slot, content) in self.timeline.changed(&event.what) {
                    let versions = self.dirty.entry(slot).or_default();
                    let last = versions
                        .last()
                        .map(|version| (version.content, version.certain));
                    let same = (content, true);
                    if last.unwrap_or((self.durable[index(slot)], true)) != same {
                        versions.push(Version {
                            content,
                            end: event.end,
                            certain: *certain,
                            request: event.number,
                        });
                    }
                    if versions.is_empty() {
                        self.dirty.remove(&slot);
                    }
                }
            }
            What::Flush { covers, fua } => {
                if !fua {
                    self.last_flush[event.device] = event.number;
                }
                self.flush(event.begin, covers.clone());
            }
            What::Mark(mark) => self.mark = Some(*mark),
        }
        Some(at)
    }

    /// Makes durable what was acknowledged before the FLUSH began.
    fn flush(&mut self, begin: u64, covers: Option<Range<u32>>) {
        let covers = covers.unwrap_or(0..to_u32(self.durable.len()));
        let slots: Vec<u32> = self.dirty.range(covers).map(|(slot, _)| *slot).collect();
        let contents = &self.timeline.contents;
        for slot in slots {
            let versions = self.dirty.get_mut(&slot).expect("a dirty unit");
            let covered = |version: &Version| version.certain && version.end < begin;
            let Some(newest) = versions.iter().rposition(covered) else {
                continue;
            };
            let content = versions[newest].content;
            versions.drain(..=newest);
            if versions.is_empty() {
                self.dirty.remove(&slot);
            }
            let unit = self.timeline.written[index(slot)];
            let durable = &mut Arc::make_mut(&mut self.durable)[index(slot)];
            self.durable_sum = self
                .durable_sum
                .wrapping_sub(contents.term(unit, *durable))
                .wrapping_add(contents.term(unit, content));
            *durable = content;
        }
    }

    /// Returns what a power cut just after the last event may leave, requests in flight included.
    pub(super) fn point(&self) -> Point {
        assert!(self.next > 0, "a point before the first event");
        let event = self.next - 1;
        let now = self.timeline.events[event].end;
        let mut open: BTreeMap<u32, OpenUnit> = BTreeMap::new();
        let unit_of = |slot: u32| OpenUnit {
            unit: self.timeline.written[index(slot)],
            slot,
            candidates: vec![self.durable[index(slot)]],
            requests: vec![0],
            newest: 0,
        };
        for (&slot, versions) in &self.dirty {
            let at = open.entry(slot).or_insert_with(|| unit_of(slot));
            for version in versions {
                if version.certain {
                    at.newest = u32::try_from(at.candidates.len()).expect("few versions");
                }
                at.candidates.push(version.content);
                at.requests.push(version.request);
            }
        }
        for later in self.next..self.timeline.events.len() {
            if self.timeline.earliest[later] >= now {
                break;
            }
            let event = &self.timeline.events[later];
            if event.begin >= now {
                continue;
            }
            for (slot, content) in self.timeline.changed(&event.what) {
                let at = open.entry(slot).or_insert_with(|| unit_of(slot));
                if at.candidates.last() != Some(&content) {
                    at.candidates.push(content);
                    at.requests.push(event.number);
                }
            }
        }
        open.retain(|_, unit| unit.candidates.len() > 1);
        Point {
            number: self.timeline.events[event].number,
            mark: self.mark,
            last_flush: self.last_flush.clone(),
            durable: self.durable.clone(),
            durable_sum: self.durable_sum,
            open: open.into_values().collect(),
        }
    }
}

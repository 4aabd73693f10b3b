//! `--trace-events`: the scheme's background operations as a file that Perfetto and
//! chrome://tracing load, in the Trace Event Format (JSON object, complete events).
//!
//! There is a track per die and a track per kind of event. Events of a track that overlap without
//! nesting are on further tracks of the same name. Times are emulated, since the measurement began.
//!
//! Invariants: the events of a track nest and are in the order of their start. At most
//! [`EVENTS_MAX`] events are kept, so memory is bounded; the file contains the number of the
//! others.

use super::sim::Sim;
use ftl_core::{Event, EventKind};
use ftld_kit::convert::{to_u32, to_u64};
use ftld_kit::failure::Failure;
use ftld_kit::output::unwritable;
use nand_model::{Geometry, Nanos};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Limit of events in a file, 64 MB of RAM.
const EVENTS_MAX: usize = 1_000_000;
/// Process numbers: the two groups of tracks.
const DIES: u32 = 1;
const KINDS: u32 = 2;

/// An open file, and the events so far.
pub(super) struct TraceEvents {
    name: String,
    file: File,
    begun: Nanos,
    /// Number of the next event of the scheme's log.
    next: u64,
    events: Vec<Event>,
    dropped: u64,
}

impl TraceEvents {
    /// Creates the file.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn create(path: &Path) -> Result<TraceEvents, Failure> {
        Ok(TraceEvents {
            name: path.display().to_string(),
            file: File::create(path).map_err(|error| unwritable("--trace-events", path, &error))?,
            begun: 0,
            next: 0,
            events: Vec::new(),
            dropped: 0,
        })
    }

    /// Begins with the measurement.
    pub(super) fn begin(&mut self, sim: &Sim) {
        (self.begun, self.next) = (sim.now, sim.ftl().events().total());
    }

    /// Takes the events since the last call. The ring of the scheme's log keeps the newest ones.
    #[inline]
    pub(super) fn collect(&mut self, sim: &Sim) {
        let log = sim.ftl().events();
        if log.total() != self.next {
            let from = std::mem::replace(&mut self.next, log.total());
            let room = EVENTS_MAX - self.events.len();
            let before = self.events.len();
            let new = log.since(from).map(|(_, event)| *event);
            self.events.extend(new.take(room));
            self.dropped += log.total() - from - to_u64(self.events.len() - before);
        }
    }

    /// Writes the file.
    pub(super) fn finish(mut self, sim: &Sim, about: &str) -> Result<(), Failure> {
        self.collect(sim);
        let geometry = sim.ftl().chip().geometry();
        let tracks = tracks(&self.events, geometry);
        let failed = |error: std::io::Error| Failure::io(&self.name, &error);
        let mut file = BufWriter::new(&self.file);
        write(&mut file, &tracks, self.begun, self.dropped, about)
            .and_then(|()| file.flush())
            .map_err(failed)
    }
}

/// Events in the order of their start, each within the one before or behind it.
struct Track {
    group: u32,
    name: String,
    events: Vec<Event>,
}

/// Distributes events over the tracks of dies and kinds.
fn tracks(events: &[Event], geometry: &Geometry) -> Vec<Track> {
    let mut tracks = Vec::new();
    for die in 0..geometry.dies() {
        let own = events.iter().copied().filter(|event| {
            event
                .block
                .is_some_and(|block| geometry.die_of(block) == die)
        });
        tracks.extend(nested(own.collect(), DIES, &format!("die {die}")));
    }
    for kind in EventKind::ALL {
        let own = events.iter().copied().filter(|event| event.kind == kind);
        tracks.extend(nested(own.collect(), KINDS, kind.name()));
    }
    tracks
}

/// Returns the fewest tracks, found greedily, on which these events nest; at least one.
fn nested(mut events: Vec<Event>, group: u32, name: &str) -> Vec<Track> {
    // Of events that start together, the longest contains the others.
    events.sort_by_key(|event| (event.at, std::cmp::Reverse(event.took)));
    // Per track, the ends of the events that contain the next one.
    let mut open: Vec<Vec<Nanos>> = vec![Vec::new()];
    let mut tracks = vec![Vec::new()];
    for event in events {
        let end = event.at.saturating_add(event.took);
        let fits = |ends: &mut Vec<Nanos>| {
            while ends.last().is_some_and(|last| *last <= event.at) {
                ends.pop();
            }
            ends.last().is_none_or(|last| end <= *last)
        };
        let lane = match open.iter_mut().position(fits) {
            Some(lane) => lane,
            None => {
                open.push(Vec::new());
                tracks.push(Vec::new());
                open.len() - 1
            }
        };
        open[lane].push(end);
        tracks[lane].push(event);
    }
    let track = |(lane, events)| Track {
        group,
        name: match lane {
            0 => name.to_owned(),
            lane => format!("{name} ({})", lane + 1),
        },
        events,
    };
    tracks.into_iter().enumerate().map(track).collect()
}

fn write(
    to: &mut impl Write,
    tracks: &[Track],
    begun: Nanos,
    dropped: u64,
    about: &str,
) -> std::io::Result<()> {
    let other = json!({"about": about, "time": "emulated", "events_dropped": dropped});
    write!(
        to,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{other},\"traceEvents\":["
    )?;
    for (group, name) in [(DIES, "dies"), (KINDS, "events")] {
        let comma = if group == DIES { "\n" } else { ",\n" };
        write!(to, "{comma}{}", meta("process_name", group, 0, name))?;
    }
    for (number, track) in tracks.iter().enumerate() {
        let tid = to_u32(number + 1);
        write!(
            to,
            ",\n{}",
            meta("thread_name", track.group, tid, &track.name)
        )?;
        let order = json!({"ph": "M", "name": "thread_sort_index", "pid": track.group, "tid": tid,
                           "args": {"sort_index": tid}});
        write!(to, ",\n{order}")?;
        for event in &track.events {
            // Work that began before the measurement is cut off there.
            let end = event.at.saturating_add(event.took).saturating_sub(begun);
            let at = event.at.saturating_sub(begun);
            let args = json!({"block": event.block.map(|block| block.raw()), "pages": event.pages});
            write!(
                to,
                ",\n{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"ftl\",\"pid\":{},\"tid\":{tid},\"ts\":{},\"dur\":{},\"args\":{args}}}",
                event.kind.name(),
                track.group,
                Micros(at),
                Micros(end - at)
            )?;
        }
    }
    writeln!(to, "\n]}}")
}

fn meta(what: &str, pid: u32, tid: u32, name: &str) -> Value {
    json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}})
}

/// Nanoseconds in the unit of the format, microseconds, without rounding.
struct Micros(Nanos);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::{Pbn, Profile};

    fn event(at: Nanos, took: Nanos) -> Event {
        Event {
            kind: EventKind::Gc,
            block: Some(Pbn::new(3)),
            pages: 7,
            at,
            took,
        }
    }

    fn spans(track: &Track) -> Vec<(Nanos, Nanos)> {
        track.events.iter().map(|e| (e.at, e.at + e.took)).collect()
    }

    #[test]
    fn events_that_overlap_without_nesting_are_apart() {
        // Noted when done: the inner ones before the outer one.
        let events = vec![
            event(10, 5),
            event(15, 5),
            event(10, 20),
            event(25, 10),
            event(30, 1),
            event(35, 0),
        ];
        let found = nested(events, DIES, "die 0");
        assert_eq!(found.len(), 2);
        assert_eq!(
            spans(&found[0]),
            [(10, 30), (10, 15), (15, 20), (30, 31), (35, 35)]
        );
        assert_eq!(spans(&found[1]), [(25, 35)]);
        assert_eq!((&*found[0].name, &*found[1].name), ("die 0", "die 0 (2)"));
        assert_eq!(nested(Vec::new(), DIES, "die 1").len(), 1);
    }

    #[test]
    fn an_event_is_on_the_track_of_its_die_and_of_its_kind() {
        let geometry = Profile::find("mlam").unwrap().geometry;
        assert_eq!(geometry.dies(), 32);
        let of = |kind, block: Option<u32>| Event {
            kind,
            block: block.map(Pbn::new),
            ..event(0, 1)
        };
        let events = [
            of(EventKind::Gc, Some(33)),
            of(EventKind::FullMerge, Some(31)),
            of(EventKind::BufferFlush, None),
        ];
        let used: Vec<_> = tracks(&events, &geometry)
            .into_iter()
            .filter(|track| !track.events.is_empty())
            .map(|track| (track.group, track.name, track.events.len()))
            .collect();
        let expected = [
            (DIES, "die 1", 1),
            (DIES, "die 31", 1),
            (KINDS, "gc", 1),
            (KINDS, "full_merge", 1),
            (KINDS, "buffer_flush", 1),
        ];
        assert_eq!(
            used,
            expected.map(|(group, name, count)| (group, name.to_owned(), count))
        );
        assert_eq!(tracks(&[], &geometry).len(), 32 + EventKind::COUNT);
    }

    #[test]
    fn times_are_not_rounded() {
        let geometry = Profile::find("mlam").unwrap().geometry;
        let tracks = tracks(&[event(1_234_567_890_123_456_789, 1_001)], &geometry);
        let mut text = Vec::new();
        write(&mut text, &tracks, 0, 5, "\"quoted\"").unwrap();
        let text = String::from_utf8(text).unwrap();
        let parsed: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed["otherData"]["events_dropped"], 5);
        assert_eq!(
            text.matches("\"ts\":1234567890123456.789,\"dur\":1.001")
                .count(),
            2
        );
    }
}

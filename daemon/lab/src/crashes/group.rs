//! Recordings of several devices as one timeline: one clock, one cut.
//!
//! A unit of a group is a unit of one of its devices; between two devices one number is left out,
//! so that no run of units has two devices. A FLUSH covers the slots of its device alone.
//!
//! Invariants: moments of a device keep their order. A request that ended on one device before
//! another began on another device is before it: the time of a moment is taken after its number,
//! and before the request is acknowledged. So a moment's number was taken at the latest at the
//! smallest time of it and all later moments of its device, and the merge goes by these.

use super::args::{CrashesArgs, Loss, Model};
use super::recovery;
use super::timeline::{self, Built, Event, Timeline};
use ftld_kit::failure::Failure;
use ftld_traces::recording::{Clock, Head, Reader};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Largest number of devices.
pub const DEVICES_MAX: usize = 8;

/// Returns the name of the file of a device, from 0: `NAME`, then `NAME.2` and so on.
pub fn nth_file(first: &Path, device: usize) -> PathBuf {
    if device == 0 {
        return first.to_owned();
    }
    let mut name = first.as_os_str().to_owned();
    name.push(format!(".{}", device + 1));
    name.into()
}

/// Returns the name of a variable of a device, from 0: `NAME`, then `NAME_2` and so on.
pub(super) fn nth_variable(name: &str, device: usize) -> String {
    match device {
        0 => name.to_owned(),
        _ => format!("{name}_{}", device + 1),
    }
}

/// A recording of a group.
struct Member {
    name: String,
    reader: Reader,
    head: Head,
    clock: Clock,
    /// First unit of its device.
    first: u32,
}

/// Refuses what only one recording can be asked for.
///
/// # Errors
/// Several were named.
pub(super) fn check_arguments(args: &CrashesArgs) -> Result<(), Failure> {
    if args.others.is_empty() {
        return Ok(());
    }
    if args.model == Model::Flash {
        return Err(Failure::usage(
            "--model flash: runs the scheme of one recording; leave it out for several, or name one recording",
        ));
    }
    if recovery::is_kept(args) {
        return Err(Failure::usage("--nested: with one device only"));
    }
    if args.loss.contains(&Loss::Channel) {
        return Err(Failure::usage(
            "--loss channel: devices of a group have no channel in common; leave it out, or name one recording",
        ));
    }
    if args.files.as_ref().is_some_and(|folder| folder != "/") {
        return Err(Failure::usage(
            "--files FOLDER: several recordings have several file systems; without FOLDER the check gets the files of all",
        ));
    }
    Ok(())
}

/// Reads the recordings of an exploration; contents go to a file in `scratch`.
///
/// # Errors
/// One of them cannot be read, they are not from one clock, or no group has what was asked for.
pub(super) fn read(args: &CrashesArgs, scratch: &Path) -> Result<Timeline, Failure> {
    check_arguments(args)?;
    let members = open(args)?;
    let head = members[0].head.clone();
    let contents = timeline::new_contents(scratch, head.physical_block)?;
    let start = |member: &Member| member.clock.began_ns;
    let zero = members.iter().map(start).min().unwrap_or(0);
    let last_start = members.iter().map(start).max().unwrap_or(0) - zero;
    let names: Vec<_> = members.iter().map(|member| member.name.clone()).collect();
    let (mut built, mut end, mut was_cut_off) = (Vec::new(), u64::MAX, false);
    for mut member in members {
        let entries = timeline::entries(&mut member.reader);
        let mut of = Built::of_entries(&member.head, entries, &contents, BTreeMap::new())?;
        let after = member.clock.began_ns - zero;
        of.times
            .iter_mut()
            .flatten()
            .for_each(|ns| *ns = ns.saturating_add(after));
        if member.reader.was_cut_off() {
            was_cut_off = true;
            // What this device did afterwards is not known.
            end = end.min(of.last_ns.saturating_add(after));
        }
        built.push((of, member.first));
    }
    let merged = merge(built.iter_mut().map(|(of, _)| of));
    let (events, ends): (Vec<_>, Vec<_>) = merged.into_iter().unzip();
    // Before it began to record, a device had contents that its recording does not have.
    let whole = ends.partition_point(|ns| *ns < last_start)..ends.partition_point(|ns| *ns <= end);
    let timeline = Timeline::join(head, built, events, contents);
    let mut timeline = timeline.ok_or_else(|| timeline::no_event(&names.join(", ")))?;
    if whole.is_empty() {
        return Err(Failure::failed(format!(
            "{}: no request while all of them were recorded; record the devices at the same time",
            names.join(", ")
        )));
    }
    timeline.whole = whole;
    timeline.was_cut_off = was_cut_off;
    Ok(timeline)
}

/// Opens the recordings, and refuses those that are no group.
fn open(args: &CrashesArgs) -> Result<Vec<Member>, Failure> {
    let paths: Vec<_> = args.recordings().collect();
    if paths.len() > DEVICES_MAX {
        return Err(Failure::usage(format!(
            "{} recordings: a group has at most {DEVICES_MAX}; leave the others out",
            paths.len()
        )));
    }
    let mut members: Vec<Member> = Vec::new();
    let mut first = 0u32;
    for path in paths {
        let reader = timeline::open(path, args.cut_off)?;
        let (name, head) = (path.display().to_string(), reader.head().clone());
        timeline::check_head(&name, &head)?;
        let Some(clock) = head.clock.clone() else {
            return Err(Failure::failed(format!(
                "{name}: recorded without the host's clock, by an older ftld or on a host that hides its boot: it has no order with others; record again, or explore it alone"
            )));
        };
        if let Some(before) = members.first() {
            let [unit, other] = [&head, &before.head].map(|head| head.physical_block);
            if clock.id != before.clock.id {
                return Err(Failure::failed(format!(
                    "{} and {name}: recorded in different boots or time namespaces: their requests have no order; record them at the same time on one host",
                    before.name
                )));
            }
            if unit != other {
                return Err(Failure::failed(format!(
                    "{} and {name}: devices with units of {other} and {unit} bytes; record them with the same --atomic-unit",
                    before.name
                )));
            }
        }
        if let Some(same) = members.iter().find(|member| member.clock == clock) {
            return Err(Failure::usage(format!(
                "{} and {name}: the same recording; name the recording of each device once",
                same.name
            )));
        }
        let units = u32::try_from(head.size / u64::from(head.physical_block));
        let next = units
            .ok()
            .and_then(|units| first.checked_add(units)?.checked_add(1));
        let Some(next) = next else {
            return Err(Failure::failed(format!(
                "{name}: the devices are too large together; record smaller ones"
            )));
        };
        members.push(Member {
            name,
            reader,
            head,
            clock,
            first,
        });
        first = next;
    }
    Ok(members)
}

/// A moment of a device.
struct Moment {
    seq: u64,
    /// When its number was taken at the latest.
    ns: u64,
    event: usize,
    is_end: bool,
}

/// Takes the events of all devices in one order, with new moments and numbers. Returns also when
/// each ended.
fn merge<'a>(built: impl Iterator<Item = &'a mut Built>) -> Vec<(Event, u64)> {
    let (mut events, mut lists): (Vec<Vec<Option<Event>>>, Vec<_>) = (Vec::new(), Vec::new());
    for (device, of) in built.enumerate() {
        let mut own = std::mem::take(&mut of.events);
        own.iter_mut().for_each(|event| event.device = device);
        let times = std::mem::take(&mut of.times);
        lists.push(moments(&own, &times).into_iter().peekable());
        events.push(own.into_iter().map(Some).collect());
    }
    let mut merged = Vec::with_capacity(events.iter().map(Vec::len).sum());
    for seq in 0.. {
        let heads = lists.iter_mut().enumerate();
        // At the same time what ends is before what begins.
        let heads = heads.filter_map(|(device, list)| {
            let head = list.peek()?;
            Some((head.ns, !head.is_end, device))
        });
        let Some((ns, _, device)) = heads.min() else {
            break;
        };
        let Moment { event, is_end, .. } = lists[device].next().expect("the first one");
        let place = &mut events[device][event];
        let Some(of) = place.as_mut() else { continue };
        match is_end {
            false => of.begin = seq,
            true => of.end = seq,
        }
        merged.extend(
            is_end
                .then(|| place.take())
                .flatten()
                .map(|event| (event, ns)),
        );
    }
    for (number, (event, _)) in (1..).zip(&mut merged) {
        event.number = number;
    }
    merged
}

/// Returns the moments of a device in their order.
fn moments(events: &[Event], times: &[[u64; 2]]) -> Vec<Moment> {
    let mut moments: Vec<Moment> = Vec::with_capacity(2 * events.len());
    for (event, (of, [begin, end])) in events.iter().zip(times).enumerate() {
        for (seq, ns, is_end) in [(of.begin, *begin, false), (of.end, *end, true)] {
            moments.push(Moment {
                seq,
                ns,
                event,
                is_end,
            });
        }
    }
    moments.sort_unstable_by_key(|moment| moment.seq);
    let mut earliest = u64::MAX;
    for moment in moments.iter_mut().rev() {
        earliest = earliest.min(moment.ns);
        moment.ns = earliest;
    }
    moments
}

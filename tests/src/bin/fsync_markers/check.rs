//! Check of the files after the device returned.

use super::markers::{ABSENT, Markers, State};
use super::objects::{Kind, Object};
use super::work::perform;
use super::{Result, SLOT_BYTES};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::path::Path;
use std::{fs, io};

/// Returns the version of an object, if it is whole.
fn version_of(folder: &Path, object: Object, state: &State) -> Result<u64> {
    let path = object.path(folder);
    let data = match fs::read(&path) {
        Ok(data) => data,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ABSENT),
        Err(error) => return Err(format!("{}: {error}", object.name())),
    };
    let data = match object {
        Object::Slot { slot, .. } => data
            .get(slot as usize * SLOT_BYTES..)
            .and_then(|rest| rest.get(..SLOT_BYTES)),
        _ => Some(&data[..]),
    };
    let data = data.ok_or_else(|| format!("{}: the file is too short", object.name()))?;
    if matches!(object, Object::Log { .. }) {
        return log_version(object, state, data);
    }
    if matches!(object, Object::Slot { .. }) && data.iter().all(|byte| *byte == 0) {
        return Ok(ABSENT);
    }
    let head = data.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let named = String::from_utf8_lossy(head);
    let version = named
        .strip_prefix(&format!("{} ", object.name()))
        .and_then(|version| version.parse().ok());
    match version {
        Some(version) if object.content(version) == data => Ok(version),
        Some(version) => Err(format!("{}: version {version} is torn", object.name())),
        None => Err(format!(
            "{}: {} bytes that are not its own: {:?}",
            object.name(),
            data.len(),
            &named.get(..40)
        )),
    }
}

/// Counts the whole records of a log.
fn log_version(object: Object, state: &State, mut data: &[u8]) -> Result<u64> {
    let mut version = state.log_base;
    if data.is_empty()
        && let Some((Kind::Truncate, emptied)) = state.under_way
    {
        return Ok(emptied);
    }
    while let Some(rest) = data.strip_prefix(&object.content(version + 1)[..]) {
        (data, version) = (rest, version + 1);
    }
    let torn = !data.is_empty() && state.under_way.is_none();
    if torn {
        Err(format!(
            "{}: {} bytes behind record {version}",
            object.name(),
            data.len()
        ))
    } else {
        Ok(version)
    }
}

pub(super) fn check(folder: &Path, mut markers: Markers) -> Result<String> {
    let (known, done) = (markers.states.len(), markers.done);
    if done == 0 {
        return Err("no operation was noted as durable: there is nothing to check".into());
    }
    let mut struck = BTreeMap::<Kind, u64>::new();
    let (mut undone, mut untrue) = (0, 0);
    for object in Object::all() {
        let state = markers.of(object);
        let seen = version_of(folder, object, &state);
        let Some((kind, wanted)) = state.under_way else {
            match seen? {
                seen if seen == state.durable => continue,
                seen => {
                    return Err(format!(
                        "{} is version {seen}, durable was {}",
                        object.name(),
                        state.durable
                    ));
                }
            }
        };
        *struck.entry(kind).or_default() += 1;
        let seen = match (kind, seen) {
            // Before its first fsync a new file may have any content.
            (Kind::Create, Err(_)) => ABSENT,
            (_, seen) => seen?,
        };
        if seen != wanted && seen != state.durable {
            let durable = state.durable;
            return Err(format!(
                "{} is version {seen}; durable was {durable}, {wanted} under way",
                object.name()
            ));
        }
        undone += u64::from(seen != wanted);
        untrue += u64::from(seen != wanted && state.claimed);
        // A log that was not truncated has its old length.
        let kind = if kind == Kind::Truncate && seen != wanted {
            Kind::Append
        } else {
            kind
        };
        settle(folder, &mut markers, object, kind, seen)
            .map_err(|error| format!("{}: {error}", object.name()))?;
    }
    let kinds = struck
        .iter()
        .fold(String::new(), |mut text, (kind, count)| {
            let _ = write!(text, " {}={count}", kind.name());
            text
        });
    Ok(format!(
        "check: durable={done} objects={known} undone={undone} untrue={untrue}{kinds}"
    ))
}

/// Records the versions found, and removes leftovers of an interrupted change.
fn settle(
    folder: &Path,
    markers: &mut Markers,
    object: Object,
    kind: Kind,
    seen: u64,
) -> io::Result<()> {
    let path = object.path(folder);
    if kind == Kind::Create && seen == ABSENT {
        perform(folder, Kind::Unlink, object, ABSENT)?;
    }
    if let Object::Log { .. } = object {
        let base = if kind == Kind::Truncate {
            seen
        } else {
            markers.of(object).log_base
        };
        let len: usize = (base..seen)
            .map(|version| object.content(version + 1).len())
            .sum();
        let file = OpenOptions::new().write(true).open(&path)?;
        file.set_len(len as u64)?;
        file.sync_all()?;
    }
    markers.note("saw", kind, object, seen)
}

//! `ftld where`: where a file is on the flash, and where its dead copies are.

mod disk;

use super::Found;
use crate::control::{self, LINE_MAX, Request};
use disk::disk_of;
use ftld_device::instance::{Dirs, check_name};
use ftld_device::status::Status;
use ftld_device::volume::{PLACES_MAX, PagePlaces, Places};
use ftld_kit::convert::{to_u64, to_usize};
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output::{Tone, counted, print_json, print_text, table, wrapped};
use ftld_kit::path_json::shown;
use ftld_mapped_file::extents::{Extent, State, extents};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Maximum of extents of a file.
const EXTENTS_MAX: usize = 1 << 20;
/// Dead copies of a page that the table shows.
const DEAD_SHOWN: usize = 4;

/// Bytes of the device, and where they are in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Piece {
    #[serde(skip_serializing_if = "Option::is_none")]
    file_offset: Option<u64>,
    offset: u64,
    bytes: u64,
}

/// A page of the file or range.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    file_offset: Option<u64>,
    #[serde(flatten)]
    page: PagePlaces,
}

/// Answer of `ftld where`.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    name: &'a str,
    target: &'a str,
    page_bytes: u32,
    extents: Vec<Piece>,
    /// Bytes of the file that are reserved, and were never written.
    unwritten_bytes: u64,
    pages: Vec<Row>,
    /// Whether there are more pages, or more copies of them.
    truncated: bool,
    longest_lock_ns: u64,
}

/// `ftld where`: of a file, or of ranges of an instance's device.
///
/// # Errors
/// The file is not on a device that an instance of this user serves, its file system does not say
/// where it is, or the device has no such bytes.
pub(crate) fn places(
    dirs: &Dirs,
    what: &OsStr,
    ranges: &[Range<u64>],
    as_json: bool,
) -> Result<(), Failure> {
    if !ranges.is_empty() {
        let name = what.to_str().filter(|name| check_name(name).is_ok());
        let name = name.ok_or_else(|| {
            Failure::usage(format!(
                "{}: ranges are those of an instance's device; give its name, or a file alone",
                Path::new(what).display()
            ))
        })?;
        let status: Status = control::ask(dirs, name, &Request::Status {})?;
        let piece = |range: &Range<u64>| Piece {
            file_offset: None,
            offset: range.start,
            bytes: range.end - range.start,
        };
        if let Some(range) = ranges.iter().find(|range| range.end > status.size_bytes) {
            return Err(Failure::usage(format!(
                "{}+{}: {name} has {} bytes",
                range.start,
                range.end - range.start,
                status.size_bytes
            )));
        }
        let pieces = ranges.iter().map(piece).collect();
        return show(dirs, &status, None, (pieces, 0), as_json);
    }
    let path = Path::new(what);
    let on_path = |failure: Failure| Failure {
        message: format!("{}: {}", path.display(), failure.message),
        ..failure
    };
    let (status, pieces) = of_file(dirs, path).map_err(on_path)?;
    show(dirs, &status, Some(shown(path)), pieces, as_json)
}

/// Written bytes of a device, and how many are reserved.
type Pieces = (Vec<Piece>, u64);

/// Returns the instance that has a file, and the file's bytes on its device.
fn of_file(dirs: &Dirs, path: &Path) -> Result<(Box<Status>, Pieces), Failure> {
    let facts = std::fs::metadata(path).map_err(|error| {
        let is_name = path.to_str().is_some_and(|name| dirs.holder(name).is_some());
        match is_name {
            true => Failure::usage(format!(
                "no such file, but an instance: `ftld where {} OFFSET+LENGTH` looks at bytes of its device",
                path.display()
            )),
            false => Failure::new(Failure::io("", &error).exit, error),
        }
    })?;
    let kind = facts.file_type();
    if kind.is_block_device() {
        return Err(Failure::usage(
            "is a device; `ftld where NAME OFFSET+LENGTH` looks at bytes of it",
        ));
    }
    if !kind.is_file() {
        let what = match kind.is_dir() {
            true => "is a folder; name a file in it",
            false => "is no regular file",
        };
        return Err(Failure::usage(what));
    }
    let disk = disk_of(Path::new("/"), facts.dev())?;
    if facts.len() == 0 {
        return Err(Failure::failed("is empty, so no page holds it"));
    }
    let status = server_of(dirs, &disk.name)?;
    let file = File::open(path).map_err(|error| Failure::io("", &error))?;
    let all = extents(&file, EXTENTS_MAX).map_err(|error| match error.raw_os_error() {
        Some(nix::libc::EOPNOTSUPP | nix::libc::ENOTTY) => Failure::failed(
            "its file system does not say where files are (FIEMAP); ext4, xfs and f2fs do",
        ),
        _ => Failure::new(Exit::Failed, format!("its extents: {error}")),
    })?;
    let pieces = pieces_of(&all, facts.len(), disk.start, status.size_bytes)?;
    Ok((status, pieces))
}

/// Returns the running instance that serves `/dev/NAME`.
fn server_of(dirs: &Dirs, disk: &str) -> Result<Box<Status>, Failure> {
    let target = format!("/dev/{disk}");
    let all = dirs.names().into_iter().map(|name| Found::of(dirs, &name));
    let mut serving = all.filter_map(|found| found.status);
    if let Some(status) = serving.find(|status| status.target == target) {
        return Ok(status);
    }
    let is_ours = disk.starts_with("ublkb") || disk.starts_with("nbd");
    Err(match is_ours {
        true => Failure::new(
            Exit::NotRunning,
            format!(
                "its file system is on {target}, which no running instance of this user serves; \
                 `ftld list` shows those that run, and `ftld where NAME OFFSET+LENGTH` looks at \
                 bytes that another NBD client has"
            ),
        ),
        false => Failure::failed(format!(
            "its file system is on {target}, which is no device of ftld; copy it to a file system \
             on one"
        )),
    })
}

/// Returns the written bytes of a file on its disk, and how many are reserved.
fn pieces_of(
    all: &[Extent],
    file_bytes: u64,
    start: u64,
    disk_bytes: u64,
) -> Result<(Vec<Piece>, u64), Failure> {
    let (mut pieces, mut unwritten) = (Vec::new(), 0);
    for extent in all.iter().filter(|extent| extent.offset < file_bytes) {
        match extent.state {
            State::Written => {}
            State::Unwritten => {
                unwritten += extent.bytes;
                continue;
            }
            State::Inline => {
                return Err(Failure::failed(
                    "is so small that it is among the metadata of its file system (inline); a \
                     larger file has pages of its own",
                ));
            }
            State::Encoded => {
                return Err(Failure::failed(
                    "is compressed or encrypted by its file system, so no page has its bytes",
                ));
            }
            State::Unplaced => {
                return Err(Failure::failed(format!(
                    "byte {} has no place on the disk yet; `sync` the file first",
                    extent.offset
                )));
            }
        }
        let offset = start.saturating_add(extent.at);
        if offset.saturating_add(extent.bytes) > disk_bytes {
            return Err(Failure::failed(
                "its file system has several devices, and where its bytes are is unknown",
            ));
        }
        pieces.push(Piece {
            file_offset: Some(extent.offset),
            offset,
            bytes: extent.bytes,
        });
    }
    if pieces.is_empty() && unwritten == 0 {
        return Err(Failure::failed("is one hole, so no page holds it"));
    }
    Ok((pieces, unwritten))
}

/// Asks the instance for the places of these bytes, and prints them.
fn show(
    dirs: &Dirs,
    status: &Status,
    file: Option<String>,
    (pieces, unwritten_bytes): (Vec<Piece>, u64),
    as_json: bool,
) -> Result<(), Failure> {
    let page = u64::from(status.page_bytes);
    let (asked, left_off) = first_pages(&pieces, page);
    let (mut found, mut truncated, mut longest) = (BTreeMap::new(), left_off > 0, 0);
    for extents in lines_of(&asked) {
        let places: Places = control::ask(dirs, &status.name, &Request::Where { extents })?;
        truncated |= places.truncated;
        longest = longest.max(places.longest_lock_ns);
        found.extend(places.pages.into_iter().map(|page| (page.lpn, page)));
    }
    let rows = asked.iter().flat_map(|piece| {
        let pages = piece.offset / page..(piece.offset + piece.bytes).div_ceil(page);
        let row = |lpn: u64| {
            let inside = (lpn * page).saturating_sub(piece.offset);
            Some(Row {
                file_offset: piece.file_offset.map(|offset| offset + inside),
                page: found.get(&lpn)?.clone(),
            })
        };
        pages.filter_map(row).collect::<Vec<_>>()
    });
    let answer = Answer {
        pages: rows.collect(),
        file,
        name: &status.name,
        target: &status.target,
        page_bytes: status.page_bytes,
        extents: pieces,
        unwritten_bytes,
        truncated,
        longest_lock_ns: longest,
    };
    match as_json {
        true => print_json("where", answer),
        false => print_text(&text(&answer, status.shards.len() > 1, left_off)),
    }
}

/// Returns as many of these bytes as one answer has pages for, and how many pages are left off.
fn first_pages(pieces: &[Piece], page: u64) -> (Vec<Piece>, u64) {
    let (mut asked, mut seen, mut left_off) = (Vec::new(), BTreeSet::new(), 0);
    for piece in pieces {
        let end = piece.offset + piece.bytes;
        let pages = piece.offset / page..end.div_ceil(page);
        let room = to_u64(PLACES_MAX - seen.len());
        let kept = pages.start..pages.end.min(pages.start + room);
        left_off += pages.end - kept.end;
        if kept.is_empty() {
            continue;
        }
        let end = end.min(kept.end * page);
        seen.extend(kept);
        asked.push(Piece {
            bytes: end - piece.offset,
            ..*piece
        });
    }
    (asked, left_off)
}

/// Returns requests that are short enough for the control socket.
fn lines_of(pieces: &[Piece]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for Piece { offset, bytes, .. } in pieces {
        let range = format!("{offset}+{bytes}");
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            *line = range;
        } else if line.len() + range.len() < to_usize(LINE_MAX) - 100 {
            *line += &format!(",{range}");
        } else {
            lines.push(range);
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

fn text(answer: &Answer<'_>, sharded: bool, left_off: u64) -> String {
    let pages = counted(to_u64(answer.pages.len()), "page");
    let dead = answer.pages.iter().map(|row| row.page.dead.len()).sum();
    let what = answer.file.as_deref().unwrap_or(answer.name);
    let head = format!(
        "{what}: {pages} of {} bytes on {}, {}\n",
        answer.page_bytes,
        answer.target,
        match to_u64(dead) {
            1 => "1 dead copy".into(),
            dead => format!("{dead} dead copies"),
        }
    );
    let page = u64::from(answer.page_bytes);
    let offset = |row: &Row| row.file_offset.unwrap_or(row.page.lpn * page).to_string();
    let version = |row: &Row| row.page.version.map_or("-".into(), |ver| ver.to_string());
    let lpn = |row: &Row| row.page.lpn.to_string();
    let mut text = head;
    if !answer.pages.is_empty() {
        let heading = ["OFFSET", "LOGICAL PAGE", "VERSION", "NOW AT"];
        if sharded {
            let heading = [
                heading[0], heading[1], heading[2], "SHARD", heading[3], DEAD,
            ];
            let row = |row: &Row| {
                let shard = row
                    .page
                    .at
                    .map_or("-".into(), |(shard, ..)| shard.to_string());
                [
                    offset(row),
                    lpn(row),
                    version(row),
                    shard,
                    at(&row.page),
                    dead_text(&row.page),
                ]
            };
            text += &table(&rows(heading, &answer.pages, row), usize::MAX, |_, _| {
                Tone::Plain
            });
        } else {
            let heading = [heading[0], heading[1], heading[2], heading[3], DEAD];
            let row = |row: &Row| {
                [
                    offset(row),
                    lpn(row),
                    version(row),
                    at(&row.page),
                    dead_text(&row.page),
                ]
            };
            text += &table(&rows(heading, &answer.pages, row), usize::MAX, |_, _| {
                Tone::Plain
            });
        }
    }
    let mut notes = Vec::new();
    if answer.unwritten_bytes > 0 {
        notes.push(format!(
            "{} bytes are reserved and not written yet: they have no page.",
            answer.unwritten_bytes
        ));
    }
    if left_off > 0 {
        notes.push(format!("{left_off} more pages are left off."));
    } else if answer.truncated {
        notes.push(
            "There are more copies than one answer has; those marked ? were not looked for in time."
                .into(),
        );
    }
    if answer.pages.iter().any(|row| row.page.at.is_some()) {
        notes.push(
            "Places are BLOCK:PAGE, as in the map of the page and for `ftld inspect --page`."
                .into(),
        );
    }
    for note in notes {
        text += &wrapped(&format!("{note}\n"));
    }
    text
}

const DEAD: &str = "DEAD COPIES";

fn rows<const N: usize>(
    heading: [&str; N],
    pages: &[Row],
    row: impl Fn(&Row) -> [String; N],
) -> Vec<[String; N]> {
    let mut rows = vec![heading.map(str::to_owned)];
    rows.extend(pages.iter().map(row));
    rows
}

/// Returns where a page is now.
fn at(page: &PagePlaces) -> String {
    let on_flash = page.at.map(|(_, block, page)| format!("{block}:{page}"));
    match (on_flash, page.cached) {
        (Some(at), false) => at,
        (Some(at), true) => format!("{at}, newer bytes in the write cache"),
        (None, true) => "the write cache".into(),
        (None, false) if page.unsure => "?".into(),
        (None, false) => "-".into(),
    }
}

fn dead_text(page: &PagePlaces) -> String {
    let shown = page.dead.iter().take(DEAD_SHOWN);
    let mut copies: Vec<_> = shown
        .map(|(_, block, page, version)| format!("{block}:{page} v{version}"))
        .collect();
    if page.dead.len() > DEAD_SHOWN {
        copies.push(format!("{} more", page.dead.len() - DEAD_SHOWN));
    }
    match copies.is_empty() {
        true => "-".into(),
        false => copies.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, at: u64, bytes: u64, state: State) -> Extent {
        Extent {
            offset,
            at,
            bytes,
            state,
        }
    }

    #[test]
    fn extents_are_pieces_of_the_disk_or_the_message_says_why_not() {
        let written = extent(0, 8192, 4096, State::Written);
        let hole = extent(4096, 0, 4096, State::Unwritten);
        let beyond = extent(1 << 20, 0, 4096, State::Inline);
        let (pieces, unwritten) = pieces_of(&[written, hole, beyond], 9000, 512, 1 << 20).unwrap();
        let piece = Piece {
            file_offset: Some(0),
            offset: 8704,
            bytes: 4096,
        };
        assert_eq!((pieces, unwritten), (vec![piece], 4096));
        for (extent, says) in [
            (extent(0, 0, 60, State::Inline), "(inline)"),
            (extent(0, 0, 60, State::Encoded), "compressed or encrypted"),
            (extent(0, 0, 60, State::Unplaced), "`sync` the file first"),
            (extent(0, 1 << 20, 1, State::Written), "several devices"),
        ] {
            let refused = pieces_of(&[extent], 9000, 0, 1 << 20).unwrap_err();
            assert!(refused.message.contains(says), "{refused:?}");
        }
        assert!(
            pieces_of(&[], 1, 0, 1)
                .unwrap_err()
                .message
                .contains("hole")
        );
    }

    #[test]
    fn a_large_file_is_cut_off_at_a_page_and_lines_are_short() {
        let piece = |offset, bytes| Piece {
            file_offset: None,
            offset,
            bytes,
        };
        let most = to_u64(PLACES_MAX);
        let pieces = [piece(100, 4096), piece(8192, (most + 5) * 4096)];
        let (asked, left_off) = first_pages(&pieces, 4096);
        assert_eq!(left_off, 7);
        assert_eq!(asked, [piece(100, 4096), piece(8192, (most - 2) * 4096)]);
        let many: Vec<_> = (0..1000).map(|i| piece(i << 30, 4096)).collect();
        let lines = lines_of(&many);
        assert!(lines.iter().all(|line| line.len() < 4096 - 60), "{lines:?}");
        assert_eq!(lines.join(",").split(',').count(), 1000);
        assert!(lines_of(&[]).is_empty());
    }
}

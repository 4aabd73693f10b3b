//! `ftld check`: the tables against the flash, and every page read.

use super::cache::cache_of;
use super::chips::Chips;
use super::{named_user, path_of};
use ftl_core::Lpn;
use ftld_device::instance::Dirs;
use ftld_kit::convert::{index, to_u64};
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output::{counted, print, print_json};
use ftld_kit::path_json;
use ftld_kit::size::show_size;
use serde_json::{Value, json};
use std::ffi::OsStr;

/// `ftld check`: compares the tables with the flash, and reads every page.
///
/// # Errors
/// The image cannot be opened or mounted, a table is wrong, or a page cannot be read.
pub(crate) fn check(dirs: &Dirs, image: &OsStr, as_json: bool) -> Result<(), Failure> {
    let path = path_of(dirs, image)?;
    let mut chips = Chips::open(&path).map_err(|failure| named_user(dirs, &path, failure))?;
    let (info, scheme) = (chips.info.clone(), chips.ftls[0].scheme());
    let cache = cache_of(&path, &info)?;
    let failed = |error: ftl_core::FtlError| {
        Failure::failed(format!("{}: checking: {error}", path.display()))
    };
    let mut findings = Vec::new();
    let (mut scanned, mut discarded) = (0, 0);
    let count = chips.ftls.len();
    for (shard, ftl) in chips.ftls.iter_mut().enumerate() {
        let named = |finding| match count {
            1 => finding,
            _ => format!("shard {shard}: {finding}"),
        };
        findings.extend(ftl.check().map_err(failed)?.into_iter().map(named));
        let mount = ftl.stats().mount;
        scanned += mount.pages_scanned;
        discarded += mount.pages_discarded;
    }
    let unreadable = unreadable(&mut chips)?;
    if !unreadable.is_empty() {
        let page = info.profile.geometry.page_bytes;
        let shown: Vec<_> = unreadable
            .iter()
            .take(RUNS_SHOWN)
            .map(|run| run.text(page))
            .collect();
        let more = if unreadable.len() > RUNS_SHOWN {
            ", and more"
        } else {
            ""
        };
        let pages: u32 = unreadable.iter().map(|run| run.pages).sum();
        findings.push(format!(
            "{} cannot be read: {}{more}",
            counted(pages.into(), "page"),
            shown.join(", ")
        ));
    }
    if as_json {
        let runs: Value = unreadable
            .iter()
            .map(|run| json!([run.first, run.pages]))
            .collect();
        let report = json!({
            "image": path_json::shown(&path), "scheme": scheme, "clean": info.clean, "pages_scanned": scanned,
            "pages_discarded": discarded, "findings": findings, "unreadable": runs,
            "write_cache": cache,
        });
        print_json("check", report)?;
    } else if findings.is_empty() {
        let stop = if info.clean {
            "clean shutdown"
        } else {
            "unclean shutdown, recovers"
        };
        print(&format!(
            "{}: good ({stop}; scheme {})\n",
            path.display(),
            scheme
        ))?;
        if let Some(cache) = &cache {
            print(&format!("{}\n", cache.text()))?;
        }
    } else {
        print(
            &findings
                .iter()
                .fold(String::new(), |text, finding| text + finding + "\n"),
        )?;
    }
    match findings.len() {
        0 => Ok(()),
        n => Err(Failure::new(
            Exit::Damaged,
            format!(
                "{}: {}; save what can be read with --read-only, see \"When an image is damaged\" in docs/LIMITS.md",
                path.display(),
                counted(to_u64(n), "finding")
            ),
        )),
    }
}

/// Maximum of runs of unreadable pages in a message.
const RUNS_SHOWN: usize = 8;

/// A run of adjacent logical pages.
struct Run {
    first: u32,
    pages: u32,
}

impl Run {
    fn text(&self, page_bytes: u32) -> String {
        let (at, bytes) = (
            u64::from(self.first) * u64::from(page_bytes),
            u64::from(self.pages) * u64::from(page_bytes),
        );
        format!("{} at offset {at}", show_size(bytes))
    }
}

/// Returns the mapped logical pages whose data is lost.
fn unreadable(chips: &mut Chips) -> Result<Vec<Run>, Failure> {
    let mut page = vec![0; index(chips.info.profile.geometry.page_bytes)];
    let mut runs: Vec<Run> = Vec::new();
    for lpn in 0..chips.pages() {
        let (shard, own) = chips.place(lpn)?;
        let read = chips.ftls[shard].read(0, Lpn::new(own), &mut page);
        if read.is_ok() {
            continue;
        }
        match runs.last_mut().filter(|run| run.first + run.pages == lpn) {
            Some(run) => run.pages += 1,
            None => runs.push(Run {
                first: lpn,
                pages: 1,
            }),
        }
    }
    Ok(runs)
}

//! `ftld inspect` and `ftld check`: examine an image without changing it, also after a power cut.

mod cache;
mod check;
mod chips;
mod text;
mod values;

pub(crate) use check::check;

use super::{Found, recording};
use cache::cache_of;
use chips::Chips;
use ftld_device::instance::Dirs;
use ftld_device::stack;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output::{print, print_json, wrapped_on_terminal};
use ftld_kit::path_json::{self, ImagePath};
use ftld_kit::profile_file;
use ftld_traces::recording::Reader;
use nand_model::store::peek;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use text::text;
use values::{Inspected, OfShard, blocks_of, header_json, logical_page, page_at, parse_page};

/// Options of `ftld inspect`.
#[derive(Clone, Debug, Default)]
pub(crate) struct InspectOptions {
    /// Every block.
    pub(crate) blocks: bool,
    /// One page as `BLOCK:PAGE`.
    pub(crate) page: Option<String>,
    /// One logical page.
    pub(crate) lpn: Option<u32>,
    /// The flash device alone, as a TOML file.
    pub(crate) toml: bool,
    /// Every entry of a recording.
    pub(crate) entries: bool,
    /// JSON instead of text.
    pub(crate) json: bool,
}

/// Returns a path, or the image of an instance by name.
///
/// # Errors
/// There is neither.
pub(super) fn path_of(dirs: &Dirs, image: &OsStr) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(image);
    let Some(image) = path_json::name_in(image).filter(|_| !path.exists()) else {
        return Ok(path);
    };
    let of_instance = dirs.image(image);
    if of_instance.symlink_metadata().is_ok() {
        return Ok(of_instance);
    }
    Err(Failure::failed(format!(
        "{image}: no such image, neither a file {image} here nor {}; `ftld list --all` shows all",
        of_instance.display()
    )))
}

/// Adds to the failure for an image in use the instance that uses it.
pub(super) fn named_user(dirs: &Dirs, image: &Path, failure: Failure) -> Failure {
    if failure.exit != Exit::InUse {
        return failure;
    }
    let path = image.canonicalize().unwrap_or_else(|_| image.to_owned());
    let uses = |name: &String| {
        let found = Found::of(dirs, name);
        found
            .status
            .is_some_and(|status| status.image.path() == path)
    };
    match dirs.names().into_iter().find(uses) {
        Some(name) => Failure::new(
            failure.exit,
            format!(
                "{}: in use by instance {name:?}; `ftld stop {name}` ends it, `ftld status {name}` shows it",
                image.display()
            ),
        ),
        None => failure,
    }
}

/// `ftld inspect`.
///
/// # Errors
/// The image is in use, damaged, or not an image; the page or block does not exist.
pub(crate) fn inspect(dirs: &Dirs, image: &OsStr, wanted: &InspectOptions) -> Result<(), Failure> {
    let path = path_of(dirs, image)?;
    if path.is_file() && Reader::detects(&path).unwrap_or(false) {
        return recording::inspect(&path, wanted);
    }
    if wanted.entries {
        return Err(Failure::usage(format!(
            "{}: is no recording, and only those have --entries; `ftld --record FILE` writes one",
            path.display()
        )));
    }
    let info = peek(&path).map_err(|error| stack::image_failure(&error))?;
    if wanted.toml {
        return print(&profile_file::to_toml(&info.profile));
    }
    let mut found = Inspected {
        image: ImagePath::new(&path),
        header: header_json(&info),
        write_cache: cache_of(&path, &info)?,
        blocks: None,
        page: None,
        lpn: None,
    };
    if wanted.blocks || wanted.page.is_some() || wanted.lpn.is_some() {
        let mut chips = Chips::open(&path).map_err(|failure| named_user(dirs, &path, failure))?;
        if wanted.blocks {
            let all = chips.ftls.iter().enumerate();
            let blocks = all.flat_map(|(shard, ftl)| blocks_of(shard, ftl.chip()));
            found.blocks = Some(blocks.collect());
        }
        if let Some(page) = &wanted.page {
            let (shard, ppn) = parse_page(page, &info)?;
            let numbers = chips.numbers(shard);
            let page = page_at(chips.ftls[shard].chip_mut(), ppn, &numbers);
            found.page = Some(OfShard { shard, page });
        }
        if let Some(lpn) = wanted.lpn {
            let (shard, own) = chips.place(lpn)?;
            let numbers = chips.numbers(shard);
            let page = logical_page(&mut *chips.ftls[shard], own, &numbers)?;
            found.lpn = Some(OfShard { shard, page });
        }
    }
    if wanted.json {
        print_json("inspect", found)
    } else {
        print(&wrapped_on_terminal(&text(
            &found,
            &info,
            &profile_file::summary(&info.profile),
        )))
    }
}

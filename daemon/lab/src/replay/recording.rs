//! A recording as the workload; by default on a new copy of the recorded device.
//!
//! Invariants: a replay on the recorded device begins as that device did: formatted, shut down and
//! mounted, with the same bad blocks from the factory. Then equal requests give equal counters.

use super::job::Method;
use super::source::failure;
use ftl_core::Params;
use ftld_device::config::ImageRequirements;
use ftld_device::flash_device::{FlashDevice, recorded_params, recorded_profile};
use ftld_kit::failure::Failure;
use ftld_traces::recording::{Head, Kind, Reader};
use nand_model::{Capacity, Profile};
use std::ops::Range;
use std::path::Path;

/// A recording, whose head was read.
pub(super) struct Recording {
    name: String,
    cut_off: bool,
    head: Head,
}

impl Recording {
    /// Opens the recording that a job replays, if it replays one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn open(name: &str, method: &Method) -> Result<Option<Recording>, Failure> {
        let file = Path::new(name);
        if method.format.is_some() || !file.is_file() {
            return Ok(None);
        }
        if !Reader::detects(file).map_err(|error| failure(&error))? {
            return Ok(None);
        }
        let cut_off = method.cut_off;
        let reader = Reader::open(file, cut_off).map_err(|error| failure(&error))?;
        Ok(Some(Recording {
            name: name.to_owned(),
            cut_off,
            head: reader.head().clone(),
        }))
    }

    /// Returns a recording of a device that has this head, which is being made. `name` is its name
    /// in messages.
    pub(super) fn of_head(name: &str, head: Head) -> Recording {
        Recording {
            name: name.to_owned(),
            cut_off: false,
            head,
        }
    }

    /// Returns the number of shards of the recorded device, if it had several.
    pub(super) fn shards(&self) -> Option<u32> {
        self.head.flash.as_ref()?.shards
    }

    /// Returns the recorded device and its size, if it has one chip and no requirement asks for
    /// another device.
    ///
    /// # Errors
    /// This program does not know its scheme or its flash.
    pub(super) fn device(
        &self,
        asked: &ImageRequirements,
    ) -> Result<Option<(FlashDevice, u64)>, Failure> {
        let Some(flash) = &self.head.flash else {
            return Ok(None);
        };
        let is_same = flash.shards.is_none()
            && asked.profile.is_none()
            && asked.op.is_none()
            && asked.params == Params::default()
            && asked
                .scheme
                .as_ref()
                .is_none_or(|name| *name == flash.scheme)
            && asked.size.is_none_or(|size| size == self.head.size);
        if !is_same {
            return Ok(None);
        }
        let device = FlashDevice::recorded(flash, &self.name)?;
        Ok(Some((device, self.head.size)))
    }

    /// Fills in the unspecified requirements from the recorded device.
    ///
    /// # Errors
    /// The head describes no flash.
    pub(super) fn fill(&self, asked: ImageRequirements) -> Result<ImageRequirements, Failure> {
        let size = asked.size.or(Some(self.head.size));
        let Some(flash) = &self.head.flash else {
            return Ok(ImageRequirements { size, ..asked });
        };
        let scheme = asked.scheme.unwrap_or_else(|| flash.scheme.clone());
        let params = match scheme == flash.scheme && asked.params == Params::default() {
            true => recorded_params(flash),
            false => asked.params,
        };
        let profile = match asked.profile {
            Some(profile) => profile,
            // A device of another scheme, size or over-provisioning has its own number of blocks.
            None => match recorded_profile(flash, &self.name)? {
                (profile, true) => Profile {
                    capacity: Capacity::BySize,
                    ..profile
                },
                (profile, false) => profile,
            },
        };
        Ok(ImageRequirements {
            scheme: Some(scheme),
            profile: Some(profile),
            size,
            params,
            ..asked
        })
    }

    /// Returns the pages of the initial content, in runs.
    ///
    /// # Errors
    /// The file cannot be read, or a page is beyond the device of `pages` pages.
    pub(super) fn content(&self, page_bytes: u64, pages: u32) -> Result<Vec<Range<u32>>, Failure> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        let reader = Reader::open(Path::new(&self.name), self.cut_off);
        for entry in reader.map_err(|error| failure(&error))? {
            let entry = entry.map_err(|error| failure(&error))?;
            if entry.kind != Kind::Base {
                break;
            }
            let range = entry.offset..entry.offset.saturating_add(entry.length);
            if !add_pages(&mut runs, range, page_bytes, pages) {
                return Err(Failure::usage(format!(
                    "{}: {} bytes of initial content at {} reach beyond the device; add a larger \
                     --size",
                    self.name, entry.length, entry.offset
                )));
            }
        }
        Ok(runs)
    }
}

/// Appends the pages of a range of bytes to ascending runs. Returns whether the device of `pages`
/// pages has them.
pub(super) fn add_pages(
    runs: &mut Vec<Range<u32>>,
    bytes: Range<u64>,
    page_bytes: u64,
    pages: u32,
) -> bool {
    let page = |at: u64| u32::try_from(at).ok().filter(|page| *page <= pages);
    let first = page(bytes.start / page_bytes);
    let end = page(bytes.end.div_ceil(page_bytes));
    let (Some(first), Some(end)) = (first, end) else {
        return false;
    };
    match runs.last_mut() {
        Some(last) if first <= last.end => last.end = last.end.max(end),
        _ => runs.push(first..end),
    }
    true
}

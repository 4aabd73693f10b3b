//! A recording as the workload: its device is the default, as the live device was made.
//!
//! Invariants: a replay on the recorded device begins as that device did: formatted, shut down and
//! mounted, with the same bad blocks from the factory. Then equal requests give equal counters.

use super::job::Job;
use super::source::failure;
use crate::config::ImageRequirements;
use crate::failure::Failure;
use crate::flash_device::{FlashDevice, recorded_params, recorded_profile};
use crate::size::parse_size;
use ftl_core::Params;
use ftld_traces::recording::{Flash, Head, Kind, Reader};
use nand_model::{Capacity, Profile};
use std::ops::Range;
use std::path::Path;

/// Returns the head of the recording that a job replays, if it replays one.
pub(super) fn head(job: &Job) -> Result<Option<Head>, Failure> {
    let file = Path::new(&job.workload);
    if job.method.format.is_some() || !file.is_file() {
        return Ok(None);
    }
    if !Reader::detects(file).map_err(|error| failure(&error))? {
        return Ok(None);
    }
    let reader = Reader::open(file, job.method.cut_off).map_err(|error| failure(&error))?;
    Ok(Some(reader.head().clone()))
}

/// Returns the recorded device and its size, if the job replays a recording and no option asks for
/// another device.
pub(super) fn device(job: &Job) -> Result<Option<(FlashDevice, u64)>, Failure> {
    let Some(head) = head(job)? else {
        return Ok(None);
    };
    let flash = head.flash.as_ref();
    let Some(flash) = flash.filter(|flash| is_same(job, &head, flash)) else {
        return Ok(None);
    };
    let device = FlashDevice::recorded(flash, &job.workload)?;
    Ok(Some((device, head.size)))
}

/// Returns the number of shards of the recorded device, if it had several.
pub(super) fn shards(job: &Job) -> Result<Option<u32>, Failure> {
    let flash = head(job)?.and_then(|head| head.flash);
    Ok(flash.and_then(|flash| flash.shards))
}

/// Fills in what the job does not say about its device from the recording.
pub(super) fn fill(
    job: &Job,
    requirements: ImageRequirements,
) -> Result<ImageRequirements, Failure> {
    let Some(head) = head(job)? else {
        return Ok(requirements);
    };
    let size = requirements.size.or(Some(head.size));
    let Some(flash) = &head.flash else {
        return Ok(ImageRequirements {
            size,
            ..requirements
        });
    };
    let scheme = requirements.scheme.unwrap_or_else(|| flash.scheme.clone());
    let params = match scheme == flash.scheme && requirements.params == Params::default() {
        true => recorded_params(flash),
        false => requirements.params,
    };
    let profile = match requirements.profile {
        Some(profile) => profile,
        // A device of another scheme, size or over-provisioning has its own number of blocks.
        None => match recorded_profile(flash, &job.workload)? {
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
        ..requirements
    })
}

fn is_same(job: &Job, head: &Head, flash: &Flash) -> bool {
    let size = job.size.as_deref().map(parse_size);
    // A simulation has one chip: of a device with several, it takes scheme and size.
    flash.shards.is_none()
        && job.preset.is_none()
        && job.profile.is_none()
        && job.op.is_none()
        && job.raw.is_none()
        && job.ram.is_none()
        && job.set.is_empty()
        && job.scheme.as_ref().is_none_or(|name| *name == flash.scheme)
        && size.is_none_or(|size| size == Ok(head.size))
}

/// Returns the pages of the initial content, in runs.
pub(super) fn content(job: &Job, page_bytes: u64, pages: u32) -> Result<Vec<Range<u32>>, Failure> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    if head(job)?.is_none() {
        return Ok(runs);
    }
    let file = Path::new(&job.workload);
    let reader = Reader::open(file, job.method.cut_off).map_err(|error| failure(&error))?;
    for entry in reader {
        let entry = entry.map_err(|error| failure(&error))?;
        if entry.kind != Kind::Base {
            break;
        }
        let page = |at: u64| u32::try_from(at).ok().filter(|page| *page <= pages);
        let first = page(entry.offset / page_bytes);
        let end = entry.offset.saturating_add(entry.length);
        let end = page(end.div_ceil(page_bytes));
        let (Some(first), Some(end)) = (first, end) else {
            return Err(Failure::usage(format!(
                "{}: {} bytes of initial content at {} reach beyond the device; add a larger --size",
                job.workload, entry.length, entry.offset
            )));
        };
        match runs.last_mut() {
            Some(last) if first <= last.end => last.end = last.end.max(end),
            _ => runs.push(first..end),
        }
    }
    Ok(runs)
}

//! The battery of host crashes: between two syncs the host's disk keeps any subset of the writes,
//! torn at sectors. For every subset the image opens, the scheme mounts, and the oracle finds all
//! flushed data. The same with writes and syncs that the host refuses.

use crate::crashes::{self, EIO, ENOSPC, rig_of};
use crate::rig::Cells;
use crate::verdicts::Verdicts;
use crate::workload::Kind;
use ftl_core::schemes::Scheme;
use ftld_host_disk::SimDisk;
use nand_model::{Access, ImageError, SplitMix};

/// A part of this battery: the cases of one question on one kind of cells.
pub type Part = fn(&'static Scheme, Cells, &mut Verdicts);

/// All parts, by name.
pub const PARTS: [(&str, Part); 4] = [
    ("all along", all_along),
    ("new images", new_images),
    ("refused writes", refused_writes),
    ("failed syncs", failed_syncs),
];

/// Crashes of the host at many moments of three workloads, in every way.
///
/// # Panics
/// A request fails before the crash.
pub fn all_along(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) {
    let moments = verdicts.budget().pick(20, 30, 1_100);
    let rig = rig_of(scheme, cells, verdicts.budget());
    for kind in [Kind::FullDisk, Kind::Mixed, Kind::TrimHeavy] {
        if verdicts.want(&format!("{}/{}", rig.path(), kind.name())) {
            crashes::crash_all_along(&rig, kind, moments, verdicts);
        }
    }
}

/// A crash during the creation of an image leaves a file that is refused with a reason, or a new
/// image.
pub fn new_images(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) {
    let rig = rig_of(scheme, cells, verdicts.budget());
    verdicts.case(&format!("{}/new_image", rig.path()), || {
        let (disk, host) = crashes::device(&rig);
        let whole = disk.bytes();
        drop(host);
        for length in (0..whole.len()).step_by(2048) {
            let short = SimDisk::holding(whole[..length].to_vec());
            let error = match short.open(Access::ReadWrite) {
                Ok(_) => return Err(format!("an image that ends after {length} bytes opened")),
                Err(error) => error,
            };
            let told = matches!(
                error,
                ImageError::TooShort { .. }
                    | ImageError::NotAnImage(_)
                    | ImageError::HeaderDamaged(_)
            );
            if !told {
                return Err(format!("{length}: {error}"));
            }
        }
        // No sync succeeds, so any written byte may be missing.
        let sectors = whole.len() / 512;
        let mut rng = SplitMix::new(rig.seed);
        for _ in 0..200 {
            let mut bytes = whole.clone();
            for _ in 0..1 + rng.below(8) {
                let sector = rng.below(sectors as u64) as usize;
                bytes[sector * 512..][..512].fill(0);
            }
            if let Ok((store, _)) = SimDisk::holding(bytes).open(Access::ReadWrite) {
                let _ = rig.mount(rig.open(store)).map(drop);
            }
        }
        Ok(())
    });
}

/// The n-th write of the host's file fails, for every n: nothing acknowledged is lost, and the next
/// request succeeds.
pub fn refused_writes(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) {
    let (requests, every) = verdicts.budget().pick((60, 21), (60, 7), (160, 1));
    let rig = rig_of(scheme, cells, verdicts.budget());
    for (errno, arrives) in [(ENOSPC, 0), (ENOSPC, 700), (EIO, 0), (EIO, 100)] {
        // An upper bound of the writes for this many requests.
        for index in (0..requests as u64 * 64).step_by(every) {
            let here = format!("{}/refused/{errno}/{arrives}/{index}", rig.path());
            if !verdicts.draws(&here) {
                continue;
            }
            let mut reached = true;
            verdicts.case(&here, || {
                crashes::refuse_write(&rig, requests, index, (errno, arrives), &mut reached)
            });
            if !reached {
                break;
            }
        }
    }
}

/// A sync that fails once loses its writes permanently, although the next one succeeds. Nothing is
/// acknowledged after it, and earlier flushed data is there.
pub fn failed_syncs(scheme: &'static Scheme, cells: Cells, verdicts: &mut Verdicts) {
    let rounds = verdicts.budget().pick(4, 12, 200);
    let rig = rig_of(scheme, cells, verdicts.budget());
    for round in 0..rounds {
        verdicts.case(&format!("{}/bad_sync/{round}", rig.path()), || {
            crashes::fail_sync(&rig, round)
        });
    }
}

//! Device of a plan: creation, opening, reading the whole device.

use crate::daemon_swarm::gate::{Gate, Unblocked};
use crate::daemon_swarm::plan::Plan;
use ftl_core::{FtlConfig, Params, Start};
use ftld_battery::rig::has_param;
use ftld_device::config::Latency;
use ftld_device::device::BlockDevice;
use ftld_device::stack::{CacheUse, close_stores, volume_on};
use ftld_device::volume::Volume;
use ftld_host_disk::SimDisk;
use nand_model::store::Access;
use nand_model::{Chip, Geometry, ImageSpec, Profile};
use std::path::Path;
use std::sync::Arc;

/// Name of images on a simulated disk.
pub(super) const NAME: &str = "simulated disk";

fn profile_of(plan: &Plan) -> Profile {
    let profile = plan.cells.profile();
    let geometry = Geometry {
        page_bytes: plan.page,
        pages_per_block: plan.block,
        ..profile.geometry
    };
    // The `wear` suite covers wear.
    Profile {
        geometry,
        endurance: 1 << 20,
        ..profile
    }
}

/// Creates an image on a new disk.
pub(super) fn make(plan: &Plan) -> Result<SimDisk, String> {
    let scheme = plan.scheme()?;
    let mut params = Params::default();
    for (key, value) in [
        ("ckpt.interval", plan.checkpoint.to_string()),
        ("wear.gap", "4".into()),
    ] {
        if has_param(scheme, key) {
            params.set(key, &value);
        }
    }
    plan.params
        .iter()
        .for_each(|(key, value)| params.set(key, value));
    let text = params.iter().fold(String::new(), |text, (key, value)| {
        text + &format!("{key}={value}\n")
    });
    let told = |error: &dyn std::fmt::Display| format!("plan: {error}");
    let chip_bytes = plan
        .striping
        .map_or(plan.size, |of| of.shard_bytes(plan.size));
    // A device may end inside a page, although the command line never creates one.
    let room = chip_bytes.next_multiple_of(4096);
    let layout = scheme.layout(&profile_of(plan), room, f64::from(plan.op) / 100.0, &params);
    let layout = layout.map_err(|error| told(&error))?;
    let spec = ImageSpec {
        profile: layout.profile,
        size: plan.size,
        scheme: scheme.name.into(),
        params: text,
    };
    let (disk, stores) =
        SimDisk::create_shards(&spec, plan.striping, plan.spare).map_err(|error| told(&error))?;
    let logical_pages = chip_bytes.div_ceil(u64::from(plan.page)) as u32;
    for store in stores {
        let chip = Chip::over(layout.profile, store).map_err(|error| told(&error))?;
        let config = FtlConfig {
            logical_pages,
            params: params.clone(),
        };
        let mut ftl = scheme
            .start(chip, &config, Start::Format)
            .map_err(|error| told(&error))?;
        ftl.shutdown(0).map_err(|error| told(&error))?;
        close_stores([ftl.into_chip().into_store()]).map_err(|error| told(&error))?;
    }
    Ok(disk)
}

pub(super) fn open(
    plan: &Plan,
    disk: &SimDisk,
    gate: Option<&Arc<Gate>>,
) -> Result<Volume, String> {
    let (stores, _) = disk
        .open_shards(Access::ReadWrite)
        .map_err(|error| format!("open: {error}"))?;
    let stack = volume_on(
        Path::new(NAME),
        stores,
        false,
        Latency::None,
        CacheUse {
            options: plan.cache,
            boot_id: &disk.boot_id(),
        },
        |inner| match gate {
            Some(gate) => Arc::new(Unblocked {
                inner,
                gate: gate.clone(),
            }),
            None => inner,
        },
    );
    Ok(stack.map_err(|failure| format!("mount: {failure}"))?.volume)
}

/// Reads the whole content of a volume, holes included.
pub(super) fn contents(volume: &Volume) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0xA5; volume.size() as usize];
    volume
        .read(0, &mut bytes)
        .map_err(|error| format!("read after a restart: {error}"))?;
    let mut at = 0;
    while at < bytes.len() {
        let left = (bytes.len() - at) as u64;
        let extents = volume
            .extents(at as u64, left, 1024)
            .map_err(|error| format!("extents: {error}"))?;
        for extent in extents {
            let part = &bytes[at..at + extent.len as usize];
            if !extent.mapped && part.iter().any(|byte| *byte != 0) {
                return Err(format!(
                    "the hole at byte {at} of {} bytes does not read as zeros",
                    extent.len
                ));
            }
            at += extent.len as usize;
        }
    }
    Ok(bytes)
}

//! A new image: layout, file, factory-bad blocks, format, age.
//!
//! Invariants: the image gets its name when it is finished and synced.

use super::label::params_text;
use super::unfinished::{Unfinished, folder_of, name_image, sync_folder};
use super::{Label, age, close_stores, factory_seed, image_failure, refuse_order, refuse_unit};
use crate::aging::{Conditioned, ImageAge};
use crate::config::{Config, NewDevice, RawFlash};
use crate::flash_device::FlashDevice;
use ftl_core::schemes::{Layout, Scheme};
use ftl_core::{FtlConfig, FtlError, RamReport, add_ram};
use ftld_kit::convert::index;
use ftld_kit::failure::Failure;
use ftld_kit::size::show_size;
use nand_model::store::FileStore;
use nand_model::{ImageError, ImageSpec, Striping};
use std::path::Path;

/// Properties of a new image.
pub struct Made {
    /// The scheme.
    pub scheme: &'static Scheme,
    /// Shape of the flash and logical pages of each chip.
    pub layout: Layout,
    /// The stripes over several chips.
    pub striping: Option<Striping>,
    /// Bytes the host sees.
    pub size: u64,
    /// Requested over-provisioning in percent.
    pub op_percent: f64,
    /// Blocks bad from the factory, of all chips.
    pub bad_blocks: u32,
    /// RAM of the scheme's tables, of all chips.
    pub ram: RamReport,
    /// How it was aged, if it was.
    pub aged: Option<Conditioned>,
}

impl Made {
    /// Returns the number of chips.
    pub fn shards(&self) -> u32 {
        self.striping.map_or(1, |striping| striping.count)
    }

    /// Returns the layout of the bytes on several chips; empty for one.
    pub fn chips_text(&self) -> String {
        self.striping.map_or(
            String::new(),
            |Striping {
                 count,
                 stripe_bytes,
             }| {
                format!(", {count} chips in stripes of {}", show_size(stripe_bytes))
            },
        )
    }

    /// Returns the bytes of all pages of the flash.
    pub fn raw_bytes(&self) -> u64 {
        self.layout.profile.geometry.data_bytes() * u64::from(self.shards())
    }
}

/// Creates a new image and formats it.
///
/// # Errors
/// The image exists, no device fits the configuration, or the host refuses to write it.
pub(crate) fn create(config: &Config) -> Result<Made, Failure> {
    create_aged(config, None, &mut |_| ())
}

/// Creates a new image, formats it and ages it; `tick` receives the share of the ageing done.
///
/// # Errors
/// As [`create`].
pub fn create_aged(
    config: &Config,
    age: Option<ImageAge>,
    tick: &mut dyn FnMut(f64),
) -> Result<Made, Failure> {
    let Config {
        image,
        requirements,
        ..
    } = config;
    let NewDevice {
        scheme,
        layout,
        striping,
        size,
        op_percent,
    } = requirements.device(None, RawFlash::Own)?;
    let shards = striping.map_or(1, |striping| striping.count);
    refuse_order(index(shards), config.write_cache)?;
    refuse_unit(config.atomic_unit, &layout.profile, size)?;
    if image.symlink_metadata().is_ok() {
        return Err(image_failure(&ImageError::Exists(image.clone())));
    }
    // Ageing counts the pages of the device, which several chips may have more of than one.
    let page = u64::from(layout.profile.geometry.page_bytes);
    let most = u64::from(u32::MAX) * page;
    if age.is_some() && size > most {
        return Err(Failure::usage(format!(
            "--age: a device of {} has more than 2^32 - 1 pages of {page} bytes; choose a --size of \
             at most {} bytes, or leave the option out",
            show_size(size),
            most - most % 4096
        )));
    }
    let params = params_text(&requirements.params, op_percent);
    let spec = ImageSpec {
        profile: layout.profile,
        size,
        scheme: scheme.name.into(),
        params,
    };
    let folder = folder_of(image);
    let missing = folder
        .ancestors()
        .take_while(|folder| !folder.exists())
        .count();
    let elsewhere = "choose another place with --image or FTLD_STATE_DIR";
    std::fs::create_dir_all(folder).map_err(|error| Failure::folder(folder, &error, elsewhere))?;
    let unfinished = Unfinished::named_after(image);
    let stores = FileStore::create_shards(unfinished.path(), &spec, striping);
    let stores = stores.map_err(|error| match error {
        // The temporary name is of no interest.
        ImageError::Io { source, .. } => {
            let failure = Failure::io(format!("{}: cannot create it", image.display()), &source);
            Failure::new(failure.exit, format!("{failure}; {elsewhere}"))
        }
        other => image_failure(&other),
    })?;
    let label = Label {
        scheme,
        params: requirements.params.clone(),
        op_percent: Some(op_percent),
    };
    let (mut bad_blocks, mut ram) = (0, RamReport::new());
    for store in stores {
        let (bad, tables) = format(image, store, layout, &label)?;
        bad_blocks += bad;
        add_ram(&mut ram, &tables);
    }
    let aged = match age {
        None => None,
        Some(age) => Some(age::age(image, unfinished.path(), &label, age, tick)?),
    };
    name_image(unfinished.path(), image)?;
    folder
        .ancestors()
        .take(missing + 1)
        .try_for_each(sync_folder)?;
    Ok(Made {
        scheme,
        layout,
        striping,
        size,
        op_percent,
        bad_blocks,
        ram,
        aged,
    })
}

/// Formats one chip of an image; returns the number of bad blocks and the scheme's RAM.
fn format(
    image: &Path,
    store: FileStore,
    layout: Layout,
    label: &Label,
) -> Result<(u32, RamReport), Failure> {
    let failed = |error: FtlError| match error {
        FtlError::Config(_) => Failure::usage(error),
        error => Failure::failed(format!("{}: formatting: {error}", image.display())),
    };
    let device = FlashDevice {
        scheme: label.scheme,
        profile: layout.profile,
        config: FtlConfig {
            logical_pages: layout.logical_pages,
            params: label.params.clone(),
        },
        seed: factory_seed(store.info()),
    };
    let mut ftl = device.format(store).map_err(failed)?;
    let made = (ftl.stats().blocks.bad, ftl.ram_report());
    ftl.shutdown(0).map_err(failed)?;
    close_stores([ftl.into_chip().into_store()])?;
    Ok(made)
}

//! Wiring of a device: image file -> chip -> scheme -> volume, in that order.
//!
//! Invariants: a check that finds the wrong image never changes it; a new image gets its name when
//! it is finished and synced. A killed creator leaves a file with another name, `.IMAGE.new-...`,
//! which a later start removes.

mod age;
mod cache;
mod create;
mod label;
mod long_start;
mod unfinished;

pub use cache::damaged as damaged_cache;
pub use cache::{CacheUse, boot_id};
pub(crate) use create::create;
pub use create::create_aged;
pub use label::{Label, fits, read_label};

use crate::config::{Config, ImageRequirements, Latency};
use crate::status::Recovery;
use crate::volume::write_cache::{CacheOptions, Opening};
use crate::volume::{Durable, MountedChip, Volume, VolumeOptions, shard_text};
use cache::Image;
use ftl_core::{Ftl, FtlConfig, FtlError, Start};
use ftld_kit::convert::{index, to_u64};
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::private_lock::is_open_to_others;
use ftld_kit::size::show_size;
use label::contradiction;
use long_start::{LongStart, REPORT_EVERY};
use nand_model::store::{Access, AnyStore, FileStore, SyncHandle, peek};
use nand_model::{Chip, ImageError, ImageInfo, Profile};
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
pub use unfinished::{Unfinished, folder_of, remove_unfinished};

/// A volume ready to serve.
pub struct Stack {
    /// The volume.
    pub volume: Volume,
    /// Name of the scheme.
    pub scheme: &'static str,
    /// The flash.
    pub profile: Profile,
    /// Bytes the scheme maps; the host sees at most these.
    pub logical_bytes: u64,
    /// Whether the last shutdown of the image was clean.
    pub was_clean: bool,
    /// Whether the use before ended with a cut of the emulated power.
    pub power_cut: bool,
    /// Identity of the image.
    pub uuid: [u8; 16],
    /// Whether this start created the image.
    pub is_new: bool,
    /// The image's syncs, as the first shard sees them.
    pub sync: SyncHandle,
}

/// Durability of the image file on the host's storage.
struct ImageSync(SyncHandle);

impl Durable for ImageSync {
    fn mark(&self, _store: &mut AnyStore) -> u64 {
        self.0.last_seq()
    }
    fn synced(&self) -> u64 {
        self.0.synced_seq()
    }
    fn wait(&self, mark: u64) -> io::Result<()> {
        self.0.sync_through(mark).map_err(io::Error::from)
    }
    fn wait_for_erased_space(&self, mark: u64) -> io::Result<()> {
        self.0.settle(mark).map_err(io::Error::from)
    }
    fn failed(&self) -> bool {
        self.0.failure().is_some()
    }
}

/// Opens the image, or creates it if it is missing, mounts its scheme and creates a volume on it.
///
/// # Errors
/// The image is in use, damaged, or contradicts the configuration; it cannot be created or mounted.
pub fn open_or_create(config: &Config) -> Result<Stack, Failure> {
    let image = &config.image;
    if !config.read_only {
        remove_unfinished(image);
    }
    let is_new = !image.exists();
    if is_new {
        if config.read_only {
            return Err(Failure::failed(format!(
                "{}: no such image, and --read-only creates none",
                image.display()
            )));
        }
        let made = create(config)?;
        tracing::info!(
            "created {}: {} on {} of {} raw, scheme {}{}",
            image.display(),
            show_size(made.size),
            made.layout.profile.name,
            show_size(made.raw_bytes()),
            made.scheme.name,
            made.chips_text()
        );
    }
    let access = if config.read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    let info = peek(image).map_err(|error| image_failure(&error))?;
    let label = read_label(image, &info)?;
    contradiction(image, &config.requirements, &info, &label)?;
    if !is_new && config.requirements != ImageRequirements::default() {
        tracing::info!(
            "{}: continues on the image of an earlier start",
            image.display()
        );
    }
    // Before the image is open: a refusal must not leave it unclean.
    refuse_order(index(info.shards()), config.write_cache)?;
    refuse_unit(config.atomic_unit, &info.profile, info.size)?;
    if !config.read_only {
        close_to_others(image);
    }
    let shown = image.display().to_string();
    let long_start = LongStart::watch(REPORT_EVERY, move |since| {
        tracing::info!("{shown}: still mounting after {} s", since.as_secs());
    });
    let (mut stores, report) =
        FileStore::open_shards(image, access).map_err(|error| image_failure(&error))?;
    if !report.was_clean {
        tracing::warn!(
            "{}: unclean shutdown; {} operations recovered, {} rolled back",
            image.display(),
            report.ops_kept,
            report.ops_dropped
        );
    }
    if report.sync_failed {
        tracing::warn!(
            "{}: an earlier sync failed; only data synced before it is used",
            image.display()
        );
    }
    for store in &mut stores {
        store.set_verify(config.verify);
    }
    let boot_id = boot_id().or_else(|failure| match config.write_cache {
        Some(_) => Err(failure),
        // With an empty boot id no entry of a cache counts.
        None => Ok(String::new()),
    })?;
    let cache = CacheUse {
        options: config.write_cache,
        boot_id: &boot_id,
    };
    let (read_only, latency) = (config.read_only, config.latency);
    let mut stack = volume_on(image, stores, read_only, latency, cache, |durable| durable)?;
    match config.atomic_unit {
        // Where the flash refuses the entries of an earlier cache, writes are split as it did.
        Some(_) if stack.volume.has_cache() => tracing::warn!(
            "{}: --atomic-unit does not hold yet: the flash refuses entries of an earlier write cache",
            image.display()
        ),
        Some(unit) => stack.volume.set_atomic_unit(unit),
        None => {}
    }
    drop(long_start);
    if !report.was_clean {
        let found = Recovery::of(&stack.volume.flash().scheme.mount, report.power_cut);
        for line in found.lines() {
            tracing::info!("{}: {line}", image.display());
        }
        tracing::warn!("{}: {}", image.display(), found.text());
    }
    Ok(Stack { is_new, ..stack })
}

/// Mounts the scheme of an open image on each of its chips and creates a volume on them. The mounts
/// are durable before the first request, with the entries of an earlier write cache. `wrap` may
/// insert a layer between the volume and the host's storage, for each chip.
///
/// # Errors
/// The image's scheme is unknown, does not mount, or the mounts cannot be synced.
pub fn volume_on(
    image: &Path,
    stores: Vec<FileStore>,
    read_only: bool,
    latency: Latency,
    cache: CacheUse<'_>,
    wrap: impl Fn(Arc<dyn Durable>) -> Arc<dyn Durable>,
) -> Result<Stack, Failure> {
    let first = stores[0].info().clone();
    let (label, shard) = (read_label(image, &first)?, first.shard);
    refuse_order(stores.len(), cache.options)?;
    let was_clean = stores.iter().all(|store| store.info().clean);
    let power_cut = stores.iter().any(|store| store.info().power_cut);
    let (size, profile, area) = (first.size, first.profile, stores[0].cache_area());
    let mut syncs: Vec<SyncHandle> = Vec::new();
    let mut chips: Vec<MountedChip> = Vec::new();
    for store in stores {
        let sync = store.sync_handle();
        let named = shard_of(store.info());
        let ftl = mount(image, store, &label)?;
        if !was_clean && !named.is_empty() {
            let found = Recovery::of(&ftl.stats().mount, power_cut);
            tracing::info!("{}: {named}{}", image.display(), found.text());
        }
        let durable = Some(wrap(Arc::new(ImageSync(sync.clone()))));
        chips.push(MountedChip { ftl, durable });
        syncs.push(sync);
    }
    if !read_only {
        // The mounts are synced before the first request: what a read returns is final.
        let mut syncs = syncs.iter();
        let synced = syncs.try_for_each(|sync| sync.sync_through(sync.last_seq()));
        synced.map_err(|error| Failure::failed(format!("{}: {error}", image.display())))?;
    }
    let pages = u64::from(chips[0].ftl.logical_pages());
    let chip_bytes = pages * u64::from(profile.geometry.page_bytes);
    let logical_bytes = chip_bytes * to_u64(chips.len());
    assert!(
        size <= logical_bytes,
        "an image of {size} bytes on a scheme of {logical_bytes} bytes"
    );
    let options = VolumeOptions {
        size,
        read_only,
        emulate: latency == Latency::Emulate,
    };
    let mut volume = Volume::sharded(chips, shard.map(|shard| shard.striping), options);
    let opened = Image {
        path: image,
        area,
        section: first.cache_area,
        opening: Opening {
            uuid: first.uuid,
            boot_id: cache.boot_id,
            sync_failed: first.sync_failed,
            page_bytes: profile.geometry.page_bytes,
            logical_bytes: chip_bytes,
        },
        read_only,
    };
    opened.open_cache(&mut volume, cache.options)?;
    Ok(Stack {
        volume,
        scheme: label.scheme.name,
        profile,
        logical_bytes,
        was_clean,
        power_cut,
        uuid: first.uuid,
        is_new: false,
        sync: syncs.swap_remove(0),
    })
}

/// Refuses a unit of atomicity that spans pages, of which a power cut may leave some, or the end of
/// the device.
fn refuse_unit(unit: Option<u32>, profile: &Profile, size: u64) -> Result<(), Failure> {
    let Some(unit) = unit else { return Ok(()) };
    let (name, page) = (profile.name, profile.geometry.page_bytes);
    let whole = show_size(unit.into());
    if !page.is_multiple_of(unit) {
        return Err(Failure::usage(format!(
            "--atomic-unit {whole}: a page of {name} has {page} bytes, and only a page is programmed \
             as a whole; choose a flash device whose pages it divides, such as tlc-16k, or leave this out"
        )));
    }
    if !size.is_multiple_of(unit.into()) {
        return Err(Failure::usage(format!(
            "--atomic-unit {whole}: the device has {size} bytes, which is no multiple of it; leave \
             this out, or make one of another --size"
        )));
    }
    Ok(())
}

/// Refuses a write cache whose order several chips cannot keep.
fn refuse_order(shards: usize, cache: Option<CacheOptions>) -> Result<(), Failure> {
    match cache {
        Some(options) if shards > 1 && options.keeps_order() => Err(Failure::usage(format!(
            "--cache-model ordered: the device has {shards} shards with a cache each, which keep no \
             common order; choose any or lost, or an image with one shard"
        ))),
        _ => Ok(()),
    }
}

/// Removes other users' access to an image owned by this user: a user who can open an image can
/// lock it, and so block its service.
fn close_to_others(image: &Path) {
    let Ok(meta) = image.metadata() else { return };
    if meta.uid() == nix::unistd::geteuid().as_raw() && is_open_to_others(&meta) {
        tracing::warn!(
            "{}: closed to other users, who could lock it (mode {:o})",
            image.display(),
            meta.mode() & 0o777
        );
        if let Err(error) =
            std::fs::set_permissions(image, Permissions::from_mode(meta.mode() & 0o700))
        {
            tracing::warn!("{}: {error}", image.display());
        }
    }
}

/// Returns the prefix of messages about this shard; empty for an image of one chip.
fn shard_of(info: &ImageInfo) -> String {
    info.shard.map_or(String::new(), |shard| {
        shard_text(index(shard.index), index(shard.striping.count))
    })
}

/// Mounts the image's scheme.
fn mount(image: &Path, store: FileStore, label: &Label) -> Result<Box<dyn Ftl>, Failure> {
    let info = store.info();
    let what = format!("{}mounting", shard_of(info));
    let failed = |error: FtlError| ftl_failure(image, &what, &error);
    let logical_pages = logical_pages(info);
    let chip = Chip::over(info.profile, store).map_err(|error| failed(error.into()))?;
    let config = FtlConfig {
        logical_pages,
        params: label.params.clone(),
    };
    let ftl = label
        .scheme
        .start(chip, &config, Start::Mount)
        .map_err(failed)?;
    assert_eq!(
        ftl.logical_pages(),
        logical_pages,
        "logical pages of the mounted device and of its image"
    );
    Ok(ftl)
}

/// Opens an image without ever changing it, and mounts its scheme in memory, on each of its chips.
///
/// # Errors
/// The image is in use, damaged, or its scheme does not mount.
pub fn open_in_memory(image: &Path) -> Result<(ImageInfo, Vec<Box<dyn Ftl>>), Failure> {
    let (stores, report) =
        FileStore::open_shards(image, Access::ReadOnly).map_err(|error| image_failure(&error))?;
    let mut info = stores[0].info().clone();
    info.clean = report.was_clean;
    let label = read_label(image, &info)?;
    let stores = stores.into_iter();
    let ftls = stores.map(|store| mount(image, store, &label));
    Ok((info, ftls.collect::<Result<_, _>>()?))
}

/// Returns the logical pages of each chip of an image: enough for its size. A size beyond
/// `u32::MAX` pages gives `u32::MAX`, which no scheme has room for.
pub fn logical_pages(info: &ImageInfo) -> u32 {
    let page = u64::from(info.profile.geometry.page_bytes);
    u32::try_from(info.shard_bytes().div_ceil(page)).unwrap_or(u32::MAX)
}

/// Returns the seed of a chip's bad blocks from the factory.
pub(crate) fn factory_seed(info: &ImageInfo) -> u64 {
    let seed = u64::from_le_bytes(info.uuid[..8].try_into().expect("eight bytes"));
    let index = info.shard.map_or(0, |shard| shard.index);
    seed.wrapping_add(u64::from(index))
}

/// Closes the stores of an image after a clean shutdown of its scheme and marks their headers
/// clean.
///
/// # Errors
/// The image cannot be written or synced.
///
/// # Panics
/// If a store is not of an image.
pub fn close_stores(stores: impl IntoIterator<Item = AnyStore>) -> Result<(), Failure> {
    let mut stores = stores.into_iter().map(of_image);
    stores.try_for_each(|store| store.close().map_err(|error| image_failure(&error)))
}

/// Closes the image of a flash without power: syncs everything and leaves its headers marked
/// unclean, and with the reason, if the host still takes that.
///
/// # Errors
/// The image cannot be synced.
///
/// # Panics
/// If a store is not of an image.
pub fn leave_stores(stores: Vec<AnyStore>, image: &Path) -> Result<(), Failure> {
    let stores: Vec<FileStore> = stores.into_iter().map(of_image).collect();
    let settle = |store: &FileStore| {
        let sync = store.sync_handle();
        sync.settle(sync.last_seq()).map_err(io::Error::from)
    };
    let settled = stores.iter().try_for_each(settle);
    let synced = settled.and_then(|()| std::fs::File::open(image)?.sync_all());
    synced.map_err(|error| Failure::io(image.display(), &error))?;
    let mut stores = stores.into_iter();
    if let Err(error) = stores.try_for_each(FileStore::close_powerless) {
        tracing::warn!("{error}; the next start recovers, but cannot name the power cut");
    }
    Ok(())
}

/// Returns the image's store of a closed chip.
fn of_image(store: AnyStore) -> FileStore {
    store.downcast().expect("the store of an image")
}

fn ftl_failure(image: &Path, what: &str, error: &FtlError) -> Failure {
    let exit = if matches!(error, FtlError::Corrupt(_)) {
        Exit::Damaged
    } else {
        Exit::Failed
    };
    Failure::new(exit, format!("{}: {what}: {error}", image.display()))
}

/// Returns the failure with its exit code for an image that cannot be opened or created.
pub fn image_failure(error: &ImageError) -> Failure {
    let exit = match error {
        ImageError::InUse(_) => Exit::InUse,
        ImageError::NotAnImage(_)
        | ImageError::UnknownVersion { .. }
        | ImageError::HeaderDamaged(_)
        | ImageError::Contradiction { .. }
        | ImageError::TooShort { .. }
        | ImageError::Damaged { .. } => Exit::Damaged,
        ImageError::BadSpec { .. } => Exit::Usage,
        ImageError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Exit::Permission
        }
        ImageError::NotFound(_)
        | ImageError::Exists(_)
        | ImageError::NotRegular(_)
        | ImageError::Io { .. } => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

#[cfg(test)]
mod tests;

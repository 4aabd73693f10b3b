//! Device of a run: a scheme on small MLC cells, whose pages are paired, and its cache.

use ftl_core::schemes::{SCHEMES, Scheme};
use ftl_core::{FtlConfig, Params, Start};
use ftld_battery::rig::Cells;
use ftld_device::config::Latency;
use ftld_device::stack::{CacheUse, close_stores, volume_on};
use ftld_device::volume::Volume;
use ftld_device::volume::write_cache::{CacheOptions, Model};
use ftld_host_disk::SimDisk;
use nand_model::store::Access;
use nand_model::{Chip, Geometry, ImageSpec, Profile, SplitMix, Striping};
use std::path::Path;

/// Number of schemes of the suite.
const SCHEMES_TESTED: usize = 5;

/// Returns five schemes of the table, of different kinds.
pub fn schemes() -> impl Iterator<Item = &'static Scheme> {
    (0..SCHEMES_TESTED).map(|number| &SCHEMES[number * SCHEMES.len() / SCHEMES_TESTED])
}

/// Device of a run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Scheme under test.
    pub scheme: &'static str,
    /// Bytes of a flash page.
    pub page: u32,
    /// Logical pages.
    pub pages: u32,
    /// Shards and bytes of a stripe; `None` for one chip.
    pub striping: Option<Striping>,
    /// The cache, of all shards together.
    pub cache: CacheOptions,
}

impl Setup {
    /// Draws the device of a seed; the model is given.
    pub fn draw(scheme: &'static str, model: Model, protected: bool, seed: u64) -> Setup {
        let mut rng = SplitMix::new(seed ^ 0xDE71CE);
        let page = [1024, 2048, 4096, 8192][rng.index(4)];
        let tear = rng.one_in(2).then_some(512);
        Setup {
            scheme,
            page,
            pages: 24 + rng.number(40),
            striping: None,
            cache: CacheOptions {
                // Room for all writes of a round, so that none is written back before a FLUSH.
                bytes: match model {
                    Model::Lost => 1 << 20,
                    _ => [64 << 10, 128 << 10, 512 << 10][rng.index(3)],
                },
                model,
                tear,
                protected,
            },
        }
    }

    /// Returns the same device on several chips, with short stripes. The cache of each has room for
    /// two trims, as that of any device made by the program.
    pub fn on_shards(self, count: u32, seed: u64) -> Setup {
        let pages = [1, 2, 4][SplitMix::new(seed).index(3)];
        let bytes = self.cache.bytes.max(u64::from(count) * (32 << 10));
        Setup {
            cache: CacheOptions {
                bytes,
                ..self.cache
            },
            striping: Some(Striping {
                count,
                stripe_bytes: pages * u64::from(self.page),
            }),
            ..self
        }
    }

    /// Bytes of the smallest cache: each shard has its part.
    pub(super) fn room(&self) -> u64 {
        let shards = self.striping.map_or(1, |of| u64::from(of.count));
        self.cache.bytes / shards
    }

    /// Bytes of the device; it may end inside a page.
    pub fn size(&self) -> u64 {
        u64::from(self.pages) * u64::from(self.page) - 512
    }

    pub(super) fn make(&self) -> Result<SimDisk, String> {
        let told = |error: &dyn std::fmt::Display| format!("making the device: {error}");
        let scheme = Scheme::find(self.scheme).ok_or("no such scheme")?;
        let profile = Cells::Mlc.profile();
        let profile = Profile {
            geometry: Geometry {
                page_bytes: self.page,
                ..profile.geometry
            },
            endurance: 1 << 20,
            ..profile
        };
        let size = u64::from(self.pages) * u64::from(self.page);
        let room = self.striping.map_or(size, |of| of.shard_bytes(size));
        let params = Params::default();
        let layout = scheme
            .layout(&profile, room.next_multiple_of(4096), 0.15, &params)
            .map_err(|error| told(&error))?;
        let spec = ImageSpec {
            profile: layout.profile,
            size: self.size(),
            scheme: scheme.name.into(),
            params: String::new(),
        };
        let (disk, stores) =
            SimDisk::create_shards(&spec, self.striping, 12).map_err(|error| told(&error))?;
        for store in stores {
            let chip = Chip::over(layout.profile, store).map_err(|error| told(&error))?;
            let config = FtlConfig {
                logical_pages: (room / u64::from(self.page)) as u32,
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

    pub(super) fn open(&self, disk: &SimDisk) -> Result<Volume, String> {
        self.open_with(disk, Some(self.cache))
    }

    pub(super) fn open_with(
        &self,
        disk: &SimDisk,
        options: Option<CacheOptions>,
    ) -> Result<Volume, String> {
        let (stores, _) = disk
            .open_shards(Access::ReadWrite)
            .map_err(|error| format!("open: {error}"))?;
        let boot_id = disk.boot_id();
        let cache = CacheUse {
            options,
            boot_id: &boot_id,
        };
        let path = Path::new("simulated disk");
        let stack = volume_on(path, stores, false, Latency::None, cache, |inner| inner);
        Ok(stack.map_err(|failure| format!("mount: {failure}"))?.volume)
    }
}

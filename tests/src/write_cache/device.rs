//! Device of a run: a scheme on small MLC cells, whose pages are paired, and its cache.

use ftl_core::schemes::{SCHEMES, Scheme};
use ftl_core::{FtlConfig, Params, Start};
use ftld::config::Latency;
use ftld::stack::{CacheUse, volume_on};
use ftld::volume::Volume;
use ftld::volume::write_cache::{CacheOptions, Model};
use ftld_battery::rig::Cells;
use nand_model::store::{Access, FileStore, SimDisk};
use nand_model::{Chip, Geometry, ImageSpec, Profile, SplitMix};
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
    /// The cache.
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
        let room = u64::from(self.pages) * u64::from(self.page);
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
        let (disk, store) = SimDisk::create(&spec, 12).map_err(|error| told(&error))?;
        let chip = Chip::open(layout.profile, store).map_err(|error| told(&error))?;
        let config = FtlConfig {
            logical_pages: self.pages,
            params,
        };
        let mut ftl = scheme
            .start(chip, &config, Start::Format)
            .map_err(|error| told(&error))?;
        ftl.shutdown(0).map_err(|error| told(&error))?;
        let store = ftl.into_chip().into_store();
        store.close().map_err(|error| told(&error))?;
        Ok(disk)
    }

    pub(super) fn open(&self, disk: &SimDisk) -> Result<Volume<FileStore>, String> {
        self.open_with(disk, Some(self.cache))
    }

    pub(super) fn open_with(
        &self,
        disk: &SimDisk,
        options: Option<CacheOptions>,
    ) -> Result<Volume<FileStore>, String> {
        let (store, _) = disk
            .open(Access::ReadWrite)
            .map_err(|error| format!("open: {error}"))?;
        let boot_id = disk.boot_id();
        let cache = CacheUse {
            options,
            boot_id: &boot_id,
        };
        let path = Path::new("simulated disk");
        let stack = volume_on(path, store, false, Latency::None, cache, |inner| inner);
        Ok(stack.map_err(|failure| format!("mount: {failure}"))?.volume)
    }
}

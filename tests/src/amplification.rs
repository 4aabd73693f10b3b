//! Write amplification of page maps as in theory: no checkpoints, no wear levelling, no page
//! pairing, 128 pages per block, 4 free blocks reserved.

use ftl_core::schemes::Scheme;
use ftl_core::{Ftl, FtlConfig, Lpn, Params, Start};
use nand_model::store::OobOnlyStore;
use nand_model::{Cause, Chip, Geometry, Pairing, Profile, SplitMix};

/// Pages per block.
pub const PAGES_PER_BLOCK: u32 = 128;
/// Reserved free blocks and the open block.
pub const NO_SPARE: f64 = 5.0;

/// Distribution of the written pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// All pages have the same probability.
    Uniform,
    /// Share of the writes that goes to the rest of the pages: 0.8 of them to 0.2 of the pages.
    Hot(f64),
    /// The k-th page has a probability proportional to `1 / k^s`.
    Zipf(f64),
}

impl Load {
    /// Returns the name used in tables.
    pub fn name(self) -> String {
        match self {
            Load::Uniform => "uniform".into(),
            Load::Hot(share) => format!("{:.0}/{:.0}", share * 100.0, 100.0 - share * 100.0),
            Load::Zipf(exponent) => format!("Zipf {exponent}"),
        }
    }
}

/// Generator of a load's pages.
pub struct Draw {
    load: Load,
    pages: u32,
    rng: SplitMix,
    /// Cumulative probabilities of Zipf's law.
    sums: Vec<f64>,
}

impl Draw {
    /// Creates a generator over `pages` pages.
    pub fn new(load: Load, pages: u32, seed: u64) -> Self {
        let mut sum = 0.0;
        let sums = match load {
            Load::Zipf(exponent) => (1..=pages)
                .map(|k| {
                    sum += (k as f64).powf(-exponent);
                    sum
                })
                .collect(),
            _ => Vec::new(),
        };
        let rng = SplitMix::new(seed);
        Draw {
            load,
            pages,
            rng,
            sums,
        }
    }

    fn share(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws the next page.
    pub fn page(&mut self) -> u32 {
        let all = self.pages as u64;
        match self.load {
            Load::Uniform => self.rng.below(all) as u32,
            Load::Hot(share) => {
                let hot = (all as f64 * (1.0 - share)) as u64;
                let page = if self.share() < share {
                    self.rng.below(hot)
                } else {
                    hot + self.rng.below(all - hot)
                };
                page as u32
            }
            Load::Zipf(_) => {
                let wanted = self.share() * self.sums[self.sums.len() - 1];
                self.sums.partition_point(|sum| *sum < wanted) as u32
            }
        }
    }
}

/// Logical blocks of the reference device.
pub const REFERENCE_BLOCKS: u32 = 4096;

/// Returns the blocks of a device with the effective spare of the reference device at this
/// over-provisioning: reserved free blocks and open blocks are no spare.
pub fn physical_blocks(logical: u32, over_provisioning: f64) -> u32 {
    let reference = (f64::from(REFERENCE_BLOCKS) * (1.0 + over_provisioning)).round();
    let effective = (reference - NO_SPARE) / f64::from(REFERENCE_BLOCKS);
    (f64::from(logical) * effective + NO_SPARE).round() as u32
}

/// A device under a load.
pub struct Measured {
    ftl: Box<dyn Ftl>,
    pages: u32,
    draw: Draw,
    /// Whether only the host and GC program pages.
    is_plain: bool,
}

impl Measured {
    /// Calls [`of_scheme`](Self::of_scheme) with the map in RAM.
    ///
    /// # Panics
    /// If the device cannot be created or filled.
    pub fn filled(
        logical_blocks: u32,
        physical_blocks: u32,
        params: &[(&str, &str)],
        load: Load,
        seed: u64,
    ) -> Self {
        let blocks = (logical_blocks, physical_blocks);
        Self::of_scheme("pagemap", blocks, params, load, seed)
    }

    /// Creates a device of this number of logical and physical blocks, every page written once in
    /// order. `params` are set besides those that disable unmeasured features.
    ///
    /// # Panics
    /// If the device cannot be created or filled.
    pub fn of_scheme(
        scheme: &str,
        (logical_blocks, physical_blocks): (u32, u32),
        params: &[(&str, &str)],
        load: Load,
        seed: u64,
    ) -> Self {
        let lazy = *Profile::find("lazyftl").expect("a built-in profile");
        let geometry = Geometry {
            blocks: physical_blocks,
            pages_per_block: PAGES_PER_BLOCK,
            page_bytes: 512,
            ..lazy.geometry
        };
        let profile = Profile {
            geometry,
            pairing: Pairing::None,
            ..lazy
        };
        let pages = logical_blocks * PAGES_PER_BLOCK;
        let mut config = FtlConfig {
            logical_pages: pages,
            params: Params::default(),
        };
        let quiet = [
            ("gc.free_threshold", "4"),
            ("ckpt.interval", "0"),
            ("wear.policy", "none"),
            ("nand.pair_policy", "none"),
        ];
        for (key, value) in quiet.iter().chain(params) {
            config.params.set(key, value);
        }
        let chip = Chip::over(profile, OobOnlyStore::new(geometry)).expect("memory does not fail");
        let is_plain = scheme == "pagemap";
        let scheme = Scheme::find(scheme).expect("a scheme of the table");
        let ftl = scheme.start(chip, &config, Start::Format);
        let mut measured = Measured {
            ftl: ftl.expect("a new device starts"),
            pages,
            draw: Draw::new(load, pages, seed),
            is_plain,
        };
        (0..pages).for_each(|page| measured.write(page));
        measured
    }

    fn write(&mut self, page: u32) {
        let written = self.ftl.write(0, Lpn::new(page), &[0; 512]);
        written.expect("space enough");
    }

    /// Writes `devices` drive writes; returns the ratio of flash programs to host writes.
    ///
    /// # Panics
    /// If the device rejects a write, or a device with its map in RAM programs pages for a cause
    /// other than host and GC.
    pub fn write_devices(&mut self, devices: u32) -> f64 {
        let before = self.programs();
        for _ in 0..devices as u64 * self.pages as u64 {
            let page = self.draw.page();
            self.write(page);
        }
        let (host, all) = self.programs();
        (all - before.1) as f64 / (host - before.0) as f64
    }

    fn programs(&self) -> (u64, u64) {
        let counters = self.ftl.chip().counters();
        let host = counters.of(Cause::Host).programs;
        let (all, gc) = (counters.total().programs, counters.of(Cause::Gc).programs);
        if self.is_plain {
            assert_eq!(all - host, gc, "nothing but host and collection");
        }
        (host, all)
    }
}

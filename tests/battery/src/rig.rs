//! A scheme on a small chip, from one seed.

use ftl_core::schemes::Scheme;
use ftl_core::{Ftl, FtlConfig, FtlError, Params, Start};
use nand_model::store::MemStore;
use nand_model::{
    Bad, BlockFacts, BlockFault, Chip, Geometry, Pairing, Pbn, Profile, SplitMix, Store,
};
use serde::{Deserialize, Serialize};

/// Kind of cells, with the rules that the chip enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cells {
    /// Rules of `slc-2k`: pages in any order, partial programs, nothing shared.
    Slc,
    /// Rules of `torture`: pages in order, once, in pairs.
    Mlc,
    /// Like [`Self::Mlc`], with word lines of three pages, programmed as on planar TLC.
    Tlc,
    /// Like [`Self::Mlc`], with word lines of four pages.
    Qlc,
}

impl Cells {
    /// The two kinds on which every battery runs.
    pub const ALL: [Cells; 2] = [Cells::Slc, Cells::Mlc];

    /// The kinds with long word lines, on which power cuts are tested too.
    pub const LONG_WORD_LINES: [Cells; 2] = [Cells::Tlc, Cells::Qlc];

    /// All kinds.
    pub const EVERY: [Cells; 4] = [Cells::Slc, Cells::Mlc, Cells::Tlc, Cells::Qlc];

    /// Name in the path of a case.
    pub const fn name(self) -> &'static str {
        match self {
            Cells::Slc => "slc",
            Cells::Mlc => "mlc",
            Cells::Tlc => "tlc",
            Cells::Qlc => "qlc",
        }
    }

    /// The built-in profile of a part of real size with these cells.
    pub const fn part(self) -> &'static str {
        match self {
            Cells::Slc => "slc-2k",
            Cells::Mlc => "mlc-4k",
            Cells::Tlc => "tlc-16k",
            Cells::Qlc => "qlc-16k",
        }
    }

    /// A chip of these cells with small pages and blocks; the number of blocks is not set.
    pub fn profile(self) -> Profile {
        let torture = *Profile::find("torture").expect("a built-in profile");
        let of_bits = |bits: u8| {
            let mut part = torture;
            part.pairing = Pairing::parse("staggered", bits).expect("a rule for 2 to 4 bits");
            part.timing.program_ns = [500_000, 1_300_000, 2_600_000, 5_200_000];
            part
        };
        let (rules, pages_per_block) = match self {
            Cells::Slc => (*Profile::find("slc-2k").expect("a built-in profile"), 16),
            Cells::Mlc => (torture, 16),
            // Room for the padding of a mount, which grows with the word line.
            Cells::Tlc => (of_bits(3), 24),
            Cells::Qlc => (of_bits(4), 40),
        };
        let small = Geometry {
            page_bytes: 512,
            pages_per_block,
            ..torture.geometry
        };
        Profile {
            geometry: small,
            endurance: torture.endurance,
            ..rules
        }
    }
}

/// The complete input of a run.
#[derive(Clone)]
pub struct Rig {
    /// The scheme under test.
    pub scheme: &'static Scheme,
    /// The chip's rules.
    pub cells: Cells,
    /// The chip, with the number of blocks of the scheme's layout.
    pub profile: Profile,
    /// Size and parameters.
    pub config: FtlConfig,
    /// Seed of payloads, workloads and faults.
    pub seed: u64,
    /// Faults armed in blocks in recorded runs.
    pub block_faults: Vec<BlockFault>,
    /// Additional part of a case's path for variants of the rig.
    pub variant: String,
}

/// Over-provisioning of the suites: that of the default device.
pub const OVER_PROVISIONING: f64 = 0.07;

impl Rig {
    /// A device of `pages` logical pages, with the scheme's layout and default parameters.
    pub fn new(scheme: &'static Scheme, cells: Cells, pages: u32, seed: u64) -> Rig {
        Rig::with_params(scheme, cells, pages, Params::default(), seed)
    }

    /// A device with parameters; unknown ones are ignored.
    pub fn with_params(
        scheme: &'static Scheme,
        cells: Cells,
        pages: u32,
        wanted: Params,
        seed: u64,
    ) -> Rig {
        Rig::on_profile(scheme, cells, cells.profile(), pages, wanted, seed)
    }

    /// A device on a chip of real size.
    ///
    /// # Panics
    /// The scheme has no layout for this many pages.
    pub fn on_profile(
        scheme: &'static Scheme,
        cells: Cells,
        profile: Profile,
        pages: u32,
        wanted: Params,
        seed: u64,
    ) -> Rig {
        let mut params = Params::default();
        wanted
            .iter()
            .filter(|(key, _)| has_param(scheme, key))
            .for_each(|(key, value)| params.set(key, value));
        Rig::laid_out(
            scheme,
            cells,
            profile,
            pages,
            OVER_PROVISIONING,
            params,
            seed,
        )
        .unwrap_or_else(|error| panic!("{} has no layout for {pages} pages: {error}", scheme.name))
    }

    /// A device on any chip, with any parameters and over-provisioning, from its own seed.
    ///
    /// # Errors
    /// The scheme's reason, if it has no layout.
    pub fn laid_out(
        scheme: &'static Scheme,
        cells: Cells,
        profile: Profile,
        pages: u32,
        over_provisioning: f64,
        params: Params,
        seed: u64,
    ) -> Result<Rig, String> {
        let bytes = pages as u64 * profile.geometry.page_bytes as u64;
        let layout = scheme
            .layout(&profile, bytes, over_provisioning, &params)
            .map_err(|error| error.to_string())?;
        let config = FtlConfig {
            logical_pages: layout.logical_pages,
            params,
        };
        let (block_faults, variant) = (Vec::new(), String::new());
        Ok(Rig {
            scheme,
            cells,
            profile: layout.profile,
            config,
            seed,
            block_faults,
            variant,
        })
    }

    /// Adds a parameter, if the scheme has it.
    pub fn set(mut self, key: &str, value: &str) -> Rig {
        if has_param(self.scheme, key) {
            self.config.params.set(key, value);
        }
        self
    }

    /// An erased chip.
    pub fn blank(&self) -> Chip {
        self.open(MemStore::new(self.profile.geometry))
    }

    /// Bad blocks that the data sheet allows, as the layout added them.
    pub fn spare_blocks(&self) -> u64 {
        let blocks = self.profile.geometry.blocks as u64;
        let allowed = |used: u64| {
            (used * self.profile.max_bad_permille as u64)
                .div_ceil(1000)
                .max(4)
        };
        (0..blocks)
            .find(|used| used + allowed(*used) >= blocks)
            .map_or(0, |used| blocks - used)
    }

    /// An erased chip with as many bad blocks as its data sheet allows: the smallest space that the
    /// scheme must work with.
    pub fn blank_at_end_of_life(&self) -> Chip {
        let spare = self.spare_blocks();
        let mut chip = self.open(MemStore::new(self.profile.geometry));
        let mut rng = SplitMix::new(self.seed);
        for _ in 0..spare {
            let good = |block: &Pbn| chip.bad(*block).is_none();
            let blocks: Vec<_> = self.profile.geometry.all_blocks().filter(good).collect();
            let block = blocks[rng.below(blocks.len() as u64) as usize];
            let facts = BlockFacts {
                bad: Some(Bad::Factory),
                ..BlockFacts::default()
            };
            chip.store_mut()
                .set_facts(block, facts)
                .expect("memory does not fail");
            chip = self.open(chip.into_store());
        }
        chip
    }

    /// A chip over a store.
    pub fn open(&self, store: impl Store) -> Chip {
        Chip::over(self.profile, store).expect("memory does not fail")
    }

    /// The scheme on a new device.
    ///
    /// # Panics
    /// The scheme refuses a new device.
    pub fn format(&self) -> Box<dyn Ftl> {
        self.scheme
            .start(self.blank(), &self.config, Start::Format)
            .expect("a new device starts")
    }

    /// The scheme on the flash of an earlier run.
    ///
    /// # Errors
    /// That of the scheme.
    pub fn mount(&self, chip: Chip) -> Result<Box<dyn Ftl>, FtlError> {
        self.scheme.start(chip, &self.config, Start::Mount)
    }

    /// Applies `change`, and adds `name` to the path of the rig's cases.
    pub fn variant(mut self, name: &str, change: impl FnOnce(&mut Rig)) -> Rig {
        self.variant = format!("/{name}");
        change(&mut self);
        self
    }

    /// First parts of a case's path.
    pub fn path(&self) -> String {
        format!("{}/{}{}", self.scheme.name, self.cells.name(), self.variant)
    }
}

/// Whether the scheme understands the parameter.
pub fn has_param(scheme: &Scheme, key: &str) -> bool {
    scheme.knows(key)
}

/// Returns a chip's bytes in memory.
///
/// # Panics
/// They are elsewhere.
pub fn into_memory(chip: Chip) -> MemStore {
    chip.into_store().downcast().expect("a store in memory")
}

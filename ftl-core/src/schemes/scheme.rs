//! Description of a scheme: an entry of the table.

use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::page_ram::{self, PageMapScheme};
use crate::families::paged::{self, CachedMapScheme};
use crate::ftl::{Ftl, Start};
use crate::ram::RamParam;
use nand_model::{Chip, Profile};

/// Constructor of a scheme on a chip.
pub type Constructor = fn(Chip, &FtlConfig, Start) -> Result<Box<dyn Ftl>, FtlError>;

/// Use of a scheme on multi-level cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlcUse {
    /// As published by its authors.
    AsPublished,
    /// By an adaptation of this implementation, named in the scheme's header.
    Adapted,
    /// As its author wrote it, in another crate.
    Own,
}

/// Description and constructor of a scheme.
pub struct Scheme {
    /// Name on the command line and in image headers.
    pub name: &'static str,
    /// One-line title.
    pub title: &'static str,
    /// Write path and GC of the scheme, in a few sentences for users.
    pub about: &'static str,
    /// Publication.
    pub paper: &'static str,
    /// Granularity of the mapping and where it is stored.
    pub mapping: &'static str,
    /// RAM of the tables, as a formula.
    pub ram: &'static str,
    /// A: as its authors did; B: well known, original not available; C: reconstruction;
    /// [`NOT_GRADED`]: its author's own, in another crate.
    pub fidelity: char,
    /// Use on multi-level cells.
    pub mlc: MlcUse,
    /// The scheme's own parameters.
    pub params: &'static [ParamDoc],
    /// Parameters shared with its family.
    pub shared_params: &'static [ParamDoc],
    /// Parameters that take RAM, in the order in which RAM is given to them.
    pub ram_params: &'static [RamParam],
    /// Returns the blocks beyond data and over-provisioning: mapping, checkpoints, open blocks,
    /// reserve.
    pub overhead_blocks: fn(&Profile, logical_pages: u32, &Params) -> Result<u32, FtlError>,
    /// Starts the scheme on a chip.
    pub constructor: Constructor,
}

/// Fidelity of a scheme from another crate: not compared with a publication.
pub const NOT_GRADED: char = '-';

impl Scheme {
    /// Returns a scheme with its page map in RAM; the author sets its own parameters and the
    /// human-readable fields. Debug builds check the author's [contract](crate::author::contract).
    pub const fn of_page_map<S: PageMapScheme>() -> Scheme {
        Scheme {
            constructor: page_ram::start_checked::<S>,
            ..Scheme::of_trusted_page_map::<S>()
        }
    }

    /// Returns a scheme with its page map in RAM, whose contract is not checked.
    pub(super) const fn of_trusted_page_map<S: PageMapScheme>() -> Scheme {
        Scheme {
            name: S::NAME,
            title: "",
            about: "",
            paper: "",
            mapping: "page, in RAM",
            ram: "",
            fidelity: NOT_GRADED,
            mlc: MlcUse::Own,
            params: &[],
            shared_params: const { &page_ram::params_of::<S>() },
            ram_params: &[],
            overhead_blocks: page_ram::overhead_blocks::<S>,
            constructor: page_ram::start::<S>,
        }
    }

    /// Returns a scheme with its page map on flash and a cache in RAM; the author sets its own
    /// parameters and the human-readable fields. Debug builds check the author's
    /// [contract](crate::author::contract).
    pub const fn of_cached_map<S: CachedMapScheme>() -> Scheme {
        Scheme {
            name: S::NAME,
            title: "",
            about: "",
            paper: "",
            mapping: "page, on flash; cached",
            ram: "",
            fidelity: NOT_GRADED,
            mlc: MlcUse::Own,
            params: &[],
            shared_params: &paged::docs::OF_AUTHOR,
            ram_params: &[paged::TOMBSTONES_RAM, paged::AGE_WINDOW_RAM],
            overhead_blocks: paged::overhead_of_params,
            constructor: paged::author::start::<S>,
        }
    }

    /// Iterates over all parameters of the scheme.
    pub fn all_params(&self) -> impl Iterator<Item = &'static ParamDoc> {
        self.params.iter().chain(self.shared_params)
    }

    /// Returns whether the scheme has this parameter.
    pub fn knows(&self, key: &str) -> bool {
        self.all_params().any(|param| param.key == key)
    }

    /// Starts the scheme on a chip.
    ///
    /// # Errors
    /// [`FtlError::Config`] if a parameter is unknown, is not a value, or cannot work on this chip.
    /// Errors of a mount: [`FtlError::Corrupt`] if the flash contradicts itself.
    pub fn start(
        &self,
        chip: Chip,
        config: &FtlConfig,
        start: Start,
    ) -> Result<Box<dyn Ftl>, FtlError> {
        config.params.only(self.all_params())?;
        (self.constructor)(chip, config, start)
    }
}

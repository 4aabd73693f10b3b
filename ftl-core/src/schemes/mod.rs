//! The table of schemes. Command line, tests, metrics and documents iterate over it; no other code
//! names a scheme.

mod asast;
mod bast;
mod dftl;
mod dopftl;
mod fast;
mod gftl;
mod last;
mod lazyftl;
mod mlam;
mod mnftl;
mod nftl1;
mod nftln;
mod pagemap;
mod rose;
mod superblock;
mod tpftl;

#[cfg(test)]
pub(crate) use pagemap::FlatMap;

use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::page_ram::{self, PageMap};
use crate::ftl::{Ftl, Start};
use crate::int::narrow;
use nand_model::store::{FileStore, MemStore, OobOnlyStore};
use nand_model::{Capacity, Chip, Profile, Store};
use std::sync::{Mutex, PoisonError};

/// Constructor of a scheme on a chip with store `S`.
pub type Constructor<S> = fn(Chip<S>, &FtlConfig, Start) -> Result<Box<dyn Ftl<S>>, FtlError>;

/// Use of a scheme on multi-level cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlcUse {
    /// As published by its authors.
    AsPublished,
    /// By an adaptation of this implementation, named in the scheme's header.
    Adapted,
}

/// Description and constructors of a scheme.
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
    /// A: as its authors did; B: well known, original not available; C: reconstruction.
    pub fidelity: char,
    /// Use on multi-level cells.
    pub mlc: MlcUse,
    /// The scheme's own parameters.
    pub params: &'static [ParamDoc],
    /// Parameters shared with its family.
    pub shared_params: &'static [ParamDoc],
    /// Returns the blocks beyond data and over-provisioning: mapping, checkpoints, open blocks,
    /// reserve.
    pub overhead_blocks: fn(&Profile, logical_pages: u32, &Params) -> Result<u32, FtlError>,
    /// Constructor over memory: tests, crash batteries.
    pub mem: Constructor<MemStore>,
    /// Constructor over an image: devices.
    pub file: Constructor<FileStore>,
    /// Constructor over OOB areas alone: replay of traces.
    pub oob_only: Constructor<OobOnlyStore>,
}

/// Every scheme, the default first. A static, so that the schemes are compiled here. A constant
/// would compile all functions of every scheme over every store into each crate that names it.
pub static SCHEMES: &[Scheme] = &[
    lazyftl::SCHEME,
    pagemap::SCHEME,
    mnftl::SCHEME,
    dopftl::SCHEME,
    dftl::SCHEME,
    tpftl::SCHEME,
    superblock::SCHEME,
    bast::SCHEME,
    fast::SCHEME,
    nftl1::SCHEME,
    nftln::SCHEME,
    rose::SCHEME,
    gftl::SCHEME,
    mlam::SCHEME,
    last::SCHEME,
    asast::SCHEME,
];

/// Schemes from other crates, listed after those of the table.
static ADDED: Mutex<Vec<&'static Scheme>> = Mutex::new(Vec::new());

/// Adds a scheme of another crate to those that [`Scheme::find`] and [`all`] return.
///
/// # Errors
/// [`FtlError::Config`] if a scheme of this name exists.
pub fn add(scheme: &'static Scheme) -> Result<(), FtlError> {
    let mut added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut known = SCHEMES.iter().chain(added.iter().copied());
    if known.any(|known| known.name == scheme.name) {
        let text = format!("a scheme named {:?} already exists", scheme.name);
        return Err(FtlError::Config(text));
    }
    added.push(scheme);
    Ok(())
}

/// Iterates over every scheme: those of the table, the default first, then the [added](add) ones.
pub fn all() -> impl Iterator<Item = &'static Scheme> + Clone {
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    SCHEMES.iter().chain(added.clone())
}

impl Scheme {
    /// Returns a scheme that keeps this page map in RAM. Its name is the map's; the author sets its
    /// own parameters and the human-readable fields.
    pub const fn of_page_map<M: PageMap>() -> Scheme {
        Scheme {
            name: M::NAME,
            title: "",
            about: "",
            paper: "",
            mapping: "page, in RAM",
            ram: "",
            fidelity: 'A',
            mlc: MlcUse::AsPublished,
            params: &[],
            shared_params: page_ram::PARAMS,
            overhead_blocks: page_ram::overhead_blocks::<M>,
            mem: page_ram::start::<MemStore, M>,
            file: page_ram::start::<FileStore, M>,
            oob_only: page_ram::start::<OobOnlyStore, M>,
        }
    }

    /// Returns the scheme of this name.
    pub fn find(name: &str) -> Option<&'static Scheme> {
        all().find(|scheme| scheme.name == name)
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
    pub fn start<S: SchemeStore>(
        &self,
        chip: Chip<S>,
        config: &FtlConfig,
        start: Start,
    ) -> Result<Box<dyn Ftl<S>>, FtlError> {
        config.params.only(self.all_params())?;
        S::constructor(self)(chip, config, start)
    }

    /// Lays out a device: its logical size and the number of raw blocks for it.
    ///
    /// A profile by size gets data x (1 + over-provisioning), the scheme's overhead, and the bad
    /// blocks that its data sheet allows. A paper's device has its own number of raw blocks. Then
    /// the logical size follows from it, and `size_bytes` must be 0 or not larger.
    ///
    /// # Errors
    /// [`FtlError::Config`] if the device cannot be laid out with these values; the text has the
    /// reason.
    pub fn layout(
        &self,
        profile: &Profile,
        size_bytes: u64,
        op: f64,
        params: &Params,
    ) -> Result<Layout, FtlError> {
        params.only(self.all_params())?;
        if !(0.01..=10.0).contains(&op) {
            return Err(FtlError::Config(format!(
                "over-provisioning of {:.1} %: need 1 to 1000 %",
                op * 100.0
            )));
        }
        let pages_per_block = u64::from(profile.geometry.pages_per_block);
        let spare = |blocks: u64| {
            (blocks * u64::from(profile.max_bad_permille))
                .div_ceil(1000)
                .max(4)
        };
        let with_op = |logical_pages: u32| (f64::from(logical_pages) * (1.0 + op)).ceil() as u64;
        match profile.capacity {
            Capacity::BySize => {
                let logical_pages = self.logical_pages(profile, size_bytes)?;
                let data = with_op(logical_pages).div_ceil(pages_per_block);
                let used =
                    data + u64::from((self.overhead_blocks)(profile, logical_pages, params)?);
                let blocks = used + spare(used);
                let blocks = u32::try_from(blocks).map_err(|_| too_large(size_bytes))?;
                let profile = profile.with_blocks(blocks);
                profile.geometry.validate().map_err(FtlError::Config)?;
                Ok(Layout {
                    profile,
                    logical_pages,
                })
            }
            Capacity::Blocks(blocks) => {
                let fits = |logical_pages: u32| -> Result<bool, FtlError> {
                    let data = with_op(logical_pages).div_ceil(pages_per_block);
                    Ok(
                        data + u64::from((self.overhead_blocks)(profile, logical_pages, params)?)
                            <= u64::from(blocks),
                    )
                };
                let (mut low, mut high) = (0u32, narrow(u64::from(blocks) * pages_per_block));
                while low + 1 < high {
                    let middle = low + (high - low) / 2;
                    *(if fits(middle)? { &mut low } else { &mut high }) = middle;
                }
                let whole = (4096 / profile.geometry.page_bytes).max(1);
                let largest = low / whole * whole;
                let wanted = if size_bytes == 0 {
                    largest
                } else {
                    self.logical_pages(profile, size_bytes)?
                };
                if wanted == 0 || wanted > largest {
                    return Err(FtlError::Config(format!(
                        "profile {} has {blocks} blocks: at most {} bytes at this over-provisioning",
                        profile.name,
                        u64::from(largest) * u64::from(profile.geometry.page_bytes)
                    )));
                }
                Ok(Layout {
                    profile: profile.with_blocks(blocks),
                    logical_pages: wanted,
                })
            }
        }
    }

    fn logical_pages(&self, profile: &Profile, size_bytes: u64) -> Result<u32, FtlError> {
        if size_bytes == 0 || !size_bytes.is_multiple_of(4096) {
            return Err(FtlError::Config(format!(
                "size of {size_bytes} bytes: need a multiple of 4 KiB"
            )));
        }
        let pages = size_bytes.div_ceil(u64::from(profile.geometry.page_bytes));
        u32::try_from(pages)
            .ok()
            .filter(|p| *p < 1 << 31)
            .ok_or_else(|| too_large(size_bytes))
    }
}

fn too_large(size_bytes: u64) -> FtlError {
    FtlError::Config(format!(
        "size of {size_bytes} bytes does not fit 32-bit page numbers"
    ))
}

/// A device's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The profile with its number of blocks.
    pub profile: Profile,
    /// Pages visible to the host.
    pub logical_pages: u32,
}

/// Stores for which schemes are compiled.
pub trait SchemeStore: Store + Sized {
    /// Returns the scheme's constructor over this store.
    fn constructor(scheme: &Scheme) -> Constructor<Self>;
}

impl SchemeStore for MemStore {
    fn constructor(scheme: &Scheme) -> Constructor<Self> {
        scheme.mem
    }
}

impl SchemeStore for FileStore {
    fn constructor(scheme: &Scheme) -> Constructor<Self> {
        scheme.file
    }
}

impl SchemeStore for OobOnlyStore {
    fn constructor(scheme: &Scheme) -> Constructor<Self> {
        scheme.oob_only
    }
}

//! The table of schemes. Command line, tests, metrics and documents iterate over it; nothing else
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
use crate::convert::narrow;
use crate::error::FtlError;
use crate::families::page_ram::{self, PageMap};
use crate::ftl::{Ftl, Start};
use nand_model::store::{FileStore, MemStore, OobOnlyStore};
use nand_model::{Capacity, Chip, Profile, Store};
use std::sync::{Mutex, PoisonError};

/// Makes a scheme run on a chip whose bytes live in `S`.
pub type Constructor<S> = fn(Chip<S>, &FtlConfig, Start) -> Result<Box<dyn Ftl<S>>, FtlError>;

/// How a scheme may be used on multi-level cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlcUse {
    /// As its authors wrote it.
    AsPublished,
    /// By an adaptation of ours, named in its header.
    Adapted,
}

/// One scheme: what it is, and how to make it.
pub struct Scheme {
    /// Name on the command line and in image headers.
    pub name: &'static str,
    /// One line.
    pub title: &'static str,
    /// What it does with a write, and how it makes room: some sentences for those who watch it.
    pub about: &'static str,
    /// Where it was published.
    pub paper: &'static str,
    /// Granularity of the mapping and where it lives.
    pub mapping: &'static str,
    /// RAM it takes, as a formula.
    pub ram: &'static str,
    /// A: as its authors did; B: well known, original not at hand; C: reconstruction.
    pub fidelity: char,
    /// Multi-level cells.
    pub mlc: MlcUse,
    /// Parameters of its own.
    pub params: &'static [ParamDoc],
    /// Those that it shares with its family.
    pub shared_params: &'static [ParamDoc],
    /// Blocks beyond data and over-provisioning: mapping, checkpoints, open blocks, reserve.
    pub overhead_blocks: fn(&Profile, logical_pages: u32, &Params) -> Result<u32, FtlError>,
    /// Starts it over memory: tests, crash batteries.
    pub mem: Constructor<MemStore>,
    /// Starts it over an image: devices.
    pub file: Constructor<FileStore>,
    /// Starts it over spare bytes alone: replay of traces.
    pub oob_only: Constructor<OobOnlyStore>,
}

/// Every scheme, the default first. A static, so that the schemes are compiled here: whoever names
/// a constant gets its functions, all of every scheme over every store, compiled into their own
/// crate.
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

/// Schemes from other crates, after those of the table.
static ADDED: Mutex<Vec<&'static Scheme>> = Mutex::new(Vec::new());

/// Adds a scheme of another crate to those that [`Scheme::find`] and [`all`] know, so that a
/// program has it beside those of the table.
///
/// # Errors
/// [`FtlError::Config`] where a scheme of this name is known.
pub fn add(scheme: &'static Scheme) -> Result<(), FtlError> {
    let mut added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut known = SCHEMES.iter().chain(added.iter().copied());
    if known.any(|known| known.name == scheme.name) {
        let text = format!("there is a scheme {:?} already", scheme.name);
        return Err(FtlError::Config(text));
    }
    added.push(scheme);
    Ok(())
}

/// Every scheme: those of the table, the default first, then those that were [added](add).
pub fn all() -> impl Iterator<Item = &'static Scheme> + Clone {
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    SCHEMES.iter().chain(added.clone())
}

impl Scheme {
    /// A scheme that keeps this page map in RAM. Its name is the map's; parameters of its own and
    /// what people read are for its author to fill in.
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

    /// The scheme of this name.
    pub fn find(name: &str) -> Option<&'static Scheme> {
        all().find(|scheme| scheme.name == name)
    }

    /// Every parameter it understands.
    pub fn all_params(&self) -> impl Iterator<Item = &'static ParamDoc> {
        self.params.iter().chain(self.shared_params)
    }

    /// Whether the scheme has this parameter.
    pub fn knows(&self, key: &str) -> bool {
        self.all_params().any(|param| param.key == key)
    }

    /// Starts the scheme on a chip.
    ///
    /// # Errors
    /// [`FtlError::Config`] where a parameter is unknown, is not a value, or cannot work on this
    /// chip; what a mount finds wrong: [`FtlError::Corrupt`] where the flash contradicts itself.
    pub fn start<S: SchemeStore>(
        &self,
        chip: Chip<S>,
        config: &FtlConfig,
        start: Start,
    ) -> Result<Box<dyn Ftl<S>>, FtlError> {
        config.params.only(self.all_params())?;
        S::constructor(self)(chip, config, start)
    }

    /// Lays a device out: what the host sees and how many raw blocks that takes.
    ///
    /// A profile by size: data x (1 + over-provisioning), the scheme's overhead, and the bad blocks
    /// its data sheet allows. A paper's device has its raw blocks; then the logical size follows
    /// and `size_bytes` must be 0 or not larger.
    ///
    /// # Errors
    /// [`FtlError::Config`] where the device cannot be laid out as asked; the text says why.
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
    /// Pages the host sees.
    pub logical_pages: u32,
}

/// Stores that schemes are built for.
pub trait SchemeStore: Store + Sized {
    /// The scheme's constructor over this store.
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

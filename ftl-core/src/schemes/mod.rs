//! The table of schemes. Command line, tests, metrics and documents iterate over it; no other code
//! names a scheme.

mod asast;
mod bast;
mod dftl;
mod dopftl;
mod fast;
mod fit_ram;
mod gftl;
mod last;
mod layout;
mod lazyftl;
mod leaftl;
mod learnedftl;
mod mlam;
mod mnftl;
mod nftl1;
mod nftln;
mod pagemap;
mod rose;
mod scheme;
mod superblock;
mod tpftl;

pub use crate::layout::Layout;
pub use crate::ram::{RamParam, RamRange};
pub use pagemap::FlatMap;
#[cfg(test)]
pub(crate) use pagemap::Ideal;
pub use scheme::{Constructor, MlcUse, NOT_GRADED, Scheme};

use crate::error::FtlError;
use std::sync::{Mutex, PoisonError};

/// Every scheme, the default first. A static, so that the schemes are compiled here. A constant
/// would compile all functions of every scheme into each crate that names it.
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
    leaftl::SCHEME,
    learnedftl::SCHEME,
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
    /// Returns the scheme of this name.
    pub fn find(name: &str) -> Option<&'static Scheme> {
        all().find(|scheme| scheme.name == name)
    }
}

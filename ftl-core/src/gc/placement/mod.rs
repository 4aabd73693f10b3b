//! Placement of pages in open blocks: `gc.placement`. Each [`Policy`] here, one a file, chooses the
//! stream of a host write or a copy, from the age of the page and its old block.
//!
//! A stream may be striped: it has an open block on each of several dies, a *lane* each, and its
//! pages go to one lane after another. On a chip with multi-plane commands it has a lane on each
//! plane of those dies, and pages go to all planes of a die before the next die
//! (`space/planes.rs`).
//!
//! Invariants: a copy never needs more room than one stream of copies would. When blocks are short,
//! it joins any open lane of copies instead of opening a block for its own. FLUSH treats all lanes
//! of host data like a single stream.

mod age;
mod copies_apart;
mod mdc;
mod mida;
mod midas;
mod sepbit;
mod single;
mod streams;
#[cfg(test)]
mod tests;

use super::policy::Policy;
use super::selected::{Own, Policies};
use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
pub(crate) use streams::DataStreams;
use streams::Striped;

/// The parameter, for the tables of schemes.
pub(crate) const PLACEMENT_PARAM: ParamDoc = ParamDoc {
    key: "gc.placement",
    help: "assignment of pages to streams: copies_apart (default), single, age, sepbit or mida; or \
           midas or mdc, which choose the victims too",
};

/// The parameter of striping, for the tables of schemes.
pub(crate) const STRIPE_PARAM: ParamDoc = ParamDoc {
    key: "alloc.stripe",
    help: "dies over which every stream of data is striped, page by page, 1 to 16 (default 1)",
};

/// Placements that choose the victims of GC too. `gc.policy` is left out, or names the same.
pub(super) const CHOOSE_VICTIMS: [&str; 2] = ["midas", "mdc"];

/// Maximal number of lanes of a stream.
const STRIPE_MAX: u32 = 16;

/// Returns the policies and the striping that the parameters select on a device of this shape.
///
/// # Errors
/// [`FtlError::Config`] if there is no such policy, or the device has fewer dies.
pub(crate) fn from_params(params: &Params, own: &Own) -> Result<Striped, FtlError> {
    let dies = own.device.geometry.dies();
    let stripe = params.get(STRIPE_PARAM.key, 1)?;
    if !(1..=dies.min(STRIPE_MAX)).contains(&stripe) {
        return Err(FtlError::Config(format!(
            "parameter {}: {stripe} is not from 1 to {}, the dies of this device (at most {STRIPE_MAX})",
            STRIPE_PARAM.key,
            dies.min(STRIPE_MAX)
        )));
    }
    let policies = Policies::from_params(params, own)?;
    let planes = own.device.geometry.joint_planes();
    Ok(Striped {
        policies,
        dies: stripe,
        planes,
    })
}

/// Returns ftld's policy of this name that chooses streams. `own` completes the message about an
/// unknown name.
pub(super) fn of_ftld(name: &str, own: &Own) -> Result<Box<dyn Policy>, FtlError> {
    Ok(match name {
        "copies_apart" => Box::new(copies_apart::CopiesApart),
        "single" => Box::new(single::Single),
        "age" => Box::new(age::Age),
        "sepbit" => Box::new(sepbit::SepBit::new(own.device.logical_pages)),
        "mida" => Box::new(mida::Mida),
        "midas" => Box::new(midas::Midas::new(&own.device)),
        "mdc" => Box::new(mdc::Mdc::new(&own.device.geometry)),
        other => {
            return Err(FtlError::Config(format!(
                "parameter gc.placement: {other:?} is none of {}copies_apart, single, age, sepbit, mida, midas, mdc",
                own.names()
            )));
        }
    })
}

/// Returns the open blocks besides one of host data and one of copies.
pub(crate) fn more_streams((host, copies): (u32, u32)) -> u32 {
    (host + copies).saturating_sub(2)
}

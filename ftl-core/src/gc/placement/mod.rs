//! Placement of pages in open blocks: `gc.placement`. A policy is a file here. It chooses the
//! stream of a host write and of a copy, from the age of the page and its old block.
//!
//! A stream may be striped: it has an open block on each of several dies, a *lane* each, and its
//! pages go to one lane after another.
//!
//! Invariants: a copy never needs more room than one stream of copies would. When blocks are short,
//! it joins any open lane of copies instead of opening a block for its own. FLUSH treats all lanes
//! of host data like a single stream.

mod age;
mod copies_apart;
mod mida;
mod rule;
mod sepbit;
mod single;
mod streams;
#[cfg(test)]
mod tests;

use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use nand_model::Geometry;
pub use rule::{NewPlacement, Placement};
pub(crate) use streams::DataStreams;
use streams::{STREAMS_MAX, Striped};

/// The parameter, for the tables of schemes.
pub(crate) const PLACEMENT_PARAM: ParamDoc = ParamDoc {
    key: "gc.placement",
    help: "assignment of pages to streams: copies_apart (default), single, age, sepbit or mida",
};

/// The parameter of striping, for the tables of schemes.
pub(crate) const STRIPE_PARAM: ParamDoc = ParamDoc {
    key: "alloc.stripe",
    help: "dies over which every stream of data is striped, page by page, 1 to 16 (default 1)",
};

/// Maximal number of lanes of a stream.
const STRIPE_MAX: u32 = 16;

/// Returns the placement and the striping that the parameters select on a device of this shape.
/// `own` has placements of the scheme itself; the first of them is its default.
///
/// # Errors
/// [`FtlError::Config`] if there is no such placement, or the device has not as many dies.
pub(crate) fn from_params(
    params: &Params,
    own: &[(&'static str, NewPlacement)],
    geometry: &Geometry,
) -> Result<Striped, FtlError> {
    let dies = geometry.dies();
    let stripe = params.get(STRIPE_PARAM.key, 1)?;
    if !(1..=dies.min(STRIPE_MAX)).contains(&stripe) {
        return Err(FtlError::Config(format!(
            "parameter {}: {stripe} is not from 1 to {}, the dies of this device (at most {STRIPE_MAX})",
            STRIPE_PARAM.key,
            dies.min(STRIPE_MAX)
        )));
    }
    let placement = placement_of(params, own)?;
    Ok(Striped { placement, stripe })
}

fn placement_of(
    params: &Params,
    own: &[(&'static str, NewPlacement)],
) -> Result<Box<dyn Placement>, FtlError> {
    let default = own.first().map_or("copies_apart", |(name, _)| name);
    let name = params.get(PLACEMENT_PARAM.key, default.to_string())?;
    if let Some((_, new)) = own.iter().find(|(known, _)| *known == name) {
        let placement = new(params)?;
        let (host, copies) = placement.streams();
        return match (1..=STREAMS_MAX).contains(&host) && copies <= STREAMS_MAX {
            true => Ok(placement),
            false => Err(FtlError::Config(format!(
                "gc.placement {name}: {host} streams of host data and {copies} of copies; need 1 to \
                 {STREAMS_MAX} and at most {STREAMS_MAX}"
            ))),
        };
    }
    Ok(match name.as_str() {
        "copies_apart" => Box::new(copies_apart::CopiesApart),
        "single" => Box::new(single::Single),
        "age" => Box::new(age::Age),
        "sepbit" => Box::new(sepbit::SepBit::default()),
        "mida" => Box::new(mida::Mida),
        other => {
            let own: String = own.iter().map(|(name, _)| format!("{name}, ")).collect();
            return Err(FtlError::Config(format!(
                "parameter gc.placement: {other:?} is none of {own}copies_apart, single, age, sepbit, mida"
            )));
        }
    })
}

/// Returns the open blocks besides one of host data and one of copies.
pub(crate) fn more_streams((host, copies): (u32, u32)) -> u32 {
    (host + copies).saturating_sub(2)
}

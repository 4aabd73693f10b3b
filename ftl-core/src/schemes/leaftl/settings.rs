//! Parameters of LeaFTL.

use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use crate::int::{narrow, to_u16};
use crate::layout::Layout;
use nand_model::Geometry;

pub(super) const BUFFER: ParamDoc = ParamDoc {
    key: "leaftl.buffer",
    help: "bytes of the write buffer, with leaftl.ack=buffer (default 8 MiB, at most a 16th of the device)",
};
pub(super) const ACK: ParamDoc = ParamDoc {
    key: "leaftl.ack",
    help: "where a write is when it is acknowledged: flash (default); buffer: in RAM, as in the paper; a killed daemon loses it",
};
pub(super) const GAMMA: ParamDoc = ParamDoc {
    key: "leaftl.gamma",
    help: "pages by which a predicted location may miss, 0 to 16: 0 (default) never reads flash for a lookup, but has more segments",
};
pub(super) const COMPACT_AFTER: ParamDoc = ParamDoc {
    key: "leaftl.compact_after",
    help: "pages learned in a group of 256 between compactions of its segments, 1 to 65535 (default 64)",
};

/// The paper's write buffer.
const DEFAULT_BUFFER: u64 = 8 << 20;
const MIN_BUFFER_PAGES: u64 = 8;
const MAX_BUFFER_PAGES: u64 = 1 << 24;
/// The largest bound in the paper's evaluation.
const MAX_GAMMA: u32 = 16;

/// Parameters of the learned table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Largest miss of a prediction, in pages.
    pub(super) gamma: u32,
    pub(super) compact_after: u16,
}

impl Settings {
    pub(super) fn new(params: &Params) -> Result<Settings, FtlError> {
        Ok(Settings {
            gamma: params.within(GAMMA.key, 0, 0..=MAX_GAMMA)?,
            compact_after: to_u16(params.within(COMPACT_AFTER.key, 64, 1..=65_535)?),
        })
    }
}

/// Returns the minimum and the default bytes of the buffer on a device.
pub(super) fn buffer_range(layout: &Layout) -> (u64, u64) {
    range_of(&layout.profile.geometry, layout.logical_pages)
}

fn range_of(geometry: &Geometry, logical_pages: u32) -> (u64, u64) {
    let page = u64::from(geometry.page_bytes);
    let least = MIN_BUFFER_PAGES * page;
    let most = DEFAULT_BUFFER.min(u64::from(logical_pages) * page / 16);
    (least, most.max(least))
}

/// Returns the pages of the write buffer; `None` if writes are acknowledged on flash.
pub(super) fn buffering(
    geometry: &Geometry,
    logical_pages: u32,
    params: &Params,
) -> Result<Option<u32>, FtlError> {
    let page = u64::from(geometry.page_bytes);
    let (_, default) = range_of(geometry, logical_pages);
    let bytes: u64 = params.get(BUFFER.key, default)?;
    let pages = bytes / page;
    if !(MIN_BUFFER_PAGES..=MAX_BUFFER_PAGES).contains(&pages) {
        return Err(FtlError::Config(format!(
            "parameter {}: {bytes} bytes, need {} to {}",
            BUFFER.key,
            MIN_BUFFER_PAGES * page,
            MAX_BUFFER_PAGES * page
        )));
    }
    let keeps = !params.choice(ACK.key, "flash", "buffer")?;
    Ok(keeps.then_some(narrow(pages)))
}

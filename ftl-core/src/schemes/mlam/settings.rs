//! Parameters of MLAM.

use super::policy::Policy;
use super::shape::Shape;
use crate::config::Params;
use crate::error::FtlError;
use crate::gc::{self, FreeBlocks};
use crate::int::narrow;
use crate::layout::Layout;
use crate::recovery::rewrite_reserve;
use nand_model::Profile;

/// The validated parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) chips: u32,
    /// Capacity of the buffer in pages.
    pub(super) capacity: u32,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) policy: Policy,
    pub(super) candidates: usize,
    pub(super) alpha: f64,
    /// `None`: adapted to the costs of reorganisation and merges.
    pub(super) k_empty: Option<u32>,
    pub(super) smax: f64,
    pub(super) flush_by_journal: bool,
    pub(super) acknowledged_by_journal: bool,
    pub(super) gc: gc::Settings,
    pub(super) reserve: u32,
}

impl Settings {
    pub(super) fn new(
        params: &Params,
        profile: &Profile,
        blocks: u32,
        logical_pages: u32,
    ) -> Result<Settings, FtlError> {
        let geometry = &profile.geometry;
        let low = params.within("mlam.low", 0.1, 0.0..=1.0)?;
        let high = params.within("mlam.high", 0.5, 0.0..=1.0)?;
        if low >= high {
            return Err(FtlError::Config(format!(
                "parameter mlam.high: {high} is not above mlam.low ({low})"
            )));
        }
        let candidates = params.within("mlam.candidates", 4, 1..=MAX_CANDIDATES)?;
        let k_empty = match params.get("mlam.k_empty", "auto".to_string())?.as_str() {
            "auto" => None,
            text => Some(text.parse().ok().filter(|k| *k <= 7).ok_or_else(|| {
                FtlError::Config(format!(
                    "parameter mlam.k_empty: {text:?} is neither auto nor within 0 to 7"
                ))
            })?),
        };
        let smax: f64 = params.get("mlam.smax", 1.25)?;
        if smax.is_nan() || smax < 1.0 {
            return Err(FtlError::Config(format!(
                "parameter mlam.smax: {smax} is less than 1, the coarsest table"
            )));
        }
        let page = u64::from(geometry.page_bytes);
        let layout = Layout {
            profile: *profile,
            logical_pages,
        };
        let (_, default) = buffer_range(&layout);
        let bytes: u64 = params.get("mlam.buffer", default)?;
        let capacity = bytes / page;
        if !(MIN_BUFFER_PAGES..=1 << 24).contains(&capacity) {
            return Err(FtlError::Config(format!(
                "parameter mlam.buffer: {} bytes, need {} to {}",
                bytes,
                MIN_BUFFER_PAGES * page,
                (1 << 24) * page
            )));
        }
        let capacity = narrow(capacity);
        let chips = Shape::new(
            geometry,
            params.get("mlam.chips", Shape::default_chips(geometry))?,
        )?
        .chips;
        let pages = geometry.pages_per_block;
        // Pages that are only in RAM must find space at any time, and so must a superblock, besides
        // two blocks that fail.
        let reserve = capacity.div_ceil(pages) + chips + 2;
        let rewritten = rewrite_reserve(profile, chips);
        let free_blocks = FreeBlocks {
            default: 4.max(blocks / 200) + rewritten + reserve,
            for_gc: reserve,
            for_failures: 0,
            for_mount: rewritten,
        };
        Ok(Settings {
            chips,
            capacity,
            low,
            high,
            policy: Policy::named(&params.get("mlam.policy", "mlam".to_string())?)?,
            candidates,
            alpha: params.within("mlam.alpha", 0.5, 0.0..=1.0)?,
            k_empty,
            smax,
            flush_by_journal: params.choice("mlam.flush", "journal", "vsb")?,
            acknowledged_by_journal: params.choice("mlam.ack", "journal", "buffer")?,
            gc: gc::Settings::new(params, free_blocks)?,
            reserve,
        })
    }
}

/// Returns the minimum and the default bytes of the buffer on a device.
pub(super) fn buffer_range(layout: &Layout) -> (u64, u64) {
    let page = u64::from(layout.profile.geometry.page_bytes);
    let least = MIN_BUFFER_PAGES * page;
    let most = DEFAULT_BUFFER.min(u64::from(layout.logical_pages) * page / 16);
    (least, most.max(least))
}

pub(super) const DEFAULT_BUFFER: u64 = 32 << 20;

pub(super) const MIN_BUFFER_PAGES: u64 = 8;

/// Maximum number of candidates for a virtual superblock, if the usual number does not fill it.
pub(super) const MAX_CANDIDATES: usize = 16;

//! Settings that the families `hybrid` and `units` share; `page_ram`, `paged` and `mlam` have more.

use crate::config::Params;
use crate::error::FtlError;
use crate::gc::{FreeBlocks, Settings};
use crate::recovery::rewrite_reserve;
use nand_model::Profile;

/// Reads the settings of a device on which `units` units may have an open block each, and
/// `for_failures` blocks are kept for programs and erases that fail.
///
/// # Errors
/// [`FtlError::Config`] if a value is malformed or cannot work.
pub(super) fn read(
    params: &Params,
    profile: &Profile,
    blocks: u32,
    units: u32,
    for_failures: u32,
) -> Result<Settings, FtlError> {
    let rewritten = rewrite_reserve(profile, units);
    Settings::new(
        params,
        FreeBlocks {
            default: 4.max(blocks / 200) + rewritten,
            for_gc: 2,
            for_failures,
            for_mount: rewritten,
        },
    )
}

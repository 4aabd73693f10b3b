//! Requirements on an image, and the device that follows from them.
//!
//! Invariants: a value that nobody specified has its default here, for live and for simulated
//! devices alike.

use super::find_scheme;
use crate::volume::striping;
use ftl_core::Params;
use ftl_core::schemes::{Layout, SCHEMES, Scheme};
use ftld_kit::failure::Failure;
use ftld_kit::size::show_size;
use nand_model::{Capacity, Profile, Striping};

/// Default over-provisioning in percent.
pub const OP_DEFAULT: f64 = 7.0;
/// Default device size in bytes.
pub const SIZE_DEFAULT: u64 = 1 << 30;

/// Requirements on an image. Unspecified values are `None`, so that only a real contradiction is an
/// error.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageRequirements {
    /// Name of the scheme.
    pub scheme: Option<String>,
    /// The flash device.
    pub profile: Option<Profile>,
    /// Device size in bytes.
    pub size: Option<u64>,
    /// Over-provisioning in percent.
    pub op: Option<f64>,
    /// Number of chips.
    pub shards: Option<u32>,
    /// Scheme parameters.
    pub params: Params,
}

/// Raw flash of a simulated device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RawFlash {
    /// The scheme's own layout for this size and over-provisioning.
    #[default]
    Own,
    /// This number of bytes, bad blocks included.
    Bytes(u64),
    /// Good flash that exceeds the size by this percentage of it.
    EffectiveOp(f64),
}

/// A scheme on a new device.
pub struct NewDevice {
    /// The scheme.
    pub scheme: &'static Scheme,
    /// Shape of the flash and logical pages of each chip.
    pub layout: Layout,
    /// The stripes over several chips.
    pub(crate) striping: Option<Striping>,
    /// Bytes the host sees.
    pub size: u64,
    /// Requested over-provisioning in percent.
    pub op_percent: f64,
}

impl ImageRequirements {
    /// Returns the device, with the default of each unspecified value. `footprint` replaces the
    /// default size in bytes; `raw` determines the flash.
    ///
    /// # Errors
    /// There is no such scheme, or no device fits the requirements.
    pub fn device(&self, footprint: Option<u64>, raw: RawFlash) -> Result<NewDevice, Failure> {
        let scheme = self.scheme.as_deref();
        let scheme = scheme.map_or(Ok(&SCHEMES[0]), find_scheme)?;
        let profile = self.profile.unwrap_or(*Profile::default_profile());
        let op_percent = self.op.unwrap_or(OP_DEFAULT);
        // The size of a device of fixed flash follows from it.
        let default = match profile.capacity {
            Capacity::BySize => footprint.unwrap_or(SIZE_DEFAULT),
            Capacity::Blocks(_) => 0,
        };
        let wanted = self.size.unwrap_or(default);
        let striping = striping(&profile.geometry, self.shards.unwrap_or(1));
        if let Some(of) = striping.filter(|of| {
            // Each chip needs a stripe; a size of 0 follows from the flash.
            wanted > 0 && wanted.div_ceil(of.stripe_bytes) < u64::from(of.count)
        }) {
            return Err(Failure::usage(format!(
                "--shards {}: a device of {} has {} of the stripes of {}, and each shard needs one; \
                 choose fewer shards or a larger --size",
                of.count,
                show_size(wanted),
                wanted.div_ceil(of.stripe_bytes),
                show_size(of.stripe_bytes)
            )));
        }
        let of_chip = striping.map_or(wanted, |of| of.shard_bytes(wanted));
        let layout = match raw {
            RawFlash::Own => scheme.layout(&profile, of_chip, op_percent / 100.0, &self.params),
            RawFlash::EffectiveOp(percent) => {
                scheme.layout_effective(&profile, wanted, percent / 100.0, &self.params)
            }
            RawFlash::Bytes(_) if wanted == 0 => {
                return Err(Failure::usage(format!(
                    "--raw on profile {}, whose size follows from its raw flash; add --size",
                    profile.name
                )));
            }
            RawFlash::Bytes(raw) => scheme.layout_on(&profile, wanted, raw, &self.params),
        }
        .map_err(Failure::usage)?;
        let logical_pages = u64::from(layout.logical_pages);
        assert!(
            logical_pages < layout.profile.geometry.pages(),
            "{logical_pages} logical pages on {} physical pages",
            layout.profile.geometry.pages()
        );
        let whole = logical_pages * u64::from(profile.geometry.page_bytes);
        let size = match striping {
            _ if wanted > 0 => wanted,
            None => whole,
            Some(of) => whole / of.stripe_bytes * of.stripe_bytes * u64::from(of.count),
        };
        if let Some(of) = striping.filter(|_| size == 0) {
            return Err(Failure::usage(format!(
                "--shards {}: a stripe has {}, and each chip {}; choose a larger flash, or leave the \
                 option out",
                of.count,
                show_size(of.stripe_bytes),
                show_size(whole)
            )));
        }
        assert!(
            size > 0 && striping.map_or(size, |of| of.shard_bytes(size)) <= whole,
            "a device of {size} bytes on chips of {logical_pages} logical pages"
        );
        Ok(NewDevice {
            scheme,
            layout,
            striping,
            size,
            op_percent,
        })
    }
}

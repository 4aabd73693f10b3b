//! The layout of a device under a scheme: from its size, or from its raw flash.

use super::scheme::Scheme;
use crate::config::Params;
use crate::error::FtlError;
use crate::format::OOB_SLOT;
use crate::gc::fold::VICTIM_PARAM;
use crate::int::narrow;
use crate::layout::Layout;
use nand_model::{Capacity, Geometry, Profile};

/// Minimum of over-provisioning, as a share of the logical size.
const OP_MIN: f64 = 0.01;
/// Maximum of over-provisioning.
const OP_MAX: f64 = 10.0;
/// Maximum number of logical pages: their numbers have 31 bits.
const PAGES_MAX: u32 = (1 << 31) - 1;

impl Scheme {
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
        self.check(profile, params)?;
        if !(OP_MIN..=OP_MAX).contains(&op) {
            return Err(FtlError::Config(format!(
                "over-provisioning of {:.1} %: need 1 to 1000 %",
                op * 100.0
            )));
        }
        match profile.capacity {
            Capacity::BySize => {
                let logical_pages = logical_pages_of(profile, size_bytes)?;
                let blocks = self.blocks_for(profile, logical_pages, op, params)?;
                let blocks = u32::try_from(blocks).map_err(|_| too_large(size_bytes))?;
                self.finish(
                    profile,
                    whole_planes(profile, blocks),
                    logical_pages,
                    params,
                )
            }
            Capacity::Blocks(blocks) => {
                let largest = self.largest_on(profile, blocks, op, params)?;
                let wanted = if size_bytes == 0 {
                    largest
                } else {
                    logical_pages_of(profile, size_bytes)?
                };
                if wanted == 0 || wanted > largest {
                    return Err(FtlError::Config(format!(
                        "profile {} has {blocks} blocks: at most {} bytes at this over-provisioning",
                        profile.name,
                        u64::from(largest) * u64::from(profile.geometry.page_bytes)
                    )));
                }
                self.finish(profile, blocks, wanted, params)
            }
        }
    }

    /// Lays out a device of `size_bytes` on `raw_bytes` of flash, bad blocks included: as many
    /// whole blocks as fit into `raw_bytes`. The over-provisioning is what remains.
    ///
    /// # Errors
    /// [`FtlError::Config`] if the scheme needs more flash for this size; the message has the
    /// minimum that it needs, or the size if the flash is smaller than that.
    pub fn layout_on(
        &self,
        profile: &Profile,
        size_bytes: u64,
        raw_bytes: u64,
        params: &Params,
    ) -> Result<Layout, FtlError> {
        self.check(profile, params)?;
        let logical_pages = logical_pages_of(profile, size_bytes)?;
        if raw_bytes < size_bytes {
            return Err(FtlError::Config(format!(
                "raw flash of {raw_bytes} bytes is less than the size of {size_bytes} bytes that the host sees"
            )));
        }
        let least = self.blocks_for(profile, logical_pages, OP_MIN, params)?;
        let geometry = &profile.geometry;
        let block_bytes = block_bytes(geometry);
        // Every plane has as many blocks as any other, if planes operate together.
        let step = match geometry.joint_planes() {
            1 => 1,
            planes => u64::from(geometry.dies() * planes),
        };
        let least = least.next_multiple_of(step);
        let blocks = raw_bytes / block_bytes / step * step;
        if blocks < least {
            return Err(FtlError::Config(format!(
                "raw flash of {raw_bytes} bytes: scheme {} needs at least {} bytes for a device of {size_bytes} bytes",
                self.name,
                least * block_bytes
            )));
        }
        let blocks = u32::try_from(blocks).map_err(|_| too_large(raw_bytes))?;
        self.finish(profile, blocks, logical_pages, params)
    }

    /// Lays out a device of `size_bytes` whose good flash exceeds its size by the share `op`: whole
    /// blocks, rounded up. Bad blocks from the factory come on top; those that the data sheet
    /// allows later are part of the over-provisioning. On a paper's device the size follows,
    /// rounded down, and `size_bytes` must be 0.
    ///
    /// # Errors
    /// [`FtlError::Config`] if the scheme needs more over-provisioning; the message has the
    /// minimum.
    pub fn layout_effective(
        &self,
        profile: &Profile,
        size_bytes: u64,
        op: f64,
        params: &Params,
    ) -> Result<Layout, FtlError> {
        self.check(profile, params)?;
        match profile.capacity {
            Capacity::BySize => self.effective_of_size(profile, size_bytes, op, params),
            Capacity::Blocks(blocks) if size_bytes == 0 => {
                self.effective_on(profile, blocks, op, params)
            }
            Capacity::Blocks(blocks) => Err(FtlError::Config(format!(
                "profile {} has {blocks} blocks: its size follows from the effective \
                 over-provisioning; leave --size out",
                profile.name
            ))),
        }
    }

    /// Lays out a device of `size_bytes` and this effective over-provisioning.
    fn effective_of_size(
        &self,
        profile: &Profile,
        size_bytes: u64,
        op: f64,
        params: &Params,
    ) -> Result<Layout, FtlError> {
        let logical_pages = logical_pages_of(profile, size_bytes)?;
        if profile.slc.is_some() {
            return self.effective_with_region(profile, logical_pages, op, params);
        }
        let pages_per_block = u64::from(profile.geometry.pages_per_block);
        // None if `op` is negative or no number; that is refused.
        let good = (f64::from(logical_pages) * (1.0 + op)).ceil() as u64;
        let good = good.div_ceil(pages_per_block);
        let least = self.used_blocks(profile, logical_pages, OP_MIN, params)?;
        if good < least || op > OP_MAX {
            let ratio = (least * pages_per_block) as f64 / f64::from(logical_pages);
            // Rounded up, so that it is not refused itself.
            let least = ((ratio - 1.0) * 1e6).ceil() / 1e4;
            return Err(self.effective_refused(profile, op, least, logical_pages));
        }
        let blocks = with_bad_blocks(profile, good).ok_or_else(|| too_large(size_bytes))?;
        self.finish(
            profile,
            whole_planes(profile, blocks),
            logical_pages,
            params,
        )
    }

    /// Does this for a device with blocks in SLC mode, which take fewer pages.
    fn effective_with_region(
        &self,
        profile: &Profile,
        logical_pages: u32,
        op: f64,
        params: &Params,
    ) -> Result<Layout, FtlError> {
        let wanted = (f64::from(logical_pages) * (1.0 + op.min(OP_MAX))).ceil() as u64;
        let least = self.used_blocks(profile, logical_pages, OP_MIN, params)?;
        let first = wanted / u64::from(profile.geometry.pages_per_block);
        let sized = |blocks: u32| profile.with_blocks(blocks);
        let is_enough = |part: &Profile| part.good_pages(part.factory_bad_blocks()) >= wanted;
        let found = from(first).map(sized).find(is_enough);
        let found = found.filter(|part| good_others(part) >= least && op <= OP_MAX);
        let Some(part) = found else {
            let fits = |part: &Profile| good_others(part) >= least;
            let part = from(least).map(sized).find(fits);
            let pages = part.map_or(0, |part| part.good_pages(part.factory_bad_blocks()));
            // Rounded up, so that it is not refused itself.
            let least = ((pages as f64 / f64::from(logical_pages) - 1.0) * 1e6).ceil() / 1e4;
            return Err(self.effective_refused(profile, op, least, logical_pages));
        };
        let blocks = whole_planes(profile, part.geometry.blocks);
        self.finish(profile, blocks, logical_pages, params)
    }

    /// Lays out a device of `blocks` blocks and this effective over-provisioning.
    fn effective_on(
        &self,
        profile: &Profile,
        blocks: u32,
        op: f64,
        params: &Params,
    ) -> Result<Layout, FtlError> {
        let part = profile.with_blocks(blocks);
        let pages = part.good_pages(part.factory_bad_blocks()) as f64;
        let good = good_others(&part);
        let pages_at = |share: f64| whole_units(profile, (pages / (1.0 + share)) as u32);
        let fits = |share: f64| {
            let used = self.used_blocks(profile, pages_at(share), OP_MIN, params)?;
            Ok::<_, FtlError>(used <= good)
        };
        if (0.0..=OP_MAX).contains(&op) && fits(op)? {
            return self.finish(profile, blocks, pages_at(op), params);
        }
        // In hundredths of a percent, as the text has it.
        let of = |share: u32| f64::from(share) / 1e4;
        let (mut refused, mut least) = (0u32, (OP_MAX * 1e4) as u32);
        while refused + 1 < least {
            let middle = refused + (least - refused) / 2;
            *(if fits(of(middle))? {
                &mut least
            } else {
                &mut refused
            }) = middle;
        }
        let percent = f64::from(least) / 100.0;
        Err(self.effective_refused(profile, op, percent, pages_at(of(least))))
    }

    /// Returns the refusal of an effective over-provisioning. `least` is in percent.
    fn effective_refused(&self, profile: &Profile, op: f64, least: f64, pages: u32) -> FtlError {
        FtlError::Config(format!(
            "effective over-provisioning of {} %: scheme {} on a device of {} bytes can have \
             {least} to {} %",
            (op * 1e6).round() / 1e4,
            self.name,
            u64::from(pages) * u64::from(profile.geometry.page_bytes),
            OP_MAX * 100.0
        ))
    }

    /// Checks the parameters, and that the scheme can use the region of the profile.
    fn check(&self, profile: &Profile, params: &Params) -> Result<(), FtlError> {
        params.only(self.all_params())?;
        if profile.slc.is_none() || self.can_fold() {
            return Ok(());
        }
        let able: Vec<_> = super::all().filter(|scheme| scheme.can_fold()).collect();
        let names: Vec<_> = able.iter().map(|scheme| scheme.name).collect();
        Err(FtlError::Config(format!(
            "scheme {} cannot fold blocks in SLC mode; choose {}, or leave the SLC region out",
            self.name,
            names.join(", ")
        )))
    }

    fn can_fold(&self) -> bool {
        self.knows(VICTIM_PARAM.key)
    }

    /// Returns the raw blocks for this many logical pages: data, over-provisioning, the scheme's
    /// overhead, and on a profile by size the bad blocks that its data sheet allows. Blocks in SLC
    /// mode come on top: all of them may be empty, and none of them bad.
    fn blocks_for(
        &self,
        profile: &Profile,
        logical_pages: u32,
        op: f64,
        params: &Params,
    ) -> Result<u64, FtlError> {
        let used = self.used_blocks(profile, logical_pages, op, params)?;
        let spare = |good: u64| match profile.capacity {
            Capacity::BySize => (good * u64::from(profile.max_bad_permille))
                .div_ceil(1000)
                .max(4),
            Capacity::Blocks(_) => 0,
        };
        if profile.slc.is_none() {
            return Ok(used + spare(used));
        }
        let is_enough = |blocks: &u32| {
            let region = u64::from(profile.with_blocks(*blocks).slc_blocks());
            u64::from(*blocks) >= used + region + spare(used + region)
        };
        let found = from(used).find(is_enough);
        Ok(found.map_or(u64::MAX, u64::from))
    }

    /// Returns the good blocks for this many logical pages: data, over-provisioning, the scheme's
    /// overhead.
    fn used_blocks(
        &self,
        profile: &Profile,
        logical_pages: u32,
        op: f64,
        params: &Params,
    ) -> Result<u64, FtlError> {
        let with_op = (f64::from(logical_pages) * (1.0 + op)).ceil() as u64;
        let data = with_op.div_ceil(u64::from(profile.geometry.pages_per_block));
        Ok(data + u64::from((self.overhead_blocks)(profile, logical_pages, params)?))
    }

    /// Returns the maximum of logical pages, in units of 4 KiB, that fit on this many blocks.
    fn largest_on(
        &self,
        profile: &Profile,
        blocks: u32,
        op: f64,
        params: &Params,
    ) -> Result<u32, FtlError> {
        let pages = u64::from(blocks) * u64::from(profile.geometry.pages_per_block);
        let (mut low, mut high) = (0u32, narrow(pages));
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            let fits = self.blocks_for(profile, middle, op, params)? <= u64::from(blocks);
            *(if fits { &mut low } else { &mut high }) = middle;
        }
        Ok(whole_units(profile, low))
    }

    fn finish(
        &self,
        profile: &Profile,
        blocks: u32,
        logical_pages: u32,
        params: &Params,
    ) -> Result<Layout, FtlError> {
        let profile = profile.with_blocks(blocks);
        if profile.slc.is_some() {
            let valid = profile.validate();
            valid.map_err(|error| FtlError::Config(error.to_string()))?;
            // With the number of blocks, this checks the region too.
            (self.overhead_blocks)(&profile, logical_pages, params)?;
        }
        let (spare, shape) = (profile.geometry.oob_len(), profile.geometry.validate());
        if spare < OOB_SLOT {
            return Err(FtlError::Config(format!(
                "profile {} has {spare} spare bytes per page: the record of a page takes {OOB_SLOT}",
                profile.name
            )));
        }
        shape.map_err(|error| FtlError::Config(error.to_string()))?;
        Ok(Layout {
            profile,
            logical_pages,
        })
    }
}

/// Returns as many of these pages as make whole units of 4 KiB.
fn whole_units(profile: &Profile, pages: u32) -> u32 {
    let unit = (4096 / profile.geometry.page_bytes).max(1);
    pages / unit * unit
}

/// Returns this many blocks, or with multi-plane commands the next number that gives every plane as
/// many. A paper's device keeps its number.
fn whole_planes(profile: &Profile, blocks: u32) -> u32 {
    let geometry = &profile.geometry;
    match (geometry.joint_planes(), profile.capacity) {
        (1, _) | (_, Capacity::Blocks(_)) => blocks,
        (planes, Capacity::BySize) => blocks.next_multiple_of(geometry.dies() * planes),
    }
}

/// Iterates over numbers of blocks from this one on; there may be none.
fn from(first: u64) -> std::ops::Range<u32> {
    u32::try_from(first).unwrap_or(u32::MAX)..u32::MAX
}

/// Returns the blocks that are good when new and not in SLC mode.
fn good_others(part: &Profile) -> u64 {
    let (_, others) = part.good_blocks(part.factory_bad_blocks());
    u64::from(others)
}

/// Returns the smallest number of blocks of which this many are good when new.
fn with_bad_blocks(profile: &Profile, good: u64) -> Option<u32> {
    let permille = u64::from(profile.factory_bad_permille);
    let mut blocks = u32::try_from(good.max(good * 1000 / (1000 - permille) - 1)).ok()?;
    while u64::from(blocks - profile.with_blocks(blocks).factory_bad_blocks()) < good {
        blocks = blocks.checked_add(1)?;
    }
    Some(blocks)
}

fn block_bytes(geometry: &Geometry) -> u64 {
    u64::from(geometry.pages_per_block) * u64::from(geometry.page_bytes)
}

fn logical_pages_of(profile: &Profile, size_bytes: u64) -> Result<u32, FtlError> {
    if size_bytes == 0 || !size_bytes.is_multiple_of(4096) {
        return Err(FtlError::Config(format!(
            "size of {size_bytes} bytes: need a multiple of 4 KiB"
        )));
    }
    let page = u64::from(profile.geometry.page_bytes);
    let pages = u32::try_from(size_bytes.div_ceil(page)).ok();
    pages.filter(|pages| *pages <= PAGES_MAX).ok_or_else(|| {
        FtlError::Config(format!(
            "size of {size_bytes} bytes: at most {} bytes with pages of {page} bytes",
            u64::from(PAGES_MAX) * page / 4096 * 4096
        ))
    })
}

fn too_large(bytes: u64) -> FtlError {
    FtlError::Config(format!("{bytes} bytes do not fit 32-bit page numbers"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes::SCHEMES;
    use nand_model::MultiPlane;

    /// The effective over-provisioning is as requested, and exceeds it by at most a block. Factory
    /// bad blocks are not counted in it.
    #[test]
    fn effective_over_provisioning_is_met_to_a_block() {
        let (profile, params) = (Profile::find("slc-2k").unwrap(), Params::default());
        let block = f64::from(profile.geometry.pages_per_block);
        for scheme in SCHEMES {
            for size in [13 << 20, 1 << 30, 64 << 30] {
                for op in [0.07, 0.28, 1.0] {
                    let of = |op: f64| scheme.layout_effective(profile, size, op, &params);
                    let (op, layout) = match of(op) {
                        Ok(layout) => (op, layout),
                        Err(refused) => {
                            let text = refused.to_string();
                            let (_, range) = text.split_once("can have ").unwrap();
                            let least: f64 = range.split(' ').next().unwrap().parse().unwrap();
                            assert!(least > op * 100.0, "{text}");
                            (least / 100.0, of(least / 100.0).unwrap())
                        }
                    };
                    let bad = layout.profile.factory_bad_blocks();
                    let found = layout.effective_op_percent(bad) / 100.0;
                    let block = (block + 1.0) / f64::from(layout.logical_pages);
                    assert!(
                        found >= op && found < op + block,
                        "{}: {found}",
                        scheme.name
                    );
                }
            }
        }
    }

    /// The least `gc.free_threshold` counts blocks for failures: with fewer, a device may end
    /// before it has its allowed bad blocks.
    #[test]
    fn least_free_threshold_counts_failing_blocks() {
        let profile = Profile::default_profile();
        let least = |scheme: &Scheme| {
            let accepts = |value: &u32| {
                let mut params = Params::default();
                params.set("gc.free_threshold", &value.to_string());
                scheme.layout(profile, 64 << 20, 0.07, &params).is_ok()
            };
            (0..1000).find(accepts).expect("some value is accepted")
        };
        let found = |name| least(Scheme::find(name).unwrap());
        let schemes = ["pagemap", "lazyftl", "dftl", "mnftl", "bast", "mlam"];
        assert_eq!(schemes.map(found), [5, 9, 10, 5, 3, 12]);
    }

    /// On a fixed number of blocks the size follows; what a refusal names is not refused.
    #[test]
    fn effective_over_provisioning_determines_the_size_of_fixed_flash() {
        let params = Params::default();
        for name in ["lazyftl", "mnftl-region"] {
            let profile = Profile::find(name).unwrap();
            for scheme in SCHEMES {
                let of = |op: f64| scheme.layout_effective(profile, 0, op, &params);
                let text = of(0.0).unwrap_err().to_string();
                let (_, range) = text.split_once("can have ").unwrap();
                let least: f64 = range.split(' ').next().unwrap().parse().unwrap();
                for op in [least / 100.0, 1.0] {
                    let layout = of(op).unwrap();
                    let bad = layout.profile.factory_bad_blocks();
                    let found = layout.effective_op_percent(bad) / 100.0;
                    assert!(found >= op && found < op * 1.001 + 1e-4, "{name}: {found}");
                }
            }
            for wrong in [-0.05, 10.5, f64::NAN, f64::INFINITY] {
                let refused = SCHEMES[0].layout_effective(profile, 0, wrong, &params);
                assert!(refused.unwrap_err().to_string().contains("to 1000 %"));
            }
        }
    }

    #[test]
    fn too_few_spare_bytes_are_refused() {
        let mut profile = *Profile::default_profile();
        let params = Params::default();
        for (spare, fits) in [(31, false), (32, true)] {
            profile.geometry.oob_bytes = spare;
            let layout = Scheme::find("pagemap")
                .unwrap()
                .layout(&profile, 64 << 20, 0.07, &params);
            assert_eq!(layout.is_ok(), fits, "{spare} spare bytes");
        }
    }

    /// The least that the message names is accepted, one block less is refused, and whatever is
    /// accepted is within one block below the asked.
    #[test]
    fn raw_flash_is_what_was_asked_or_the_least_is_named() {
        const SIZE: u64 = 64 << 20;
        let (profile, params) = (Profile::default_profile(), Params::default());
        let block = block_bytes(&profile.geometry);
        for scheme in SCHEMES {
            let error = scheme.layout_on(profile, SIZE, SIZE, &params).unwrap_err();
            let text = error.to_string();
            let least = text.split("at least ").nth(1).and_then(|rest| {
                let (number, _) = rest.split_once(' ')?;
                number.parse::<u64>().ok()
            });
            let least = least.unwrap_or_else(|| panic!("{text}"));
            assert!(text.contains(scheme.name), "{text}");
            for raw in [least, least + 1, least + block - 1, 2 * least] {
                let layout = scheme.layout_on(profile, SIZE, raw, &params).unwrap();
                let got = layout.profile.geometry.data_bytes();
                assert!(got <= raw && raw - got < block, "{raw} asked, {got} got");
                assert_eq!(u64::from(layout.logical_pages) * 4096, SIZE);
            }
            let less = scheme.layout_on(profile, SIZE, least - 1, &params);
            assert!(less.is_err(), "{}: less than the least", scheme.name);
            let below = scheme.layout_on(profile, SIZE, SIZE - 1, &params);
            let text = below.unwrap_err().to_string();
            assert!(text.contains("is less than the size of 67108864 bytes"));
            let nominal = scheme.layout(profile, SIZE, 0.07, &params).unwrap();
            assert!(nominal.profile.geometry.data_bytes() >= least);
        }
    }

    /// Every plane has as many blocks as any other; a fixed number that gives them not is refused.
    #[test]
    fn planes_that_operate_together_have_equally_many_blocks() {
        let params = Params::default();
        let scheme = Scheme::find("pagemap").unwrap();
        let mut profile = *Profile::default_profile();
        (profile.geometry.channels, profile.geometry.planes) = (4, 3);
        let off = scheme.layout(&profile, 64 << 20, 0.07, &params).unwrap();
        profile.geometry.multi_plane = MultiPlane::SamePage;
        let blocks = |layout: Layout| layout.profile.geometry.blocks;
        let by_size = blocks(scheme.layout(&profile, 64 << 20, 0.07, &params).unwrap());
        assert!(by_size.is_multiple_of(12) && by_size > blocks(off));
        let refused = scheme.layout_on(&profile, 64 << 20, 64 << 20, &params);
        let text = refused.unwrap_err().to_string();
        let least = text.split("at least ").nth(1).unwrap().split(' ').next();
        let least: u64 = least.unwrap().parse().unwrap();
        let raw = blocks(
            scheme
                .layout_on(&profile, 64 << 20, least, &params)
                .unwrap(),
        );
        assert!(raw.is_multiple_of(12), "{raw} blocks");
        profile.capacity = Capacity::Blocks(100);
        let text = scheme
            .layout(&profile, 0, 0.07, &params)
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("blocks = 100 do not divide into 3 planes on each of 4"),
            "{text}"
        );
    }
}

//! The shape of a device: its raw blocks and its logical pages.

use nand_model::Profile;

/// A device's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The profile with its number of blocks.
    pub profile: Profile,
    /// Pages visible to the host.
    pub logical_pages: u32,
}

impl Layout {
    /// Returns the effective over-provisioning in percent: the good flash beyond the logical size,
    /// as a share of the logical size. It is the same rule for every scheme: reserves, mapping and
    /// checkpoints are part of it. A block in SLC mode counts as the pages that it can take.
    pub fn effective_op_percent(&self, bad_blocks: u32) -> f64 {
        let geometry = &self.profile.geometry;
        let good = self.profile.good_pages(bad_blocks) as f64;
        assert!(
            bad_blocks <= geometry.blocks && self.logical_pages > 0,
            "{bad_blocks} bad blocks of {}, {} logical pages",
            geometry.blocks,
            self.logical_pages
        );
        (good / f64::from(self.logical_pages) - 1.0) * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_over_provisioning_counts_good_flash_only() {
        let profile = Profile::default_profile();
        let layout = Layout {
            profile: profile.with_blocks(110),
            logical_pages: 100 * profile.geometry.pages_per_block,
        };
        assert_eq!(layout.effective_op_percent(0).round(), 10.0);
        assert_eq!(layout.effective_op_percent(10), 0.0);
        assert!(layout.effective_op_percent(20) < 0.0);
    }
}

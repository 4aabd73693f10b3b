//! The chips of an image, and the device's numbers of their blocks and logical pages.
//!
//! Invariant: they are mounted in memory, so the image does not change.

use ftl_core::Ftl;
use ftld_device::stack;
use ftld_device::volume::Stripes;
use ftld_kit::convert::{narrow, to_u32};
use ftld_kit::failure::Failure;
use nand_model::{ImageInfo, Pbn};
use std::path::Path;

/// The chips of an image, mounted in memory.
pub(super) struct Chips {
    pub(super) info: ImageInfo,
    pub(super) ftls: Vec<Box<dyn Ftl>>,
    stripes: Stripes,
}

impl Chips {
    /// Mounts the scheme in memory. Fails if the image is in use.
    pub(super) fn open(path: &Path) -> Result<Chips, Failure> {
        let (info, ftls) = stack::open_in_memory(path)?;
        let stripes = Stripes::new(ftls.len(), info.shard.map(|shard| shard.striping));
        Ok(Chips {
            info,
            ftls,
            stripes,
        })
    }

    /// Returns the logical pages of the device.
    pub(super) fn pages(&self) -> u32 {
        let page = u64::from(self.info.profile.geometry.page_bytes);
        u32::try_from(self.info.size.div_ceil(page)).unwrap_or(u32::MAX)
    }

    /// Returns how the device numbers the blocks and logical pages of a shard.
    pub(super) fn numbers(&self, shard: usize) -> Numbers {
        let geometry = &self.info.profile.geometry;
        Numbers {
            shard,
            before: to_u32(shard) * geometry.blocks,
            page_bytes: u64::from(geometry.page_bytes),
            stripes: self.stripes,
        }
    }

    /// Returns the shard of a logical page of the device, and its number there.
    pub(super) fn place(&self, lpn: u32) -> Result<(usize, u32), Failure> {
        if lpn >= self.pages() {
            return Err(Failure::usage(format!(
                "--lpn {lpn}: the device has {} logical pages",
                self.pages()
            )));
        }
        let page = u64::from(self.info.profile.geometry.page_bytes);
        let at = u64::from(lpn) * page;
        let piece = self.stripes.pieces(at..at + page).next();
        let piece = piece.expect("a page is not empty");
        Ok((piece.shard, narrow(piece.at / page)))
    }
}

/// The device's numbers of a shard's blocks: they follow those of the shards before it.
pub(super) struct Numbers {
    shard: usize,
    /// Blocks of the shards before it.
    before: u32,
    page_bytes: u64,
    stripes: Stripes,
}

impl Numbers {
    pub(super) fn block(&self, own: Pbn) -> u32 {
        self.before + own.raw()
    }

    pub(super) fn lpn(&self, own: u32) -> u64 {
        let at = u64::from(own) * self.page_bytes;
        self.stripes.offset_of(self.shard, at) / self.page_bytes
    }
}

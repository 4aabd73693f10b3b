//! Counts and sizes, the unit of atomicity, and the only code that splits a [`Ppn`] into a block
//! and a page offset and joins them again.

use crate::addr::{Pbn, Ppn};
use crate::convert::{index, to_u64};
use crate::invalid::{Invalid, ensure};

/// Multi-plane commands of a die (ONFI 3.2; data sheets: "two-plane" or "multi-plane"
/// operations).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MultiPlane {
    /// None: a die executes one operation after another.
    #[default]
    Off,
    /// Programs and reads of several planes share the array time if their pages have the same
    /// number in their blocks; erases always do.
    SamePage,
    /// As [`Self::SamePage`], but the pages may have different numbers.
    AnyPage,
}

/// Shape of a flash device. Blocks are striped over the dies: block `b` is on die `b mod dies`. The
/// blocks of a die are striped over its planes: see [`Geometry::plane_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Buses that transfer independently.
    pub channels: u32,
    /// Dies per channel.
    pub ways: u32,
    /// Planes per die: the domain of copyback, and of multi-plane commands.
    pub planes: u32,
    /// Whether operations of several planes of a die share the array time.
    pub multi_plane: MultiPlane,
    /// Erase blocks of the whole device.
    pub blocks: u32,
    /// Pages per erase block.
    pub pages_per_block: u32,
    /// Data bytes per page.
    pub page_bytes: u32,
    /// Spare (out-of-band) bytes per page.
    pub oob_bytes: u32,
}

/// Largest counts an image may declare; they keep every product inside `u64` and every page number
/// inside `u32`.
const MAX_PAGES_PER_BLOCK: u32 = 4096;
const MAX_PAGE_BYTES: u32 = 64 << 10;
const MAX_OOB_BYTES: u32 = 8 << 10;
/// Most planes that one command addresses; data sheets have 2 to 6.
const MAX_JOINT_PLANES: u32 = 16;

/// Returns the unit of atomicity of a device with pages of this size: the largest power of two, up
/// to 4 KiB, that divides the page. So no unit spans two pages, and a power cut never tears one.
pub const fn atomic_bytes(page_bytes: u32) -> u32 {
    let aligned = aligned_bytes(page_bytes);
    if aligned < 4096 { aligned } else { 4096 }
}

/// Returns the largest power of two that divides a page of this size: a request of whole pages, as
/// hosts that know only powers of two can align it.
pub const fn aligned_bytes(page_bytes: u32) -> u32 {
    1 << page_bytes.trailing_zeros()
}

impl Geometry {
    /// Checks the shape. All other functions of this type assume a valid one.
    ///
    /// # Errors
    ///
    /// One human-readable line: which count or size is out of range, and the range.
    pub fn validate(&self) -> Result<(), Invalid> {
        let Geometry {
            channels,
            ways,
            planes,
            multi_plane,
            blocks,
            pages_per_block: pages,
            page_bytes,
            oob_bytes,
        } = *self;
        for (name, value) in [
            ("channels", channels),
            ("ways", ways),
            ("planes", planes),
            ("blocks", blocks),
        ] {
            ensure(value > 0, Invalid::Geometry, || format!("{name} is 0"))?;
        }
        ensure(
            channels <= 1024 && ways <= 1024 && planes <= 64,
            Invalid::Geometry,
            || "more than 1024 channels, 1024 ways or 64 planes".into(),
        )?;
        if multi_plane != MultiPlane::Off {
            ensure(
                (2..=MAX_JOINT_PLANES).contains(&planes),
                Invalid::Geometry,
                || format!("multi_plane with planes = {planes}: need 2 to {MAX_JOINT_PLANES}"),
            )?;
            self.check_planes()?;
        }
        ensure(
            (2..=MAX_PAGES_PER_BLOCK).contains(&pages),
            Invalid::Geometry,
            || format!("{pages} pages per block, need 2 to {MAX_PAGES_PER_BLOCK}"),
        )?;
        let whole = page_bytes.is_multiple_of(512);
        ensure(
            whole && (512..=MAX_PAGE_BYTES).contains(&page_bytes),
            Invalid::Geometry,
            || format!("{page_bytes} page bytes, need a multiple of 512 up to {MAX_PAGE_BYTES}"),
        )?;
        ensure(
            (16..=MAX_OOB_BYTES).contains(&oob_bytes),
            Invalid::Geometry,
            || format!("{oob_bytes} OOB bytes, need 16 to {MAX_OOB_BYTES}"),
        )?;
        // One raw page number is reserved: tables use all ones for "no page".
        let fit = u64::from(blocks) << self.page_shift() < u64::from(u32::MAX);
        ensure(fit, Invalid::Geometry, || {
            format!("{blocks} blocks do not fit 32-bit page numbers")
        })
    }

    /// Checks that every plane has the same number of blocks.
    ///
    /// # Errors
    ///
    /// One human-readable line: the counts that do not divide, and the next count that does.
    pub fn check_planes(&self) -> Result<(), Invalid> {
        let (dies, planes, blocks) = (self.dies(), self.planes, self.blocks);
        let all = dies * planes;
        let whole = planes == 1 || blocks.is_multiple_of(all);
        ensure(whole, Invalid::Geometry, || {
            format!(
                "blocks = {blocks} do not divide into {planes} planes on each of {dies} dies: need a \
                 multiple of {all}, such as {}",
                u64::from(blocks).next_multiple_of(u64::from(all))
            )
        })
    }

    /// Bits of a [`Ppn`] that number the page inside its block.
    #[inline]
    pub const fn page_shift(&self) -> u32 {
        // Without overflow checks, because validation excludes overflow: every page number is split
        // here.
        u32::BITS.wrapping_sub((self.pages_per_block.wrapping_sub(1) | 1).leading_zeros())
    }

    /// Size of a table indexed by [`Ppn::index`].
    #[inline]
    pub const fn page_slots(&self) -> usize {
        index(self.blocks) << self.page_shift()
    }

    /// Size of a table indexed by [`Pbn::index`].
    #[inline]
    pub const fn block_slots(&self) -> usize {
        index(self.blocks)
    }

    /// Size of a table with an entry for each page of a block.
    #[inline]
    pub const fn block_pages(&self) -> usize {
        index(self.pages_per_block)
    }

    /// Data bytes per page, as the length of a buffer.
    #[inline]
    pub const fn page_len(&self) -> usize {
        index(self.page_bytes)
    }

    /// OOB bytes per page, as the length of a buffer.
    #[inline]
    pub const fn oob_len(&self) -> usize {
        index(self.oob_bytes)
    }

    /// Pages of the device.
    pub const fn pages(&self) -> u64 {
        to_u64(self.block_slots()) * to_u64(self.block_pages())
    }

    /// Data bytes of the whole device, bad blocks included.
    pub const fn data_bytes(&self) -> u64 {
        self.pages() * to_u64(self.page_len())
    }

    /// Dies of the whole device.
    #[inline]
    pub const fn dies(&self) -> u32 {
        self.channels * self.ways
    }

    /// The die that comes `step` dies after this one, in the order in which neighbours are on
    /// different channels.
    pub const fn die_after(&self, die: u32, step: u32) -> u32 {
        debug_assert!(die < self.dies(), "no such die");
        let position = (die % self.ways) * self.channels + die / self.ways;
        let position = (position + step) % self.dies();
        position % self.channels * self.ways + position / self.channels
    }

    /// Whether the device has this page.
    #[inline]
    pub const fn contains(&self, ppn: Ppn) -> bool {
        self.block_of(ppn).raw() < self.blocks && self.offset_of(ppn) < self.pages_per_block
    }

    /// Returns the splitter of page numbers.
    #[inline]
    pub const fn split(&self) -> PageSplit {
        PageSplit {
            shift: self.page_shift(),
            // As for the shift, validation excludes overflow.
            dies: self.channels.wrapping_mul(self.ways),
        }
    }

    /// The page at `offset` of `block`.
    #[inline]
    pub const fn page(&self, block: Pbn, offset: u32) -> Ppn {
        debug_assert!(offset < self.pages_per_block, "no such page in a block");
        self.split().page(block, offset)
    }

    /// The block of a page.
    #[inline]
    pub const fn block_of(&self, ppn: Ppn) -> Pbn {
        self.split().block_of(ppn)
    }

    /// The page's offset inside its block.
    #[inline]
    pub const fn offset_of(&self, ppn: Ppn) -> u32 {
        self.split().offset_of(ppn)
    }

    /// The die of a block.
    #[inline]
    pub const fn die_of(&self, block: Pbn) -> u32 {
        debug_assert!(block.raw() < self.blocks, "no such block");
        self.split().die_of(block)
    }

    /// The plane of a block inside its die: neighbours on a die are on different planes.
    #[inline]
    pub const fn plane_of(&self, block: Pbn) -> u32 {
        block.raw() / self.dies() % self.planes
    }

    /// Planes of a die that operate together: 1 without multi-plane commands.
    #[inline]
    pub const fn joint_planes(&self) -> u32 {
        match self.multi_plane {
            MultiPlane::Off => 1,
            MultiPlane::SamePage | MultiPlane::AnyPage => self.planes,
        }
    }

    /// Places where programs and erases follow each other: dies, or their planes if these operate
    /// together. Each has one operation at a time.
    pub const fn places(&self) -> u32 {
        self.dies() * self.joint_planes()
    }

    /// Returns the place of a block: those of a die are consecutive.
    pub const fn place_of(&self, block: Pbn) -> u32 {
        let planes = self.joint_planes();
        let plane = match planes {
            1 => 0,
            _ => self.plane_of(block),
        };
        self.die_of(block) * planes + plane
    }

    /// Every block, ascending.
    pub fn all_blocks(&self) -> impl Iterator<Item = Pbn> + use<> {
        (0..self.blocks).map(Pbn::new)
    }
}

/// Splitter of page numbers: [`Geometry::split`], computed once for callers that split every page
/// and find its die.
#[derive(Clone, Copy, Debug)]
pub struct PageSplit {
    shift: u32,
    dies: u32,
}

impl PageSplit {
    /// See [`Geometry::page`].
    #[inline]
    pub const fn page(self, block: Pbn, offset: u32) -> Ppn {
        Ppn::new(block.raw().wrapping_shl(self.shift) | offset)
    }

    /// See [`Geometry::block_of`].
    #[inline]
    pub const fn block_of(self, ppn: Ppn) -> Pbn {
        Pbn::new(ppn.raw().wrapping_shr(self.shift))
    }

    /// See [`Geometry::offset_of`].
    #[inline]
    pub const fn offset_of(self, ppn: Ppn) -> u32 {
        ppn.raw() & !u32::MAX.wrapping_shl(self.shift)
    }

    /// See [`Geometry::die_of`].
    #[inline]
    pub const fn die_of(self, block: Pbn) -> u32 {
        // The die count is mostly a power of two; a division takes longer than the rest of a
        // program's accounting.
        let mask = self.dies.wrapping_sub(1);
        if self.dies & mask == 0 {
            block.raw() & mask
        } else {
            block.raw() % self.dies
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages need only be multiples of 512 bytes.
    #[test]
    fn the_unit_of_atomicity_divides_the_page() {
        let units = [512, 1024, 2048, 4096, 8192, 16384].map(atomic_bytes);
        assert_eq!(units, [512, 1024, 2048, 4096, 4096, 4096]);
        let units = [1536, 2560, 3072, 6144, 12288, 20480].map(atomic_bytes);
        assert_eq!(units, [512, 512, 1024, 2048, 4096, 4096]);
        for page in (1..=MAX_PAGE_BYTES / 512).map(|sectors| 512 * sectors) {
            let (unit, aligned) = (atomic_bytes(page), aligned_bytes(page));
            assert!(unit.is_power_of_two() && (512..=4096).contains(&unit));
            assert!(
                page.is_multiple_of(unit) && page.is_multiple_of(aligned),
                "{page}"
            );
            assert!(unit == 4096 || !page.is_multiple_of(2 * unit), "{page}");
        }
    }

    #[test]
    fn steps_over_dies_change_the_channel_first() {
        let geometry = Geometry {
            channels: 3,
            ways: 2,
            ..shape(64)
        };
        let order: Vec<u32> = (0..7).map(|step| geometry.die_after(0, step)).collect();
        assert_eq!(order, [0, 2, 4, 1, 3, 5, 0]);
        assert_eq!(geometry.die_after(5, 2), 2);
    }

    fn shape(pages_per_block: u32) -> Geometry {
        Geometry {
            channels: 1,
            ways: 2,
            planes: 1,
            multi_plane: MultiPlane::Off,
            blocks: 7,
            pages_per_block,
            page_bytes: 2048,
            oob_bytes: 64,
        }
    }

    #[test]
    fn page_numbers_split_into_what_they_were_made_of() {
        for pages in [2, 64, 100, 128, 576] {
            let g = shape(pages);
            g.validate().unwrap();
            for block in g.all_blocks() {
                for offset in 0..pages {
                    let ppn = g.page(block, offset);
                    assert_eq!((g.block_of(ppn), g.offset_of(ppn)), (block, offset));
                    assert!(g.contains(ppn) && ppn.index() < g.page_slots());
                }
            }
        }
        assert!(!shape(100).contains(Ppn::new(101)));
    }

    #[test]
    fn shapes_that_cannot_be_addressed_are_refused() {
        assert!(
            Geometry {
                blocks: 1 << 26,
                ..shape(64)
            }
            .validate()
            .unwrap_err()
            .to_string()
            .contains("32-bit")
        );
        assert!(
            Geometry {
                page_bytes: 1000,
                ..shape(64)
            }
            .validate()
            .is_err()
        );
        assert!(
            Geometry {
                channels: 0,
                ..shape(64)
            }
            .validate()
            .is_err()
        );
    }
}

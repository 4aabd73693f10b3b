//! Trims of schemes without mapping pages and without a page map to put into checkpoints.
//!
//! If there are too many records, each trim also writes one *bitmap*: the logical pages of a chunk
//! that are unmapped, as of a version. TRIM pages that are wholly in chunks with a newer bitmap are
//! obsolete. So there are never more than two bitmaps per chunk and [`Trims::limit`] records. All
//! pages of a TRIM block become obsolete in the end.
//!
//! If power fails before a new record or bitmap is complete, a mount finds the older ones.

use super::mapped::Mapped;
use super::pages::{TrimPages, program_page};
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::trim::{self, TrimBitmap, TrimRange};
use crate::int::{index, to_u32, to_u64};
use crate::ram::vec_bytes;
use crate::space::{Space, StreamId};
use nand_model::{Geometry, Ppn};

/// The content of a TRIM page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrimPage {
    Record(TrimRange),
    Bitmap(TrimBitmap),
}

impl TrimPage {
    pub(crate) fn decode(page: &[u8]) -> Option<TrimPage> {
        let record = || {
            trim::decode(page)
                .and_then(|ranges| ranges.first().copied())
                .map(TrimPage::Record)
        };
        record().or_else(|| TrimBitmap::decode(page).map(TrimPage::Bitmap))
    }

    pub(crate) fn ver(&self) -> u64 {
        match self {
            TrimPage::Record(range) => range.ver,
            TrimPage::Bitmap(bitmap) => bitmap.ver,
        }
    }

    /// Iterates over the logical pages that have no older content.
    pub(crate) fn pages(&self) -> Box<dyn Iterator<Item = u32> + '_> {
        match self {
            TrimPage::Record(range) => Box::new(range.lpn..range.lpn + range.count),
            TrimPage::Bitmap(bitmap) => Box::new(bitmap.pages()),
        }
    }
}

/// Mapped logical pages, and the valid TRIM pages for the unmapped ones.
pub(crate) struct Trims {
    stream: StreamId,
    logical_pages: u32,
    mapped: Mapped,
    /// Ranges of the valid TRIM pages.
    live: TrimPages<TrimRange>,
    /// Version of the newest bitmap, by chunk; 0 if there is none.
    bitmaps: Vec<u64>,
    next_chunk: usize,
    limit: u32,
    page: Vec<u8>,
}

impl Trims {
    pub(crate) fn new(geometry: &Geometry, logical_pages: u32, stream: StreamId) -> Self {
        Trims {
            stream,
            logical_pages,
            mapped: Mapped::new(logical_pages),
            live: TrimPages::new(),
            bitmaps: vec![0; index(Self::chunks(geometry, logical_pages))],
            next_chunk: 0,
            limit: Self::limit(geometry, logical_pages),
            page: vec![0; geometry.page_len()],
        }
    }

    fn chunks(geometry: &Geometry, logical_pages: u32) -> u32 {
        logical_pages.div_ceil(TrimBitmap::capacity(geometry.page_bytes))
    }

    /// Returns the number of records above which bitmaps replace them: the bitmaps then cost at
    /// most as much as the records did.
    fn limit(geometry: &Geometry, logical_pages: u32) -> u32 {
        geometry
            .pages_per_block
            .max(Self::chunks(geometry, logical_pages))
    }

    /// Returns the number of blocks that TRIM pages need at most: old pages stay while new ones are
    /// written.
    pub(crate) fn blocks_needed(geometry: &Geometry, logical_pages: u32) -> u32 {
        let most = 3 * Self::chunks(geometry, logical_pages) + Self::limit(geometry, logical_pages);
        most.div_ceil(geometry.pages_per_block) + 1
    }

    #[inline]
    pub(crate) fn is_mapped(&self, lpn: Lpn) -> bool {
        self.mapped.has(lpn.raw())
    }

    /// Returns the number of mapped logical pages.
    pub(crate) fn mapped_pages(&self) -> u64 {
        self.mapped.count()
    }

    /// Returns the number of valid TRIM pages.
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn holds(&self, ppn: Ppn) -> bool {
        self.live.contains(ppn)
    }

    /// Marks the page mapped. Returns whether it was unmapped.
    #[inline]
    pub(crate) fn map(&mut self, lpn: Lpn) -> bool {
        debug_assert!(
            lpn.raw() < self.logical_pages,
            "logical page {lpn} does not exist"
        );
        self.mapped.set(lpn.raw(), true)
    }

    /// Marks the page unmapped; it was mapped before.
    pub(crate) fn unmap(&mut self, lpn: Lpn) {
        let was_mapped = self.mapped.set(lpn.raw(), false);
        assert!(was_mapped, "logical page {lpn} is already unmapped");
    }

    /// Programs the record of a trim, which is in effect once it is on flash.
    pub(crate) fn record(
        &mut self,
        space: &mut Space,
        first: Lpn,
        count: u32,
        ver: u64,
    ) -> Result<(), FtlError> {
        let lpn = first.raw();
        assert!(
            count > 0 && count <= self.logical_pages.saturating_sub(lpn),
            "trim of {count} logical pages from {lpn} on is empty or exceeds the device: {} logical pages",
            self.logical_pages
        );
        let range = TrimRange { lpn, count, ver };
        let taken = trim::encode(&[range], &mut self.page);
        assert_eq!(taken, 1, "a page takes the record of one trim");
        self.program(space, range)
    }

    /// Returns whether the caller must call [`Trims::write_bitmap`] once per further record.
    pub(crate) fn bitmap_due(&self) -> bool {
        self.live.len() > self.bitmaps.len() + index(self.limit)
    }

    /// Writes the bitmap of the next chunk, as of version `ver`, and releases the TRIM pages it
    /// replaces.
    pub(crate) fn write_bitmap(&mut self, space: &mut Space, ver: u64) -> Result<(), FtlError> {
        let capacity = TrimBitmap::capacity(space.geometry().page_bytes);
        let lpn = to_u32(self.next_chunk) * capacity;
        assert!(
            lpn < self.logical_pages,
            "trim bitmap begins at logical page {lpn}, which does not exist"
        );
        let count = capacity.min(self.logical_pages - lpn);
        let mut bits = vec![0; index(count.div_ceil(8))];
        (0..count)
            .filter(|i| !self.is_mapped(Lpn::new(lpn + i)))
            .for_each(|i| bits[index(i) / 8] |= 1 << (i % 8));
        TrimBitmap {
            lpn,
            count,
            ver,
            bits,
        }
        .encode(&mut self.page);
        self.program(space, TrimRange { lpn, count, ver })?;
        self.bitmaps[self.next_chunk] = ver;
        self.next_chunk = (self.next_chunk + 1) % self.bitmaps.len();
        self.invalidate_superseded(space);
        Ok(())
    }

    fn program(&mut self, space: &mut Space, extent: TrimRange) -> Result<(), FtlError> {
        let TrimRange { lpn, ver, .. } = extent;
        let ppn = program_page(space, self.stream, lpn, ver, &self.page)?;
        self.live.add(ppn, extent);
        Ok(())
    }

    fn invalidate_superseded(&mut self, space: &mut Space) {
        let capacity = TrimBitmap::capacity(space.geometry().page_bytes);
        let bitmaps = &self.bitmaps;
        self.live.expire(space, |extent| {
            let chunks = extent.lpn / capacity..=(extent.lpn + extent.count.max(1) - 1) / capacity;
            bitmaps[index(*chunks.start())..=index(*chunks.end())]
                .iter()
                .all(|ver| *ver > extent.ver)
        });
    }

    /// Updates the location of a relocated TRIM page.
    pub(crate) fn on_relocate(&mut self, from: Ppn, to: Ppn) {
        self.live.on_relocate(from, to);
    }

    /// Adds a TRIM page that a mount found and that has no newer copy. It is valid from then on.
    pub(crate) fn adopt(&mut self, ppn: Ppn, content: &TrimPage) {
        let extent = match content {
            TrimPage::Record(range) => *range,
            TrimPage::Bitmap(TrimBitmap {
                lpn, count, ver, ..
            }) => TrimRange {
                lpn: *lpn,
                count: *count,
                ver: *ver,
            },
        };
        assert!(
            extent.lpn + extent.count <= self.logical_pages,
            "the trim of page {ppn} covers logical pages {} to {} of {}",
            extent.lpn,
            extent.lpn + extent.count,
            self.logical_pages
        );
        self.live.add(ppn, extent);
        if let TrimPage::Bitmap(bitmap) = content {
            let chunk = bitmap.lpn / TrimBitmap::capacity(to_u32(self.page.len()));
            if let Some(newest) = self.bitmaps.get_mut(index(chunk)) {
                *newest = (*newest).max(bitmap.ver);
            }
        }
    }

    /// Returns whether the range of a TRIM page is inside this device.
    pub(crate) fn is_sane(&self, content: &TrimPage) -> bool {
        let within = |lpn: u32, count: u32| {
            let end = lpn.checked_add(count);
            lpn < self.logical_pages && end.is_some_and(|end| end <= self.logical_pages)
        };
        match content {
            TrimPage::Record(range) => within(range.lpn, range.count),
            TrimPage::Bitmap(bitmap) => within(bitmap.lpn, bitmap.count),
        }
    }

    /// Returns the bytes of bitmaps and records: now, and at most.
    pub(crate) fn ram(&self) -> (u64, u64) {
        let fixed = self.mapped.bytes()
            + vec_bytes::<u64>(self.bitmaps.capacity())
            + vec_bytes::<u8>(self.page.capacity());
        let most = u64::from(self.limit) + 3 * to_u64(self.bitmaps.len());
        let (now, most) = self.live.ram(most);
        (fixed + now, fixed + most)
    }
}

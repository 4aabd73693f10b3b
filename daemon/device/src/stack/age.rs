//! Age of a new image: its scheme writes pages until the device is as one in use.
//!
//! Invariants: the image has no name yet, so nothing is synced before the end, and a failure or a
//! power cut leaves no image. Every page contains its own number, as little-endian words.

use super::{Label, close_stores, ftl_failure, mount};
use crate::aging::{Aged, Conditioned, ImageAge, overwrite};
use crate::pages::PageIo;
use crate::volume::Stripes;
use ftl_core::{Ftl, FtlError, Lpn};
use ftld_kit::convert::{index, narrow, to_u64};
use ftld_kit::failure::Failure;
use nand_model::store::FileStore;
use nand_model::{Nanos, SplitMix};
use std::io;
use std::ops::Range;
use std::path::Path;

/// Minimum wear of a block at the end of its life, in percent of the rated cycles; the maximum is
/// 100.
const WORN_PERCENT: u64 = 97;

/// Ages a new image under its temporary name; `image` is its name in messages.
pub(super) fn age(
    image: &Path,
    unfinished: &Path,
    label: &Label,
    age: ImageAge,
    tick: &mut dyn FnMut(f64),
) -> Result<Conditioned, Failure> {
    let stores =
        FileStore::open_unsynced(unfinished).map_err(|error| super::image_failure(&error))?;
    let info = stores[0].info().clone();
    let stripes = Stripes::new(stores.len(), info.shard.map(|shard| shard.striping));
    let seeds: Vec<_> = stores
        .iter()
        .map(|store| super::factory_seed(store.info()))
        .collect();
    let mounted = stores.into_iter().map(|store| mount(image, store, label));
    let mut device = AgedImage::new(mounted.collect::<Result<_, _>>()?, stripes, info.size);
    let written = overwrite(&mut device, age.written, seeds[0], tick);
    let written = written.map_err(|error| ftl_failure(image, "ageing", &error))?;
    let mut stores = Vec::new();
    for (AgedChip { mut ftl, now }, seed) in device.chips.into_iter().zip(seeds) {
        ftl.shutdown(now)
            .map_err(|error| ftl_failure(image, "ageing", &error))?;
        let mut store = ftl.into_chip().into_store();
        if age.is_worn {
            let image_store = store.downcast_mut().expect("the store of an image");
            wear(image_store, seed).map_err(|error| Failure::io(image.display(), &error))?;
        }
        stores.push(store);
    }
    close_stores(stores)?;
    let synced = std::fs::File::open(unfinished).and_then(|file| file.sync_all());
    synced.map_err(|error| Failure::io(image.display(), &error))?;
    Ok(written)
}

/// Wears the blocks out up to their rated cycles.
fn wear(store: &mut FileStore, seed: u64) -> io::Result<()> {
    let rated = u64::from(store.info().profile.endurance);
    let least = rated * WORN_PERCENT / 100;
    let mut rng = SplitMix::new(seed);
    store.wear(|_| {
        let erases = least + rng.below(rated - least + 1);
        u32::try_from(erases).expect("at most the rated cycles")
    })
}

struct AgedImage {
    chips: Vec<AgedChip>,
    stripes: Stripes,
    /// Bytes of the device.
    size: u64,
    page: Vec<u8>,
}

struct AgedChip {
    ftl: Box<dyn Ftl>,
    now: Nanos,
}

impl AgedImage {
    fn new(ftls: Vec<Box<dyn Ftl>>, stripes: Stripes, size: u64) -> AgedImage {
        let page = vec![0; index(ftls[0].chip().geometry().page_bytes)];
        let chip = |ftl: Box<dyn Ftl>| AgedChip {
            now: ftl.chip().busy_until(),
            ftl,
        };
        AgedImage {
            chips: ftls.into_iter().map(chip).collect(),
            stripes,
            size,
            page,
        }
    }

    /// Returns the chip of a page, and its first byte there.
    fn place(&mut self, page: u32) -> (&mut AgedChip, u64, &mut [u8]) {
        let at = u64::from(page) * to_u64(self.page.len());
        let piece = self.stripes.pieces(at..at + 1).next().expect("a byte");
        (&mut self.chips[piece.shard], piece.at, &mut self.page)
    }
}

fn stamp(page: &mut [u8], lpn: u32) {
    for word in page.chunks_exact_mut(4) {
        word.copy_from_slice(&lpn.to_le_bytes());
    }
}

impl Aged for AgedImage {
    fn logical_pages(&self) -> u32 {
        let pages = self.size.div_ceil(to_u64(self.page.len()));
        u32::try_from(pages).expect("ageing is refused on a device of more pages")
    }

    /// Writes a block at a time.
    fn fill(&mut self, pages: Range<u32>, tick: &mut dyn FnMut(u32)) -> Result<(), FtlError> {
        let block = self.chips[0].ftl.chip().geometry().pages_per_block;
        let bytes = self.page.len();
        let mut first = pages.start;
        while first < pages.end {
            let next = (first - first % block).saturating_add(block).min(pages.end);
            let mut data = vec![0; index(next - first) * bytes];
            for (page, lpn) in data.chunks_exact_mut(bytes).zip(first..) {
                stamp(page, lpn);
            }
            // A stripe has whole blocks.
            let (chip, at, scratch) = self.place(first);
            let mut io = PageIo {
                ftl: &mut *chip.ftl,
                scratch,
            };
            chip.now = io.write(chip.now, at, &data)?;
            tick(next);
            first = next;
        }
        Ok(())
    }

    fn write_page(&mut self, lpn: Lpn) -> Result<(), FtlError> {
        let (chip, at, page) = self.place(lpn.raw());
        stamp(page, lpn.raw());
        let own = Lpn::new(narrow(at / to_u64(page.len())));
        chip.now = chip.ftl.write(chip.now, own, page)?;
        Ok(())
    }

    fn programs(&self) -> u64 {
        let chips = self.chips.iter().map(|chip| chip.ftl.chip().counters());
        chips.map(|counters| counters.total().programs).sum()
    }
}

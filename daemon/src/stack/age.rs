//! Age of a new image: its scheme writes pages until the device is as one in use.
//!
//! Invariants: the image has no name yet, so nothing is synced before the end, and a failure or a
//! power cut leaves no image. Every page contains its own number, as little-endian words.

use super::{Label, close_store, ftl_failure, mount};
use crate::aging::{Aged, Conditioned, ImageAge, overwrite};
use crate::convert::{index, to_u64};
use crate::failure::Failure;
use crate::pages::PageIo;
use ftl_core::{Ftl, FtlError, Lpn};
use nand_model::store::FileStore;
use nand_model::{Nanos, SplitMix};
use std::io;
use std::ops::Range;
use std::path::Path;

/// Least wear of a block at the end of its life, in percent of the rated cycles; the most is 100.
const WORN_PERCENT: u64 = 97;

/// Ages a new image under its temporary name; `image` is its name in messages.
pub(super) fn age(
    image: &Path,
    unfinished: &Path,
    label: &Label,
    age: ImageAge,
    tick: &mut dyn FnMut(f64),
) -> Result<Conditioned, Failure> {
    let store =
        FileStore::open_unsynced(unfinished).map_err(|error| super::image_failure(&error))?;
    let seed = super::factory_seed(store.info());
    let mut device = AgedImage::new(mount(image, store, label)?);
    let written = overwrite(&mut device, age.written, seed, tick);
    let written = written.map_err(|error| ftl_failure(image, "ageing", &error))?;
    let mut ftl = device.ftl;
    ftl.shutdown(device.now)
        .map_err(|error| ftl_failure(image, "ageing", &error))?;
    let mut store = ftl.into_chip().into_store();
    if age.is_worn {
        wear(&mut store, seed).map_err(|error| Failure::io(image.display(), &error))?;
    }
    close_store(store)?;
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
    ftl: Box<dyn Ftl<FileStore>>,
    now: Nanos,
    page: Vec<u8>,
}

impl AgedImage {
    fn new(ftl: Box<dyn Ftl<FileStore>>) -> AgedImage {
        let page = vec![0; index(ftl.chip().geometry().page_bytes)];
        AgedImage {
            now: ftl.chip().busy_until(),
            ftl,
            page,
        }
    }
}

fn stamp(page: &mut [u8], lpn: u32) {
    for word in page.chunks_exact_mut(4) {
        word.copy_from_slice(&lpn.to_le_bytes());
    }
}

impl Aged for AgedImage {
    fn logical_pages(&self) -> u32 {
        self.ftl.logical_pages()
    }

    /// Writes a block at a time.
    fn fill(&mut self, pages: Range<u32>, tick: &mut dyn FnMut(u32)) -> Result<(), FtlError> {
        let block = self.ftl.chip().geometry().pages_per_block;
        let bytes = self.page.len();
        let mut first = pages.start;
        while first < pages.end {
            let next = ((first / block + 1) * block).min(pages.end);
            let mut data = vec![0; index(next - first) * bytes];
            for (page, lpn) in data.chunks_exact_mut(bytes).zip(first..) {
                stamp(page, lpn);
            }
            let mut io = PageIo {
                ftl: &mut *self.ftl,
                scratch: &mut self.page,
            };
            self.now = io.write(self.now, u64::from(first) * to_u64(bytes), &data)?;
            tick(next);
            first = next;
        }
        Ok(())
    }

    fn write_page(&mut self, lpn: Lpn) -> Result<(), FtlError> {
        stamp(&mut self.page, lpn.raw());
        self.now = self.ftl.write(self.now, lpn, &self.page)?;
        Ok(())
    }

    fn programs(&self) -> u64 {
        self.ftl.chip().counters().total().programs
    }
}

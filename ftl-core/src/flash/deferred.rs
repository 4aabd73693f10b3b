//! Reads in two halves: the scheme finds the pages and charges the chip, its caller copies and
//! checks them later, without the scheme.
//!
//! Invariants: a page that the second half accepts passes the checks of [`Flash::read_host`]: data
//! and record are whole, and the record names the logical page. If a page fails them, the caller
//! reads again, in one piece, and that read decides. The pages keep their places while the read has
//! a pin. It gets the pin only after the scheme's call, because GC within the call would wait for
//! the pin. Such GC copies the found pages before it erases a block, so no read is charged twice.
//! Nothing is written.

use crate::addr::Lpn;
use crate::format::{Flags, OOB_BYTES, OOB_SLOT, Oob};
use nand_model::{PageReader, Pin, PlacedRun};

/// The second half of a read. Reused, it allocates nothing.
#[derive(Debug, Default)]
pub struct DeferredRead {
    /// Logical page of the first byte.
    first: u32,
    /// Offset of that byte in the caller's buffer.
    at: usize,
    pub(super) page_bytes: usize,
    pub(super) runs: Vec<DeferredRun>,
    pin: Option<Pin>,
    records: Vec<u8>,
}

/// A run of pages that was found, and not yet copied into the caller's buffer.
#[derive(Debug)]
pub struct DeferredRun {
    /// Logical page of its first page.
    lpn: u32,
    pub(super) place: PlacedRun,
    /// The data, if a block was erased since the run was found; empty if a page was not good.
    pub(super) copy: Option<Vec<u8>>,
}

impl DeferredRun {
    pub(super) fn new(lpn: u32, place: PlacedRun) -> DeferredRun {
        DeferredRun {
            lpn,
            place,
            copy: None,
        }
    }

    /// Copies the pages of the run out of the store. Returns whether all are good.
    pub(super) fn read(
        &self,
        reader: &PageReader,
        pin: &Pin,
        records: &mut Vec<u8>,
        data: &mut [u8],
    ) -> bool {
        let is_ours = |i: u32, oob: &[u8]| self.is_ours(i, oob);
        reader.read(pin, &self.place, records, data, is_ours)
    }

    /// Returns the logical page of its first page.
    pub fn first(&self) -> Lpn {
        Lpn::new(self.lpn)
    }

    /// Returns where it was when it was found.
    pub fn place(&self) -> &PlacedRun {
        &self.place
    }

    /// Returns whether a page of the run has a record in its OOB that names its logical page.
    pub fn is_ours(&self, i: u32, oob: &[u8]) -> bool {
        let mut slot = [0xFF; OOB_SLOT];
        let known = oob.len().min(OOB_BYTES);
        slot[..known].copy_from_slice(&oob[..known]);
        Oob::decode(&slot)
            .is_some_and(|oob| oob.tag.lpn == self.lpn + i && !oob.tag.flags.has(Flags::LOST))
    }
}

impl DeferredRead {
    /// Begins a read whose pages from `first` on are at byte `at` of the caller's buffer.
    pub fn begin(&mut self, first: Lpn, at: usize) {
        self.runs.clear();
        self.pin = None;
        (self.first, self.at) = (first.raw(), at);
    }

    /// Holds the pages where they are, until [`DeferredRead::finish`] or the next
    /// [`DeferredRead::begin`]. Call it before the scheme is released. Without a pin, `finish`
    /// refuses.
    pub fn hold(&mut self, pin: Option<Pin>) {
        self.pin = pin;
    }

    /// Returns whether the pages stay where they are until [`DeferredRead::finish`] copies them.
    pub fn is_held(&self) -> bool {
        self.pin.is_some()
    }

    /// Returns the runs that are not in the caller's buffer, for a caller that sees the pages of
    /// the store. A page that is not [`DeferredRun::is_ours`] has to be read again.
    pub fn runs(&self) -> &[DeferredRun] {
        &self.runs
    }

    /// Copies the pages into the caller's buffer. Returns whether all are good; otherwise the whole
    /// read has to be done again by [`Ftl::read`](crate::Ftl::read).
    pub fn finish(&mut self, reader: &PageReader, buf: &mut [u8]) -> bool {
        let Some(pin) = self.pin.take() else {
            return self.runs.is_empty();
        };
        let mut next = self.runs.iter().skip(1);
        self.runs.iter().all(|run| {
            if let Some(next) = next.next() {
                reader.prefetch(&next.place);
            }
            let from = self.at + (run.lpn - self.first) as usize * self.page_bytes;
            let bytes = run.place.count() as usize * self.page_bytes;
            let data = &mut buf[from..][..bytes];
            match &run.copy {
                None => run.read(reader, &pin, &mut self.records, data),
                Some(copy) if copy.len() == bytes => {
                    data.copy_from_slice(copy);
                    true
                }
                Some(_) => false,
            }
        })
    }
}

//! Conversion of byte extents into page operations: the scheme gets whole pages unchanged. A
//! partial page at either end is a read-modify-write.
//!
//! All parts of an extent start at the same emulated time; the result is the time at which the last
//! part finishes.

use ftl_core::{DeferredRead, Ftl, FtlError, Lpn, Span};
use ftld_kit::convert::{index, to_u32, to_u64};
use nand_model::{Geometry, Nanos};

/// Bytes per call to a scheme, unless a block is larger.
const SLICE_BYTES: u64 = 512 << 10;
/// Largest block passed to a scheme in one call, so that schemes see whole-block writes.
const SLICE_BYTES_MAX: u64 = 1 << 20;

/// Returns the bytes per call to a scheme: whole blocks where possible.
pub fn extent_bytes(geometry: &Geometry) -> u64 {
    let page = u64::from(geometry.page_bytes);
    let block = u64::from(geometry.pages_per_block) * page;
    let slice = if block > SLICE_BYTES_MAX {
        SLICE_BYTES / page * page
    } else {
        whole(SLICE_BYTES, block)
    };
    assert!(
        slice > 0 && slice <= SLICE_BYTES_MAX,
        "slices of {slice} bytes for blocks of {block}"
    );
    slice
}

/// Returns the largest multiple of `unit` in `bytes`, at least one.
fn whole(bytes: u64, unit: u64) -> u64 {
    assert!(unit > 0, "the unit is 0");
    (bytes / unit).max(1) * unit
}

/// Returns the end of the next slice of `offset..end`. Slices are aligned, so no page is split.
pub fn extent_end(offset: u64, end: u64, slice: u64) -> u64 {
    assert!(slice > 0, "slices of no bytes");
    assert!(offset <= end, "a slice behind the end of its extent");
    end.min((offset / slice + 1) * slice)
}

/// A scheme, and a buffer for partial pages.
pub struct PageIo<'a> {
    /// The scheme.
    pub ftl: &'a mut dyn Ftl,
    /// Buffer of one page.
    pub scratch: &'a mut [u8],
}

impl PageIo<'_> {
    fn span(&self, offset: u64, len: u64) -> Span {
        debug_assert_eq!(
            self.scratch.len(),
            index(self.ftl.chip().geometry().page_bytes),
            "the page buffer has the size of a page"
        );
        Span::new(offset, len, to_u32(self.scratch.len()))
    }

    /// Returns the instant at which the controller has handled a request of this instant. The parts
    /// of a request are handled together, and requests do not wait for each other.
    pub(crate) fn handled(&self, at: Nanos) -> Nanos {
        at + self.ftl.chip().profile().timing.controller_ns
    }

    /// Reads an extent.
    ///
    /// # Errors
    /// As [`Ftl::read`].
    pub fn read(&mut self, at: Nanos, offset: u64, buf: &mut [u8]) -> Result<Nanos, FtlError> {
        self.read_with(at, offset, buf, |ftl, at, lpn, _, body| {
            ftl.read(at, lpn, body)
        })
    }

    /// Reads an extent, but may leave whole pages of `buf` to [`DeferredRead::finish`]. After an
    /// extent that ends in part of a page it leaves none: the read of that page may collect
    /// garbage.
    ///
    /// # Errors
    /// As [`Ftl::read_deferred`].
    pub(crate) fn read_deferred(
        &mut self,
        at: Nanos,
        offset: u64,
        buf: &mut [u8],
        deferred: &mut DeferredRead,
    ) -> Result<Nanos, FtlError> {
        deferred.begin(Lpn::new(0), 0);
        if self.span(offset, to_u64(buf.len())).tail.is_some() {
            return self.read(at, offset, buf);
        }
        self.read_with(at, offset, buf, |ftl, at, lpn, from, body| {
            deferred.begin(lpn, from);
            ftl.read_deferred(at, lpn, body, deferred)
        })
    }

    /// Reads an extent; `read_body` reads its whole pages, which begin at a byte of the buffer.
    fn read_with(
        &mut self,
        at: Nanos,
        offset: u64,
        buf: &mut [u8],
        read_body: impl FnOnce(&mut dyn Ftl, Nanos, Lpn, usize, &mut [u8]) -> Result<Nanos, FtlError>,
    ) -> Result<Nanos, FtlError> {
        let at = self.handled(at);
        let span = self.span(offset, to_u64(buf.len()));
        let (head, rest) = buf.split_at_mut(span.head.map_or(0, |(_, _, len)| index(len)));
        let (body, tail) = rest.split_at_mut(index(span.body.1) * self.scratch.len());
        assert_eq!(
            tail.len(),
            span.tail.map_or(0, |(_, len)| index(len)),
            "the bytes of a read after its last whole page"
        );
        let mut done = at;
        if let Some((lpn, from, _)) = span.head {
            done = done.max(self.read_part(at, lpn, from, head)?);
        }
        if !body.is_empty() {
            done = done.max(read_body(self.ftl, at, span.body.0, head.len(), body)?);
        }
        if let Some((lpn, _)) = span.tail {
            done = done.max(self.read_part(at, lpn, 0, tail)?);
        }
        Ok(done)
    }

    fn read_part(
        &mut self,
        at: Nanos,
        lpn: Lpn,
        from: u32,
        part: &mut [u8],
    ) -> Result<Nanos, FtlError> {
        let done = self.ftl.read(at, lpn, self.scratch)?;
        assert!(
            index(from) + part.len() <= self.scratch.len(),
            "a part beyond its page"
        );
        part.copy_from_slice(&self.scratch[index(from)..][..part.len()]);
        Ok(done)
    }

    /// Writes an extent.
    ///
    /// # Errors
    /// As [`Ftl::write`], and as [`Ftl::read`] if part of a page is kept.
    pub fn write(&mut self, at: Nanos, offset: u64, data: &[u8]) -> Result<Nanos, FtlError> {
        let at = self.handled(at);
        let span = self.span(offset, to_u64(data.len()));
        let (head, rest) = data.split_at(span.head.map_or(0, |(_, _, len)| index(len)));
        let (body, tail) = rest.split_at(index(span.body.1) * self.scratch.len());
        assert_eq!(
            tail.len(),
            span.tail.map_or(0, |(_, len)| index(len)),
            "the bytes of a write after its last whole page"
        );
        let mut done = at;
        if let Some((lpn, from, _)) = span.head {
            done =
                done.max(self.read_modify_write(at, lpn, from, head.len(), |part| {
                    part.copy_from_slice(head)
                })?);
        }
        if !body.is_empty() {
            done = done.max(self.ftl.write(at, span.body.0, body)?);
        }
        if let Some((lpn, _)) = span.tail {
            done =
                done.max(self.read_modify_write(at, lpn, 0, tail.len(), |part| {
                    part.copy_from_slice(tail)
                })?);
        }
        Ok(done)
    }

    /// Makes an extent read as zeros. As a batch: a page that reads as zeros already may do so
    /// because of a trim that is in RAM alone, and the end of the batch writes it.
    ///
    /// # Errors
    /// As [`Ftl::trim`], and as [`Ftl::write`] if part of a page is kept.
    pub fn zero(&mut self, at: Nanos, offset: u64, len: u64) -> Result<Nanos, FtlError> {
        self.ftl.begin_batch();
        let zeroed = self.zero_in_batch(at, offset, len);
        let written = self.ftl.end_batch();
        let done = zeroed?;
        written?;
        Ok(done)
    }

    fn zero_in_batch(&mut self, at: Nanos, offset: u64, len: u64) -> Result<Nanos, FtlError> {
        let at = self.handled(at);
        let span = self.span(offset, len);
        let mut done = at;
        for (lpn, from, len) in span
            .head
            .into_iter()
            .chain(span.tail.map(|(lpn, len)| (lpn, 0, len)))
        {
            if self.ftl.is_mapped(lpn)? {
                done = done
                    .max(self.read_modify_write(at, lpn, from, index(len), |part| part.fill(0))?);
            }
        }
        if span.body.1 > 0 {
            done = done.max(self.ftl.trim(at, span.body.0, span.body.1)?);
        }
        Ok(done)
    }

    /// Reads, modifies and writes one page.
    fn read_modify_write(
        &mut self,
        at: Nanos,
        lpn: Lpn,
        from: u32,
        len: usize,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<Nanos, FtlError> {
        assert!(
            index(from) + len <= self.scratch.len(),
            "a change beyond its page"
        );
        let read = self.ftl.read(at, lpn, self.scratch)?;
        change(&mut self.scratch[index(from)..][..len]);
        self.ftl.write(read, lpn, self.scratch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftl_core::schemes::Scheme;
    use ftl_core::{FtlConfig, Params, Start};
    use nand_model::store::MemStore;
    use nand_model::{Chip, Cut, FaultPlan, Profile, atomic_bytes};

    #[test]
    fn long_requests_are_cut_at_aligned_slices_of_whole_blocks() {
        let slice = |name| extent_bytes(&Profile::find(name).unwrap().geometry);
        assert_eq!(
            slice("mlc-4k"),
            128 * 4096,
            "one block of the default chip is one slice"
        );
        assert_eq!(
            slice("torture"),
            SLICE_BYTES,
            "many small blocks share a slice"
        );
        let ends = [0, 100, SLICE_BYTES - 1, SLICE_BYTES]
            .map(|from| extent_end(from, from + SLICE_BYTES, SLICE_BYTES));
        assert_eq!(
            ends,
            [SLICE_BYTES, SLICE_BYTES, SLICE_BYTES, 2 * SLICE_BYTES]
        );
    }

    /// Writes 24 KiB over older data, with a cut at every flash operation, and reads it back. A
    /// unit that two pages share would be found half old and half new.
    #[test]
    fn a_power_cut_tears_no_unit_of_atomicity_whatever_the_size_of_a_page() {
        const BYTES: usize = 24 << 10;
        let torn = |page_bytes: u32, unit: u32| {
            let mut profile = Profile::find("slc-2k").unwrap().with_blocks(40);
            profile.geometry.page_bytes = page_bytes;
            let scheme = Scheme::find("pagemap").unwrap();
            let config = FtlConfig {
                logical_pages: 300,
                params: Params::default(),
            };
            let (mut torn, mut scratch) = (0, vec![0; page_bytes as usize]);
            for op in 0.. {
                let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
                let mut ftl = scheme.start(chip, &config, Start::Format).unwrap();
                let mut io = PageIo {
                    ftl: &mut *ftl,
                    scratch: &mut scratch,
                };
                io.write(0, 0, &[1; BYTES]).unwrap();
                io.ftl.flush(0).unwrap();
                io.ftl.chip_mut().set_faults(FaultPlan {
                    cut: Some(Cut::menu(op, 0)[0]),
                    ..FaultPlan::default()
                });
                if io.write(0, 0, &[2; BYTES]).is_ok() {
                    break;
                }
                let mut chip = ftl.into_chip();
                chip.power_on();
                let mut ftl = scheme.start(chip, &config, Start::Mount).unwrap();
                let mut io = PageIo {
                    ftl: &mut *ftl,
                    scratch: &mut scratch,
                };
                let mut found = vec![0; BYTES];
                io.read(0, 0, &mut found).unwrap();
                let units = found.chunks(unit as usize);
                torn += units
                    .filter(|unit| unit.iter().any(|byte| *byte != unit[0]))
                    .count();
            }
            torn
        };
        for page_bytes in [1536, 2560, 3072, 6144] {
            assert_eq!(
                torn(page_bytes, atomic_bytes(page_bytes)),
                0,
                "{page_bytes}"
            );
            assert!(
                torn(page_bytes, 2 * atomic_bytes(page_bytes)) > 0,
                "{page_bytes}"
            );
        }
    }
}

//! A scheme on virtual time: requests in, emulated response times out. No data, no lock, no thread.
//!
//! Invariants: every error of the scheme ends the run. Every page requested of the scheme is
//! counted here, and [`Sim::settle`] checks that the scheme has counted it as well.

use super::address::Extent;
use super::latency::Latencies;
use ftl_core::{Ftl, FtlError, Lookups, Lpn, SchemeStats, Span};
use ftld_device::method::ResponseUnit;
use ftld_device::pages::{PageIo, extent_bytes, extent_end};
use ftld_kit::convert::{index, to_u32, to_u64, to_usize};
use ftld_kit::failure::Failure;
use ftld_traces::Op;
use nand_model::{Chip, Nanos};
use std::mem::take;

/// Maximum of pages per trim call.
const TRIM_PAGES: u64 = 16_384;
/// Flash operations per slice of background work: the minimum, so that a request that arrives
/// meanwhile waits as briefly as possible.
const IDLE_OPS: u32 = 1;

/// Pages requested of the scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) read: u64,
    /// The part of `read` that partial writes need.
    pub(super) rmw: u64,
    pub(super) written: u64,
    pub(super) trimmed: u64,
    /// Partial pages of trims: rewritten if they had data.
    pub(super) cleared: u64,
}

/// A scheme and its request counters.
pub(super) struct Sim {
    ftl: Box<dyn Ftl>,
    scratch: Vec<u8>,
    /// Buffer for reads and writes; its content has no meaning.
    buffer: Vec<u8>,
    response_unit: ResponseUnit,
    pub(super) latencies: Latencies,
    /// Response times of the current window of a time series.
    pub(super) window: Option<Latencies>,
    pub(super) pages: Pages,
    /// Mapping lookups of read-modify-writes since the start. The scheme counts them among those
    /// for pages read.
    pub(super) lookups_rmw: Lookups,
    /// End of the last request.
    pub(super) now: Nanos,
    /// The scheme's counters when `pages` was empty.
    base: SchemeStats,
}

impl Sim {
    pub(super) fn new(ftl: Box<dyn Ftl>, response_unit: ResponseUnit) -> Sim {
        let geometry = *ftl.chip().geometry();
        let (now, base) = (ftl.chip().busy_until(), ftl.stats());
        Sim {
            ftl,
            scratch: vec![0; index(geometry.page_bytes)],
            buffer: vec![0; to_usize(extent_bytes(&geometry))],
            response_unit,
            latencies: Latencies::default(),
            window: None,
            pages: Pages::default(),
            lookups_rmw: Lookups::default(),
            now,
            base,
        }
    }

    pub(super) fn ftl(&self) -> &dyn Ftl {
        &*self.ftl
    }

    pub(super) fn chip_mut(&mut self) -> &mut Chip {
        self.ftl.chip_mut()
    }

    pub(super) fn page_bytes(&self) -> u64 {
        to_u64(self.scratch.len())
    }

    /// Sets the hint of the next writes.
    pub(super) fn set_write_hint(&mut self, hint: u64) {
        self.ftl.set_write_hint(hint);
    }

    /// Runs one request that starts at `at`. Returns its end.
    pub(super) fn request(
        &mut self,
        at: Nanos,
        op: Op,
        extents: &[Extent],
    ) -> Result<Nanos, FtlError> {
        assert_eq!(
            extents.is_empty(),
            op == Op::Flush,
            "a request of type {op:?} in {} extents",
            extents.len()
        );
        let done = match self.response_unit {
            _ if op == Op::Flush => {
                let done = self.ftl.flush(at)?;
                self.note(op, done - at);
                done
            }
            ResponseUnit::PerRequest => {
                let mut done = at;
                for &extent in extents {
                    done = done.max(self.whole(at, op, extent)?);
                }
                self.note(op, done - at);
                done
            }
            ResponseUnit::PerPage => {
                let mut now = at;
                for extent in extents {
                    for page in split(*extent, self.page_bytes()) {
                        let done = self.whole(now, op, page)?;
                        self.note(op, done - now);
                        now = done;
                    }
                }
                now
            }
            ResponseUnit::PerRecord => {
                let page = self.page_bytes();
                let first = Extent {
                    offset: extents[0].offset / page * page,
                    len: page,
                };
                let done = self.whole(at, op, first)?;
                self.note(op, done - at);
                done
            }
        };
        assert!(done >= at, "a request from {at} ns ended at {done} ns");
        self.now = self.now.max(done);
        Ok(done)
    }

    #[inline]
    fn note(&mut self, op: Op, ns: u64) {
        self.latencies.of(op).note(ns);
        if let Some(window) = &mut self.window {
            window.of(op).note(ns);
        }
    }

    /// Runs one extent whose slices all start at `at`. Returns its end.
    pub(super) fn whole(&mut self, at: Nanos, op: Op, extent: Extent) -> Result<Nanos, FtlError> {
        assert!(extent.len > 0, "an extent of no bytes at {}", extent.offset);
        self.count(op, extent);
        let slice = if op == Op::Trim {
            TRIM_PAGES * self.page_bytes()
        } else {
            to_u64(self.buffer.len())
        };
        assert!(slice > 0, "slices of no bytes");
        let (mut offset, end, mut done) = (extent.offset, extent.offset + extent.len, at);
        let page = self.page_bytes();
        let is_partial = !offset.is_multiple_of(page) || !end.is_multiple_of(page);
        let before = (op != Op::Read && is_partial).then(|| self.ftl.lookups_read());
        let mut paged = PageIo {
            ftl: &mut *self.ftl,
            scratch: &mut self.scratch,
        };
        while offset < end {
            let next = extent_end(offset, end, slice);
            let len = next - offset;
            done = done.max(match op {
                Op::Read => paged.read(at, offset, &mut self.buffer[..to_usize(len)])?,
                Op::Write => paged.write(at, offset, &self.buffer[..to_usize(len)])?,
                Op::Trim => paged.zero(at, offset, len)?,
                Op::Flush => unreachable!("a FLUSH has no extent"),
            });
            offset = next;
        }
        if let Some(before) = before {
            let after = self.ftl.lookups_read();
            self.lookups_rmw.total += after.total - before.total;
            self.lookups_rmw.hits += after.hits - before.hits;
        }
        assert!(done >= at, "an extent from {at} ns ended at {done} ns");
        Ok(done)
    }

    fn count(&mut self, op: Op, extent: Extent) {
        let span = Span::new(extent.offset, extent.len, to_u32(self.scratch.len()));
        let (whole, parts) = (
            u64::from(span.body.1),
            u64::from(span.head.is_some()) + u64::from(span.tail.is_some()),
        );
        match op {
            Op::Read => self.pages.read += whole + parts,
            Op::Write => {
                self.pages.read += parts;
                self.pages.rmw += parts;
                self.pages.written += whole + parts;
            }
            Op::Trim => {
                self.pages.trimmed += whole;
                self.pages.cleared += parts;
            }
            Op::Flush => unreachable!("a FLUSH has no extent"),
        }
    }

    /// Writes one page of data, without measuring; starts after all earlier operations.
    pub(super) fn write_one(&mut self, lpn: Lpn) -> Result<(), FtlError> {
        self.pages.written += 1;
        self.now = self.ftl.write(self.now, lpn, &self.scratch)?;
        Ok(())
    }

    /// Runs background work until `until` or until there is none.
    pub(super) fn idle(&mut self, until: Nanos) -> Result<(), FtlError> {
        loop {
            let free = self.ftl.chip().busy_until();
            if free >= until
                || !self.ftl.idle(free, IDLE_OPS)?
                || self.ftl.chip().busy_until() == free
            {
                return Ok(());
            }
        }
    }

    /// Returns and resets counters and response times, after checking that the scheme has counted
    /// all its pages. The error contains the mismatch.
    pub(super) fn settle(&mut self) -> Result<(Pages, Latencies), Failure> {
        let stats = self.ftl.stats();
        let Pages {
            read,
            written,
            trimmed,
            cleared,
            rmw,
        } = self.pages;
        let (reads, writes, trims) = (
            stats.host_pages_read - self.base.host_pages_read,
            stats.host_pages_written - self.base.host_pages_written,
            stats.host_pages_trimmed - self.base.host_pages_trimmed,
        );
        let fits = |issued: u64, completed: u64| (issued..=issued + cleared).contains(&completed);
        if !fits(read, reads) || !fits(written, writes) || trims != trimmed {
            return Err(Failure::failed(format!(
                "issued {read} page reads, {written} page writes and {trimmed} page trims, but the scheme completed \
                 {reads}, {writes} and {trims}"
            )));
        }
        assert!(
            rmw <= read,
            "{rmw} pages read for partial writes, of {read} pages read"
        );
        self.base = stats;
        Ok((take(&mut self.pages), take(&mut self.latencies)))
    }
}

/// Splits an extent at page boundaries.
fn split(extent: Extent, page: u64) -> impl Iterator<Item = Extent> {
    let end = extent.offset + extent.len;
    let mut offset = extent.offset;
    std::iter::from_fn(move || {
        let next = extent_end(offset, end, page);
        let part = Extent {
            offset,
            len: next - offset,
        };
        offset = next;
        (part.len > 0).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftl_core::schemes::Scheme;
    use ftl_core::{BlockView, EventLog, FtlConfig, Params, RamReport, Start, StreamView};
    use nand_model::store::OobOnlyStore;
    use nand_model::{Pbn, Ppn, Profile};

    /// A scheme that omits, or does not count, some of its operations.
    struct Careless {
        inner: Box<dyn Ftl>,
        /// Operations missing in the counts: reads, writes, trims.
        missing: [u64; 3],
    }

    impl Ftl for Careless {
        fn scheme(&self) -> &'static str {
            self.inner.scheme()
        }
        fn logical_pages(&self) -> u32 {
            self.inner.logical_pages()
        }
        fn read(&mut self, at: Nanos, first: Lpn, out: &mut [u8]) -> Result<Nanos, FtlError> {
            self.inner.read(at, first, out)
        }
        fn write(&mut self, at: Nanos, first: Lpn, data: &[u8]) -> Result<Nanos, FtlError> {
            self.inner.write(at, first, data)
        }
        fn trim(&mut self, at: Nanos, first: Lpn, count: u32) -> Result<Nanos, FtlError> {
            self.inner.trim(at, first, count)
        }
        fn flush(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
            self.inner.flush(at)
        }
        fn idle(&mut self, at: Nanos, budget: u32) -> Result<bool, FtlError> {
            self.inner.idle(at, budget)
        }
        fn shutdown(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
            self.inner.shutdown(at)
        }
        fn is_mapped(&mut self, lpn: Lpn) -> Result<bool, FtlError> {
            self.inner.is_mapped(lpn)
        }
        fn stats(&self) -> SchemeStats {
            let mut stats = self.inner.stats();
            stats.host_pages_read = stats.host_pages_read.saturating_sub(self.missing[0]);
            stats.host_pages_written = stats.host_pages_written.saturating_sub(self.missing[1]);
            stats.host_pages_trimmed = stats.host_pages_trimmed.saturating_sub(self.missing[2]);
            stats
        }
        fn block(&self, block: Pbn) -> BlockView {
            self.inner.block(block)
        }
        fn is_valid(&self, page: Ppn) -> bool {
            self.inner.is_valid(page)
        }
        fn events(&self) -> &EventLog {
            self.inner.events()
        }
        fn streams(&self) -> &[StreamView] {
            self.inner.streams()
        }
        fn ram_report(&self) -> RamReport {
            self.inner.ram_report()
        }
        fn check(&mut self) -> Result<Vec<String>, FtlError> {
            self.inner.check()
        }
        fn chip(&self) -> &Chip {
            self.inner.chip()
        }
        fn chip_mut(&mut self) -> &mut Chip {
            self.inner.chip_mut()
        }
        fn into_chip(self: Box<Self>) -> Chip {
            self.inner.into_chip()
        }
    }

    fn sim(missing: [u64; 3]) -> Sim {
        let (scheme, params) = (Scheme::find("pagemap").unwrap(), Params::default());
        let layout = scheme
            .layout(Profile::find("torture").unwrap(), 1 << 20, 0.3, &params)
            .unwrap();
        let chip = Chip::over(layout.profile, OobOnlyStore::new(layout.profile.geometry)).unwrap();
        let config = FtlConfig {
            logical_pages: layout.logical_pages,
            params,
        };
        let inner = scheme.start(chip, &config, Start::Format).unwrap();
        Sim::new(
            Box::new(Careless { inner, missing }),
            ResponseUnit::PerRequest,
        )
    }

    fn some_requests(sim: &mut Sim) {
        for (op, offset, len) in [
            (Op::Write, 0, 10 << 10),
            (Op::Write, 100, 3 << 10),
            (Op::Read, 5, 4 << 10),
            (Op::Trim, 1 << 10, 2 << 10),
            (Op::Trim, 5 << 10, 1 << 10),
        ] {
            sim.request(sim.now, op, &[Extent { offset, len }]).unwrap();
        }
    }

    #[test]
    fn a_scheme_that_completes_less_than_was_issued_is_found_out() {
        let mut honest = sim([0; 3]);
        some_requests(&mut honest);
        assert!(honest.settle().is_ok());
        assert_eq!(honest.pages, Pages::default());
        for (kind, missing) in [[1, 0, 0], [0, 1, 0], [0, 0, 1]].into_iter().enumerate() {
            let mut careless = sim(missing);
            some_requests(&mut careless);
            let why = careless.settle().err().unwrap().message;
            let expected = [
                "issued 7 page reads, 14 page writes and 3 page trims",
                "but the scheme completed",
            ];
            assert!(
                expected.iter().all(|part| why.contains(part)),
                "{kind}: {why}"
            );
        }
    }
}

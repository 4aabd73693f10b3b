//! Preconditioning: brings a device to the state in which it is measured.

use super::address::Extent;
use super::job::Method;
use super::sim::Sim;
use ftl_core::{FtlError, Lpn};
use ftld_device::aging::{Age, Aged, Conditioned, overwrite};
use ftld_device::method::Precondition;
use ftld_traces::Op;
use std::ops::Range;

impl Sim {
    /// Fills and overwrites as requested; `written` are the pages that [`Precondition::Trace`] or
    /// [`Precondition::Region`] writes, ascending. `tick` receives the share done.
    pub(super) fn precondition(
        &mut self,
        method: &Method,
        written: &[Range<u32>],
        seed: u64,
        tick: &mut dyn FnMut(f64),
    ) -> Result<Conditioned, FtlError> {
        let age = match method.precondition() {
            Precondition::New | Precondition::Region | Precondition::Trace => {
                return self.fill_runs(written);
            }
            Precondition::Fill => Age::DriveWrites(method.age.unwrap_or(0.0)),
            Precondition::Steady => Age::Steady,
        };
        overwrite(self, age, seed, tick)
    }

    /// Writes these runs of pages, ascending, each in order.
    pub(super) fn fill_runs(&mut self, runs: &[Range<u32>]) -> Result<Conditioned, FtlError> {
        let pages = self.logical_pages();
        assert!(
            runs.is_sorted_by(|one, next| one.end <= next.start),
            "the {} runs of pages overlap",
            runs.len()
        );
        assert!(
            runs.last().is_none_or(|run| run.end <= pages),
            "pages {:?} of {pages}",
            runs.last()
        );
        for run in runs {
            self.fill(run.clone(), &mut |_| ())?;
        }
        let written: u32 = runs.iter().map(|run| run.end - run.start).sum();
        Ok(Conditioned {
            drive_writes: f64::from(written) / f64::from(pages),
            write_amplification: None,
            steady: None,
            rule: None,
        })
    }
}

impl Aged for Sim {
    fn logical_pages(&self) -> u32 {
        self.ftl().logical_pages()
    }

    /// Writes a block at a time.
    fn fill(&mut self, pages: Range<u32>, tick: &mut dyn FnMut(u32)) -> Result<(), FtlError> {
        let geometry = *self.ftl().chip().geometry();
        let (block, page) = (geometry.pages_per_block, u64::from(geometry.page_bytes));
        let mut first = pages.start;
        while first < pages.end {
            let next = ((first / block + 1) * block).min(pages.end);
            assert!(
                next > first && next - first <= block,
                "pages {first} to {next} of blocks of {block}"
            );
            let extent = Extent {
                offset: u64::from(first) * page,
                len: u64::from(next - first) * page,
            };
            self.now = self.whole(self.now, Op::Write, extent)?;
            tick(next);
            first = next;
        }
        Ok(())
    }

    fn write_page(&mut self, lpn: Lpn) -> Result<(), FtlError> {
        self.write_one(lpn)
    }

    fn programs(&self) -> u64 {
        self.ftl().chip().counters().total().programs
    }
}

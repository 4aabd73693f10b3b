//! Counters of a device when measuring began, and the differences that make a row.
//!
//! Invariants: the cost of preconditioning and warm-up is not in a row. Power failure does not
//! matter here.

use super::job::Job;
use super::latency::{Response, Responses};
use super::row::{Counts, Erases, MapCache, Optimum, Requests, Stalls};
use super::sim::Sim;
use crate::convert::{index, to_f64};
use crate::counters::SchemeCounters;
use crate::method::ResponseUnit;
use ftl_core::{Ftl, Lookups, SchemeStats, StallTotals};
use nand_model::{Cause, Counters, Nanos, PageTimes, Profile};
use std::collections::BTreeMap;

/// Counters when measuring began.
pub(super) struct Measurement {
    pub(super) now: Nanos,
    pub(super) counters: Counters,
    pub(super) stats: SchemeStats,
    pub(super) lookups_rmw: Lookups,
    pub(super) erases: Vec<u32>,
}

impl Measurement {
    pub(super) fn of(sim: &Sim) -> Measurement {
        let chip = sim.ftl().chip();
        Measurement {
            now: sim.now,
            counters: chip.counters().clone(),
            stats: sim.ftl().stats(),
            lookups_rmw: sim.lookups_rmw,
            erases: chip
                .geometry()
                .all_blocks()
                .map(|block| chip.erase_count(block))
                .collect(),
        }
    }

    pub(super) fn erases(&self, ftl: &dyn Ftl) -> Erases {
        let chip = ftl.chip();
        let good = || {
            chip.geometry()
                .all_blocks()
                .filter(|block| chip.bad(*block).is_none())
        };
        assert_eq!(
            self.erases.len(),
            index(chip.geometry().blocks),
            "erases are known of each block"
        );
        let counts: Vec<_> = good()
            .map(|block| chip.erase_count(block) - self.erases[block.index()])
            .collect();
        let erases = Erases::new(
            &counts,
            good()
                .map(|block| chip.erase_count(block))
                .max()
                .unwrap_or(0),
        );
        assert!(
            erases.max <= erases.lifetime_max,
            "a block with {} erases while measuring, at most {} ever",
            erases.max,
            erases.lifetime_max
        );
        erases
    }
}

/// Returns the lookups of a measurement. The scheme counts a part of a page that is read to be
/// written as a page read; the host did not read it.
pub(super) fn map_cache(begun: &Measurement, done: &SchemeStats, lookups_rmw: Lookups) -> MapCache {
    let ratio = |hits: u64, of: u64| (of > 0).then(|| to_f64(hits) / to_f64(of));
    let between = |begun: Lookups, done: Lookups| {
        assert!(
            done.total >= begun.total && done.hits >= begun.hits,
            "lookups and hits of the mapping cache only grow"
        );
        (done.total - begun.total, done.hits - begun.hits)
    };
    let (lookups_all, hits_all) = between(begun.stats.lookups_read, done.lookups_read);
    let (lookups_rmw, hits_rmw) = between(begun.lookups_rmw, lookups_rmw);
    assert!(
        lookups_rmw <= lookups_all && hits_rmw <= hits_all,
        "{lookups_rmw} lookups for parts of pages, of {lookups_all} for pages read"
    );
    let (lookups_read, hits_read) = (lookups_all - lookups_rmw, hits_all - hits_rmw);
    let (lookups_write, hits_write) = between(begun.stats.lookups_write, done.lookups_write);
    MapCache {
        lookups_rmw,
        hits_rmw,
        lookups_read,
        hits_read,
        lookups_write,
        hits_write,
        hit_ratio_read: ratio(hits_read, lookups_read),
        hit_ratio_write: ratio(hits_write, lookups_write),
        hit_ratio: ratio(hits_all + hits_write, lookups_all + lookups_write),
    }
}

/// Returns the stalls of host writes between two moments, by cause; causes without are left out.
pub(super) fn write_stalls(begun: &SchemeStats, done: &SchemeStats) -> BTreeMap<String, Stalls> {
    let pairs = begun.write_stalls.iter().zip(&done.write_stalls);
    let between = |(begun, done): (&StallTotals, &StallTotals)| Stalls {
        writes: done.writes - begun.writes,
        total_ns: done.total_ns - begun.total_ns,
    };
    let names = Cause::ALL.into_iter().map(|cause| cause.name().to_owned());
    names
        .zip(pairs.map(between))
        .filter(|(_, stalls)| *stalls != Stalls::default())
        .collect()
}

pub(super) fn counts(begun: &SchemeStats, done: &SchemeStats) -> Counts {
    Counts {
        counters: SchemeCounters::between(begun, done),
        mapped_pages: done.mapped_pages,
        free_blocks: done.blocks.free,
    }
}

pub(super) fn optimum(
    profile: &Profile,
    job: &Job,
    requests: &Requests,
    responses: &Responses,
) -> Optimum {
    assert!(
        requests.pages_rmw <= requests.pages_read,
        "{} pages read for partial writes, of {} pages read",
        requests.pages_rmw,
        requests.pages_read
    );
    let (timing, geometry) = (&profile.timing, &profile.geometry);
    let pages = geometry.pages_per_block;
    let pairs = nand_model::PairTable::new(profile.pairing, pages);
    let of_block = |times: &PageTimes| {
        let of_page = |at| times[pairs.page_type(at)];
        (0..pages).map(of_page).sum::<u64>()
    };
    let (sensed, programmed) = (of_block(&timing.read_ns), of_block(&timing.program_ns));
    let per_page = |block_ns: u64| to_f64(block_ns) / f64::from(pages) + to_f64(timing.bus_ns);
    let page_read_ns = per_page(sensed);
    let page_write_ns = per_page(programmed + timing.erase_ns);
    let reading = |pages: u64| to_f64(pages) * page_read_ns;
    let writing = to_f64(requests.pages_written) * page_write_ns;
    let alone = geometry.dies() == 1 || job.method.response_unit() != ResponseUnit::PerRequest;
    let mean = |work: f64, of: &Option<Response>| {
        of.as_ref()
            .filter(|_| alone)
            .map(|of| work / to_f64(of.count))
    };
    Optimum {
        erases: to_f64(requests.pages_written) / f64::from(pages),
        work_ns: reading(requests.pages_read) + writing,
        page_read_ns,
        page_write_ns,
        mean_read_ns: mean(
            reading(requests.pages_read - requests.pages_rmw),
            &responses.read,
        ),
        mean_write_ns: mean(reading(requests.pages_rmw) + writing, &responses.write),
    }
}

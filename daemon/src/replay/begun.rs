//! Counters of a device when measuring began, and the differences that make a row.
//!
//! Invariants: the cost of preconditioning and warm-up is not in a row. Power failure does not
//! matter here.

use super::job::Job;
use super::measure::{Response, Responses};
use super::row::{Counts, Erases, MapCache, Optimum, Ram, RamPart, Requests};
use super::sim::Sim;
use crate::convert::{index, to_f64};
use crate::method::ResponseUnit;
use ftl_core::{Ftl, SchemeStats};
use nand_model::store::OobOnlyStore;
use nand_model::{Counters, Nanos, Profile};

/// Counters when measuring began.
pub(super) struct Begun {
    pub(super) now: Nanos,
    pub(super) counters: Counters,
    pub(super) stats: SchemeStats,
    pub(super) erases: Vec<u32>,
}

impl Begun {
    pub(super) fn of(sim: &Sim) -> Begun {
        let chip = sim.ftl().chip();
        Begun {
            now: sim.now,
            counters: chip.counters().clone(),
            stats: sim.ftl().stats(),
            erases: chip
                .geometry()
                .all_blocks()
                .map(|block| chip.erase_count(block))
                .collect(),
        }
    }

    pub(super) fn erases(&self, ftl: &dyn Ftl<OobOnlyStore>) -> Erases {
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

pub(super) fn map_cache(begun: &SchemeStats, done: &SchemeStats) -> MapCache {
    let hits = done.map_cache_hits - begun.map_cache_hits;
    let misses = done.map_cache_misses - begun.map_cache_misses;
    MapCache {
        hits,
        misses,
        hit_ratio: (hits + misses > 0).then(|| to_f64(hits) / to_f64(hits + misses)),
    }
}

/// Returns the RAM of a scheme; `fitted` parameters follow from the requested RAM.
pub(super) fn ram(ftl: &dyn Ftl<OobOnlyStore>, fitted: Vec<String>) -> Ram {
    let parts: Vec<_> = ftl
        .ram_report()
        .into_iter()
        .map(|entry| RamPart {
            part: entry.part.into(),
            entries: entry.entries,
            paper_bytes: entry.paper_bytes,
            allocated_bytes: entry.allocated_bytes,
        })
        .collect();
    Ram {
        paper_bytes: parts.iter().map(|part| part.paper_bytes).sum(),
        allocated_bytes: parts.iter().map(|part| part.allocated_bytes).sum(),
        fitted,
        parts,
    }
}

pub(super) fn counts(begun: &SchemeStats, done: &SchemeStats) -> Counts {
    Counts {
        gc_runs: done.gc_runs - begun.gc_runs,
        gc_pages_moved: done.gc_pages_moved - begun.gc_pages_moved,
        wear_moves: done.wear_moves - begun.wear_moves,
        refreshes: done.refreshes - begun.refreshes,
        converts: done.converts - begun.converts,
        convert_map_pages: done.convert_map_pages - begun.convert_map_pages,
        map_lookup_steps: done.map_lookup_steps - begun.map_lookup_steps,
        checkpoints: done.checkpoints - begun.checkpoints,
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
    let cells = |at| {
        if pairs.is_msb(at) {
            timing.program_msb_ns
        } else {
            timing.program_ns
        }
    };
    let block: u64 = (0..pages).map(cells).sum();
    let page_read_ns = to_f64(timing.read_ns + timing.bus_ns);
    let page_write_ns = to_f64(block + timing.erase_ns) / f64::from(pages) + to_f64(timing.bus_ns);
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

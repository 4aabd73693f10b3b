//! A measurement: the counters at its begin, and their differences at its end, which make a row.
//!
//! Invariants: the cost of preconditioning and warm-up is not in a row. Power failure does not
//! matter here.

use super::device::SimulatedDevice;
use super::job::Job;
use super::latency::{Response, Responses};
use super::provenance::Provenance;
use super::ram::ram;
use super::row::{
    Busy, Collected, ConvertCost, Counts, Device, Erases, Load, MapCache, Optimum, Requests, Row,
    SCHEMA, Stalls, WriteAmplification, by_cause,
};
use super::settling::Settling;
use super::sim::Sim;
use ftl_core::{Ftl, Lookups, SchemeStats, StallTotals};
use ftld_device::aging::Conditioned;
use ftld_device::counters::{EnergyUsed, Operations, SchemeCounters};
use ftld_device::method::ResponseUnit;
use ftld_kit::convert::{index, to_f64};
use nand_model::{Cause, Counters, Nanos, PageTimes, Profile};
use std::collections::BTreeMap;

/// Counters when measuring began.
pub(super) struct Measurement {
    began_at: Nanos,
    counters: Counters,
    stats: SchemeStats,
    lookups_rmw: Lookups,
    erases: Vec<u32>,
}

/// Results of the requests and of the steps before them.
pub(super) struct Measured {
    pub(super) requests: Requests,
    pub(super) responses: Responses,
    pub(super) conditioned: Conditioned,
    pub(super) settling: Option<Settling>,
    pub(super) load: Option<Load>,
    pub(super) provenance: Provenance,
}

impl Measurement {
    /// Begins a measurement.
    pub(super) fn begin(sim: &Sim) -> Measurement {
        let chip = sim.ftl().chip();
        let blocks = chip.geometry().all_blocks();
        Measurement {
            began_at: sim.now,
            counters: chip.counters().clone(),
            stats: sim.ftl().stats(),
            lookups_rmw: sim.lookups_rmw,
            erases: blocks.map(|block| chip.erase_count(block)).collect(),
        }
    }

    /// Returns the row at the end of the measurement.
    pub(super) fn row(
        &self,
        job: &Job,
        device: &SimulatedDevice,
        sim: &Sim,
        measured: Measured,
    ) -> Row {
        let Measured {
            requests,
            responses,
            conditioned,
            settling,
            load,
            provenance,
        } = measured;
        let (ftl, stats, profile) = (sim.ftl(), sim.ftl().stats(), &device.flash.profile);
        let (counters, geometry) = (ftl.chip().counters(), profile.geometry);
        let flash = by_cause(&self.counters, counters);
        let flash_total = Operations::between(&self.counters.total(), &counters.total());
        let sum = |of: fn(&Operations) -> u64| flash.values().map(of).sum::<u64>();
        assert_eq!(
            (
                sum(|of| of.programs),
                sum(|of| of.reads),
                sum(|of| of.erases)
            ),
            (flash_total.programs, flash_total.reads, flash_total.erases),
            "each operation has one cause"
        );
        assert_eq!(
            requests.issued, requests.completed,
            "a row is made of completed requests"
        );
        assert!(
            sim.now >= self.began_at,
            "measuring began at {} ns and ended at {} ns",
            self.began_at,
            sim.now
        );
        let mut write_amplification =
            WriteAmplification::new(&flash, &requests, geometry.page_bytes);
        // Only the first page of a record is served.
        write_amplification
            .of_bytes
            .take_if(|_| job.method.response_unit() == ResponseUnit::PerRecord);
        let layout = device.layout();
        let scheme = device.flash.scheme.name;
        let device_row = Device {
            profile: profile.name.into(),
            size_bytes: device.size,
            logical_pages: layout.logical_pages,
            raw_bytes: geometry.data_bytes(),
            slc_bytes: profile.slc_bytes(),
            blocks: geometry.blocks,
            bad_blocks: stats.blocks.bad,
            pages_per_block: geometry.pages_per_block,
            page_bytes: geometry.page_bytes,
            dies: geometry.dies(),
            op_percent: device.op_percent,
            effective_op_percent: layout.effective_op_percent(stats.blocks.bad),
        };
        Row {
            schema: SCHEMA.into(),
            job: Job {
                scheme: Some(scheme.into()),
                ..job.clone()
            },
            scheme: scheme.into(),
            collected: Collected::new(&flash, flash_total.erases, &device_row, stats.mapped_pages),
            device: device_row,
            precondition: conditioned,
            settling,
            load,
            flash_total,
            energy_j: EnergyUsed::of(profile, |cause| {
                counters.of(cause).since(self.counters.of(cause))
            }),
            flash,
            flash_busy_ns: Busy {
                read: counters.read_busy_ns - self.counters.read_busy_ns,
                program: counters.program_busy_ns - self.counters.program_busy_ns,
                erase: counters.erase_busy_ns - self.counters.erase_busy_ns,
            },
            write_amplification,
            emulated_ns: sim.now - self.began_at,
            erases: self.erases(ftl),
            write_stalls: write_stalls(&self.stats, &stats),
            convert_cost: ConvertCost::between(&self.stats.convert_costs, &stats.convert_costs),
            map_cache: self.map_cache(&stats, sim.lookups_rmw),
            ram: ram(ftl, device.fitted.clone()),
            scheme_stats: counts(&self.stats, &stats),
            optimum: optimum(profile, job, &requests, &responses),
            response_ns: responses,
            requests,
            run: provenance,
        }
    }

    fn erases(&self, ftl: &dyn Ftl) -> Erases {
        let chip = ftl.chip();
        assert_eq!(
            self.erases.len(),
            index(chip.geometry().blocks),
            "erases are known of each block"
        );
        let good = chip
            .geometry()
            .all_blocks()
            .filter(|block| chip.bad(*block).is_none());
        let (counts, lifetime): (Vec<u32>, Vec<u32>) = good
            .map(|block| (chip.erase_count(block), self.erases[block.index()]))
            .map(|(done, begun)| (done - begun, done))
            .unzip();
        let erases = Erases::new(&counts, lifetime.into_iter().max().unwrap_or(0));
        assert!(
            erases.max <= erases.lifetime_max,
            "a block with {} erases while measuring, at most {} ever",
            erases.max,
            erases.lifetime_max
        );
        erases
    }

    /// Returns the lookups of a measurement. The scheme counts a part of a page that is read to be
    /// written as a page read; the host did not read it.
    fn map_cache(&self, done: &SchemeStats, lookups_rmw: Lookups) -> MapCache {
        let ratio = |hits: u64, of: u64| (of > 0).then(|| to_f64(hits) / to_f64(of));
        let between = |begun: Lookups, done: Lookups| {
            assert!(
                done.total >= begun.total && done.hits >= begun.hits,
                "lookups and hits of the mapping cache only grow"
            );
            (done.total - begun.total, done.hits - begun.hits)
        };
        let (lookups_all, hits_all) = between(self.stats.lookups_read, done.lookups_read);
        let (lookups_rmw, hits_rmw) = between(self.lookups_rmw, lookups_rmw);
        assert!(
            lookups_rmw <= lookups_all && hits_rmw <= hits_all,
            "{lookups_rmw} lookups for parts of pages, of {lookups_all} for pages read"
        );
        let (lookups_read, hits_read) = (lookups_all - lookups_rmw, hits_all - hits_rmw);
        let (lookups_write, hits_write) = between(self.stats.lookups_write, done.lookups_write);
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
}

/// Returns the stalls of host writes between two moments, by cause; causes without are left out.
fn write_stalls(begun: &SchemeStats, done: &SchemeStats) -> BTreeMap<String, Stalls> {
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

fn counts(begun: &SchemeStats, done: &SchemeStats) -> Counts {
    Counts {
        counters: SchemeCounters::between(begun, done),
        mapped_pages: done.mapped_pages,
        free_blocks: done.blocks.free,
    }
}

fn optimum(profile: &Profile, job: &Job, requests: &Requests, responses: &Responses) -> Optimum {
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
    let (mut sensed, mut programmed) = (of_block(&timing.read_ns), of_block(&timing.program_ns));
    if let Some(region) = profile.slc {
        // All of it may be in SLC mode.
        sensed = sensed.min(region.read_ns * u64::from(pages));
        programmed = programmed.min(region.program_ns * u64::from(pages));
    }
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

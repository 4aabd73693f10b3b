//! A scheme and a simulated device to run it on.
//!
//! Invariants: a device that does not fit into memory is refused before it is created. Nothing of
//! it outlives the job, so power failure does not matter.

use super::job::Job;
use super::latency::Responses;
use super::measurement::{Measurement, counts, map_cache, optimum, write_stalls};
use super::provenance::Provenance;
use super::ram::ram;
use super::recording;
use super::row;
use super::row::{Busy, Collected, ConvertCost, Device, Requests, Row, SCHEMA, WriteAmplification};
use super::sim::Sim;
use crate::aging::Conditioned;
use crate::config::{ImageRequirements, NewDevice, usage};
use crate::convert::to_u64;
use crate::counters::Operations;
use crate::failure::Failure;
use crate::flash_device::FlashDevice;
use crate::method::ResponseUnit;
use crate::size::show_size;
use ftl_core::FtlConfig;
use ftl_core::schemes::Layout;
use nand_model::Capacity;
use nand_model::store::OobOnlyStore;
use std::ops::Range;

/// Minimum of memory per simulated page: its stored OOB bytes, and its map entry.
pub(super) const BYTES_PER_PAGE: u64 = 32 + 4;

/// A scheme and a device to run it on.
pub(super) struct SimulatedDevice {
    pub(super) scheme: &'static ftl_core::schemes::Scheme,
    pub(super) layout: Layout,
    pub(super) size: u64,
    /// Requested over-provisioning; `None` if the raw flash was requested.
    pub(super) op_percent: Option<f64>,
    pub(super) params: ftl_core::Params,
    /// Parameters that follow from the requested RAM, each as KEY=VALUE.
    pub(super) fitted: Vec<String>,
    /// Seed of the bad blocks of a recorded device, which was mounted before its first request.
    recorded_seed: Option<u64>,
}

/// Returns why a job has no device; of a recording of several shards, with the reason that follows
/// from them.
fn of_shards(job: &Job, failure: Failure) -> Result<Failure, Failure> {
    Ok(match recording::shards(job)? {
        Some(shards) if job.profile.is_none() => {
            let what = format!(
                "{}: recorded on {shards} shards, and a replay has one chip: {failure}; name a \
                 --profile whose flash follows from the size",
                job.workload
            );
            Failure::new(failure.exit, what)
        }
        _ => failure,
    })
}

impl SimulatedDevice {
    pub(super) fn new(
        job: &Job,
        requirements: &ImageRequirements,
        needed: Option<u64>,
    ) -> Result<SimulatedDevice, Failure> {
        if let Some((device, size)) = recording::device(job)? {
            return Ok(SimulatedDevice {
                scheme: device.scheme,
                layout: Layout {
                    profile: device.profile,
                    logical_pages: device.config.logical_pages,
                },
                size,
                op_percent: None,
                params: device.config.params,
                fitted: Vec::new(),
                recorded_seed: Some(device.seed),
            });
        }
        let raw = job.raw_bytes()?;
        let NewDevice {
            scheme,
            layout,
            size,
            op_percent,
            ..
        } = requirements
            .device(needed, raw)
            .or_else(|failure| Err(of_shards(job, failure)?))?;
        if let Some(needed) = needed.filter(|needed| *needed > size) {
            return Err(Failure::usage(format!(
                "{} touches {needed} bytes in extents of 1 MiB, more than the device of {size} bytes has; if the trace is in \
                 the units of its --format, add --size {needed}, or --address fold",
                job.workload
            )));
        }
        Ok(SimulatedDevice {
            scheme,
            layout,
            size,
            op_percent: raw.is_none().then_some(op_percent),
            params: requirements.params.clone(),
            fitted: Vec::new(),
            recorded_seed: None,
        })
    }

    /// Returns the pages that the device contains before the first request of a recording.
    pub(super) fn content(&self, job: &Job) -> Result<Vec<Range<u32>>, Failure> {
        let page = u64::from(self.layout.profile.geometry.page_bytes);
        recording::content(job, page, self.layout.logical_pages)
    }

    /// Checks that the scheme fits into the requested RAM.
    pub(super) fn check_ram(&self, job: &Job) -> Result<(), Failure> {
        let check = |ram| self.scheme.check_ram(&self.layout, &self.params, ram);
        job.ram_bytes()?.map_or(Ok(()), check).map_err(usage)
    }

    /// Fits the parameters into the requested RAM. This creates devices, so it needs the memory of
    /// one.
    pub(super) fn fit_ram(&mut self, job: &Job) -> Result<(), Failure> {
        let Some(ram) = job.ram_bytes()? else {
            return Ok(());
        };
        let own = std::mem::take(&mut self.params);
        self.params = self
            .scheme
            .fit_ram(&self.layout, &own, ram)
            .map_err(usage)?;
        let is_new = |(key, _): &(&str, &str)| own.iter().all(|(own, _)| own != *key);
        let fitted = self.params.iter().filter(is_new);
        self.fitted = fitted
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        Ok(())
    }

    /// Returns whether the raw flash follows from the size, not from the profile.
    pub(super) fn is_by_size(&self) -> bool {
        self.layout.profile.capacity == Capacity::BySize
    }

    pub(super) fn start(&self, job: &Job) -> Result<Sim, Failure> {
        let failed = |error: ftl_core::FtlError| match error {
            ftl_core::FtlError::Config(why) => Failure::usage(why),
            other => Failure::failed(format!("{}: formatting: {other}", self.scheme.name)),
        };
        let device = FlashDevice {
            scheme: self.scheme,
            profile: self.layout.profile,
            config: FtlConfig {
                logical_pages: self.layout.logical_pages,
                params: self.params.clone(),
            },
            seed: self.recorded_seed.unwrap_or(job.seed),
        };
        let store = OobOnlyStore::new(self.layout.profile.geometry);
        let ftl = match self.recorded_seed {
            Some(_) => device.format_and_mount(store),
            None => device.format(store),
        }
        .map_err(failed)?;
        Ok(Sim::new(ftl, job.method.response_unit()))
    }

    /// Refuses a device larger than the available memory: the out-of-memory killer would end this
    /// program, or another, without a message.
    pub(super) fn fits_memory(&self, available: Option<u64>) -> Result<(), Failure> {
        let needed = to_u64(self.layout.profile.geometry.page_slots()) * BYTES_PER_PAGE;
        match available.filter(|available| *available < needed) {
            None => Ok(()),
            Some(available) => Err(Failure::failed(format!(
                "a device of {} of flash takes at least {} of memory, {} are available; choose a smaller --size",
                show_size(self.layout.profile.geometry.data_bytes()),
                show_size(needed),
                show_size(available)
            ))),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a row is made of everything")]
    pub(super) fn row(
        &self,
        job: &Job,
        requests: Requests,
        responses: Responses,
        conditioned: Conditioned,
        begun: &Measurement,
        sim: &Sim,
        run: Provenance,
    ) -> Row {
        let (ftl, profile) = (sim.ftl(), &self.layout.profile);
        let (counters, geometry) = (ftl.chip().counters(), profile.geometry);
        let bad_blocks = ftl.stats().blocks.bad;
        let flash = row::by_cause(&begun.counters, counters);
        let flash_total = Operations::between(&begun.counters.total(), &counters.total());
        assert_eq!(
            flash.values().map(|of| of.programs).sum::<u64>(),
            flash_total.programs,
            "each program has one cause"
        );
        assert_eq!(
            (
                flash.values().map(|of| of.reads).sum::<u64>(),
                flash.values().map(|of| of.erases).sum::<u64>(),
            ),
            (flash_total.reads, flash_total.erases),
            "each read and each erase has one cause"
        );
        assert_eq!(
            requests.issued, requests.completed,
            "a row is made of completed requests"
        );
        assert!(
            sim.now >= begun.now,
            "measuring began at {} ns and ended at {} ns",
            begun.now,
            sim.now
        );
        let mut write_amplification =
            WriteAmplification::new(&flash, &requests, geometry.page_bytes);
        // Only the first page of a record is served.
        write_amplification
            .of_bytes
            .take_if(|_| job.method.response_unit() == ResponseUnit::PerRecord);
        let device = Device {
            profile: profile.name.into(),
            size_bytes: self.size,
            logical_pages: self.layout.logical_pages,
            raw_bytes: geometry.data_bytes(),
            blocks: geometry.blocks,
            bad_blocks,
            pages_per_block: geometry.pages_per_block,
            page_bytes: geometry.page_bytes,
            dies: geometry.dies(),
            op_percent: self.op_percent,
            effective_op_percent: self.layout.effective_op_percent(bad_blocks),
        };
        let mapped_pages = ftl.stats().mapped_pages;
        Row {
            schema: SCHEMA.into(),
            job: Job {
                scheme: Some(self.scheme.name.into()),
                ..job.clone()
            },
            scheme: self.scheme.name.into(),
            collected: Collected::new(&flash, flash_total.erases, &device, mapped_pages),
            device,
            precondition: conditioned,
            flash_total,
            flash,
            flash_busy_ns: Busy {
                read: counters.read_busy_ns - begun.counters.read_busy_ns,
                program: counters.program_busy_ns - begun.counters.program_busy_ns,
                erase: counters.erase_busy_ns - begun.counters.erase_busy_ns,
            },
            write_amplification,
            emulated_ns: sim.now - begun.now,
            erases: begun.erases(ftl),
            write_stalls: write_stalls(&begun.stats, &ftl.stats()),
            convert_cost: ConvertCost::between(
                &begun.stats.convert_costs,
                &ftl.stats().convert_costs,
            ),
            map_cache: map_cache(begun, &ftl.stats(), sim.lookups_rmw),
            ram: ram(ftl, self.fitted.clone()),
            scheme_stats: counts(&begun.stats, &ftl.stats()),
            optimum: optimum(profile, job, &requests, &responses),
            response_ns: responses,
            requests,
            run,
        }
    }
}

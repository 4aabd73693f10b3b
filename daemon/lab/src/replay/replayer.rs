//! Requests from a trace or a workload to the scheme.
//!
//! Invariants: every issued request is completed when a round ends, or the job fails. Power failure
//! does not matter here.

use super::address::{AddressMap, rotate};
use super::arrivals::ArrivalRule;
use super::job::{Form, Job};
use super::load::LoadMeter;
use super::outputs::Outputs;
use super::progress::{TICK, Tick};
use super::row::Requests;
use super::settling::Halves;
use super::sim::Sim;
use super::source::Source;
use ftl_core::schemes::Layout;
use ftld_device::method::ResponseUnit;
use ftld_kit::convert::{index, to_u32, to_usize};
use ftld_kit::failure::Failure;
use ftld_traces::{Op, Record};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A replayer of requests to the scheme.
pub(super) struct Replayer<'a> {
    job: &'a Job,
    source: &'a Source,
    map: AddressMap,
    rule: ArrivalRule,
    /// Bytes of the device.
    size: u64,
    pub(super) requests: Requests,
    /// The course of the write amplification.
    pub(super) halves: Halves,
    /// The load, while an open loop is measured.
    pub(super) load: Option<LoadMeter>,
    /// Completed requests after which a round ends.
    limit: u64,
    /// The share of the workload that the last round replayed.
    pub(super) share: f64,
}

impl<'a> Replayer<'a> {
    pub(super) fn new(
        job: &'a Job,
        source: &'a Source,
        map: AddressMap,
        rule: ArrivalRule,
        size: u64,
        limit: u64,
        sim: &Sim,
    ) -> Replayer<'a> {
        Replayer {
            job,
            source,
            map,
            rule,
            size,
            requests: Requests::default(),
            halves: Halves::begin(sim),
            load: None,
            limit,
            share: 1.0,
        }
    }

    /// Runs rounds of the trace; all their requests are completed at the end. `outputs` gets each.
    pub(super) fn rounds(
        &mut self,
        sim: &mut Sim,
        rounds: Range<u32>,
        outputs: &mut Outputs,
        doing: &'static str,
        tick: Tick<'_>,
    ) -> Result<(), Failure> {
        assert!(
            rounds.start <= rounds.end,
            "rounds {} to {}",
            rounds.start,
            rounds.end
        );
        assert!(self.job.method.depth > 0, "a loop of no requests");
        let (first, count) = (rounds.start, f64::from(rounds.end - rounds.start));
        let seed = |round: u32| self.job.seed.wrapping_add(u64::from(round));
        let mut arrivals = self.rule.begin(sim.now, seed(first));
        let mut latest = sim.now;
        let mut under_way =
            BinaryHeap::from([Reverse(sim.now)].repeat(index(self.job.method.depth)));
        let mut extents = Vec::new();
        for round in rounds {
            // Another round of a synthetic workload has another seed.
            let mut stream = self.source.begin(self.size, seed(round))?;
            let (format, units) = stream.format().unzip();
            self.requests.format = format.map(str::to_owned);
            self.requests.units = units.map(|units| units.to_string());
            while let Some(record) = stream.next() {
                let record = record?;
                if self.requests.issued.is_multiple_of(TICK) {
                    tick(
                        (f64::from(round - first) + stream.progress()) / count,
                        doing,
                    );
                }
                let is_timed = matches!(self.rule, ArrivalRule::Times { .. });
                let is_early = is_timed && stream.is_early();
                let failed = |why: &dyn std::fmt::Display| {
                    Failure::failed(format!("{}: {}: {why}", self.job.workload, stream.place()))
                };
                self.map
                    .place(&record, self.size, &mut extents)
                    .map_err(|why| stream.misplaced(&self.job.workload, &why))?;
                if self.job.method.form == Some(Form::Rotated) {
                    rotate(&mut extents, round, self.size, sim.page_bytes());
                }
                let (at, is_late) = match &mut arrivals {
                    None => (under_way.pop().map_or(latest, |Reverse(done)| done), false),
                    Some(arrivals) => arrivals.next(record.time_ns).map_err(|why| failed(&why))?,
                };
                self.requests.out_of_order += u64::from(is_late || is_early);
                latest = latest.max(at);
                outputs.start(latest, sim)?;
                if self.job.method.idle {
                    sim.idle(latest).map_err(|error| failed(&error))?;
                }
                self.note(&record);
                sim.set_write_hint(record.device);
                if let Some(load) = &mut self.load {
                    load.arrive(latest, sim);
                }
                let done = sim
                    .request(latest, record.op, &extents)
                    .map_err(|error| failed(&error))?;
                assert!(
                    done >= latest,
                    "a request that started at {latest} ns ended at {done} ns"
                );
                if let Some(load) = &mut self.load {
                    load.complete(done, sim);
                }
                outputs.end(record.op, &extents, latest, done, sim)?;
                self.halves.note(sim);
                if arrivals.is_none() {
                    under_way.push(Reverse(done));
                }
                self.requests.completed += 1;
                if self.requests.completed >= self.limit {
                    self.share = stream.progress();
                    break;
                }
            }
            assert_eq!(
                under_way.len(),
                index(self.job.method.depth),
                "the requests in flight after a round"
            );
            if let Some(arrivals) = &mut arrivals {
                arrivals.next_round();
            }
            self.finished()?;
        }
        Ok(())
    }

    /// Returns the pages that the first round touches, in runs.
    pub(super) fn touched(
        &mut self,
        layout: &Layout,
        tick: Tick<'_>,
    ) -> Result<Vec<Range<u32>>, Failure> {
        let page = u64::from(layout.profile.geometry.page_bytes);
        let mut marks = vec![false; index(layout.logical_pages)];
        let mut stream = self.source.begin(self.size, self.job.seed)?;
        let (mut extents, mut count) = (Vec::new(), 0u64);
        while let Some(record) = stream.next() {
            let record = record?;
            count += 1;
            if count.is_multiple_of(TICK) {
                tick(stream.progress(), "scanning");
            }
            self.map
                .place(&record, self.size, &mut extents)
                .map_err(|why| stream.misplaced(&self.job.workload, &why))?;
            if self.job.method.response_unit() == ResponseUnit::PerRecord {
                extents.truncate(1);
                extents.iter_mut().for_each(|extent| extent.len = 1);
            }
            for extent in &extents {
                let (first, last) = (
                    extent.offset / page,
                    (extent.offset + extent.len - 1) / page,
                );
                assert!(
                    to_usize(last) < marks.len(),
                    "a request up to page {last} of {}",
                    marks.len()
                );
                marks[to_usize(first)..=to_usize(last)].fill(true);
            }
        }
        let runs = marks.chunk_by(|a, b| a == b).scan(0u32, |at, run| {
            let first = std::mem::replace(at, *at + to_u32(run.len()));
            Some((run[0], first..*at))
        });
        Ok(runs
            .filter(|(touched, _)| *touched)
            .map(|(_, run)| run)
            .collect())
    }

    fn note(&mut self, record: &Record) {
        assert!(
            (record.length_bytes > 0) != (record.op == Op::Flush),
            "a record of {} bytes at {}",
            record.length_bytes,
            record.offset_bytes
        );
        self.requests.issued += 1;
        let bytes = match record.op {
            Op::Flush => {
                self.requests.flushes += 1;
                return;
            }
            Op::Read => &mut self.requests.read_bytes,
            Op::Write => &mut self.requests.written_bytes,
            Op::Trim => &mut self.requests.trimmed_bytes,
        };
        *bytes += record.length_bytes;
    }

    fn finished(&self) -> Result<(), Failure> {
        let Requests {
            issued, completed, ..
        } = self.requests;
        match (self.job.method.disk, issued) {
            _ if issued != completed => Err(Failure::failed(format!(
                "{}: issued {issued} requests, completed {completed}",
                self.job.workload
            ))),
            (Some(disk), 0) => Err(Failure::failed(format!(
                "{}: no request to disk {disk}",
                self.job.workload
            ))),
            _ => Ok(()),
        }
    }
}

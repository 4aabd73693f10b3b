//! `ftld replay`: a trace or a workload on a scheme over a simulated chip, in virtual time. Nothing
//! here touches a live device.
//!
//! What always holds: equal jobs give equal rows, but for [`Row::run`]; every request that is read
//! is given to the scheme, every page that is given to it is completed, or the run fails.

mod address;
mod job;
mod measure;
pub(crate) mod method;
mod precondition;
mod report;
mod row;
mod sim;
mod source;

pub use job::{Address, Arrival, Job, Method};
pub use measure::{Response, Responses};
pub use method::{Average, DEVICE_WRITES_MAX, Precondition};
pub use precondition::Conditioned;
pub use row::{
    Busy, Counts, Device, Erases, MapCache, Operations, Optimum, Ram, RamPart, Requests, Row, Run,
    SCHEMA, WriteAmplification,
};

use crate::config::find_scheme;
use crate::failure::{Failure, panic_text};
use crate::output::print;
use crate::size::show_size;
use crate::stack::{OP_DEFAULT, SIZE_DEFAULT, usage};
use address::{Footprint, Map};
use ftl_core::schemes::{Layout, SCHEMES};
use ftl_core::{Ftl, FtlConfig, SchemeStats, Start};
use ftld_traces::{Op, Record};
use indicatif::{ProgressBar, ProgressStyle};
use nand_model::store::OobOnlyStore;
use nand_model::{Capacity, Chip, Counters, Nanos, Profile};
use nix::time::{ClockId, clock_gettime};
use sim::Sim;
use source::Source;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// `ftld replay`.
pub fn replay(job: &Job, as_json: bool) -> Result<(), Failure> {
    let (bar, began) = (bar(), Instant::now());
    let row = run(job, &mut |share, doing| {
        if began.elapsed() > SOON {
            show(&bar, share, doing);
        }
    });
    bar.finish_and_clear();
    let row = row?;
    if row.precondition.settled == Some(false) {
        tracing::warn!(
            "write amplification had not settled after {:.0} device writes; --precondition N writes more",
            row.precondition.device_writes
        );
    }
    if as_json {
        print(&(row.line() + "\n"))
    } else {
        print(&report::table(&row))
    }
}

impl Row {
    /// The row as one line of JSON.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("a row is plain data")
    }
}

/// What is done by then needs no bar.
const SOON: Duration = Duration::from_secs(1);
const STEPS: u64 = 1000;

/// Draws on standard error, and only if that is a terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(STEPS);
    let style = ProgressStyle::with_template(
        "{msg:16} {bar:40} {percent:>3} %  {elapsed} (about {eta} left)",
    );
    bar.set_style(style.expect("the template is right"));
    bar
}

fn show(bar: &ProgressBar, share: f64, doing: &'static str) {
    if bar.message() != doing {
        bar.set_message(doing);
        bar.reset();
    }
    bar.set_position((share * STEPS as f64) as u64);
}

/// Hears what is being done, and how much of it.
pub type Tick<'a> = &'a mut dyn FnMut(f64, &'static str);

/// Requests between two ticks.
const TICK: u64 = 4096;

/// Does one job. A scheme that breaks a law of the chip, or a promise of its own, fails the job and
/// nothing else.
pub fn run(job: &Job, tick: Tick<'_>) -> Result<Row, Failure> {
    catch_unwind(AssertUnwindSafe(|| run_unguarded(job, tick))).unwrap_or_else(|panic| {
        let scheme = job.scheme.as_deref().unwrap_or(SCHEMES[0].name);
        Err(Failure::failed(format!(
            "{}: internal error in scheme {scheme}: {}",
            job.workload,
            panic_text(&*panic)
        )))
    })
}

fn run_unguarded(job: &Job, tick: Tick<'_>) -> Result<Row, Failure> {
    let (began, cpu_began) = (Instant::now(), cpu());
    let job = &job.complete()?;
    let wish = job.wish()?;
    let source = Source::new(job)?;
    let footprint = match job.method.address {
        Address::Compact => Some(footprint(&source, job, tick)?),
        Address::Exact | Address::Fold => None,
    };
    let bench = Bench::new(job, &wish, footprint.as_ref().map(Footprint::bytes))?;
    let touched = footprint.as_ref().map(Footprint::extents);
    let map = Map::new(job.method.address, footprint);
    let mut sim = bench.start(job)?;
    let failed = |what: &str, why: &dyn std::fmt::Display| {
        Failure::failed(format!(
            "{} on {}: {what}: {why}",
            job.workload, bench.scheme.name
        ))
    };
    let mut feed = Feed {
        job,
        source: &source,
        map,
        size: bench.size,
        requests: Requests::default(),
    };
    let pages = match job.method.precondition() {
        Precondition::Touched => feed.touched(&bench, tick)?,
        _ => Vec::new(),
    };
    let conditioned = sim
        .precondition(job.method.precondition(), &pages, job.seed, &mut |share| {
            tick(share, "preconditioning")
        })
        .map_err(|error| failed("preconditioning", &error))?;
    sim.settle()
        .map_err(|why| failed("preconditioning", &why))?;

    feed.rounds(&mut sim, 0..job.method.warm_up, "warming up", tick)?;
    sim.settle().map_err(|why| failed("warming up", &why))?;

    feed.requests = Requests {
        touched_extents: touched,
        ..Requests::default()
    };
    let begun = Begun::of(&sim);
    let cpu_measured = cpu();
    feed.rounds(
        &mut sim,
        job.method.warm_up..job.method.warm_up.saturating_add(job.method.loops),
        "replaying",
        tick,
    )?;
    let cpu_seconds = (cpu() - cpu_measured).as_secs_f64();
    let run = Run {
        version: env!("CARGO_PKG_VERSION").into(),
        cpu_seconds,
        cpu_seconds_total: (cpu() - cpu_began).as_secs_f64(),
        wall_seconds: began.elapsed().as_secs_f64(),
    };
    let mut requests = feed.requests;
    (requests.pages_read, requests.pages_written) = (sim.pages.read, sim.pages.written);
    (requests.pages_patched, requests.pages_trimmed) = (sim.pages.patched, sim.pages.trimmed);
    let responses = sim.sides.view();
    sim.settle()
        .map_err(|why| failed("after the last request", &why))?;
    Ok(bench.row(job, requests, responses, conditioned, &begun, &sim, run))
}

/// CPU time of this thread: jobs run one per thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    Duration::new(time.tv_sec() as u64, time.tv_nsec() as u32)
}

fn footprint(source: &Source, job: &Job, tick: Tick<'_>) -> Result<Footprint, Failure> {
    let (mut stream, mut footprint, mut count) = (source.begin(0, 0)?, Footprint::default(), 0u64);
    while let Some(record) = stream.next() {
        let record = record.map_err(|error| source::failure(&error))?;
        count += 1;
        if count.is_multiple_of(TICK) {
            tick(stream.progress(), "looking through");
        }
        let failed = |why| Failure::failed(format!("{}: {}: {why}", job.workload, stream.place()));
        footprint.add(&record).map_err(failed)?;
    }
    Ok(footprint)
}

/// What a simulated page takes of memory at least: what is kept of its spare bytes, and its place
/// in the map.
const BYTES_PER_PAGE: u64 = 32 + 4;

/// Bytes that programs can get without pushing others out; `None` if the kernel does not say.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// A scheme and a device to run it on.
struct Bench {
    scheme: &'static ftl_core::schemes::Scheme,
    layout: Layout,
    size: u64,
    op_percent: f64,
    params: ftl_core::Params,
}

impl Bench {
    fn new(job: &Job, wish: &crate::config::Wish, needed: Option<u64>) -> Result<Bench, Failure> {
        let scheme = wish
            .scheme
            .as_deref()
            .map_or(Ok(&SCHEMES[0]), find_scheme)?;
        let profile = wish.profile.unwrap_or(Profile::default_profile());
        let op_percent = wish.op.unwrap_or(OP_DEFAULT);
        let by_size = profile.capacity == Capacity::BySize;
        let default = if by_size {
            needed.unwrap_or(SIZE_DEFAULT)
        } else {
            0
        };
        let wanted = wish.size.unwrap_or(default);
        let layout = scheme
            .layout(profile, wanted, op_percent / 100.0, &wish.params)
            .map_err(usage)?;
        let whole = layout.logical_pages as u64 * profile.geometry.page_bytes as u64;
        let size = if wanted > 0 { wanted } else { whole };
        if let Some(needed) = needed.filter(|needed| *needed > size) {
            return Err(Failure::usage(format!(
                "{} touches {needed} bytes in extents of 1 MiB, more than the device of {size} bytes has; add --size {needed}, \
                 or --address fold",
                job.workload
            )));
        }
        Ok(Bench {
            scheme,
            layout,
            size,
            op_percent,
            params: wish.params.clone(),
        })
    }

    fn start(&self, job: &Job) -> Result<Sim, Failure> {
        let failed = |error: ftl_core::FtlError| match error {
            ftl_core::FtlError::Config(why) => Failure::usage(why),
            other => Failure::failed(format!("{}: formatting: {other}", self.scheme.name)),
        };
        self.fits_memory(available_memory())?;
        let mut chip = Chip::open(
            self.layout.profile,
            OobOnlyStore::new(self.layout.profile.geometry),
        )
        .map_err(|error| failed(error.into()))?;
        chip.mark_factory_bad(job.seed)
            .map_err(|error| failed(error.into()))?;
        let config = FtlConfig {
            logical_pages: self.layout.logical_pages,
            params: self.params.clone(),
        };
        Ok(Sim::new(
            self.scheme
                .start(chip, &config, Start::Format)
                .map_err(failed)?,
            job.method.average(),
        ))
    }

    /// A device that the machine has no room for would end this program, or another's, without a
    /// word.
    fn fits_memory(&self, available: Option<u64>) -> Result<(), Failure> {
        let needed = self.layout.profile.geometry.page_slots() as u64 * BYTES_PER_PAGE;
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
    fn row(
        &self,
        job: &Job,
        requests: Requests,
        responses: Responses,
        conditioned: Conditioned,
        begun: &Begun,
        sim: &Sim,
        run: Run,
    ) -> Row {
        let (ftl, profile) = (sim.ftl(), &self.layout.profile);
        let (counters, geometry) = (ftl.chip().counters(), profile.geometry);
        let flash = row::by_cause(&begun.counters, counters);
        let mut write_amplification =
            WriteAmplification::new(&flash, &requests, geometry.page_bytes);
        // What a record asks for beyond its first page is not done.
        write_amplification
            .of_bytes
            .take_if(|_| job.method.average() == Average::PerRecord);
        Row {
            schema: SCHEMA.into(),
            job: Job {
                scheme: Some(self.scheme.name.into()),
                ..job.clone()
            },
            scheme: self.scheme.name.into(),
            device: Device {
                profile: profile.name.into(),
                size_bytes: self.size,
                logical_pages: self.layout.logical_pages,
                raw_bytes: geometry.data_bytes(),
                blocks: geometry.blocks,
                bad_blocks: ftl.stats().blocks.bad,
                pages_per_block: geometry.pages_per_block,
                page_bytes: geometry.page_bytes,
                dies: geometry.dies(),
                op_percent: self.op_percent,
            },
            precondition: conditioned,
            flash_total: Operations::between(&begun.counters.total(), &counters.total()),
            flash,
            flash_busy_ns: Busy {
                read: counters.read_busy_ns - begun.counters.read_busy_ns,
                program: counters.program_busy_ns - begun.counters.program_busy_ns,
                erase: counters.erase_busy_ns - begun.counters.erase_busy_ns,
            },
            write_amplification,
            emulated_ns: sim.now - begun.now,
            erases: begun.erases(ftl),
            map_cache: map_cache(&begun.stats, &ftl.stats()),
            ram: ram(ftl),
            scheme_stats: counts(&begun.stats, &ftl.stats()),
            optimum: optimum(profile, job, &requests, &responses),
            response_ns: responses,
            requests,
            run,
        }
    }
}

/// The device when measuring began.
struct Begun {
    now: Nanos,
    counters: Counters,
    stats: SchemeStats,
    erases: Vec<u32>,
}

impl Begun {
    fn of(sim: &Sim) -> Begun {
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

    fn erases(&self, ftl: &dyn Ftl<OobOnlyStore>) -> Erases {
        let chip = ftl.chip();
        let good = || {
            chip.geometry()
                .all_blocks()
                .filter(|block| chip.bad(*block).is_none())
        };
        let counts: Vec<_> = good()
            .map(|block| chip.erase_count(block) - self.erases[block.index()])
            .collect();
        Erases::new(
            &counts,
            good()
                .map(|block| chip.erase_count(block))
                .max()
                .unwrap_or(0),
        )
    }
}

fn map_cache(begun: &SchemeStats, done: &SchemeStats) -> MapCache {
    let hits = done.map_cache_hits - begun.map_cache_hits;
    let misses = done.map_cache_misses - begun.map_cache_misses;
    MapCache {
        hits,
        misses,
        hit_ratio: (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64),
    }
}

fn ram(ftl: &dyn Ftl<OobOnlyStore>) -> Ram {
    let parts: Vec<_> = ftl
        .ram_report()
        .into_iter()
        .map(|entry| RamPart {
            part: entry.part.into(),
            entries: entry.entries,
            paper_bytes: entry.paper_bytes,
            real_bytes: entry.real_bytes,
        })
        .collect();
    Ram {
        paper_bytes: parts.iter().map(|part| part.paper_bytes).sum(),
        real_bytes: parts.iter().map(|part| part.real_bytes).sum(),
        parts,
    }
}

fn counts(begun: &SchemeStats, done: &SchemeStats) -> Counts {
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

fn optimum(profile: &Profile, job: &Job, requests: &Requests, responses: &Responses) -> Optimum {
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
    let page_read_ns = (timing.read_ns + timing.bus_ns) as f64;
    let page_write_ns = (block + timing.erase_ns) as f64 / pages as f64 + timing.bus_ns as f64;
    let reading = |pages: u64| pages as f64 * page_read_ns;
    let writing = requests.pages_written as f64 * page_write_ns;
    let alone = geometry.dies() == 1 || job.method.average() != Average::PerRequest;
    let mean = |work: f64, of: &Option<Response>| {
        of.as_ref()
            .filter(|_| alone)
            .map(|of| work / of.count as f64)
    };
    Optimum {
        erases: requests.pages_written as f64 / pages as f64,
        work_ns: reading(requests.pages_read) + writing,
        page_read_ns,
        page_write_ns,
        mean_read_ns: mean(
            reading(requests.pages_read - requests.pages_patched),
            &responses.read,
        ),
        mean_write_ns: mean(reading(requests.pages_patched) + writing, &responses.write),
    }
}

/// Requests on their way to the scheme.
struct Feed<'a> {
    job: &'a Job,
    source: &'a Source,
    map: Map,
    size: u64,
    requests: Requests,
}

impl Feed<'_> {
    /// Some rounds of the trace; all their requests are done at the end.
    fn rounds(
        &mut self,
        sim: &mut Sim,
        rounds: Range<u32>,
        doing: &'static str,
        tick: Tick<'_>,
    ) -> Result<(), Failure> {
        let (first, count) = (rounds.start, f64::from(rounds.end - rounds.start));
        // By timestamps a round begins where the last request of the one before came.
        let (mut begin, mut latest) = (sim.now, sim.now);
        let mut under_way =
            BinaryHeap::from([Reverse(sim.now)].repeat(self.job.method.depth as usize));
        let mut extents = Vec::new();
        for round in rounds {
            // Another round of what is made up is made up anew.
            let mut stream = self
                .source
                .begin(self.size, self.job.seed.wrapping_add(u64::from(round)))?;
            self.requests.format = stream.format().map(str::to_owned);
            while let Some(record) = stream.next() {
                let record = record.map_err(|error| source::failure(&error))?;
                if self.requests.issued.is_multiple_of(TICK) {
                    tick(
                        (f64::from(round - first) + stream.progress()) / count,
                        doing,
                    );
                }
                let failed = |why: &dyn std::fmt::Display| {
                    Failure::failed(format!("{}: {}: {why}", self.job.workload, stream.place()))
                };
                self.map
                    .place(&record, self.size, &mut extents)
                    .map_err(|why| failed(&why))?;
                let at = match self.job.method.arrival {
                    Arrival::Closed => under_way.pop().map_or(latest, |Reverse(done)| done),
                    Arrival::Trace => begin.saturating_add(record.time_ns),
                };
                self.requests.out_of_order += u64::from(at < latest);
                latest = latest.max(at);
                if self.job.method.idle {
                    sim.idle(latest).map_err(|error| failed(&error))?;
                }
                self.note(&record);
                let done = sim
                    .request(latest, record.op, &extents)
                    .map_err(|error| failed(&error))?;
                if self.job.method.arrival == Arrival::Closed {
                    under_way.push(Reverse(done));
                }
                self.requests.completed += 1;
            }
            begin = latest;
            self.finished()?;
        }
        Ok(())
    }

    /// Pages that the first round touches, in runs.
    fn touched(&mut self, bench: &Bench, tick: Tick<'_>) -> Result<Vec<Range<u32>>, Failure> {
        let page = bench.layout.profile.geometry.page_bytes as u64;
        let mut marks = vec![false; bench.layout.logical_pages as usize];
        let mut stream = self.source.begin(self.size, self.job.seed)?;
        let (mut extents, mut count) = (Vec::new(), 0u64);
        while let Some(record) = stream.next() {
            let record = record.map_err(|error| source::failure(&error))?;
            count += 1;
            if count.is_multiple_of(TICK) {
                tick(stream.progress(), "looking through");
            }
            let failed =
                |why| Failure::failed(format!("{}: {}: {why}", self.job.workload, stream.place()));
            self.map
                .place(&record, self.size, &mut extents)
                .map_err(failed)?;
            if self.job.method.average() == Average::PerRecord {
                extents.truncate(1);
                extents[0].len = 1;
            }
            for extent in &extents {
                let (first, last) = (
                    extent.offset / page,
                    (extent.offset + extent.len - 1) / page,
                );
                marks[first as usize..=last as usize].fill(true);
            }
        }
        let runs = marks.chunk_by(|a, b| a == b).scan(0u32, |at, run| {
            let first = std::mem::replace(at, *at + run.len() as u32);
            Some((run[0], first..*at))
        });
        Ok(runs
            .filter(|(touched, _)| *touched)
            .map(|(_, run)| run)
            .collect())
    }

    fn note(&mut self, record: &Record) {
        self.requests.issued += 1;
        let bytes = match record.op {
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

#[cfg(test)]
mod tests;

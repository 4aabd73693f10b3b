//! LazyFTL on the device of its paper (profile `lazyftl`, no checkpoints, no wear levelling), over
//! [`OobOnlyStore`]: emulated write time compared with the paper's figures.
//!
//!     paper_lazyftl [UTILISATION ...]
//!
//! A utilisation is the percentage of the logical pages with data; without one: 100, 82.87 (the
//! paper's largest) and 75.9 (the footprint of its trace). Fails if emulated time differs from the
//! counted operations at 80, 200 and 1500 us. Fails also if the stand-in for the trace lacks the
//! published statistics.

use ftl_core::schemes::Scheme;
use ftl_core::{Ftl, FtlConfig, Lpn, Params, Start};
use ftld_traces::workload::usr_2::{
    self, EXTENT, Order, READ_PERCENT, RSD, Request, TOUCHED, share,
};
use nand_model::store::OobOnlyStore;
use nand_model::{Chip, Nanos, OpCounts, Profile, SplitMix};
use std::process::ExitCode;

type Failure = Box<dyn std::error::Error>;

/// Over-provisioning: logical pages are 1/1.07 of the rest of 8192 x 64 pages. The paper does not
/// specify it.
const OVER_PROVISIONING: f64 = 0.07;
/// (cached mapping pages, blocks of update and cold area): the paper's smallest RAM size and its
/// usual one.
const RAM: [(&str, &str); 2] = [("1", "4"), ("14", "128")];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    Sequential,
    Random,
    /// Stand-in with all requests in random order.
    Scattered,
    /// Stand-in with the requests of one pass over an extent in sequence, passes in random order:
    /// whole blocks, the best case.
    Runs,
}

impl Load {
    const ALL: [Load; 4] = [Load::Sequential, Load::Random, Load::Scattered, Load::Runs];

    fn name(self) -> &'static str {
        match self {
            Load::Sequential => "sequential overwrite",
            Load::Random => "uniform random",
            Load::Scattered => "STAND-IN for usr_2, scattered",
            Load::Runs => "STAND-IN for usr_2, runs",
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("paper_lazyftl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), Failure> {
    let mut utilisations = vec![1.0, 0.8287, TOUCHED];
    if !args.is_empty() {
        utilisations = args
            .iter()
            .map(|arg| percent(arg))
            .collect::<Result<_, _>>()?;
    }
    println!(
        "paper: optimum 223.44 us, smallest RAM 237.61 us per write; 1.000727 page reads per one-page read (14 cached)"
    );
    println!(
        "stand-in: {READ_PERCENT} % of the requests read (our choice); the trace itself is not used"
    );
    for utilisation in utilisations {
        for load in Load::ALL {
            for (cache_pages, buffer_blocks) in RAM {
                one(load, utilisation, cache_pages, buffer_blocks)?;
            }
        }
    }
    Ok(())
}

fn percent(arg: &str) -> Result<f64, Failure> {
    let share = arg
        .parse::<f64>()
        .map_err(|e| format!("utilisation {arg:?}: {e}"))?
        / 100.0;
    if !(TOUCHED..=1.0).contains(&share) {
        return Err(format!(
            "utilisation {arg}: must be 75.9 (what the stand-in touches) to 100, as percent of the logical pages"
        )
        .into());
    }
    Ok(share)
}

fn one(
    load: Load,
    utilisation: f64,
    cache_pages: &str,
    buffer_blocks: &str,
) -> Result<(), Failure> {
    let mut meter = Meter::new(cache_pages, buffer_blocks)?;
    let logical_pages = meter.ftl.logical_pages();
    let mut rng = SplitMix::new(2011);
    // The touched extents come first in this order, then others up to the utilisation.
    let extents = shuffled_extents(logical_pages, &mut rng);
    let used = share(utilisation, extents.len());
    for &extent in &extents[..used] {
        meter.requests(&[whole(extent, false)])?;
    }
    // Initially erased blocks would make the first overwrites too cheap.
    let warmup = requests(load, &extents, used, &mut rng);
    meter.requests(&warmup)?;
    let measured = requests(load, &extents, used, &mut rng);
    let begun = Snapshot::of(&meter);
    meter.requests(&measured)?;
    let done = Snapshot::of(&meter);

    println!(
        "\n{}, utilisation {:.2} % of {logical_pages} logical pages, ({cache_pages} cached, {buffer_blocks} blocks)",
        load.name(),
        used as f64 * 100.0 / extents.len() as f64
    );
    statistics(load, logical_pages, &measured)?;
    report(&begun, &done)
}

fn shuffled_extents(logical_pages: u32, rng: &mut SplitMix) -> Vec<u32> {
    let mut extents: Vec<u32> = (0..logical_pages / EXTENT).collect();
    usr_2::shuffle(&mut extents, &mut |bound| rng.below(bound));
    extents
}

fn whole(extent: u32, read: bool) -> Request {
    Request {
        first: extent * EXTENT,
        pages: EXTENT,
        read,
    }
}

/// Returns the requests, run once to warm up and once to measure. The synthetic loads also read,
/// after writing the same amount.
fn requests(load: Load, extents: &[u32], used: usize, rng: &mut SplitMix) -> Vec<Request> {
    let mut used_extents = extents[..used].to_vec();
    used_extents.sort_unstable();
    match load {
        Load::Sequential => {
            let pass = |read| used_extents.iter().map(move |&extent| whole(extent, read));
            pass(false).chain(pass(true)).collect()
        }
        Load::Random => {
            let writes = used_extents.len() as u64 * EXTENT as u64;
            let mut one = |i| {
                let page = rng.below(writes) as u32;
                let first = used_extents[(page / EXTENT) as usize] * EXTENT + page % EXTENT;
                Request {
                    first,
                    pages: 1,
                    read: i >= writes,
                }
            };
            (0..writes + 100_000).map(&mut one).collect()
        }
        Load::Scattered | Load::Runs => {
            let order = if load == Load::Runs {
                Order::Runs
            } else {
                Order::Scattered
            };
            usr_2::requests(
                &extents[..share(TOUCHED, extents.len())],
                order,
                &mut |bound| rng.below(bound),
            )
        }
    }
}

/// Prints the workload's statistics, measured from its requests, and checks those of the stand-in
/// against the published ones.
fn statistics(load: Load, logical_pages: u32, requests: &[Request]) -> Result<(), Failure> {
    let mut counts = vec![0_u32; logical_pages as usize];
    for request in requests {
        counts[request.first as usize..][..request.pages as usize]
            .iter_mut()
            .for_each(|count| *count += 1);
    }
    let touched_pages = counts.iter().filter(|&&count| count > 0).count() as f64;
    let sum: f64 = counts.iter().map(|&count| count as f64).sum();
    let squares: f64 = counts.iter().map(|&count| (count as f64).powi(2)).sum();
    let rsd = |pages: f64| (squares * pages / (sum * sum) - 1.0).max(0.0).sqrt();
    let touched = touched_pages / logical_pages as f64;
    let largest = requests
        .iter()
        .map(|request| request.pages)
        .max()
        .unwrap_or(0);
    let part = |is: &dyn Fn(&Request) -> bool| {
        requests.iter().filter(|r| is(r)).count() as f64 * 100.0 / requests.len() as f64
    };
    println!(
        "  workload: touched {:.2} %, RSD {:.2} % over touched pages ({:.2} % over all), {} requests of mean {:.2}, largest {largest} \
         pages, {:.1} % below 32, {:.1} % read",
        touched * 100.0,
        rsd(touched_pages) * 100.0,
        rsd(logical_pages as f64) * 100.0,
        requests.len(),
        sum / requests.len() as f64,
        part(&|r| r.pages < 32),
        part(&|r| r.read)
    );
    let off = |value: f64, published: f64| (value / published - 1.0).abs() > 0.01;
    if matches!(load, Load::Scattered | Load::Runs)
        && (off(touched, TOUCHED) || off(rsd(touched_pages), RSD) || largest > 256)
    {
        return Err(
            "the stand-in is more than 1 % off the published 75.9 % touched and 193.6 % RSD".into(),
        );
    }
    Ok(())
}

/// Device with the times of its reads and writes. Pages are accessed one by one, each when the
/// previous one is done.
struct Meter {
    ftl: Box<dyn Ftl>,
    at: Nanos,
    page: Vec<u8>,
    writes: Side,
    reads: Side,
}

/// Times of the host's page reads or page writes.
#[derive(Clone, Copy, Default)]
struct Side {
    pages: u64,
    clock_ns: u64,
    flash_reads: u64,
}

impl Meter {
    fn new(cache_pages: &str, buffer_blocks: &str) -> Result<Meter, Failure> {
        let mut params = Params::default();
        params.set("lazy.cache_pages", cache_pages);
        params.set("lazy.buffer_blocks", buffer_blocks);
        params.set("ckpt.interval", "0");
        params.set("wear.policy", "none");
        let scheme = Scheme::find("lazyftl").ok_or("no scheme \"lazyftl\"")?;
        let device = Profile::find("lazyftl").ok_or("no profile \"lazyftl\"")?;
        let layout = scheme.layout(device, 0, OVER_PROVISIONING, &params)?;
        let chip = Chip::over(layout.profile, OobOnlyStore::new(layout.profile.geometry))?;
        let page = vec![0; layout.profile.geometry.page_bytes as usize];
        let ftl = scheme.start(
            chip,
            &FtlConfig {
                logical_pages: layout.logical_pages,
                params,
            },
            Start::Format,
        )?;
        Ok(Meter {
            ftl,
            at: 0,
            page,
            writes: Side::default(),
            reads: Side::default(),
        })
    }

    fn requests(&mut self, requests: &[Request]) -> Result<(), Failure> {
        for request in requests {
            for lpn in request.first..request.first + request.pages {
                self.page(Lpn::new(lpn), request.read)?;
            }
        }
        Ok(())
    }

    fn page(&mut self, lpn: Lpn, read: bool) -> Result<(), Failure> {
        let reads = self.ftl.chip().counters().total().reads;
        let done = match read {
            true => self.ftl.read(self.at, lpn, &mut self.page)?,
            false => self.ftl.write(self.at, lpn, &self.page)?,
        };
        let side = if read {
            &mut self.reads
        } else {
            &mut self.writes
        };
        side.pages += 1;
        side.clock_ns += done - self.at;
        side.flash_reads += self.ftl.chip().counters().total().reads - reads;
        self.at = done;
        Ok(())
    }
}

struct Snapshot {
    ops: OpCounts,
    writes: Side,
    reads: Side,
    converts: u64,
    convert_map_pages: u64,
    moved: u64,
}

impl Snapshot {
    fn of(meter: &Meter) -> Snapshot {
        let stats = meter.ftl.stats();
        Snapshot {
            ops: meter.ftl.chip().counters().total(),
            writes: meter.writes,
            reads: meter.reads,
            converts: stats.converts,
            convert_map_pages: stats.convert_map_pages,
            moved: stats.gc_pages_moved,
        }
    }
}

fn report(begun: &Snapshot, done: &Snapshot) -> Result<(), Failure> {
    let writes = (done.writes.pages - begun.writes.pages) as f64;
    let reads = (done.reads.pages - begun.reads.pages) as f64;
    let write_ns = done.writes.clock_ns - begun.writes.clock_ns;
    let read_ns = done.reads.clock_ns - begun.reads.clock_ns;
    let programs = done.ops.programs - begun.ops.programs;
    let flash_reads = done.ops.reads - begun.ops.reads;
    let erases = done.ops.erases - begun.ops.erases;
    let converts = done.converts - begun.converts;
    let map_pages = done.convert_map_pages - begun.convert_map_pages;
    println!(
        "  mean write {:.3} us (paper: 223.44 optimum, 237.61 smallest RAM), WAF {:.4}, copies per write {:.4}, {converts} converts, \
         {:.3} mapping pages per convert, {:.6} page reads per one-page read (paper 1.000727)",
        write_ns as f64 / writes / 1000.0,
        programs as f64 / writes,
        (done.moved - begun.moved) as f64 / writes,
        map_pages as f64 / converts as f64,
        (done.reads.flash_reads - begun.reads.flash_reads) as f64 / reads
    );
    let charged = 1000 * (80 * flash_reads + 200 * programs + 1500 * erases);
    let partial = done.ops.partial_reads - begun.ops.partial_reads;
    if write_ns + read_ns != charged || partial > 0 {
        return Err(format!(
            "emulated time {} ns is not {flash_reads} reads, {programs} programs and {erases} erases at 80, 200 and 1500 us \
             ({charged} ns; {partial} short reads)",
            write_ns + read_ns
        )
        .into());
    }
    println!(
        "  emulated time is exactly {flash_reads} x 80 + {programs} x 200 + {erases} x 1500 us; {} OOB marks are free, as on this profile",
        done.ops.oob_programs - begun.ops.oob_programs
    );
    Ok(())
}

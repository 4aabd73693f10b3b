//! One run of the simulation benchmark: uniform random page writes on a scheme over
//! [`OobOnlyStore`]. NAND rules, emulated time, wear and causes are on, as in every other use.
//! `tests/bench/sim.py` runs it alongside a plain C loop.
//!
//!     bench_sim schemes
//!     bench_sim blocks SCHEME BLOCKS PAGES_PER_BLOCK LOGICAL_BLOCKS
//!         WARMUP_WRITES WRITES SEED [KEY=VALUE ...]
//!     bench_sim size SCHEME BYTES OP_PERCENT
//!         WARMUP_WRITES FLASH_OPERATIONS ROUNDS SEED [KEY=VALUE ...]
//!
//! `schemes` prints the names of all schemes. `blocks` creates a device of BLOCKS blocks and
//! measures WRITES writes. `size` creates a device of BYTES bytes as the daemon would. It measures
//! ROUNDS rounds of about FLASH_OPERATIONS reads, programs and erases, because the cost of a write
//! differs by a factor of hundreds between schemes. Both fill the device, warm up, and print a line
//! per round:
//!
//!     WRITES CPU_SECONDS PROGRAMS FLASH_OPERATIONS ERASES PEAK_RSS_BYTES BLOCKS LOGICAL_PAGES
//!
//! Resident memory is the peak of the process.

use ftl_core::schemes::{SCHEMES, Scheme};
use ftl_core::{Ftl, FtlConfig, Lpn, Params, Start};
use nand_model::store::OobOnlyStore;
use nand_model::{Chip, Geometry, OpCounts, Profile, SplitMix};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::process::ExitCode;

type Failure = Box<dyn std::error::Error>;
type Device = Box<dyn Ftl>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<(), Failure> {
    match *args {
        ["schemes"] => {
            SCHEMES.iter().for_each(|scheme| println!("{}", scheme.name));
            Ok(())
        }
        ["blocks", scheme, blocks, pages, logical, warmup, writes, seed, ref params @ ..] => {
            let device = by_blocks(find(scheme)?, blocks.parse()?, pages.parse()?, logical.parse()?, params)?;
            let mut bench = Bench::new(device, warmup.parse()?, seed.parse()?)?;
            let writes = writes.parse()?;
            bench.round(|done, _| done < writes)
        }
        ["size", scheme, bytes, op, warmup, operations, rounds, seed, ref params @ ..] => {
            let device = by_size(find(scheme)?, bytes.parse()?, op.parse()?, params)?;
            let mut bench = Bench::new(device, warmup.parse()?, seed.parse()?)?;
            let (operations, rounds): (u64, u32) = (operations.parse()?, rounds.parse()?);
            (0..rounds).try_for_each(|_| bench.round(|_, done| done < operations))
        }
        _ => Err(
            "usage: bench_sim schemes | blocks SCHEME BLOCKS PAGES LOGICAL_BLOCKS WARMUP WRITES SEED [KEY=VALUE ...] \
                  | size SCHEME BYTES OP_PERCENT WARMUP OPERATIONS ROUNDS SEED [KEY=VALUE ...]"
                .into(),
        ),
    }
}

fn find(name: &str) -> Result<&'static Scheme, Failure> {
    Scheme::find(name).ok_or_else(|| format!("no scheme {name:?}").into())
}

/// Creates the default chip with another geometry.
fn by_blocks(
    scheme: &Scheme,
    blocks: u32,
    pages_per_block: u32,
    logical: u32,
    params: &[&str],
) -> Result<Device, Failure> {
    let mut profile = *Profile::default_profile();
    profile.geometry = Geometry {
        blocks,
        pages_per_block,
        ..profile.geometry
    };
    profile.geometry.validate()?;
    start(scheme, profile, logical * pages_per_block, parse(params)?)
}

/// Creates the default chip, in the size that the daemon would create.
fn by_size(
    scheme: &Scheme,
    bytes: u64,
    op_percent: f64,
    params: &[&str],
) -> Result<Device, Failure> {
    let params = parse(params)?;
    let layout = scheme.layout(
        Profile::default_profile(),
        bytes,
        op_percent / 100.0,
        &params,
    )?;
    start(scheme, layout.profile, layout.logical_pages, params)
}

fn parse(params: &[&str]) -> Result<Params, Failure> {
    let mut parsed = Params::default();
    for param in params {
        let (key, value) = param
            .split_once('=')
            .ok_or_else(|| format!("{param:?} is not KEY=VALUE"))?;
        parsed.set(key, value);
    }
    Ok(parsed)
}

fn start(
    scheme: &Scheme,
    profile: Profile,
    logical_pages: u32,
    params: Params,
) -> Result<Device, Failure> {
    let chip = Chip::over(profile, OobOnlyStore::new(profile.geometry))?;
    Ok(scheme.start(
        chip,
        &FtlConfig {
            logical_pages,
            params,
        },
        Start::Format,
    )?)
}

/// Closed loop of one-page writes: each starts when the previous one is done.
struct Bench {
    ftl: Device,
    rng: SplitMix,
    at: u64,
    page: Vec<u8>,
}

/// Writes between two reads of the counters.
const BATCH: u64 = 500;

impl Bench {
    /// Fills a device and overwrites `warmup` random pages.
    fn new(ftl: Device, warmup: u64, seed: u64) -> Result<Self, Failure> {
        let page = vec![0; ftl.chip().geometry().page_bytes as usize];
        let mut bench = Bench {
            ftl,
            rng: SplitMix::new(seed),
            at: 0,
            page,
        };
        for lpn in 0..bench.ftl.logical_pages() {
            bench.at = bench.ftl.write(bench.at, Lpn::new(lpn), &bench.page)?;
        }
        bench.write(warmup)?;
        Ok(bench)
    }

    fn write(&mut self, count: u64) -> Result<(), Failure> {
        let pages = self.ftl.logical_pages() as u64;
        for _ in 0..count {
            let lpn = Lpn::new(self.rng.below(pages) as u32);
            self.at = self.ftl.write(self.at, lpn, &self.page)?;
        }
        Ok(())
    }

    /// Measures writes while `more` returns true. Its arguments are the writes so far and their
    /// flash operations.
    fn round(&mut self, more: impl Fn(u64, u64) -> bool) -> Result<(), Failure> {
        let (before, cpu) = (operations(&*self.ftl), cpu_ns());
        let mut writes = 0;
        while more(writes, sum(&operations(&*self.ftl)) - sum(&before)) {
            self.write(BATCH)?;
            writes += BATCH;
        }
        let (after, cpu) = (operations(&*self.ftl), cpu_ns() - cpu);
        let (programs, erases) = (
            after.programs - before.programs,
            after.erases - before.erases,
        );
        let (flash, rss) = (sum(&after) - sum(&before), peak_rss()?);
        let (blocks, logical) = (self.ftl.chip().geometry().blocks, self.ftl.logical_pages());
        println!(
            "{writes} {:.6} {programs} {flash} {erases} {rss} {blocks} {logical}",
            cpu as f64 / 1e9
        );
        Ok(())
    }
}

fn operations(ftl: &dyn Ftl) -> OpCounts {
    ftl.chip().counters().total()
}

fn sum(counts: &OpCounts) -> u64 {
    counts.reads + counts.partial_reads + counts.programs + counts.oob_programs + counts.erases
}

/// Returns the CPU time of this process in ns.
fn cpu_ns() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage of oneself cannot fail");
    (usage.user_time() + usage.system_time()).num_nanoseconds() as u64
}

/// Returns the peak memory of this program in bytes. (`getrusage` includes the parent's peak.)
fn peak_rss() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .ok_or("/proc/self/status has no VmHWM")?;
    Ok(peak.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

//! One run of the simulation benchmark: uniform random page writes on a scheme over [`OobOnlyStore`], with the chip's law,
//! emulated time, wear and causes on, as in every other use. `tests/bench/sim.py` runs it beside a plain C loop.
//!
//!     bench_sim schemes
//!     bench_sim blocks SCHEME BLOCKS PAGES_PER_BLOCK LOGICAL_BLOCKS WARMUP_WRITES WRITES SEED [KEY=VALUE ...]
//!     bench_sim size SCHEME BYTES OP_PERCENT WARMUP_WRITES WRITES SEED [KEY=VALUE ...]
//!
//! The first prints the names of all schemes. The others fill the device, warm up and print
//! `WRITES CPU_SECONDS WRITE_AMPLIFICATION FLASH_OPERATIONS PEAK_RSS_BYTES`: the figures of the measured writes, and the most
//! memory that the process ever had.

use ftl_core::schemes::{SCHEMES, Scheme};
use ftl_core::{Ftl, FtlConfig, Lpn, Params, Start};
use nand_model::store::OobOnlyStore;
use nand_model::{Chip, Geometry, OpCounts, Profile, SplitMix};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::process::ExitCode;

type Failure = Box<dyn std::error::Error>;
type Device = Box<dyn Ftl<OobOnlyStore>>;

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
            measure(device, warmup.parse()?, writes.parse()?, seed.parse()?)
        }
        ["size", scheme, bytes, op, warmup, writes, seed, ref params @ ..] => {
            let device = by_size(find(scheme)?, bytes.parse()?, op.parse()?, params)?;
            measure(device, warmup.parse()?, writes.parse()?, seed.parse()?)
        }
        _ => Err(
            "usage: bench_sim schemes | blocks SCHEME BLOCKS PAGES LOGICAL_BLOCKS WARMUP WRITES SEED [KEY=VALUE ...] \
                  | size SCHEME BYTES OP_PERCENT WARMUP WRITES SEED [KEY=VALUE ...]"
                .into(),
        ),
    }
}

fn find(name: &str) -> Result<&'static Scheme, Failure> {
    Scheme::find(name).ok_or_else(|| format!("no scheme {name:?}").into())
}

/// The default chip with another shape.
fn by_blocks(
    scheme: &Scheme,
    blocks: u32,
    pages_per_block: u32,
    logical: u32,
    params: &[&str],
) -> Result<Device, Failure> {
    let mut profile = *Profile::default_profile();
    profile.geometry = Geometry { blocks, pages_per_block, ..profile.geometry };
    profile.geometry.validate()?;
    start(scheme, profile, logical * pages_per_block, parse(params)?)
}

/// The default chip, as large as the daemon would make it.
fn by_size(scheme: &Scheme, bytes: u64, op_percent: f64, params: &[&str]) -> Result<Device, Failure> {
    let params = parse(params)?;
    let layout = scheme.layout(Profile::default_profile(), bytes, op_percent / 100.0, &params)?;
    start(scheme, layout.profile, layout.logical_pages, params)
}

fn parse(params: &[&str]) -> Result<Params, Failure> {
    let mut parsed = Params::default();
    for param in params {
        let (key, value) = param.split_once('=').ok_or_else(|| format!("{param:?} is not KEY=VALUE"))?;
        parsed.set(key, value);
    }
    Ok(parsed)
}

fn start(scheme: &Scheme, profile: Profile, logical_pages: u32, params: Params) -> Result<Device, Failure> {
    let chip = Chip::open(profile, OobOnlyStore::new(profile.geometry))?;
    Ok(scheme.start(chip, &FtlConfig { logical_pages, params }, Start::Format)?)
}

fn measure(mut ftl: Device, warmup: u64, writes: u64, seed: u64) -> Result<(), Failure> {
    let page = vec![0; ftl.chip().geometry().page_bytes as usize];
    let mut load = Load { rng: SplitMix::new(seed), pages: ftl.logical_pages(), at: 0, page };
    load.fill(&mut *ftl)?;
    load.write(&mut *ftl, warmup)?;
    let (before, cpu) = (operations(&*ftl), cpu_ns());
    load.write(&mut *ftl, writes)?;
    let (after, cpu) = (operations(&*ftl), cpu_ns() - cpu);

    let waf = (after.programs - before.programs) as f64 / writes as f64;
    let flash = sum(&after) - sum(&before);
    println!("{writes} {:.6} {waf:.4} {flash} {}", cpu as f64 / 1e9, peak_rss());
    Ok(())
}

/// A closed loop of one-page writes: each starts when the one before is done.
struct Load {
    rng: SplitMix,
    pages: u32,
    at: u64,
    page: Vec<u8>,
}

impl Load {
    fn fill(&mut self, ftl: &mut dyn Ftl<OobOnlyStore>) -> Result<(), Failure> {
        for lpn in 0..self.pages {
            self.at = ftl.write(self.at, Lpn::new(lpn), &self.page)?;
        }
        Ok(())
    }

    fn write(&mut self, ftl: &mut dyn Ftl<OobOnlyStore>, writes: u64) -> Result<(), Failure> {
        for _ in 0..writes {
            let lpn = Lpn::new(self.rng.below(self.pages as u64) as u32);
            self.at = ftl.write(self.at, lpn, &self.page)?;
        }
        Ok(())
    }
}

fn operations(ftl: &dyn Ftl<OobOnlyStore>) -> OpCounts {
    ftl.chip().counters().total()
}

fn sum(counts: &OpCounts) -> u64 {
    counts.reads + counts.partial_reads + counts.programs + counts.oob_programs + counts.erases
}

/// CPU time of this process, ns.
fn cpu_ns() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage of oneself cannot fail");
    (usage.user_time() + usage.system_time()).num_nanoseconds() as u64
}

fn peak_rss() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("getrusage of oneself cannot fail");
    usage.max_rss() as u64 * 1024
}

//! One run of the simulation benchmark: uniform random page writes on a scheme over [`OobOnlyStore`], with the chip's law,
//! emulated time, wear and causes on, as in every other use. `tests/bench/sim.py` runs it beside a plain C loop.
//!
//!     bench_sim SCHEME BLOCKS PAGES_PER_BLOCK LOGICAL_BLOCKS WARMUP_WRITES WRITES SEED [KEY=VALUE ...]
//!
//! prints `WRITES CPU_SECONDS WRITE_AMPLIFICATION FLASH_OPERATIONS PEAK_RSS_BYTES` of the measured writes.

use ftl_core::schemes::Scheme;
use ftl_core::{Ftl, FtlConfig, Lpn, Params, Start};
use nand_model::store::OobOnlyStore;
use nand_model::{Chip, Geometry, OpCounts, Profile, SplitMix};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::process::ExitCode;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), Failure> {
    let [scheme, blocks, pages, logical_blocks, warmup, writes, seed, params @ ..] = args else {
        return Err("need SCHEME BLOCKS PAGES LOGICAL_BLOCKS WARMUP WRITES SEED [KEY=VALUE ...]".into());
    };
    let (pages, logical_blocks): (u32, u32) = (pages.parse()?, logical_blocks.parse()?);
    let (warmup, writes): (u64, u64) = (warmup.parse()?, writes.parse()?);
    let mut ftl = start(scheme, blocks.parse()?, pages, pages * logical_blocks, params)?;
    let mut load =
        Load { rng: SplitMix::new(seed.parse()?), pages: pages * logical_blocks, at: 0, page: vec![0; 4096] };

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

fn start(
    scheme: &str,
    blocks: u32,
    pages_per_block: u32,
    logical_pages: u32,
    params: &[String],
) -> Result<Box<dyn Ftl<OobOnlyStore>>, Failure> {
    let scheme = Scheme::find(scheme).ok_or_else(|| format!("no scheme {scheme:?}"))?;
    let mut profile = *Profile::default_profile();
    profile.geometry = Geometry { blocks, pages_per_block, ..profile.geometry };
    profile.geometry.validate()?;
    let mut config = FtlConfig { logical_pages, params: Params::default() };
    for param in params {
        let (key, value) = param.split_once('=').ok_or_else(|| format!("{param:?} is not KEY=VALUE"))?;
        config.params.set(key, value);
    }
    let chip = Chip::open(profile, OobOnlyStore::new(profile.geometry))?;
    Ok(scheme.start(chip, &config, Start::Format)?)
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

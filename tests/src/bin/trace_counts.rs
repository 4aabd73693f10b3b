//! Flash operations of a scheme under a trace, on a device of one die with the given numbers of
//! blocks. `tests/validation.py` runs it alongside other simulators.
//!
//!     trace_counts SCHEME BLOCKS PAGES_PER_BLOCK LOGICAL_BLOCKS
//!         TRACE MEASURED_FROM [KEY=VALUE ...]
//!
//! TRACE has one page of 4 KiB per request, in any format of ftld. Requests are served one after
//! another; those before MEASURED_FROM (counted from 0) prepare the device. Prints a JSON object of
//! the rest: pages written by the host, programs by cause, erases, lookups and hits of the mapping
//! cache; at the end its free blocks, mapped pages, and the bytes of the map as its paper counts.
//! Features that other simulators lack are off:
//! checkpoints, wear levelling, paired pages.

use ftl_core::schemes::Scheme;
use ftl_core::{Ftl, FtlConfig, Lpn, Params, RamPart, SchemeStats, Start};
use ftld_traces::{Op, Trace};
use nand_model::store::OobOnlyStore;
use nand_model::{Cause, Chip, Counters, Geometry, Pairing, Profile};
use std::path::Path;
use std::process::ExitCode;

type Failure = Box<dyn std::error::Error>;
type Device = Box<dyn Ftl>;

const PAGE_BYTES: u32 = 4096;
const USAGE: &str = "usage: trace_counts SCHEME BLOCKS PAGES_PER_BLOCK LOGICAL_BLOCKS TRACE MEASURED_FROM [KEY=VALUE ...]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("trace_counts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<String, Failure> {
    let [
        scheme,
        blocks,
        pages,
        logical,
        trace,
        measured_from,
        params @ ..,
    ] = args
    else {
        return Err(USAGE.into());
    };
    let geometry = (blocks.parse()?, pages.parse()?);
    let mut ftl = create(scheme, geometry, logical.parse()?, params)?;
    let mut page = vec![0; PAGE_BYTES as usize];
    let measured_from: usize = measured_from.parse()?;
    let mut before = None;
    let mut at = 0;
    for (i, record) in Trace::open(Path::new(trace), None, false)?.enumerate() {
        let record = record?;
        if i == measured_from {
            before = Some((ftl.chip().counters().clone(), ftl.stats()));
        }
        if record.length_bytes != PAGE_BYTES as u64 || record.offset_bytes % PAGE_BYTES as u64 != 0
        {
            return Err(
                format!("{trace}: request {i} is not one page of {PAGE_BYTES} bytes").into(),
            );
        }
        let lpn = Lpn::new(u32::try_from(record.offset_bytes / PAGE_BYTES as u64)?);
        at = match record.op {
            Op::Read => ftl.read(at, lpn, &mut page)?,
            Op::Write => ftl.write(at, lpn, &page)?,
            Op::Trim => ftl.trim(at, lpn, 1)?,
            Op::Flush => ftl.flush(at)?,
        };
    }
    let (counters, stats) =
        before.ok_or_else(|| format!("{trace}: has no request {measured_from}"))?;
    Ok(difference(&*ftl, &counters, &stats))
}

fn create(
    scheme: &str,
    (blocks, pages_per_block): (u32, u32),
    logical_blocks: u32,
    params: &[&str],
) -> Result<Device, Failure> {
    let slc = *Profile::find("lazyftl").expect("a built-in profile");
    let geometry = Geometry {
        blocks,
        pages_per_block,
        page_bytes: PAGE_BYTES,
        oob_bytes: 128,
        ..slc.geometry
    };
    geometry.validate()?;
    let profile = Profile {
        geometry,
        pairing: Pairing::None,
        ..slc
    };
    let mut config = FtlConfig {
        logical_pages: logical_blocks * pages_per_block,
        params: Params::default(),
    };
    let quiet = [
        "ckpt.interval=0",
        "wear.policy=none",
        "nand.pair_policy=none",
    ];
    for param in quiet.iter().chain(params) {
        let (key, value) = param
            .split_once('=')
            .ok_or_else(|| format!("{param:?} is not KEY=VALUE"))?;
        config.params.set(key, value);
    }
    let known = Scheme::find(scheme).ok_or_else(|| format!("no scheme {scheme:?}"))?;
    let chip = Chip::over(profile, OobOnlyStore::new(geometry))?;
    Ok(known.start(chip, &config, Start::Format)?)
}

/// Returns the counts since `before` as a JSON object.
fn difference(ftl: &dyn Ftl, before: &Counters, stats: &SchemeStats) -> String {
    let (now, counted) = (ftl.stats(), ftl.chip().counters());
    let programs: Vec<String> = Cause::ALL
        .iter()
        .map(|cause| {
            let count = counted.of(*cause).programs - before.of(*cause).programs;
            format!("{:?}: {count}", cause.name())
        })
        .collect();
    let since = |of: fn(&SchemeStats) -> u64| of(&now) - of(stats);
    let lookups = since(|stats| stats.lookups_read.total + stats.lookups_write.total);
    let hits = since(|stats| stats.lookups_read.hits + stats.lookups_write.hits);
    let report = ftl.ram_report();
    let map = report.iter().filter(|entry| entry.part == RamPart::Map);
    let map_bytes: u64 = map.map(|entry| entry.paper_bytes).sum();
    format!(
        "{{\"host_writes\": {}, \"programs\": {{{}}}, \"erases\": {}, \"lookups\": {lookups}, \"hits\": {hits}, \"free_blocks\": {}, \"mapped\": {}, \"map_bytes\": {map_bytes}}}",
        now.host_pages_written - stats.host_pages_written,
        programs.join(", "),
        counted.total().erases - before.total().erases,
        now.blocks.free,
        now.mapped_pages,
    )
}

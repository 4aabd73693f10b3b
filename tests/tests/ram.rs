//! RAM of every scheme: the report against a counting allocator, and the bound against the report.

use ftl_core::schemes::{SCHEMES, Scheme};
use ftl_core::{EVENTS_KEPT, Event, Ftl, FtlConfig, Lpn, Params, RamReport, Start};
use nand_model::store::MemStore;
use nand_model::{Chip, Profile, SplitMix};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Logical size of the devices.
const BYTES: u64 = 16 << 20;
/// Accepted difference between report and allocator, in percent of the report. B-trees are counted
/// at their average fill.
const TOLERANCE_PERCENT: u64 = 5;
/// Accepted difference in bytes, for the structure of a scheme itself and small lists.
const TOLERANCE_BYTES: u64 = 24 << 10;

fn allocated() -> u64 {
    let stats = HEAP.stats();
    (stats.bytes_allocated - stats.bytes_deallocated) as u64
}

fn sum(report: &RamReport, of: impl Fn(&ftl_core::RamEntry) -> u64) -> u64 {
    report.iter().map(of).sum()
}

/// Fills the device, then writes and trims at random.
fn load(ftl: &mut dyn Ftl, page_bytes: usize) {
    let pages = ftl.logical_pages();
    let run = vec![7; 8 * page_bytes];
    let mut rng = SplitMix::new(1);
    for first in (0..pages).step_by(8) {
        let count = 8.min(pages - first) as usize;
        ftl.write(0, Lpn::new(first), &run[..count * page_bytes])
            .unwrap();
    }
    for step in 0..pages {
        let lpn = Lpn::new(rng.below(pages.into()) as u32);
        if step % 64 == 0 {
            let count = (pages - lpn.raw()).min(1 + rng.below(40) as u32);
            ftl.trim(0, lpn, count).unwrap();
        } else {
            ftl.write(0, lpn, &run[..page_bytes]).unwrap();
        }
    }
}

/// Runs a scheme, returns its report, and what it had allocated: the heap that its end frees.
fn measure(scheme: &Scheme, profile: Profile, config: &FtlConfig) -> (RamReport, u64) {
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    let mut ftl = scheme.start(chip, config, Start::Format).unwrap();
    load(&mut *ftl, profile.geometry.page_len());
    let report = ftl.ram_report();
    let before = allocated();
    let chip = ftl.into_chip();
    let freed = before - allocated();
    drop(chip);
    // The ring of events is not the scheme's.
    let events = (EVENTS_KEPT * size_of::<Event>()) as u64;
    (report, freed - events)
}

/// One test, because the allocator counts for all threads of the program.
#[test]
fn reports_agree_with_the_allocator_and_never_exceed_what_was_given() {
    let mut wrong = Vec::<String>::new();
    for profile in [Profile::default_profile(), Profile::find("slc-2k").unwrap()] {
        for scheme in SCHEMES {
            let params = Params::default();
            let layout = scheme.layout(profile, BYTES, 0.1, &params).unwrap();
            let config = |params: Params| FtlConfig {
                logical_pages: layout.logical_pages,
                params,
            };
            let (report, real) = measure(scheme, layout.profile, &config(params.clone()));
            let reported = sum(&report, |entry| entry.allocated_bytes);
            let name = format!("{} on {}", scheme.name, profile.name);
            println!("{name}: {reported} bytes reported, {real} allocated");
            if reported.abs_diff(real) > reported * TOLERANCE_PERCENT / 100 + TOLERANCE_BYTES {
                wrong.push(format!(
                    "{name}: {reported} bytes are reported, {real} are allocated: {report:?}"
                ));
            }
            for entry in &report {
                if entry.allocated_bytes > entry.most_bytes {
                    wrong.push(format!("{name}: {entry:?}"));
                }
            }
            // The least that the scheme names.
            let error = scheme.fit_ram(&layout, &params, 1).unwrap_err().to_string();
            let least = error.split("at least ").nth(1).unwrap();
            let least: u64 = least.split(' ').next().unwrap().parse().unwrap();
            let fitted = scheme.fit_ram(&layout, &params, least).unwrap();
            let (report, real) = measure(scheme, layout.profile, &config(fitted.clone()));
            let reported = sum(&report, |entry| entry.allocated_bytes);
            if reported > least || real > least + TOLERANCE_BYTES {
                wrong.push(format!(
                    "{name}: {least} bytes are given, {reported} reported, {real} allocated with \
                     {fitted:?}: {report:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

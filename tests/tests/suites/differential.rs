//! All schemes, the same requests, the same bytes. Compares figures that must not depend on the
//! scheme. `decisions.tsv` contains those that depend on it: a change of a scheme's decisions is
//! visible only there.

use ftl_core::schemes::{SCHEMES, Scheme};
use ftl_core::{Ftl, Lpn, Params, Start};
use ftld_battery::host::Host;
use ftld_battery::parallel::in_parallel;
use ftld_battery::rig::{Cells, OVER_PROVISIONING, Rig, has_param, into_memory};
use ftld_battery::swarm::plan::PARAMETERS;
use ftld_battery::workload::{Kind, Workload};
use ftld_tests::suite;
use nand_model::{Cause, Geometry, OpCounts, Profile, SplitMix};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

const PAGES: u32 = 384;

/// Result of a run.
struct Outcome {
    /// Content of the whole device.
    bytes: Vec<u8>,
    /// Pages that the host wrote, trimmed, and has mapped.
    host: [u64; 3],
    /// Decisions of the scheme, as a line of `decisions.tsv`.
    decisions: String,
}

fn run(rig: &Rig, kind: Kind) -> Outcome {
    let mut host = Host::format(rig);
    let requests = if suite::long() { 30_000 } else { 3_000 };
    for op in Workload::new(kind, PAGES, rig.seed).take(requests) {
        host.run(&op)
            .unwrap_or_else(|trouble| panic!("{}: {op:?}: {}", rig.path(), String::from(trouble)));
    }
    let mut bytes = vec![0; PAGES as usize * rig.profile.geometry.page_bytes as usize];
    let done = host
        .ftl
        .read(0, Lpn::new(0), &mut bytes)
        .unwrap_or_else(|error| panic!("{}: {error}", rig.path()));
    assert_eq!(host.ftl.logical_pages(), PAGES, "{}", rig.path());
    let stats = host.ftl.stats();
    for (lookups, pages) in [
        (stats.lookups_read, stats.host_pages_read),
        (stats.lookups_write, stats.host_pages_written),
    ] {
        assert!(
            [0, pages].contains(&lookups.total) && lookups.hits <= lookups.total,
            "{}: {lookups:?} for {pages} pages",
            rig.path()
        );
    }
    let counts = [
        stats.host_pages_written,
        stats.host_pages_trimmed,
        stats.mapped_pages,
    ];
    let mut decisions = format!(
        "{}/{}\t{}\tus={}",
        rig.path(),
        kind.name(),
        of_scheme(&*host.ftl),
        done / 1000
    );
    for end in ["cut", "stop"] {
        if end == "stop" {
            host.ftl
                .shutdown(0)
                .unwrap_or_else(|error| panic!("{}: {error}", rig.path()));
        }
        let before = flash(&host);
        host = host
            .remount()
            .unwrap_or_else(|why| panic!("{}: {why}", rig.path()));
        let mount = host.ftl.stats().mount;
        let told = [
            mount.pages_scanned,
            mount.pages_discarded,
            mount.total_ns() / 1000,
        ];
        write!(
            decisions,
            "\t{end}={}",
            join(since(before, &host).into_iter().chain(told))
        )
        .expect("a string grows");
    }
    // Information that a mount fails to restore has a later cost.
    let before = flash(&host);
    for op in Workload::continued(kind, PAGES, rig.seed).take(300) {
        host.run(&op)
            .unwrap_or_else(|trouble| panic!("{}: {op:?}: {}", rig.path(), String::from(trouble)));
    }
    write!(decisions, "\tlater={}", join(since(before, &host))).expect("a string grows");
    Outcome {
        bytes,
        host: counts,
        decisions,
    }
}

/// Creates a rig with two buses of two dies each.
fn on_four_dies(scheme: &'static Scheme) -> Rig {
    let one = Cells::Mlc.profile();
    let profile = Profile {
        geometry: Geometry {
            channels: 2,
            ways: 2,
            ..one.geometry
        },
        ..one
    };
    Rig::on_profile(
        scheme,
        Cells::Mlc,
        profile,
        PAGES,
        Params::default(),
        suite::seed(),
    )
    .variant("dies", |_| ())
}

/// Returns a rig for each value of each parameter specific to the scheme.
fn with_own_parameters(scheme: &'static Scheme) -> Vec<Rig> {
    let own = |key: &str| scheme.params.iter().any(|param| param.key == key);
    let values = PARAMETERS.iter().filter(|(key, _)| own(key));
    let values = values.flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
    let rigs = values.filter_map(|(key, value)| {
        let mut params = Params::default();
        params.set(key, value);
        let profile = Cells::Mlc.profile();
        let rig = Rig::laid_out(
            scheme,
            Cells::Mlc,
            profile,
            PAGES,
            OVER_PROVISIONING,
            params,
            suite::seed(),
        )
        .ok()?;
        // On SLC alone, or on chips with several planes.
        rig.scheme
            .start(rig.blank(), &rig.config, Start::Format)
            .ok()?;
        Some(rig.variant(&format!("{key}={value}"), |_| ()))
    });
    rigs.collect()
}

fn of(counts: &OpCounts) -> [u64; 5] {
    [
        counts.reads,
        counts.partial_reads,
        counts.programs,
        counts.oob_programs,
        counts.erases,
    ]
}

/// Returns the flash operations so far.
fn flash(host: &Host) -> [u64; 5] {
    of(&host.ftl.chip().counters().total())
}

fn since(before: [u64; 5], host: &Host) -> [u64; 5] {
    let now = flash(host);
    std::array::from_fn(|i| now[i] - before[i])
}

fn join(numbers: impl IntoIterator<Item = u64>) -> String {
    numbers
        .into_iter()
        .map(|number| number.to_string())
        .collect::<Vec<_>>()
        .join("/")
}

/// Formats the flash operations by cause, the scheme's own counters, and its RAM (paper) and RAM
/// (allocated).
fn of_scheme(ftl: &dyn Ftl) -> String {
    let counters = ftl.chip().counters();
    let caused = Cause::ALL
        .iter()
        .map(|cause| (cause, of(counters.of(*cause))));
    let mut parts: Vec<_> = caused
        .filter(|(_, ops)| *ops != [0; 5])
        .map(|(cause, ops)| format!("{}={}", cause.name(), join(ops)))
        .collect();
    let s = ftl.stats();
    parts.push(format!(
        "gc_runs={}",
        join([s.gc_runs, s.gc_pages_moved, s.wear_moves])
    ));
    if s.converts + s.lookups_read.total + s.lookups_write.total > 0 {
        let map = [
            s.converts,
            s.convert_map_pages,
            s.lookups_read.total,
            s.lookups_read.hits,
            s.lookups_write.total,
            s.lookups_write.hits,
            s.map_lookup_steps,
        ];
        parts.push(format!("map={}", join(map)));
    }
    let blocks = [s.blocks.free, s.blocks.log, ftl.chip().geometry().blocks].map(u64::from);
    parts.push(format!(
        "live={}/{}",
        join([s.checkpoints, s.valid_pages]),
        join(blocks)
    ));
    let ram = ftl.ram_report();
    parts.push(format!(
        "ram={}",
        join(ram.iter().map(|entry| entry.paper_bytes))
    ));
    parts.push(format!(
        "real={}",
        join(ram.iter().map(|entry| entry.allocated_bytes))
    ));
    parts.join("\t")
}

#[test]
fn every_scheme_on_every_chip_has_equal_content_after_equal_requests() {
    let mut decisions = vec![
        "# What each scheme decides, written by FTLD_DECISIONS=write cargo test -p ftld-tests --test suites differential::".to_string(),
        "# By cause: reads/reads of spare bytes/programs/programs of spare bytes alone/erases. gc_runs: runs/pages moved/moves for wear."
            .to_string(),
        "# map: converts/pages they wrote/lookups of reads/hits/lookups of writes/hits/steps. live: checkpoints/live pages/free blocks/log blocks/all blocks. ram, real: bytes as the paper counts, and as they are."
            .to_string(),
        "# us: emulated time. cut, stop: the mount after one, operations as by cause/pages scanned/pages discarded/us. later: of 300 more requests.".to_string(),
    ];
    for kind in Kind::ALL {
        let mut matrix: Vec<_> = suite::matrix()
            .map(|(scheme, cells)| Rig::new(scheme, cells, PAGES, suite::seed()))
            .collect();
        match kind {
            Kind::Mixed => matrix.extend(SCHEMES.iter().map(on_four_dies)),
            Kind::HotCold => matrix.extend(SCHEMES.iter().flat_map(with_own_parameters)),
            _ => {}
        }
        let outcomes = in_parallel(&matrix, |rig| run(rig, kind));
        let (first, expected) = (&matrix[0], &outcomes[0]);
        for (rig, outcome) in matrix.iter().zip(&outcomes) {
            let (path, first, kind) = (rig.path(), first.path(), kind.name());
            assert_eq!(
                outcome.host, expected.host,
                "{kind}: {path} and {first} count the host's pages differently"
            );
            assert!(
                outcome.bytes == expected.bytes,
                "{kind}: {path} and {first} hold different bytes"
            );
        }
        decisions.extend(outcomes.into_iter().map(|outcome| outcome.decisions));
    }
    // The file contains the short form of one seed.
    if !suite::long() && suite::seed() == 1 {
        decisions[4..].sort();
        judge(&decisions);
    }
}

/// Compares with `decisions.tsv`, or writes it.
fn judge(lines: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("decisions.tsv");
    let text = lines.join("\n") + "\n";
    if std::env::var("FTLD_DECISIONS").is_ok_and(|value| value == "write") {
        std::fs::write(&path, text).expect("the tree can be written");
        return;
    }
    let text = std::fs::read_to_string(&path).expect("the tree holds decisions.tsv");
    let kept: BTreeSet<_> = text.lines().collect();
    let now: BTreeSet<_> = lines.iter().map(String::as_str).collect();
    let (gone, new): (Vec<_>, Vec<_>) = (
        kept.difference(&now).collect(),
        now.difference(&kept).collect(),
    );
    let shown: String = gone
        .iter()
        .zip(&new)
        .take(8)
        .map(|(gone, new)| format!("- {gone}\n+ {new}\n"))
        .collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "{} lines of decisions.tsv are no longer so, and {} are new; if that is meant, its first line says how to write it:\n{shown}",
        gone.len(),
        new.len()
    );
}

/// On one die without pairing, a host write takes its own operations, its lookup steps, and its
/// stalls: no time is missing, and none is counted twice.
#[test]
fn a_host_write_takes_its_own_operations_and_its_stalls() {
    const STEP_NS: u64 = 1_000;
    let timing = Profile::find("lazyftl").expect("a built-in profile").timing;
    let profile = Profile {
        timing,
        ..Cells::Slc.profile()
    };
    for scheme in SCHEMES {
        let mut params = Params::default();
        params.set("timing.ram", "1");
        let rig = Rig::on_profile(scheme, Cells::Slc, profile, PAGES, params, suite::seed());
        let mut ftl = rig.format();
        let mut rng = SplitMix::new(rig.seed);
        let page = vec![7; profile.geometry.page_bytes as usize];
        let mut at = 0;
        for _ in 0..20 * PAGES {
            let lpn = Lpn::new(rng.below(PAGES.into()) as u32);
            at = ftl
                .write(at, lpn, &page)
                .unwrap_or_else(|error| panic!("{}: {error}", rig.path()));
        }
        let (stats, counters) = (ftl.stats(), ftl.chip().counters());
        let host = counters.of(Cause::Host);
        // It programs the host's pages when it flushes its buffer, which stalls another write.
        let own = match scheme.name {
            "mlam" => 0,
            _ => host.partial_reads * timing.partial_read_ns + host.programs * timing.program_ns[0],
        };
        let stalls: u64 = stats.write_stalls.iter().map(|stall| stall.total_ns).sum();
        let steps = stats.map_lookup_steps * STEP_NS * u64::from(has_param(scheme, "timing.ram"));
        assert!(counters.total().erases > 100, "{}", rig.path());
        assert_eq!(at, own + steps + stalls, "{}", rig.path());
    }
}

/// The same seed gives the same flash, operation for operation, so a failure's command line
/// reproduces it.
#[test]
fn a_run_repeats_from_its_seed() {
    for scheme in SCHEMES {
        let rig = Rig::new(scheme, Cells::Mlc, PAGES, suite::seed());
        let once = || {
            let mut host = Host::format(&rig);
            host.memory().record();
            for op in Workload::new(Kind::Mixed, PAGES, rig.seed).take(600) {
                host.run(&op)
                    .unwrap_or_else(|trouble| panic!("{}: {}", rig.path(), String::from(trouble)));
            }
            into_memory(host.cut_power().0).take_record()
        };
        let (one, other) = (once(), once());
        assert!(
            one.len() > 500 && one == other,
            "{}: two runs of one seed differ",
            rig.path()
        );
    }
}

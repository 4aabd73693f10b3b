//! Generated runs with combined faults, under every scheme: see [`ftld_battery::swarm`].
//!
//! The short form draws 400 runs from a new seed, which it prints. `FTLD_SWARM_SECONDS` sets the
//! drawing time: a run of less than some minutes draws a few schemes. `FTLD_SWARM_RUNS` sets the
//! largest number of runs, `FTLD_SEED` the first seed.
//! `FTLD_SCHEME` selects one scheme; `FTLD_SWARM_FAILURES` (1) is the number of failures that ends
//! the suite. `FTLD_SWARM_LEDGER=FILE` adds the counts of events to those in the file.
//! `FTLD_SWARM_RUN=SEED` repeats one run, `FTLD_SWARM_PLAN=FILE` runs a plan in its text form.
//! `FTLD_SWARM_SHRINK=0` leaves a failure as drawn.

use ftl_core::schemes::{SCHEMES, Scheme};
use ftld_battery::classes::Classes;
use ftld_battery::rig::has_param;
use ftld_battery::swarm::plan::{self, Plan};
use ftld_battery::swarm::{seed_of_run, shrink, situations};
use ftld_tests::{announce, fresh_seed};
use nand_model::SplitMix;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text:?} is no number")),
    )
}

fn drawn_scheme(name: &str) -> &'static Scheme {
    Scheme::find(name).unwrap_or_else(|| panic!("FTLD_SCHEME: no scheme {name:?}"))
}

/// Draws the plan of a seed, for the scheme in `FTLD_SCHEME` or for any.
fn drawn(seed: u64) -> Plan {
    match std::env::var("FTLD_SCHEME") {
        Ok(name) => Plan::of(drawn_scheme(&name), seed),
        Err(_) => Plan::draw(SCHEMES, seed),
    }
}

/// Like [`drawn`]; `None` if its scheme is not one of these.
fn drawn_of(few: &[&str], seed: u64) -> Option<Plan> {
    let any = std::env::var_os("FTLD_SCHEME").is_none();
    if any && !few.contains(&Plan::scheme_of(SCHEMES, seed).name) {
        return None;
    }
    Some(drawn(seed))
}

/// Schemes of a run of this many seconds: each gets [`SECONDS_EACH`] of them at least. So a short
/// run finds what needs many runs of one scheme, and many short runs cover all.
fn few_schemes(first: u64, seconds: u64) -> Vec<&'static str> {
    let mut names: Vec<_> = SCHEMES.iter().map(|scheme| scheme.name).collect();
    let mut rng = SplitMix::new(first);
    for at in (1..names.len()).rev() {
        names.swap(at, rng.below(at as u64 + 1) as usize);
    }
    let few = (seconds / SECONDS_EACH).max(1);
    names.truncate(usize::try_from(few).unwrap_or(names.len()));
    names
}

/// Minimum seconds of a run per scheme.
const SECONDS_EACH: u64 = 20;

/// Counts and failures of all workers.
struct Tally {
    classes: Classes,
    failures: Vec<String>,
}

/// Returns the report of a failed run, with the command that repeats it; shrinks its plan.
fn fail(name: &str, command: &str, plan: &Plan, why: String) -> String {
    let failure = format!(
        "{name}: {why}\n    {command} cargo test -p ftld-tests --test suites swarm:: -- --nocapture"
    );
    if number("FTLD_SWARM_SHRINK") == Some(0) {
        return failure;
    }
    let (small, small_why) = shrink::shrink(plan, why);
    format!(
        "{failure}\nshrunk to {} steps: {small_why}\n{small}",
        small.steps.len()
    )
}

/// Returns the report of a failed run of a seed.
fn fail_of(seed: u64, plan: &Plan, why: String) -> String {
    let scheme =
        std::env::var("FTLD_SCHEME").map_or(String::new(), |name| format!("FTLD_SCHEME={name} "));
    fail(
        &format!("run {seed}"),
        &format!("{scheme}FTLD_SWARM_RUN={seed}"),
        plan,
        why,
    )
}

#[test]
fn random_plans_lose_nothing_flushed() {
    if let Some(seed) = number("FTLD_SWARM_RUN") {
        let plan = drawn(seed);
        println!("{plan}");
        if let Err(why) = shrink::outcome(&plan, &mut Classes::default()) {
            panic!("{}", fail_of(seed, &plan, why));
        }
        return;
    }
    if let Ok(path) = std::env::var("FTLD_SWARM_PLAN") {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let plan = Plan::parse(&text, SCHEMES).unwrap_or_else(|why| panic!("{path}: {why}"));
        if let Err(why) = shrink::outcome(&plan, &mut Classes::default()) {
            panic!(
                "{}",
                fail(&path, &format!("FTLD_SWARM_PLAN={path}"), &plan, why)
            );
        }
        return;
    }
    let first = number("FTLD_SEED").unwrap_or_else(fresh_seed);
    let (most, seconds) = match (number("FTLD_SWARM_RUNS"), number("FTLD_SWARM_SECONDS")) {
        (None, None) => (SHORT_RUNS, u64::MAX),
        (most, seconds) => (most.unwrap_or(u64::MAX), seconds.unwrap_or(u64::MAX)),
    };
    let ledger = std::env::var("FTLD_SWARM_LEDGER").ok();
    if let Some(path) = &ledger {
        Classes::check_ledger(path, first, &all_classes());
    }
    let few = match std::env::var("FTLD_SCHEME") {
        Ok(name) => vec![drawn_scheme(&name).name],
        Err(_) => few_schemes(first, seconds),
    };
    announce(&format!(
        "swarm: FTLD_SEED={first}, schemes: {}",
        few.join(" ")
    ));
    let failures_left = AtomicU64::new(number("FTLD_SWARM_FAILURES").unwrap_or(1));
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let tally = Mutex::new(Tally {
        classes: Classes::default(),
        failures: Vec::new(),
    });
    let began = Instant::now();
    let work = || {
        let mut classes = Classes::default();
        while !stop.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(seconds) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= most {
                break;
            }
            let seed = seed_of_run(first, number);
            let Some(plan) = drawn_of(&few, seed) else {
                continue;
            };
            let outcome = shrink::outcome(&plan, &mut classes);
            classes.end_run();
            if let Err(why) = outcome {
                if failures_left.fetch_sub(1, Ordering::Relaxed) <= 1 {
                    stop.store(true, Ordering::Relaxed);
                }
                let failure = fail_of(seed, &plan, why);
                tally
                    .lock()
                    .expect("nobody panics with it")
                    .failures
                    .push(failure);
            }
        }
        tally
            .lock()
            .expect("nobody panics with it")
            .classes
            .merge(&classes);
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        (0..workers).for_each(|_| drop(scope.spawn(work)));
    });
    let Tally {
        mut classes,
        failures,
    } = tally.into_inner().expect("nobody panicked with it");
    let (runs, took) = (classes.runs, began.elapsed().as_secs_f64());
    let unlisted = classes.unlisted(&all_classes());
    assert!(
        unlisted.is_empty(),
        "situations.rs does not list the classes {unlisted:?}"
    );
    failures.iter().for_each(|failure| println!("{failure}"));
    if let Some(path) = ledger {
        classes = classes.add_to_ledger(&path, first, failures.len(), &all_classes());
    }
    println!("{}", classes.report());
    let speed = runs as f64 / took;
    announce(&format!(
        "swarm: {runs} runs, {speed:.1} a second on {workers} cores; {} in all",
        classes.runs
    ));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    if classes.runs >= FULL {
        let missing = classes.missing(&all_classes());
        assert!(
            missing.is_empty(),
            "these situations never happened: {missing:?}"
        );
        let pairs = classes.missing_pairs(&situations::faults(), |one, other| {
            situations::cannot_meet(one, other).is_some()
        });
        assert!(pairs.is_empty(), "these faults never met: {pairs:?}");
    }
}

/// Runs of the short form.
const SHORT_RUNS: u64 = 400;

/// Number of runs from which on no class and no pair of faults may be missing.
const FULL: u64 = 100_000;

fn all_classes() -> Vec<&'static str> {
    let schemes = SCHEMES.iter().map(|scheme| scheme.name);
    situations::faults()
        .into_iter()
        .chain(situations::OTHERS.iter().copied())
        .chain(schemes)
        .collect()
}

/// Plans that failed once, shrunk; the first lines of each file describe the bug.
#[test]
fn kept_plans_pass() {
    let mut plans = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/swarm"))
        .expect("the folder of kept plans")
    {
        let path = entry.expect("a readable folder").path();
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let plan =
            Plan::parse(&text, SCHEMES).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let outcome = shrink::outcome(&plan, &mut Classes::default());
        outcome.unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        plans += 1;
    }
    assert!(plans > 0, "no kept plan was found");
}

/// Runs a plan in its text form, which a failure prints: it can be kept as a file.
fn passes(text: &str, classes: &mut Classes) {
    let plan = Plan::parse(text, SCHEMES).unwrap_or_else(|why| panic!("{why}:\n{text}"));
    let outcome = shrink::outcome(&plan, classes);
    classes.end_run();
    outcome.unwrap_or_else(|why| panic!("{why}:\n{text}"));
}

/// A mapping page that contains an earlier trim is unstable after a cut. The mounts after it read
/// the page a few times, are cut too, and lose it. The trim must not come back.
#[test]
fn trims_survive_the_loss_of_an_unstable_page() {
    let before = r#"
{"do":{"write":{"lpn":0,"count":16}}}
{"do":{"write":{"lpn":160,"count":16}}}
{"do":{"write":{"lpn":320,"count":16}}}
{"do":{"write_zeroes":{"lpn":0,"count":11,"fua":true}}}
{"down":["kill",{}]}
{"do":{"write":{"lpn":20,"count":1}}}
{"do":{"trim":{"lpn":167,"count":2}}}"#;
    let cut = |at_op: u64, program: &str| {
        format!(
            r#"{{"at_op":{at_op},"program":{program},"partner":"intact","erase":"complete","seed":1}}"#
        )
    };
    let torn = cut(1, r#""data_torn""#);
    let write = r#"{"do":{"write":{"lpn":320,"count":16}}}"#;
    let trim = r#"{"do":{"trim":{"lpn":320,"count":16}}}"#;
    // Few tombstones have mapping pages written early; a large cache keeps the other changes.
    let caches = ["dftl.cache", "dop.cache", "learned.cache", "tpftl.cache"];
    let params = caches
        .map(|cache| (cache, 1024))
        .into_iter()
        .chain([("map.max_tombstones", 8)]);
    let mut plans = 0;
    let mut classes = Classes::default();
    for scheme in SCHEMES {
        let params = params.clone().filter(|(key, _)| has_param(scheme, key));
        let params: Vec<_> = params
            .map(|(key, value)| format!(r#"["{key}","{value}"]"#))
            .collect();
        let device = format!(
            r#"{{"chip":"slc","pages_per_block":16,"dies":[1,1],"pages":360,"op_percent":7,"params":[{}]}}"#,
            params.join(",")
        );
        let head = format!(
            r#"{{"seed":1,"scheme":"{}","device":{device}}}"#,
            scheme.name
        );
        for case in 0..27 {
            let (reads, at_op, in_mount) = (2 + case % 3, 1 + case / 3 % 3, 1 + case / 9);
            let unstable = cut(at_op, &format!(r#"{{"unstable":{reads}}}"#));
            let inside = cut(in_mount, r#""complete""#);
            let text = format!(
                r#"{head}{before}
{{"cut":[{torn},{{}}]}}
{write}
{{"cut":[{unstable},{{"inside":[{{"cut":[{inside},null]}}]}}]}}
{trim}
"#
            );
            passes(&text, &mut classes);
            plans += 1;
        }
    }
    let [unstable, cut] =
        ["program unstable", "power cut inside a mount"].map(|class| classes.events(class));
    // Many programs of the trim, and mounts, end before the place of their cut.
    assert!(
        unstable >= plans / 3 && cut >= plans / 4,
        "{unstable}, {cut} of {plans}"
    );
    announce(&format!("{plans} plans with the loss of an unstable page"));
}

/// A checkpoint names pages that are in the first page of a word line. A cut of a later page there,
/// at each operation after a flushed fill, must not lose what they replaced.
#[test]
fn cuts_after_checkpoints_lose_no_page_that_they_name() {
    let fill = (0..256)
        .step_by(16)
        .map(|lpn| format!(r#"{{"do":{{"write":{{"lpn":{lpn},"count":16}}}}}}"#));
    let fill: Vec<_> = fill.chain([r#"{"do":"flush"}"#.into()]).collect();
    let mut plans = 0;
    for scheme in SCHEMES
        .iter()
        .filter(|scheme| has_param(scheme, "ckpt.interval"))
    {
        let head = format!(
            r#"{{"seed":1,"scheme":"{}","device":{{"chip":"mlc","pages_per_block":16,"dies":[1,1],"pages":256,"op_percent":12,"params":[["ckpt.interval","40"]]}}}}"#,
            scheme.name
        );
        for at_op in 20..80 {
            let mut rng = SplitMix::new(at_op);
            let writes = (0..100).map(|_| {
                format!(
                    r#"{{"do":{{"write":{{"lpn":{},"count":1}}}}}}"#,
                    rng.below(256)
                )
            });
            let cut = format!(
                r#"{{"cut":[{{"at_op":{at_op},"program":"data_torn","partner":"destroyed","erase":"complete","seed":{at_op}}},{{}}]}}"#
            );
            let lines = [head.clone()]
                .into_iter()
                .chain(fill.clone())
                .chain([cut])
                .chain(writes);
            let text = lines.collect::<Vec<_>>().join("\n") + "\n";
            passes(&text, &mut Classes::default());
            plans += 1;
        }
    }
    announce(&format!("{plans} plans with a cut after checkpoints"));
}

#[test]
fn generator_draws_every_parameter() {
    for scheme in SCHEMES {
        let unknown = plan::unknown_parameters(scheme);
        assert_eq!(unknown, Vec::<&str>::new(), "{}", scheme.name);
    }
}

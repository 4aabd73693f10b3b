//! Generated runs of volume, NBD sessions and image in one process: see
//! [`ftld_tests::daemon_swarm`].
//!
//! The short form draws 60 runs from a new seed, which it prints. `FTLD_SWARM_SECONDS` sets the
//! drawing time, `FTLD_SWARM_RUNS` the largest number of runs, `FTLD_SEED` the first seed,
//! `FTLD_SWARM_WORKERS` the number of threads. `FTLD_SWARM_LEDGER=FILE` adds the counts of events
//! to those in the file. `FTLD_SWARM_RUN=SEED` repeats one run, `FTLD_SWARM_PLAN=FILE` runs a plan
//! in its text form; both shrink a failing plan. `FTLD_SWARM_SHRINK=0` leaves a failure as drawn.

use ftl_core::schemes::SCHEMES;
use ftld_battery::classes::Classes;
use ftld_tests::daemon_swarm::plan::{self, Plan};
use ftld_tests::daemon_swarm::runner::{Report, run, runtime};
use ftld_tests::daemon_swarm::shrink::shrink;
use ftld_tests::daemon_swarm::{Class, cannot_meet};
use ftld_tests::{announce, fresh_seed};
use nand_model::SplitMix;
use nix::sys::resource::{UsageWho, getrusage};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Runs of the short form.
const SHORT_RUNS: u64 = 60;
/// Number of runs after which every class must have occurred; `FULL_PAIRS`: every pair of classes.
const FULL: u64 = 5_000;
const FULL_PAIRS: u64 = 50_000;
/// Time limit of shrinking a failing plan.
const SHRINKING: Duration = Duration::from_secs(20);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number"))
    })
}

/// Returns the CPU time of this process in seconds.
fn cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the kernel counts");
    [usage.user_time(), usage.system_time()]
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
        .iter()
        .sum()
}

fn all_classes() -> Vec<&'static str> {
    let schemes = SCHEMES.iter().map(|scheme| scheme.name);
    Class::NAMES.iter().copied().chain(schemes).collect()
}

/// State shared by all workers.
#[derive(Default)]
struct Total {
    classes: Classes,
    report: Report,
    failure: Option<(u64, String)>,
}

#[test]
fn random_plans_get_correct_replies_and_lose_no_durable_data() {
    if let Some(seed) = number("FTLD_SWARM_RUN") {
        return repeat(&format!("run {seed}"), &plan::draw(seed));
    }
    if let Ok(path) = std::env::var("FTLD_SWARM_PLAN") {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        return repeat(
            &path,
            &plan::parse(&text).unwrap_or_else(|why| panic!("{path}: {why}")),
        );
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
    announce(&format!("daemon_swarm: FTLD_SEED={first}"));
    let (began, next, total) = (
        Instant::now(),
        AtomicU64::new(0),
        Mutex::new(Total::default()),
    );
    let work = || {
        let (runtime, mut classes, mut report) = (runtime(), Classes::default(), Report::default());
        while total.lock().unwrap().failure.is_none()
            && began.elapsed() < Duration::from_secs(seconds)
        {
            let number = next.fetch_add(1, Relaxed);
            if number >= most {
                break;
            }
            let seed = SplitMix::new(first ^ number.rotate_left(32)).next_u64();
            match run(&plan::draw(seed), &runtime, &mut classes) {
                Ok(done) => report.add(&done),
                Err(why) => drop(total.lock().unwrap().failure.get_or_insert((seed, why))),
            }
        }
        let mut total = total.lock().unwrap();
        total.classes.merge(&classes);
        total.report.add(&report);
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = number("FTLD_SWARM_WORKERS").map_or(cores, |workers| workers.max(1) as usize);
    std::thread::scope(|scope| {
        (0..workers).for_each(|_| drop(scope.spawn(work)));
    });
    let Total {
        mut classes,
        report,
        failure,
    } = total.into_inner().unwrap();
    let runs = classes.runs;
    if let Some(path) = ledger {
        classes =
            classes.add_to_ledger(&path, first, usize::from(failure.is_some()), &all_classes());
    }
    println!("{}", classes.report());
    let Report {
        crashes,
        kills,
        replies,
    } = report;
    let speed = (crashes + kills) as f64 / cpu_seconds();
    announce(&format!(
        "daemon_swarm: {runs} runs, {crashes} crashes, {kills} kills, {replies} replies, {} failures; \
         {speed:.0} crashes and kills per second of CPU time; {} runs in all",
        u64::from(failure.is_some()),
        classes.runs
    ));
    if let Some((seed, why)) = failure {
        tell(
            &format!("run {seed}: {why}\n    FTLD_SWARM_RUN={seed}"),
            &plan::draw(seed),
        );
    }
    if classes.runs >= FULL {
        let missing = classes.missing(&all_classes());
        assert!(
            missing.is_empty(),
            "these situations never happened: {missing:?}"
        );
    }
    if classes.runs >= FULL_PAIRS {
        let pairs =
            classes.missing_pairs(Class::NAMES, |one, other| cannot_meet(one, other).is_some());
        assert!(pairs.is_empty(), "these situations never met: {pairs:?}");
    }
}

fn fails(plan: &Plan) -> Option<String> {
    run(plan, &runtime(), &mut Classes::default())
        .err()
        .filter(|why| !why.contains("plan: "))
}

/// Runs a plan, and shrinks it if it fails.
fn repeat(name: &str, plan: &Plan) {
    let outcome = run(plan, &runtime(), &mut Classes::default());
    println!("{name}: {outcome:?}");
    if let Err(why) = outcome {
        tell(&format!("{name}: {why}"), plan);
    }
}

/// Shrinks a failing plan, and panics with the plan and the command that repeats it.
fn tell(why: &str, plan: &Plan) {
    assert!(number("FTLD_SWARM_SHRINK") != Some(0), "{why}");
    let small = shrink(plan, SHRINKING, |plan| fails(plan).is_some());
    let small_why = (0..20).find_map(|_| fails(&small));
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("daemon-swarm-{}.plan", plan.seed));
    std::fs::write(&path, small.to_string()).expect("the plan is kept");
    panic!(
        "{why}\n{} of {} actions are left: {}\n{small}\
         To keep it: tests/daemon_swarm/NAME.plan, with a description in lines that begin with #.\n    \
         FTLD_SWARM_PLAN={} cargo test -p ftld-tests --test daemon daemon_swarm::",
        small.actions.len(),
        plan.actions.len(),
        small_why.unwrap_or_else(|| "but it did not fail again in 20 runs".into()),
        path.display()
    );
}

/// Plans that failed once, and plans that detect mistakes.
#[test]
fn kept_plans_pass() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("daemon_swarm");
    let mut plans: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder is there")
        .map(|e| e.unwrap().path())
        .collect();
    plans.retain(|path| path.extension().is_some_and(|ext| ext == "plan"));
    plans.sort();
    assert!(!plans.is_empty(), "no plan in {}", folder.display());
    let runtime = runtime();
    for path in plans {
        let plan = plan::parse(&std::fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|why| panic!("{path:?}: {why}"));
        for _ in 0..3 {
            run(&plan, &runtime, &mut Classes::default())
                .unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        }
    }
}

//! The daemon swarm. Every run has a seed of its own; a failure shrinks itself and prints the command that repeats it.
//!
//! `FTLD_SEED` is the first seed (1; a fresh one, which is printed, with `FTLD_SWARM_FRESH=1`), `FTLD_SWARM_RUNS` the number of runs, `FTLD_SWARM_PLAN` a file with
//! a plan to run instead, `FTLD_LEDGER` a file to which a line is appended. `FTLD_LONG=1` runs 20,000 plans and wants all classes.

use ftld_tests::daemon_swarm::Class;
use ftld_tests::daemon_swarm::classes::Classes;
use ftld_tests::daemon_swarm::plan::{self, Plan};
use ftld_tests::daemon_swarm::runner::{Report, run, runtime};
use ftld_tests::daemon_swarm::shrink::shrink;
use ftld_tests::rig;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Runs of the short form.
const SHORT_RUNS: u64 = 60;
/// How long the short form runs from a fresh seed.
const SHORT: Duration = Duration::from_secs(10);
/// How long a failing plan is shrunk.
const SHRINKING: Duration = Duration::from_secs(8);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_millis() as u64 ^ u64::from(std::process::id()) << 20) % 1_000_000_000_000
}

/// What all workers know.
#[derive(Default)]
struct Total {
    classes: Classes<Class>,
    report: Report,
    failure: Option<(u64, String)>,
}

#[test]
fn no_reply_lies_and_no_crash_loses_what_was_promised() {
    if let Ok(path) = std::env::var("FTLD_SWARM_PLAN") {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let plan = plan::parse(&text).unwrap_or_else(|why| panic!("{path}: {why}"));
        let outcome = run(&plan, &runtime(), &mut Classes::default());
        println!("{path}: {outcome:?}");
        outcome.map(drop).unwrap_or_else(|why| panic!("{path}: {why}"));
        return;
    }
    let fresh = number("FTLD_SWARM_FRESH").is_some();
    let first = number("FTLD_SEED").unwrap_or_else(|| if fresh { fresh_seed() } else { 1 });
    let default = match (rig::long(), fresh) {
        (true, _) => Some(20_000),
        (false, true) => None,
        (false, false) => Some(SHORT_RUNS),
    };
    let runs = number("FTLD_SWARM_RUNS").or(default);
    println!("FTLD_SEED={first}");
    let (began, next, total) = (Instant::now(), AtomicU64::new(0), Mutex::new(Total::default()));
    let work = || {
        let (runtime, mut classes, mut report) = (runtime(), Classes::default(), Report::default());
        while total.lock().unwrap().failure.is_none() {
            let run_number = next.fetch_add(1, Relaxed);
            if runs.map_or(began.elapsed() > SHORT, |runs| run_number >= runs) {
                break;
            }
            let seed = first + run_number;
            match run(&plan::draw(seed), &runtime, &mut classes) {
                Ok(done) => {
                    report.ends += done.ends;
                    report.replies += done.replies;
                }
                Err(why) => drop(total.lock().unwrap().failure.get_or_insert((seed, why))),
            }
        }
        let mut total = total.lock().unwrap();
        total.classes.merge(&classes);
        total.report.ends += report.ends;
        total.report.replies += report.replies;
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let Total { classes, report, failure } = total.into_inner().unwrap();
    let seconds = began.elapsed().as_secs_f64() * workers as f64;
    let line = format!(
        "daemon_swarm: seeds from {first}, {} runs, {} replies, {} crashes and kills, {} failures",
        classes.runs(),
        report.replies,
        report.ends,
        u64::from(failure.is_some())
    );
    println!("{classes}{line}; {:.0} crashes and kills a core-second", report.ends as f64 / seconds);
    if let Ok(path) = std::env::var("FTLD_LEDGER") {
        let mut ledger = OpenOptions::new().create(true).append(true).open(&path).expect("the ledger opens");
        writeln!(ledger, "{line}").expect("the ledger takes a line");
    }
    if let Some((seed, why)) = failure {
        tell(seed, &why);
    }
    if runs.is_some_and(|runs| runs >= 20_000) {
        let missing = classes.missing(CANNOT_MEET);
        assert!(missing.is_empty(), "never happened in {} runs: {missing:?}", classes.runs());
    }
}

/// Pairs of classes that no run has.
const CANNOT_MEET: &[(Class, Class)] = &[
    // Only devices of 16,500 pages of 512 bytes have long trims, only those of larger pages have writes over slices.
    (Class::LongTrim, Class::SeveralSlices),
];

/// Shrinks a failing plan, prints it with the commands that repeat it, and fails.
fn tell(seed: u64, why: &str) {
    let (plan, runtime) = (plan::draw(seed), runtime());
    let fails = |plan: &Plan| {
        let outcome = run(plan, &runtime, &mut Classes::default());
        outcome.is_err_and(|why| !why.contains("plan: "))
    };
    let small = shrink(&plan, SHRINKING, fails);
    let small_why = (0..20).find_map(|_| run(&small, &runtime, &mut Classes::default()).err());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("swarm-{seed}.plan"));
    std::fs::write(&path, small.to_string()).expect("the plan is kept");
    panic!(
        "seed {seed}: {why}\n    FTLD_SEED={seed} FTLD_SWARM_RUNS=1 cargo test -p ftld-tests --test daemon_swarm\n\
         {} of {} actions are left: {}\n{small}\
         To keep it: tests/daemon_swarm/NAME.plan, with its story in lines that begin with #.\n    \
         FTLD_SWARM_PLAN={} cargo test -p ftld-tests --test daemon_swarm",
        small.actions.len(),
        plan.actions.len(),
        small_why.unwrap_or_else(|| "but it did not fail again in 20 runs".into()),
        path.display()
    );
}

/// Plans that failed once.
#[test]
fn kept_plans_stay_good() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("daemon_swarm");
    let mut plans: Vec<_> =
        std::fs::read_dir(&folder).expect("the folder is there").map(|e| e.unwrap().path()).collect();
    plans.retain(|path| path.extension().is_some_and(|ext| ext == "plan"));
    plans.sort();
    assert!(!plans.is_empty(), "no plan in {}", folder.display());
    let runtime = runtime();
    for path in plans {
        let plan =
            plan::parse(&std::fs::read_to_string(&path).unwrap()).unwrap_or_else(|why| panic!("{path:?}: {why}"));
        for _ in 0..3 {
            run(&plan, &runtime, &mut Classes::default()).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        }
    }
}

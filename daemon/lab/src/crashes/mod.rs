//! `ftld crashes`: visits the states that a power cut can leave of a recording, and runs the user's
//! check on each.
//!
//! Data flows one way: recording -> [`timeline`] -> [`cursor`] (what is durable, what is open) ->
//! [`models`] or [`flash`] (states) -> [`worker`] (equal states once) -> [`judge`] (image, check)
//! -> [`report`]. A state is a content number per unit.
//!
//! With `--nested`, what the check did on a good state is on a [`tape`], and is cut again:
//! [`recovery`].
//!
//! A [`supervisor`] process per job runs the checks and removes what they leave. For the crate
//! `ftld-crash`, recording and check are in this process ([`in_process`]).
//!
//! Invariants: the recording is only read, and none of its numbers is used unchecked. States follow
//! from the recording, the options and the seed. Everything else is written below one [`scratch`]
//! folder, which is removed at the end unless a mount remains. If the process dies, a ledger has
//! the verdicts so far.

mod args;
mod case;
mod check;
mod content;
mod cursor;
mod explore;
mod ext4;
mod flash;
mod group;
mod image;
mod in_process;
mod judge;
mod ledger;
mod losses;
mod models;
mod places;
mod recovery;
mod report;
mod resident;
mod scratch;
mod server;
mod shrink;
mod supervisor;
mod tape;
#[cfg(test)]
mod tests;
mod timeline;
mod visit;
mod worker;

pub use args::{At, CrashesArgs, Loss, Model, Mounts};
pub use check::RECOVERY;
pub use group::{DEVICES_MAX, nth_file};
pub use in_process::{Explored, Failing, Plan, Recorded, Snapshot};
pub use recovery::is_kept;
pub use resident::{Heard, Resident};
pub use scratch::{Scratch, remove_orphans};
pub use supervisor::{End, Tail, supervise};
pub use tape::{OnTape, Tape};
pub use visit::visit;

use case::Case;
use flash::{Device, Run};
use ftld_kit::failure::Failure;
use ftld_kit::{interrupt, output, sparse};
use judge::Command;
use places::Places;
use report::{About, FailedCase};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use timeline::Timeline;
use worker::{Found, Shared, Source, Work, Worker};

/// Copies the image of a case to a new file, as sparse as it is.
fn keep_image(image: &Path, keep: &Path) -> Result<(), Failure> {
    let failed = |error| output::unwritable("--keep", keep, &error);
    let from = File::open(image).map_err(failed)?;
    let to = File::create_new(keep).map_err(failed)?;
    let length = from.metadata().map_err(failed)?.len();
    to.set_len(length).map_err(failed)?;
    sparse::copy(&from, &to, 0..length, &mut || Ok(()), &failed).map(drop)
}

/// Refuses arguments that no exploration can have, before anything is made.
///
/// # Errors
/// There is no check, or a result cannot be written.
pub fn check_arguments(args: &CrashesArgs) -> Result<(), Failure> {
    recovery::check_arguments(args)?;
    // An empty command succeeds, and would find every state good.
    if args.check.trim().is_empty() {
        return Err(Failure::usage(
            "--check: no command; name one that tells a good state from a bad one by its exit code",
        ));
    }
    group::check_arguments(args)?;
    let results = [
        ("--junit", &args.junit),
        ("--html", &args.html),
        ("--keep", &args.keep),
    ];
    for (option, path) in results {
        let Some(path) = path else { continue };
        for recording in args.recordings() {
            output::spares(option, path, (recording, "the recording"))?;
        }
        let devices = if option == "--keep" {
            1 + args.others.len()
        } else {
            1
        };
        for path in (0..devices).map(|device| nth_file(path, device)) {
            if option == "--keep" && path.symlink_metadata().is_ok() {
                return Err(Failure::usage(format!(
                    "--keep {0}: the file exists, and no image overwrites one; name another file, or move {0} away",
                    path.display()
                )));
            }
            output::writable(option, &path)?;
        }
    }
    Ok(())
}

/// Explores a recording, or shows one case of it.
///
/// # Errors
/// A state failed the check (exit code 1), the recording cannot be used, or the check cannot be
/// run.
pub fn crashes(args: &CrashesArgs, json: bool) -> Result<(), Failure> {
    let Some(case) = &args.case else {
        let explored = explored(args)?;
        explored.print(json)?;
        return explored.judged();
    };
    check_arguments(args)?;
    let case = Case::parse(case)?;
    let scratch = Scratch::create(args)?;
    // Ctrl-C ends this process; the supervisor then removes the folder.
    let shared = prepared(args, &scratch, 1, Arc::default())?;
    show(args, &shared, scratch.path(), &case, json)
}

/// Explores a recording, and writes the reports that are files.
///
/// # Errors
/// The recording cannot be used, or the check cannot be run.
pub fn explored(args: &CrashesArgs) -> Result<Visited, Failure> {
    check_arguments(args)?;
    let interrupted = interrupt::flag()?;
    let scratch = Scratch::create(args)?;
    let jobs = args.jobs.unwrap_or_else(|| {
        let cores = std::thread::available_parallelism();
        cores.map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1))
    });
    let shared = prepared(args, &scratch, jobs, interrupted)?;
    let report = explore::explore(args, &shared, scratch.path(), jobs)?;
    let about = About {
        timeline: &shared.timeline,
        places: &report.places,
    };
    // A file that cannot be written does not take the report with it.
    let write = |option: &str, path: &Option<PathBuf>, text: String| {
        let Some(path) = path else { return Ok(()) };
        std::fs::write(path, text).map_err(|error| output::unwritable(option, path, &error))
    };
    let junit = write("--junit", &args.junit, report::junit(&report, &about));
    let html = write("--html", &args.html, report::html(&report, &about));
    Ok(Visited {
        written: junit.and(html),
        text: report::text(&report, &about),
        json: report.json(&about),
        states: report.states,
        checked: report.checked,
        failed: report.failed,
        interrupted: report.interrupted,
    })
}

/// Reads the recording.
fn prepared(
    args: &CrashesArgs,
    scratch: &Scratch,
    jobs: u32,
    interrupted: Arc<AtomicBool>,
) -> Result<Arc<Shared>, Failure> {
    let timeline = Timeline::of(args, scratch.path())?;
    scratch.has_room(&timeline, jobs, args.files.is_some())?;
    Ok(Shared::new(timeline, args, interrupted))
}

/// Result of the exploration of a recording.
pub struct Visited {
    /// Whether all reports that are files are written.
    written: Result<(), Failure>,
    /// The report.
    pub text: String,
    /// The report as JSON.
    pub json: serde_json::Value,
    /// States, equal ones counted as often as they occurred.
    pub states: u64,
    /// States on which the check ran; no two are equal.
    pub checked: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// The user has ended it early.
    pub interrupted: bool,
}

impl Visited {
    /// Prints the report.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print(&self, json: bool) -> Result<(), Failure> {
        match json {
            true => output::print_json("crashes", &self.json),
            false => output::print(&self.text),
        }
    }

    /// Returns why a report is not written.
    pub fn unwritten(&self) -> Option<Failure> {
        self.written.clone().err()
    }

    /// Returns whether all reports are written and no state failed.
    ///
    /// # Errors
    /// One is not, or one did, or the exploration was interrupted.
    pub fn judged(&self) -> Result<(), Failure> {
        self.written.clone()?;
        if self.failed > 0 {
            let checked = output::counted(self.checked, "state");
            let what = format!("{} of {checked} failed", self.failed);
            return Err(Failure::failed(what));
        }
        if self.interrupted {
            return Err(Failure::failed("interrupted; no state had failed"));
        }
        Ok(())
    }
}

/// Checks one case and prints what the check said.
fn show(
    args: &CrashesArgs,
    shared: &Arc<Shared>,
    scratch: &Path,
    case: &Case,
    json: bool,
) -> Result<(), Failure> {
    let timeline = &shared.timeline;
    let command = Command::start(args, timeline, scratch, 0)?;
    let mut worker = Worker::new(shared, command);
    let (work, explained) = match case {
        Case::Flash { entry, op, outcome } => {
            let (mark, dead) = cut_flash(args, timeline, *entry, *op, *outcome)?;
            let work = Work {
                case: case.clone(),
                mark,
                state: Source::Flash(Box::new(dead)),
            };
            (work, Vec::new())
        }
        Case::Nested { outer, inner } => recovery::again(shared, &mut worker, outer, inner)?,
        Case::Prefix { entry } | Case::Cache { entry, .. } => {
            let (point, choice) = explore::find(timeline, *entry, case.units())?;
            let work = Work {
                case: case.clone(),
                mark: point.mark,
                state: Source::State(models::State::of(&point, &choice, &timeline.contents)),
            };
            (work, Vec::new())
        }
    };
    let done = worker.run(work)?;
    let Found::Checked(checked) = done.verdict else {
        unreachable!("the only case has no equal and no earlier verdict");
    };
    let kept = args.keep.as_ref().map_or(Ok(()), |keep| {
        let mut images = worker.judge.images().enumerate();
        images.try_for_each(|(device, image)| keep_image(image, &nth_file(keep, device)))
    });
    let mut places = Places::default();
    explore::name_places(&mut places, shared, &mut worker.judge, scratch, case)?;
    let about = About {
        timeline,
        places: &places,
    };
    let failed = FailedCase {
        case: case.clone(),
        mark: done.mark.map_or("", |mark| shared.mark(mark)).to_owned(),
        said: checked.verdict.text(),
        output: checked.output,
        explained,
    };
    if json {
        let value = serde_json::json!({
            "case": case.to_string(),
            "passed": checked.verdict.passed(),
            "verdict": failed.said,
            "mark": failed.mark,
            "output": failed.output,
            "explanation": about.lines(&failed),
        });
        output::print_json("crash", value)?;
    } else {
        output::print(&report::one(&failed, &about))?;
    }
    kept?;
    match checked.verdict.passed() {
        true => Ok(()),
        false => Err(Failure::failed(format!("{case}: {}", failed.said))),
    }
}

/// Runs the recording up to an entry and cuts power in one of its flash operations.
fn cut_flash(
    args: &CrashesArgs,
    timeline: &Timeline,
    entry: u64,
    op: u32,
    outcome: u32,
) -> Result<(Option<u32>, flash::Dead), Failure> {
    let device = Arc::new(Device::of(&args.recording, timeline)?);
    let mut run = Run::start(device, timeline)?;
    let mut mark = None;
    for (index, event) in timeline.events.iter().enumerate() {
        if let timeline::What::Mark(number) = event.what {
            mark = Some(number);
        }
        if event.number < entry {
            run.step(index)?;
            continue;
        }
        let mut operations = run.step_recorded(index)?;
        let dead = (event.number == entry).then(|| run.cut(&mut operations, op, outcome));
        let dead = dead.flatten().ok_or_else(|| {
            Failure::usage(format!(
                "entry {entry} has no flash operation {op} with an outcome {outcome}"
            ))
        })?;
        return Ok((mark, dead));
    }
    Err(Failure::usage(format!(
        "the recording has no entry {entry}"
    )))
}

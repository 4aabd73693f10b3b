//! A run that this process recorded, and a check that is a function: the crate `ftld-crash`.
//!
//! Invariants: the check runs on the caller's thread, one state after the other. A panic of the
//! check is a failed state. The image of a state is made when the check asks for it.

use super::args::{At, CrashesArgs, Model};
use super::case::Case;
use super::check::{Checked, Verdict};
use super::content::ZEROS;
use super::explore::{self, points};
use super::image::RawImage;
use super::judge::Judge;
use super::models::State;
use super::places::Places;
use super::report::{self, About, FailedCase};
use super::scratch::{Scratch, place};
use super::timeline::{Timeline, UNIT_BYTES};
use super::worker::{Shared, Worker};
use ftld_kit::convert::{index, to_u64};
use ftld_kit::failure::{Failure, panic_text};
use ftld_traces::recording::{Entry, Head};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Once};
use std::time::Duration;

/// Name of the recording in reports.
const NAME: &str = "the run";

/// Which states are checked; the options of `ftld crashes`.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which states a cut can leave; not [`Model::Flash`].
    pub model: Model,
    /// Where power fails.
    pub at: At,
    /// Leave out the points before the first mark.
    pub after_mark: bool,
    /// States per point.
    pub states: u32,
    /// Seed of the states that are drawn.
    pub seed: u64,
    /// Stop after this number of failed states; 0 for never.
    pub failures: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            model: Model::Cache,
            at: At::Request,
            after_mark: false,
            states: 16,
            seed: 1,
            failures: 10,
        }
    }
}

impl Plan {
    fn args(&self) -> CrashesArgs {
        CrashesArgs {
            recording: NAME.into(),
            others: Vec::new(),
            check: "check".into(),
            model: self.model,
            loss: Vec::new(),
            at: self.at,
            after_mark: self.after_mark,
            from: 0,
            to: u64::MAX,
            every: 1,
            states: self.states.max(1),
            seed: self.seed,
            jobs: Some(1),
            timeout: Duration::MAX,
            files: None,
            server: false,
            nested: None,
            ignore: Vec::new(),
            time: None,
            failures: self.failures,
            case: None,
            keep: None,
            ledger: None,
            junit: None,
            html: None,
            cut_off: false,
            scratch: None,
            mounts: None,
        }
    }
}

/// A run that this process recorded.
pub struct Recorded {
    timeline: Arc<Timeline>,
    image: Arc<Mutex<LazyImage>>,
}

/// Result of an exploration, or of one case.
#[derive(Clone, Debug)]
pub struct Explored {
    /// The report, as `ftld crashes` prints it.
    pub text: String,
    /// Points at which power failed.
    pub points: u64,
    /// States, equal ones counted as often as they occurred.
    pub states: u64,
    /// States on which the check ran; no two are equal.
    pub checked: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// The shortest failing case.
    pub shortest: Option<Failing>,
}

/// A case that the check refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Its name, such as `cache/2/1=0`.
    pub case: String,
    /// Where power failed, and which bytes have which content: a sentence each.
    pub explanation: Vec<String>,
    /// The last mark before the cut.
    pub mark: Option<String>,
    /// How the check ended: `returned an error`, or `panicked at` and the place.
    pub ended: String,
    /// The error, or the panic's message.
    pub reason: String,
}

/// The check: gets a state and the last mark before the cut, and says what is wrong.
type Check<'a> = &'a mut dyn FnMut(Snapshot, Option<&str>) -> Result<(), String>;

impl Recorded {
    /// Returns whether a device may have this unit of atomicity.
    pub fn is_unit(bytes: u32) -> bool {
        UNIT_BYTES.contains(&bytes) && bytes.is_power_of_two()
    }

    /// Takes the requests of a device of `size` bytes, a multiple of its unit of atomicity, in
    /// bytes, in the order in which they ended.
    ///
    /// # Errors
    /// There is no request that changes, flushes or marks; the device is too large; the folder of
    /// temporary files cannot be written.
    pub fn new(size: u64, unit: u32, entries: Vec<Entry>) -> Result<Recorded, Failure> {
        let folder = place();
        let scratch = Scratch::of(&folder).map_err(|error| {
            let what = folder.display();
            Failure::failed(format!("{what}: {error}; set TMPDIR to another folder"))
        })?;
        let head = Head {
            program: env!("CARGO_PKG_VERSION").into(),
            size,
            logical_block: unit.min(512),
            physical_block: unit,
            has_data: true,
            started_unix_s: 0,
            clock: None,
            flash: None,
            write_cache: None,
        };
        let entries = entries.into_iter().map(Ok);
        let timeline = Timeline::of_entries(NAME, head, entries, scratch.path())?;
        let image = LazyImage {
            image: None,
            scratch,
        };
        Ok(Recorded {
            timeline: Arc::new(timeline),
            image: Arc::new(Mutex::new(image)),
        })
    }

    /// Returns the number of changes, FLUSHes and marks.
    pub fn counts(&self) -> [u64; 3] {
        self.timeline.counts().map(to_u64)
    }

    /// Runs the check on every state that a power cut can leave.
    ///
    /// # Errors
    /// There is no point of the kind that the plan wants, or the host refuses.
    pub fn explore(&self, plan: &Plan, check: Check<'_>) -> Result<Explored, Failure> {
        let args = plan.args();
        if args.model == Model::Flash {
            return Err(Failure::usage("a run in this process has no flash"));
        }
        if points(&self.timeline, &args).is_empty() {
            let [changes, flushes, marks] = self.counts();
            return Err(Failure::usage(format!(
                "no point to cut power at: the run has {changes} writes, {flushes} syncs and \
                 {marks} marks"
            )));
        }
        let shared = Shared::new(self.timeline.clone(), &args, Arc::default());
        let mut worker = Worker::new(&shared, self.judge(check, true));
        let mut report = explore::explore_here(&args, &shared, &mut worker)?;
        report.in_process = true;
        let places = Places::default();
        let about = self.about(&places);
        Ok(Explored {
            text: report::text(&report, &about),
            points: report.points,
            states: report.states,
            checked: report.checked,
            failed: report.failed,
            shortest: report.shortest().map(|failed| failing(failed, &about)),
        })
    }

    /// Runs the check on one state, of which a report has the name. A panic is also printed as any
    /// other.
    ///
    /// # Errors
    /// The run has no such case, or the host refuses.
    pub fn case(&self, case: &str, check: Check<'_>) -> Result<Explored, Failure> {
        let case = Case::parse(case).map_err(|_| {
            let form = "a report names them, such as cache/412/256-263=0";
            Failure::usage(format!("{case:?} is no case; {form}"))
        })?;
        let units = match &case {
            Case::Prefix { .. } => None,
            Case::Cache { units, .. } => Some(units),
            Case::Flash { .. } => return Err(Failure::usage("a run in this process has no flash")),
            Case::Nested { .. } => {
                return Err(Failure::usage("a run in this process has no recoveries"));
            }
        };
        let (point, choice) = explore::find(&self.timeline, case.entry(), units)?;
        let state = State::of(&point, &choice, &self.timeline.contents);
        let mark = point.mark.map(|mark| &*self.timeline.marks[index(mark)]);
        let mut judge = self.judge(check, false);
        let checked = judge.judge(&state, mark, &case, &|| false)?;
        let checked = checked.expect("this check is wanted");
        let failed = FailedCase {
            case,
            mark: mark.unwrap_or_default().to_owned(),
            said: checked.verdict.text(),
            output: checked.output,
            explained: Vec::new(),
        };
        let places = Places::default();
        let about = self.about(&places);
        let has_failed = !checked.verdict.passed();
        Ok(Explored {
            text: report::one(&failed, &about),
            points: 1,
            states: 1,
            checked: 1,
            failed: u64::from(has_failed),
            shortest: has_failed.then(|| failing(&failed, &about)),
        })
    }

    fn snapshot(&self, state: State) -> Snapshot {
        Snapshot {
            timeline: self.timeline.clone(),
            state,
            image: self.image.clone(),
        }
    }

    fn judge<'a>(&'a self, check: Check<'a>, quiet: bool) -> Function<'a> {
        Function {
            of: self,
            check,
            quiet,
        }
    }

    fn about<'a>(&'a self, places: &'a Places) -> About<'a> {
        About {
            timeline: &self.timeline,
            places,
        }
    }
}

fn failing(failed: &FailedCase, about: &About<'_>) -> Failing {
    Failing {
        case: failed.case.to_string(),
        explanation: about.lines(failed),
        mark: Some(failed.mark.clone()).filter(|mark| !mark.is_empty()),
        ended: failed.said.clone(),
        reason: failed.output.clone(),
    }
}

/// What the device contains after a cut.
#[derive(Clone)]
pub struct Snapshot {
    timeline: Arc<Timeline>,
    state: State,
    image: Arc<Mutex<LazyImage>>,
}

impl Snapshot {
    /// Reads the unit with this number.
    ///
    /// # Errors
    /// The temporary file cannot be read.
    pub fn read_unit(&self, unit: u64, buf: &mut [u8]) -> io::Result<()> {
        let slot = self
            .timeline
            .written
            .binary_search_by_key(&unit, |written| u64::from(*written));
        let content = slot.map_or(ZEROS, |slot| self.state.content(slot));
        self.timeline.contents.read(content, buf)
    }

    /// Returns the path of a raw, sparse image, which has this content until the next state is
    /// checked.
    ///
    /// # Errors
    /// The folder of temporary files is full.
    pub fn image(&self) -> io::Result<PathBuf> {
        self.image.lock().put(&self.state, &self.timeline)
    }
}

/// An image that is made when a check asks for it, and the folder that it is in.
struct LazyImage {
    image: Option<RawImage>,
    scratch: Scratch,
}

impl LazyImage {
    fn put(&mut self, state: &State, timeline: &Timeline) -> io::Result<PathBuf> {
        let image = match &mut self.image {
            Some(image) => image,
            none => none.insert(RawImage::create(
                self.scratch.path().join("image"),
                &timeline.devices[0],
                timeline.unit_bytes,
                timeline.written.clone(),
            )?),
        };
        image.put(state, &timeline.contents)?;
        Ok(image.path().to_owned())
    }
}

/// A function that checks.
struct Function<'a> {
    of: &'a Recorded,
    check: Check<'a>,
    /// Panics are not printed.
    quiet: bool,
}

impl Judge for Function<'_> {
    fn judge(
        &mut self,
        state: &State,
        mark: Option<&str>,
        _case: &Case,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<Option<Checked>, Failure> {
        if unwanted() {
            return Ok(None);
        }
        let snapshot = self.of.snapshot(state.clone());
        let (verdict, output) = match caught(self.quiet, || (self.check)(snapshot, mark)) {
            Ok(Ok(())) => (Verdict::Passed, String::new()),
            Ok(Err(why)) => (Verdict::Returned, why),
            Err((place, why)) => (Verdict::Panicked(place), why),
        };
        Ok(Some(Checked { verdict, output }))
    }
}

thread_local! {
    /// Whether this thread's panics are caught, and whether they are not printed.
    static CAUGHT: Cell<Option<bool>> = const { Cell::new(None) };
    /// Where this thread panicked last.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a check; returns place and message of a panic.
fn caught<T>(quiet: bool, run: impl FnOnce() -> T) -> Result<T, (String, String)> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let caught = CAUGHT.get();
            if caught.is_some() {
                let place = panic.location().map(ToString::to_string);
                PLACE.set(place.unwrap_or_default());
            }
            if caught != Some(true) {
                print(panic);
            }
        }));
    });
    let before = CAUGHT.replace(Some(quiet));
    let result = catch_unwind(AssertUnwindSafe(run));
    CAUGHT.set(before);
    result.map_err(|panic| (PLACE.take(), panic_text(&*panic).to_owned()))
}

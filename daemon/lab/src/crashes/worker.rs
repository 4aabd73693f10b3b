//! A thread that brings states into a raw image and runs the check on each.

use super::args::CrashesArgs;
use super::case::Case;
use super::check::{Check, Checked, Supervisor, Verdict};
use super::flash::Dead;
use super::image::{ImageDevice, RawImage};
use super::ledger::{Kept, Known};
use super::models::State;
use super::timeline::Timeline;
use ftld_device::transport::nbd::{Endpoint, ExportInfo, Limits, NbdUri, Server};
use ftld_kit::failure::Failure;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use twox_hash::XxHash3_64;

/// One case to check.
pub(super) struct Work {
    pub(super) case: Case,
    pub(super) mark: Option<u32>,
    pub(super) state: Source,
}

/// Where a state comes from.
pub(super) enum Source {
    State(State),
    /// Still to be mounted.
    Flash(Box<Dead>),
}

/// Result of one case.
pub(super) struct Done {
    pub(super) case: Case,
    pub(super) mark: Option<u32>,
    /// Key of content and mark: cases with equal keys are equal; `None` if there is no content.
    pub(super) key: Option<u128>,
    pub(super) verdict: Found,
    pub(super) took: Duration,
}

/// Result of a worker for a case.
pub(super) enum Found {
    /// An equal case was checked before, or is being checked.
    Equal,
    /// An earlier run checked an equal case.
    Known(Kept),
    Checked(Checked),
    /// The exploration had ended.
    Skipped,
}

/// State that all workers share.
pub(super) struct Shared {
    pub(super) timeline: Arc<Timeline>,
    pub(super) check: Check,
    /// Keys of the cases that were checked, or are being checked.
    pub(super) seen: Mutex<HashSet<u128>>,
    /// Verdicts of earlier runs.
    pub(super) known: Mutex<Known>,
    /// Whether the user has interrupted.
    interrupted: Arc<AtomicBool>,
    /// Whether a check could not be run.
    broken: AtomicBool,
    /// Failed states so far, and how many end the exploration; 0 for never.
    failures: AtomicU64,
    failures_max: u64,
    /// Failures whose output contains one of these texts do not count.
    ignored: Vec<String>,
    /// When the time of the exploration is up.
    end: Option<Instant>,
}

impl Shared {
    /// Nothing is checked yet.
    pub(super) fn new(
        timeline: Timeline,
        args: &CrashesArgs,
        interrupted: Arc<AtomicBool>,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            timeline: Arc::new(timeline),
            check: Check {
                command: args.check.clone(),
                timeout: args.timeout,
                server: args.server,
                files: args.files.clone(),
            },
            seen: Mutex::default(),
            known: Mutex::default(),
            interrupted,
            broken: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            failures_max: args.failures,
            ignored: args.ignore.clone(),
            end: args.time.map(|time| Instant::now() + time),
        })
    }

    /// Returns whether nothing more is to be checked: what waits is skipped, and running checks
    /// end.
    pub(super) fn is_over(&self) -> bool {
        self.is_interrupted() || self.has_enough() || self.time_is_up() || self.broken.load(Relaxed)
    }

    /// Returns whether the exploration has had its time.
    pub(super) fn time_is_up(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Returns whether a state failed as the user knows that it does.
    pub(super) fn ignores(&self, checked: &Checked) -> bool {
        !checked.verdict.passed() && self.ignores_said(&checked.verdict.text(), &checked.output)
    }

    pub(super) fn ignores_said(&self, said: &str, output: &str) -> bool {
        self.ignores_text(said) || self.ignores_text(output)
    }

    fn ignores_text(&self, output: &str) -> bool {
        self.ignored.iter().any(|text| output.contains(text))
    }

    /// Returns whether a state failed in a way that counts.
    pub(super) fn fails(&self, checked: &Checked) -> bool {
        !checked.verdict.passed() && !self.ignores(checked)
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Returns whether enough states have failed.
    pub(super) fn has_enough(&self) -> bool {
        self.failures_max > 0 && self.failures.load(Relaxed) >= self.failures_max
    }

    /// Counts a failed state; returns false if enough had failed before.
    pub(super) fn count_failure(&self) -> bool {
        let before = self.failures.fetch_add(1, Relaxed);
        self.failures_max == 0 || before < self.failures_max
    }

    /// Ends the exploration, because a check could not be run.
    pub(super) fn give_up(&self) {
        self.broken.store(true, Relaxed);
    }

    /// Returns what identifies a state with its obligation.
    pub(super) fn key(&self, state: &State, mark: Option<u32>) -> u128 {
        let text = mark.map_or("", |mark| self.mark(mark));
        let mark = u128::from(XxHash3_64::oneshot(text.as_bytes()));
        state.sum ^ (mark | mark << 64)
    }

    /// Returns the verdict of an earlier run.
    pub(super) fn known(&self, key: u128) -> Option<Kept> {
        self.known.lock().get(&key).cloned()
    }

    /// Returns the text of a mark.
    pub(super) fn mark(&self, mark: u32) -> &str {
        &self.timeline.marks[ftld_kit::convert::index(mark)]
    }
}

/// An image, its NBD server, and a supervisor of the checks.
pub(super) struct Worker {
    shared: Arc<Shared>,
    folder: PathBuf,
    image: RawImage,
    uri: String,
    /// `None` before the first check, and after one that was ended.
    supervisor: Option<Supervisor>,
    /// Ends the NBD server when it is dropped.
    _server: oneshot::Sender<()>,
}

impl Worker {
    /// Creates the image and starts its server.
    ///
    /// # Errors
    /// The host refuses.
    pub(super) fn start(
        shared: &Arc<Shared>,
        scratch: &Path,
        number: u32,
    ) -> Result<Worker, Failure> {
        let folder = scratch.join(number.to_string());
        let failed = |error: std::io::Error| Failure::io(folder.display(), &error);
        std::fs::create_dir(&folder).map_err(failed)?;
        let path = folder.join("image");
        let timeline = &shared.timeline;
        let (size, unit) = (timeline.head.size, timeline.unit_bytes);
        let image = RawImage::create(path.clone(), size, unit, timeline.written.clone());
        let image = image.map_err(failed)?;
        let device = ImageDevice { path, size, unit };
        let (uri, server) = serve(device, folder.join("nbd"))?;
        Ok(Worker {
            shared: shared.clone(),
            folder,
            image,
            uri,
            supervisor: None,
            _server: server,
        })
    }

    pub(super) fn image(&self) -> &Path {
        self.image.path()
    }

    /// Ends the exploration, because a check could not be run.
    pub(super) fn give_up(&self) {
        self.shared.give_up();
    }

    /// Brings a state into the image.
    ///
    /// # Errors
    /// The image cannot be written.
    pub(super) fn put(&mut self, state: &State) -> Result<(), Failure> {
        self.image
            .put(state, &self.shared.timeline.contents)
            .map_err(|error| Failure::io(self.image.path().display(), &error))
    }

    /// Checks one case, unless an equal one was checked.
    ///
    /// # Errors
    /// The image cannot be written, or the check cannot be run.
    pub(super) fn run(&mut self, work: Work) -> Result<Done, Failure> {
        let began = Instant::now();
        let shared = self.shared.clone();
        let done = |key, verdict| Done {
            case: work.case.clone(),
            mark: work.mark,
            key,
            verdict,
            took: began.elapsed(),
        };
        if shared.is_over() {
            return Ok(done(None, Found::Skipped));
        }
        let (key, checked) = match work.state {
            Source::State(state) => self.check_new(&state, work.mark, &work.case)?,
            Source::Flash(dead) => match mounted(*dead, &shared.timeline) {
                Ok(state) => self.check_new(&state, work.mark, &work.case)?,
                Err(why) => {
                    let checked = Checked {
                        verdict: Verdict::NotMounted(why.message),
                        output: String::new(),
                    };
                    (None, Found::Checked(checked))
                }
            },
        };
        let is_failure = matches!(&checked, Found::Checked(of) if shared.fails(of));
        if is_failure && !shared.count_failure() {
            return Ok(done(key, Found::Skipped));
        }
        Ok(done(key, checked))
    }

    /// Checks a state, unless an equal one was checked. Returns also its key.
    fn check_new(
        &mut self,
        state: &State,
        mark: Option<u32>,
        case: &Case,
    ) -> Result<(Option<u128>, Found), Failure> {
        let shared = self.shared.clone();
        let key = shared.key(state, mark);
        if !shared.seen.lock().insert(key) {
            return Ok((Some(key), Found::Equal));
        }
        if let Some(kept) = shared.known(key) {
            return Ok((Some(key), Found::Known(kept)));
        }
        let checked = self.check(state, mark, case, || shared.is_over())?;
        Ok((Some(key), checked.map_or(Found::Skipped, Found::Checked)))
    }

    /// Brings a state into the image and runs the check on it; returns `None` once `unwanted` is
    /// true.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub(super) fn check(
        &mut self,
        state: &State,
        mark: Option<u32>,
        case: &Case,
        unwanted: impl Fn() -> bool,
    ) -> Result<Option<Checked>, Failure> {
        let shared = self.shared.clone();
        self.put(state)?;
        let mut supervisor = match self.supervisor.take() {
            Some(supervisor) => supervisor,
            None => Supervisor::start(&self.folder, self.image.path(), &self.uri)
                .map_err(|error| Failure::io("the supervisor of a check", &error))?,
        };
        let mark = mark.map_or("", |mark| shared.mark(mark));
        let checked = supervisor.run(&shared.check, mark, &case.to_string(), unwanted)?;
        let Some(mut checked) = checked else {
            return Ok(None);
        };
        self.supervisor = Some(supervisor);
        if self.image.was_resized() {
            checked.verdict = Verdict::Resized;
        }
        Ok(Some(checked))
    }
}

/// Mounts a flash. A scheme that panics does not mount it.
fn mounted(dead: Dead, timeline: &Timeline) -> Result<State, Failure> {
    let mount = AssertUnwindSafe(|| dead.mount(timeline));
    std::panic::catch_unwind(mount).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Failure::failed(format!(
            "panic: {}",
            text.unwrap_or("without a text")
        )))
    })
}

/// Serves the image on a unix socket until the sender is dropped.
fn serve(device: ImageDevice, socket: PathBuf) -> Result<(String, oneshot::Sender<()>), Failure> {
    let name = socket.display().to_string();
    let failed = |error: std::io::Error| Failure::io(format!("NBD socket {name}"), &error);
    let (stop, stopped) = oneshot::channel::<()>();
    let (tell, told) = sync_channel(1);
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(tell.send(Err(error))),
        };
        runtime.block_on(async {
            let endpoint = Endpoint::Unix(socket);
            let info = ExportInfo::default();
            let bound = Server::bind(&endpoint, Arc::new(device), info, Limits::default(), None);
            let bound = bound.and_then(|server| Ok((server.uri()?, server)));
            match bound {
                Ok((uri, server)) => {
                    let _ = tell.send(Ok(NbdUri::to_string(&uri)));
                    server.run(async { drop(stopped.await) }).await;
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        });
    };
    std::thread::Builder::new()
        .name("ftld-nbd".into())
        .spawn(serve)
        .map_err(failed)?;
    let lost = || Failure::failed(format!("{name}: the server ended before it was ready"));
    let uri = told.recv().map_err(|_| lost())?.map_err(failed)?;
    Ok((uri, stop))
}

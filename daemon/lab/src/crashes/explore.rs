//! Visits all states of a recording: makes them in order, checks them on all cores, skips equal
//! ones.
//!
//! Points are visited in passes, every 64th first, so that a common failure is found early.

use super::args::{At, CrashesArgs, Model};
use super::case::Case;
use super::cursor::{Cursor, Point};
use super::flash::{Device, Run};
use super::judge::{Command, Judge};
use super::ledger::{Kept, Ledger, Recovery};
use super::models::{self, State};
use super::places::Places;
use super::report::{FailedCase, Report};
use super::shrink::shrink;
use super::timeline::{Timeline, What};
use super::worker::{Done, Found, Met, Shared, Source, Work, Worker};
use ftld_kit::convert::{to_f64, to_u64};
use ftld_kit::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, channel, sync_channel};
use std::time::{Duration, Instant};

/// Distances of the points of each pass.
const STRIDES: [usize; 4] = [64, 16, 4, 1];
/// Largest number of failed states that are shrunk.
const SHRUNK_MAX: usize = 3;
/// Largest number of failed states whose places get names.
const NAMED_MAX: usize = 3;

/// Returns the events after which power fails; by the model `flash`, those in whose operations it
/// fails. After its event a FLUSH has taken effect, so power fails after the event before it.
pub(super) fn points(timeline: &Timeline, args: &CrashesArgs) -> Vec<usize> {
    let (at, model) = (args.at, args.model);
    let wanted = |what: &What| match at {
        At::Request => true,
        At::Flush => matches!(what, What::Flush { .. }),
        At::Mark => matches!(what, What::Mark(_)),
    };
    let events = timeline.events.iter().enumerate();
    let mut marked = !args.after_mark;
    events
        .filter(|(_, event)| {
            let is_mark = matches!(event.what, What::Mark(_));
            // The first mark is a point: its promise holds there.
            marked |= is_mark;
            marked && (args.from..=args.to).contains(&event.number) && wanted(&event.what)
        })
        .filter_map(
            |(index, _)| match at == At::Flush && model != Model::Flash {
                true => index.checked_sub(1),
                false => Some(index),
            },
        )
        .filter(|index| timeline.whole.contains(index))
        .step_by(ftld_kit::convert::to_usize(args.every))
        .collect()
}

/// An exploration in progress.
pub(super) struct Explorer<'a> {
    args: &'a CrashesArgs,
    shared: Arc<Shared>,
    ledger: Option<Ledger>,
    report: Report,
    /// Entry after which the first checked state was taken.
    first: Option<u64>,
    hands: Hands<'a>,
    bar: ProgressBar,
}

/// Who checks the states.
enum Hands<'a> {
    /// Threads, which take what is sent.
    Threads {
        work: SyncSender<Work>,
        done: Receiver<Result<Done, Failure>>,
        waiting: u64,
    },
    /// This thread, at once.
    Here(&'a mut dyn FnMut(Work) -> Result<Done, Failure>),
}

/// Explores the recording.
///
/// # Errors
/// The check cannot be run, or the host refuses.
pub(super) fn explore(
    args: &CrashesArgs,
    shared: &Arc<Shared>,
    scratch: &Path,
    jobs: u32,
) -> Result<Report, Failure> {
    let timeline = shared.timeline.clone();
    let points = points(&timeline, args);
    if points.is_empty() {
        return Err(no_point(&timeline, args));
    }
    let start = |number| {
        let command = Command::start(args, &timeline, scratch, number)?;
        Ok(Worker::new(shared, command))
    };
    let mut workers = (1..jobs).map(start).collect::<Result<Vec<_>, _>>()?;
    workers.push(start(0)?);
    let (ledger, known) = Ledger::open(args)?;
    *shared.known.lock() = known;
    let began = Instant::now();
    let (work, queue) = sync_channel::<Work>(2);
    let queue = parking_lot::Mutex::new(queue);
    let (tell, done) = channel();
    let mut explorer = Explorer {
        args,
        shared: shared.clone(),
        ledger,
        report: Report::new(args, &timeline, &points, jobs),
        first: None,
        hands: Hands::Threads {
            work,
            done,
            waiting: 0,
        },
        bar: bar(to_u64(points.len())),
    };
    let (report, mut workers) = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let (queue, tell) = (&queue, tell.clone());
                scope.spawn(move || {
                    loop {
                        let next = queue.lock().recv();
                        let Ok(next) = next else { return worker };
                        let done = worker.run(next);
                        if done.is_err() {
                            worker.give_up();
                        }
                        if tell.send(done).is_err() {
                            return worker;
                        }
                    }
                })
            })
            .collect();
        drop(tell);
        let visited = explorer.visit(&timeline, &points);
        let visited = visited.and_then(|()| explorer.drain());
        if visited.is_err() {
            shared.give_up();
        }
        // Without the sender and receiver the workers end.
        let Explorer {
            report, hands, bar, ..
        } = explorer;
        drop(hands);
        bar.finish_and_clear();
        let workers: Vec<Worker<Command>> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a worker does not panic"))
            .collect();
        visited.map(|()| (report, workers))
    })?;
    let mut report = report;
    report.seconds = began.elapsed().as_secs_f64();
    if let Some(worker) = workers.first_mut() {
        shrink_failed(args, shared, &mut report, worker)?;
        // A check that cannot run any more does not take the report with it.
        report.fails_uncut = report.failed > 0
            && !report.interrupted
            && fails_uncut(shared, worker).unwrap_or(false);
        let shown: Vec<Case> = report
            .shortest()
            .map(|failed| failed.case.clone())
            .into_iter()
            .chain(report.smallest(NAMED_MAX))
            .collect();
        for case in shown.iter().filter(|_| !report.interrupted) {
            name_places(&mut report.places, shared, &mut worker.judge, scratch, case)?;
        }
    }
    Ok(report)
}

/// Explores the recording with one worker on this thread.
///
/// # Errors
/// The check cannot be run, or the host refuses.
pub(super) fn explore_here<J: Judge>(
    args: &CrashesArgs,
    shared: &Arc<Shared>,
    worker: &mut Worker<J>,
) -> Result<Report, Failure> {
    let timeline = shared.timeline.clone();
    let points = points(&timeline, args);
    if points.is_empty() {
        return Err(no_point(&timeline, args));
    }
    let began = Instant::now();
    let mut run = |work| worker.run(work);
    let mut explorer = Explorer {
        args,
        shared: shared.clone(),
        ledger: None,
        report: Report::new(args, &timeline, &points, 1),
        first: None,
        hands: Hands::Here(&mut run),
        bar: ProgressBar::hidden(),
    };
    explorer.visit(&timeline, &points)?;
    let mut report = explorer.report;
    report.seconds = began.elapsed().as_secs_f64();
    shrink_failed(args, shared, &mut report, worker)?;
    Ok(report)
}

/// Says why there is no point.
fn no_point(timeline: &Timeline, args: &CrashesArgs) -> Failure {
    let [_, _, marks] = timeline.counts();
    if args.after_mark && marks == 0 {
        return Failure::usage(
            "--after-mark: the recording has no mark; `ftld mark TEXT` while it runs sets one",
        );
    }
    let last = timeline.events.last().map_or(0, |event| event.number);
    if args.from > last || args.to < args.from {
        let to = args.to.min(last);
        return Failure::usage(format!(
            "--from {} --to {to}: the recording has entries 1 to {last}; \
             `ftld inspect RECORDING --entries` lists them",
            args.from
        ));
    }
    Failure::usage(format!(
        "--at {}: the recording has no point of this kind after entry {} up to {}",
        super::report::name(&args.at),
        args.from.saturating_sub(1),
        args.to.min(last)
    ))
}

fn bar(points: u64) -> ProgressBar {
    let bar = ProgressBar::new(points);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} points  {msg}  {elapsed}");
    bar.set_style(style.expect("the template is right"));
    bar
}

impl Explorer<'_> {
    fn visit(&mut self, timeline: &Timeline, points: &[usize]) -> Result<(), Failure> {
        if self.args.model == Model::Flash {
            return self.visit_flash(timeline, points);
        }
        // The whole recording first: a check that refuses it refuses everything.
        let last = [*points.last().expect("points")];
        self.pass(timeline, &last, true)?;
        let mut visited = vec![false; points.len()];
        for stride in STRIDES {
            let pass: Vec<usize> = (0..points.len())
                .step_by(stride)
                .filter(|at| !std::mem::replace(&mut visited[*at], true))
                .map(|at| points[at])
                .collect();
            self.pass(timeline, &pass, false)?;
        }
        Ok(())
    }

    /// Visits points in order; `only_newest` takes one state of each and does not count the point.
    fn pass(
        &mut self,
        timeline: &Timeline,
        points: &[usize],
        only_newest: bool,
    ) -> Result<(), Failure> {
        let mut cursor = Cursor::new(timeline);
        let mut points = points.iter().peekable();
        while let Some(event) = cursor.step() {
            let Some(next) = points.peek() else { break };
            if **next != event {
                continue;
            }
            points.next();
            let point = cursor.point();
            if only_newest {
                let (case, choice) = models::prefix(&point);
                self.first = Some(point.number);
                self.report.states += 1;
                self.offer(&point, case, &choice)?;
                continue;
            }
            let point = timeline.damaged(point)?;
            let newest = models::newest(&point);
            let choices = match self.args.model {
                Model::Prefix => vec![newest.clone()],
                Model::Cache | Model::Flash => {
                    self.report
                        .coverage
                        .add(models::count(&point), self.args.states);
                    models::cache(&point, &timeline.losses, self.args.states, self.args.seed)
                }
            };
            self.report.strip.visited(point.number);
            for choice in choices {
                let case = match self.args.model {
                    Model::Prefix => models::prefix(&point).0,
                    Model::Cache | Model::Flash => Case::cache(point.number, &point.open, &choice),
                };
                // The first state was counted when it was taken.
                let is_first = self.first == Some(point.number) && choice == newest;
                self.report.states += u64::from(!is_first);
                self.offer(&point, case, &choice)?;
            }
            if self.is_over() {
                break;
            }
            self.advance();
        }
        Ok(())
    }

    fn visit_flash(&mut self, timeline: &Timeline, points: &[usize]) -> Result<(), Failure> {
        let device = Arc::new(Device::of(&self.args.recording, timeline)?);
        let mut run = Run::start(device, timeline)?;
        let mut points = points.iter().peekable();
        let mut mark = None;
        let mut armed = false;
        for (index, event) in timeline.events.iter().enumerate() {
            if let What::Mark(number) = event.what {
                mark = Some(number);
            }
            armed |= points.next_if(|next| **next == index).is_some();
            if !armed || matches!(event.what, What::Mark(_)) {
                run.step(index)?;
                continue;
            }
            armed = false;
            let mut operations = run.step_recorded(index)?;
            self.report.strip.visited(event.number);
            let seed = self.args.seed ^ event.number << 20;
            for (op, outcome) in run.draw(&operations, self.args.states, seed) {
                let dead = run.cut(&mut operations, op, outcome);
                let dead = dead.expect("a drawn operation and outcome exist");
                self.report.states += 1;
                self.send(Work {
                    case: Case::Flash {
                        entry: event.number,
                        op,
                        outcome,
                    },
                    mark,
                    state: Source::Flash(Box::new(dead)),
                })?;
            }
            if self.is_over() {
                break;
            }
            self.advance();
        }
        Ok(())
    }

    /// Checks the state of a choice, unless an equal state was checked before.
    fn offer(&mut self, point: &Point, case: Case, choice: &[u32]) -> Result<(), Failure> {
        let state = State::of(point, choice, &self.shared.timeline.contents);
        let key = self.shared.key(&state, point.mark);
        if self.shared.seen.lock().contains(key) {
            return Ok(());
        }
        if let Some(kept) = self.shared.known(key, false) {
            let met = self.shared.seen.lock().meet(key, false);
            self.note_known(kept, met == Met::New);
            return Ok(());
        }
        self.send(Work {
            case,
            mark: point.mark,
            state: Source::State(state),
        })
    }

    fn send(&mut self, work: Work) -> Result<(), Failure> {
        if self.is_over() {
            return Ok(());
        }
        self.take_done()?;
        let done = match &mut self.hands {
            Hands::Here(run) => run(work)?,
            Hands::Threads {
                work: to, waiting, ..
            } => {
                *waiting += 1;
                return to.send(work).map_err(|_| ended());
            }
        };
        self.note(done)
    }

    /// Takes the results that are there.
    fn take_done(&mut self) -> Result<(), Failure> {
        while let Hands::Threads { done, waiting, .. } = &mut self.hands {
            match done.try_recv() {
                Ok(done) => {
                    *waiting -= 1;
                    self.note(done?)?;
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        Ok(())
    }

    /// Waits for all results.
    fn drain(&mut self) -> Result<(), Failure> {
        while let Hands::Threads { done, waiting, .. } = &mut self.hands
            && *waiting > 0
        {
            match done.recv_timeout(Duration::from_millis(200)) {
                Ok(done) => {
                    *waiting -= 1;
                    self.note(done?)?;
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => self.show(),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Err(ended()),
            }
        }
        Ok(())
    }

    fn note(&mut self, mut done: Done) -> Result<(), Failure> {
        let mut recovery = None;
        if let Some(recovered) = done.recovered.take() {
            self.report.recovered(recovered.keys.len());
            self.report.recoveries_cut_off += u64::from(recovered.was_cut_off);
            for done in recovered.done {
                self.note(done)?;
            }
            let plan = self.shared.nested.as_ref().filter(|_| recovered.is_whole);
            recovery = plan.map(|plan| Recovery {
                plan: plan.text.clone(),
                keys: recovered.keys,
            });
        }
        let checked = match &done.verdict {
            Found::Equal => return Ok(()),
            Found::Known(kept) => {
                self.note_known(kept.clone(), done.counts);
                return Ok(());
            }
            Found::Skipped => {
                self.is_over();
                return Ok(());
            }
            Found::Checked(checked) => checked,
        };
        let mark = done.mark.map_or("", |mark| self.shared.mark(mark));
        let of_this_run = checked.verdict.is_of_this_run();
        if let (Some(ledger), Some(key), false) = (&mut self.ledger, done.key, of_this_run) {
            ledger.add(key, &done, mark, checked, recovery)?;
        }
        if !done.counts {
            return Ok(());
        }
        self.report.checked += 1;
        self.report.nested_checked += u64::from(done.case.is_nested());
        self.report.check_seconds += done.took.as_secs_f64();
        if self.shared.ignores(checked) {
            self.report.ignored += 1;
        } else if !checked.verdict.passed() {
            self.report.timed_out += u64::from(checked.verdict.is_timeout());
            self.report.add(FailedCase {
                mark: mark.to_owned(),
                said: checked.verdict.text(),
                output: checked.output.clone(),
                explained: done.explained,
                case: done.case,
            });
        }
        Ok(())
    }

    /// Notes a verdict of an earlier run, and those of the recovery; `counts` is false if an equal
    /// state was counted.
    fn note_known(&mut self, kept: Kept, counts: bool) {
        if let (Some(recovery), Some(_)) = (&kept.recovery, &self.shared.nested) {
            self.report.recovered(recovery.keys.len());
            for key in &recovery.keys {
                let met = self.shared.seen.lock().meet(*key, true);
                let nested = self.shared.known(*key, true);
                if let Some(nested) = nested.filter(|_| met == Met::New) {
                    self.note_known(
                        Kept {
                            recovery: None,
                            ..nested
                        },
                        true,
                    );
                }
            }
        }
        if !counts {
            return;
        }
        let ignored = !kept.passed && self.shared.ignores_said(&kept.said, &kept.output);
        let failed = !kept.passed && !ignored;
        if failed && !self.shared.count_failure() {
            self.is_over();
            return;
        }
        self.report.from_ledger += 1;
        self.report.checked += 1;
        self.report.nested_checked += u64::from(kept.case.is_nested());
        self.report.ignored += u64::from(ignored);
        if failed {
            self.report.add(FailedCase {
                case: kept.case,
                mark: kept.mark,
                said: kept.said,
                output: kept.output,
                explained: kept.explained,
            });
        }
    }

    fn advance(&mut self) {
        self.report.points += 1;
        self.bar.inc(1);
        self.show();
    }

    fn show(&self) {
        let rate = to_f64(self.report.checked) / self.bar.elapsed().as_secs_f64().max(0.001);
        self.bar.set_message(format!(
            "{} states, {} checked ({rate:.0}/s), {} failed",
            self.report.states, self.report.checked, self.report.failed
        ));
    }

    /// Returns whether the run is over: enough states have failed, or the user has interrupted it.
    /// Records the reason in the report.
    fn is_over(&mut self) -> bool {
        self.report.interrupted |= self.shared.is_interrupted();
        self.report.stopped |= self.shared.has_enough();
        self.report.time_is_up |= self.shared.time_is_up();
        self.shared.is_over()
    }
}

fn ended() -> Failure {
    Failure::failed("all checking threads have ended")
}

/// Returns whether the check fails on the state after the last entry, with all requests.
fn fails_uncut<J: Judge>(shared: &Shared, worker: &mut Worker<J>) -> Result<bool, Failure> {
    let timeline = &shared.timeline;
    // The end of a recording that was cut off is a cut.
    let last = timeline.events[timeline.whole.clone()].last();
    let Some(last) = last.filter(|_| !timeline.was_cut_off) else {
        return Ok(false);
    };
    let (point, choice) = find(timeline, last.number, None)?;
    let state = State::of(&point, &choice, &timeline.contents);
    let case = Case::Prefix { entry: last.number };
    let checked = worker.check(&state, point.mark, &case, || shared.is_interrupted())?;
    Ok(checked.is_some_and(|checked| shared.fails(&checked)))
}

/// Shrinks the smallest failed cases; the report then names the shortest.
fn shrink_failed<J: Judge>(
    args: &CrashesArgs,
    shared: &Arc<Shared>,
    report: &mut Report,
    worker: &mut Worker<J>,
) -> Result<(), Failure> {
    if args.model != Model::Cache || report.interrupted {
        return Ok(());
    }
    let smallest: Vec<Case> = report.smallest(SHRUNK_MAX);
    for case in smallest {
        let Case::Cache { entry, units } = &case else {
            continue;
        };
        // A ledger may name a case that this recording does not have.
        let Ok((point, choice)) = find(&shared.timeline, *entry, Some(units)) else {
            continue;
        };
        if let Some(shrunk) = shrink(worker, shared, &point, choice)? {
            let mark = point.mark.map_or("", |mark| shared.mark(mark));
            report.shrunk(FailedCase {
                case: shrunk.case,
                mark: mark.to_owned(),
                said: shrunk.checked.verdict.text(),
                output: shrunk.checked.output,
                explained: Vec::new(),
            });
        }
    }
    Ok(())
}

/// Names the places of a case in the words of the file system.
///
/// # Errors
/// The host refuses the image.
pub(super) fn name_places(
    places: &mut Places,
    shared: &Shared,
    command: &mut Command,
    scratch: &Path,
    case: &Case,
) -> Result<(), Failure> {
    let Case::Cache { entry, units } = case.outer() else {
        return Ok(());
    };
    let Ok((point, newest)) = find(&shared.timeline, *entry, None) else {
        return Ok(());
    };
    let timeline = &shared.timeline;
    command.put(&State::of(&point, &newest, &timeline.contents))?;
    for (number, (device, image)) in timeline.devices.iter().zip(command.images()).enumerate() {
        let of_device = units
            .iter()
            .filter(|run| timeline.device_of(run.0) == number);
        let offsets: Vec<u64> = of_device
            .map(|run| device.offset(run.0, timeline.unit_bytes))
            .collect();
        let copy = scratch.join("places");
        places.add((*entry, number), image, &copy, &offsets);
    }
    Ok(())
}

/// Returns the point after an entry, and the choice of candidates there.
///
/// # Errors
/// There is no such point, or no such unit at it.
pub(super) fn find(
    timeline: &Timeline,
    entry: u64,
    units: Option<&super::case::Deviations>,
) -> Result<(Point, Vec<u32>), Failure> {
    let mut cursor = Cursor::new(timeline);
    while let Some(event) = cursor.step() {
        if timeline.events[event].number == entry {
            let point = timeline.damaged(cursor.point())?;
            let choice = match units {
                Some(units) => Case::choice(units, &point.open)?,
                None => models::newest(&point),
            };
            return Ok((point, choice));
        }
    }
    let of = match timeline.is_recovery {
        true => "recovery",
        false => "recording",
    };
    Err(Failure::usage(format!(
        "entry {entry} of the {of} is no write, trim, FLUSH or mark"
    )))
}

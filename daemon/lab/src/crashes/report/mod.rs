//! Report of an exploration: as text, JSON, JUnit and one HTML page.

mod coverage;
mod groups;
mod html;
mod junit;
mod text;

pub(super) use coverage::{Coverage, Strip};
pub(super) use html::html;
pub(super) use junit::junit;
pub(super) use text::{one, text};

use super::args::{At, CrashesArgs, Loss, Model};
use super::case::Case;
use super::places::Places;
use super::timeline::{Timeline, What};
use ftld_kit::convert::{to_f64, to_u64};
use ftld_kit::quote::shell;
use ftld_traces::recording::Kind;
use groups::Groups;
use serde_json::{Value, json};

/// Largest number of failed cases in a report.
const KEPT_MAX: usize = 100;

/// A case that the check refused.
#[derive(Clone, Debug)]
pub(super) struct FailedCase {
    pub(super) case: Case,
    /// Text of the last mark before the cut; empty without one.
    pub(super) mark: String,
    pub(super) said: String,
    pub(super) output: String,
    /// Of a state of a recovery: what its second cut means, one sentence a line.
    pub(super) explained: Vec<String>,
}

impl FailedCase {
    /// Returns what makes a case small: one cut, few deviating units, then few entries.
    fn size(&self) -> (bool, u64, u64) {
        let case = &self.case;
        (case.is_nested(), case.deviating(), case.entry())
    }
}

/// Result of an exploration.
#[derive(Debug)]
pub(super) struct Report {
    /// The recordings of all devices.
    pub(super) recordings: Vec<String>,
    pub(super) check: String,
    /// The check is a function in this process.
    pub(super) in_process: bool,
    /// The check stays up.
    server: bool,
    /// Folder whose files the check gets.
    files: Option<String>,
    /// Options with which it gets a state mounted.
    mounts: Vec<String>,
    pub(super) model: Model,
    pub(super) at: At,
    pub(super) states_per_point: u32,
    pub(super) loss: Vec<Loss>,
    /// The check also fails on the last state, without a cut.
    pub(super) fails_uncut: bool,
    /// Largest number of states of a recovery; `None` if recoveries are not cut.
    nested: Option<u32>,
    /// Recoveries that were cut.
    pub(super) recoveries: u64,
    /// States of them on which the check ran.
    pub(super) nested_checked: u64,
    /// Recoveries of which the rest was not kept.
    pub(super) recoveries_cut_off: u64,
    pub(super) seed: u64,
    pub(super) jobs: u32,
    /// Changes, FLUSHes and marks of the recording.
    pub(super) counts: [usize; 3],
    pub(super) was_cut_off: bool,
    pub(super) points_all: u64,
    /// Points visited.
    pub(super) points: u64,
    /// States, equal ones counted as often as they occurred.
    pub(super) states: u64,
    /// States on which the check ran; no two are equal.
    pub(super) checked: u64,
    /// Those of them whose verdict was in the ledger.
    pub(super) from_ledger: u64,
    /// Whether verdicts are kept in a file.
    pub(super) has_ledger: bool,
    pub(super) failed: u64,
    /// Failed states that the user asked to ignore.
    pub(super) ignored: u64,
    pub(super) timed_out: u64,
    pub(super) coverage: Coverage,
    pub(super) strip: Strip,
    /// The failed states by what the check said.
    groups: Groups,
    /// Names of places of the smallest failed cases.
    pub(super) places: Places,
    /// The smallest of the failed cases, the smallest first.
    pub(super) cases: Vec<FailedCase>,
    /// A case that fails with fewer deviating units than any that was visited.
    pub(super) shortest: Option<FailedCase>,
    /// Enough states had failed.
    pub(super) stopped: bool,
    /// The time of the exploration was up.
    pub(super) time_is_up: bool,
    pub(super) interrupted: bool,
    pub(super) seconds: f64,
    /// Time of all checks, summed over the jobs.
    pub(super) check_seconds: f64,
}

impl Report {
    /// `points` are the events after which power fails.
    pub(super) fn new(
        args: &CrashesArgs,
        timeline: &Timeline,
        points: &[usize],
        jobs: u32,
    ) -> Report {
        let entries = points.iter().map(|event| timeline.events[*event].number);
        Report {
            recordings: args
                .recordings()
                .map(|path| path.display().to_string())
                .collect(),
            check: args.check.clone(),
            in_process: false,
            server: args.server,
            files: args.files.clone(),
            mounts: args.mount_options(),
            model: args.model,
            at: args.at,
            states_per_point: args.states,
            loss: args.loss.clone(),
            fails_uncut: false,
            nested: args.nested,
            recoveries: 0,
            nested_checked: 0,
            recoveries_cut_off: 0,
            seed: args.seed,
            jobs,
            counts: timeline.counts(),
            was_cut_off: timeline.was_cut_off,
            points_all: to_u64(points.len()),
            points: 0,
            states: 0,
            checked: 0,
            from_ledger: 0,
            has_ledger: args.ledger.is_some(),
            failed: 0,
            ignored: 0,
            timed_out: 0,
            coverage: Coverage::default(),
            strip: Strip::new(entries.collect()),
            groups: Groups::default(),
            places: Places::default(),
            cases: Vec::new(),
            shortest: None,
            stopped: false,
            time_is_up: false,
            interrupted: false,
            seconds: 0.0,
            check_seconds: 0.0,
        }
    }

    /// Returns the names of the recordings.
    pub(super) fn recording(&self) -> String {
        self.recordings.join(", ")
    }

    /// Adds a failed case; only the smallest are kept.
    pub(super) fn add(&mut self, case: FailedCase) {
        self.failed += 1;
        self.groups.add(&case);
        self.strip.failed(case.case.entry());
        let size = case.size();
        let at = self.cases.partition_point(|kept| kept.size() <= size);
        if at < KEPT_MAX {
            self.cases.insert(at, case);
            self.cases.truncate(KEPT_MAX);
        }
    }

    /// Notes a recovery that had this number of states.
    pub(super) fn recovered(&mut self, states: usize) {
        self.recoveries += u64::from(states > 0);
        self.states += to_u64(states);
    }

    /// Returns what was found in recoveries; `None` if they are not cut.
    pub(super) fn in_recoveries(&self) -> Option<String> {
        self.nested?;
        let cut_off = match self.recoveries_cut_off {
            0 => String::new(),
            some => format!(
                "; {some} of them were longer than {}, the rest was not cut",
                ftld_kit::size::show_size(super::tape::RECOVERY_MAX)
            ),
        };
        Some(match self.recoveries {
            0 if self.checked == self.failed => return None,
            0 => "--nested: the check changed nothing through FTLD_URI or a mount in User-Mode Linux, \
                  so no recovery was cut"
                .into(),
            1 => format!("{} of them are states of 1 recovery{cut_off}", self.nested_checked),
            several => format!(
                "{} of them are states of {several} recoveries{cut_off}",
                self.nested_checked
            ),
        })
    }

    /// Returns the smallest failed cases.
    pub(super) fn smallest(&self, most: usize) -> Vec<Case> {
        let cases = self.cases.iter().take(most);
        cases.map(|failed| failed.case.clone()).collect()
    }

    /// Offers a case that was shrunk from a failed one.
    pub(super) fn shrunk(&mut self, case: FailedCase) {
        let size = case.size();
        if self.shortest().is_none_or(|known| size < known.size()) {
            self.shortest = Some(case);
        }
    }

    /// Returns the shortest failing case.
    pub(super) fn shortest(&self) -> Option<&FailedCase> {
        self.shortest.as_ref().or(self.cases.first())
    }

    /// Returns the command that shows a case again, or the call.
    pub(super) fn command(&self, case: &Case) -> String {
        if self.in_process {
            return format!("run.case(\"{case}\", check)");
        }
        let mut words = ["ftld", "crashes"].map(str::to_owned).to_vec();
        words.extend(self.recordings.iter().cloned());
        let case = case.to_string();
        words.extend(["--check", &self.check, "--case", &case].map(str::to_owned));
        if !self.loss.is_empty() {
            let names: Vec<_> = self.loss.iter().map(name).collect();
            words.extend(["--loss".into(), names.join(",")]);
        }
        if let Some(folder) = &self.files {
            words.push(format!("--files={folder}"));
        }
        words.extend(self.mounts.iter().cloned());
        for (option, is_given) in [("--server", self.server), ("--cut-off", self.was_cut_off)] {
            words.extend(is_given.then(|| option.to_owned()));
        }
        shell(&words)
    }

    /// Returns why states were not visited, if some were not. With `--for`, those visited in that
    /// time are all that were asked for.
    pub(super) fn incomplete(&self) -> Option<String> {
        let so_far = format!("{} of {} points visited", self.points, self.points_all);
        match (self.interrupted, self.stopped) {
            (true, _) => Some(format!("interrupted, {so_far}")),
            (_, true) => Some(format!("stopped after enough failed states, {so_far}")),
            _ => None,
        }
    }

    /// Returns the states that were checked per minute and core.
    pub(super) fn rate(&self) -> f64 {
        let here = to_f64(self.checked - self.from_ledger);
        here / (self.seconds.max(0.001) / 60.0) / f64::from(self.jobs)
    }

    pub(super) fn json(&self, about: &About<'_>) -> Value {
        let case = |failed: &FailedCase| {
            json!({
                "case": failed.case.to_string(),
                "deviating_units": failed.case.deviating(),
                "mark": failed.mark,
                "verdict": failed.said,
                "output": failed.output,
                "explanation": about.lines(failed),
                "command": self.command(&failed.case),
            })
        };
        let groups = self.groups.by_states();
        let groups: Vec<_> = groups.into_iter().map(groups::Group::json).collect();
        json!({
            "recording": self.recordings[0],
            "other_recordings": self.recordings[1..],
            "check": self.check,
            "model": self.model,
            "at": self.at,
            "states_per_point": self.states_per_point,
            "loss": self.loss,
            "fails_without_a_cut": self.fails_uncut,
            "nested": self.nested,
            "recoveries": self.recoveries,
            "recoveries_cut_off": self.recoveries_cut_off,
            "states_of_recoveries": self.nested_checked,
            "seed": self.seed,
            "jobs": self.jobs,
            "changes": self.counts[0],
            "flushes": self.counts[1],
            "marks": self.counts[2],
            "recording_cut_off": self.was_cut_off,
            "unreadable_bytes": about.unreadable(),
            "points": self.points,
            "points_all": self.points_all,
            "states": self.states,
            "states_checked": self.checked,
            "states_from_ledger": self.from_ledger,
            "states_failed": self.failed,
            "states_ignored": self.ignored,
            "coverage": self.coverage,
            "states_timed_out": self.timed_out,
            "stopped_early": self.stopped,
            "time_is_up": self.time_is_up,
            "interrupted": self.interrupted,
            "seconds": self.seconds,
            "states_per_minute_and_core": self.rate(),
            "shortest": self.shortest().map(case),
            "earliest": self.groups.earliest().map(case),
            "groups": groups,
            "failed": self.cases.iter().map(case).collect::<Vec<_>>(),
        })
    }
}

/// The recording, to explain a case.
pub(super) struct About<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) places: &'a Places,
}

impl About<'_> {
    /// Returns the bytes of initial content that the recording lacks.
    fn unreadable(&self) -> u64 {
        let devices = self.timeline.devices.iter();
        let ranges = devices.flat_map(|device| &device.unreadable);
        ranges.map(|range| range.end - range.start).sum()
    }

    /// Returns what the states do not contain, if anything.
    pub(super) fn missing(&self) -> Option<String> {
        let mut devices = self.timeline.devices.iter().enumerate();
        let (number, first) =
            devices.find_map(|(number, device)| Some((number, device.unreadable.first()?)))?;
        Some(format!(
            "{} of initial content, first at byte {}{}, could not be read when the recording began: \
             the states have zeros there",
            ftld_kit::size::show_size(self.unreadable()),
            first.start,
            self.timeline.of_device(number)
        ))
    }

    /// Returns what a failed case means, one sentence a line.
    pub(super) fn lines(&self, failed: &FailedCase) -> Vec<String> {
        let mut lines = self.explain(failed.case.outer());
        lines.extend(failed.explained.iter().cloned());
        lines
    }

    /// Returns what a cut means, one sentence a line.
    pub(super) fn explain(&self, case: &Case) -> Vec<String> {
        let entry = case.entry();
        let mut lines = vec![match case {
            Case::Flash { op, outcome, .. } => format!(
                "power fails in flash operation {op} of {}, outcome {outcome}",
                self.request(entry)
            ),
            _ if self.timeline.is_recovery => format!(
                "power fails again in the recovery, after {}",
                self.request(entry)
            ),
            _ => format!("power fails after {}", self.request(entry)),
        }];
        let Case::Cache { units, .. } = case else {
            return lines;
        };
        let Ok((point, _)) = super::explore::find(self.timeline, entry, None) else {
            return lines;
        };
        let bytes = u64::from(self.timeline.unit_bytes);
        for &(first, last, candidate) in units.iter().take(8) {
            let open = point.open.iter().find(|unit| unit.unit == first);
            let Some(open) = open else { continue };
            let at = ftld_kit::convert::index(candidate);
            let damaged = || {
                let (part, request) = self.timeline.losses.explain(open, candidate)?;
                Some(format!("have {part} of {}", self.request(request)))
            };
            let has = match open.requests.get(at) {
                None => match damaged() {
                    Some(text) => text,
                    None => continue,
                },
                Some(0) => match point.last_flush[self.timeline.device_of(first)] {
                    0 if self.timeline.is_recovery => "keep what the first cut left".into(),
                    0 => "keep the content of the last FLUSH".into(),
                    flush => {
                        format!(
                            "keep the content of the last FLUSH, {} {flush}",
                            self.entry()
                        )
                    }
                },
                Some(request) => format!("have the content of {}", self.request(*request)),
            };
            let newest = open.requests[ftld_kit::convert::index(open.newest)];
            let instead = match newest == 0 || open.requests.get(at).is_none_or(|of| *of == newest)
            {
                true => String::new(),
                false => format!(", not of {}", self.request(newest)),
            };
            let number = self.timeline.device_of(first);
            let device = &self.timeline.devices[number];
            let offset = device.offset(first, self.timeline.unit_bytes);
            let place = self.places.name((entry, number), offset);
            lines.push(format!(
                "bytes {offset} to {}{}{} {has}{instead}",
                offset + (u64::from(last - first) + 1) * bytes - 1,
                self.timeline.of_device(number),
                place.map(|name| format!(" ({name})")).unwrap_or_default()
            ));
        }
        if units.len() > 8 {
            lines.push(format!(
                "and {} more ranges have older contents",
                units.len() - 8
            ));
        }
        lines
    }

    /// Returns what an entry is called.
    fn entry(&self) -> &'static str {
        match self.timeline.is_recovery {
            true => "its entry",
            false => "entry",
        }
    }

    /// Returns a request in words.
    fn request(&self, number: u64) -> String {
        let word = self.entry();
        let event = self
            .timeline
            .events
            .binary_search_by_key(&number, |event| event.number);
        let Ok(event) = event.map(|at| &self.timeline.events[at]) else {
            return format!("{word} {number}");
        };
        let (offset, length) = (event.offset, event.length);
        let of = self.timeline.of_device(event.device);
        match &event.what {
            What::Change { kind, .. } => {
                let name = match kind {
                    Kind::Trim => "trim",
                    Kind::WriteZeroes => "write-zeroes",
                    _ => "write",
                };
                format!("{word} {number} ({name} of {length} bytes at {offset}{of})")
            }
            What::Flush { fua: false, .. } => format!("{word} {number} (FLUSH{of})"),
            What::Flush { .. } => {
                format!("{word} {number} (FUA of {length} bytes at {offset}{of})")
            }
            What::Mark(mark) => {
                let text = &self.timeline.marks[ftld_kit::convert::index(*mark)];
                format!("{word} {number} (mark {text:?})")
            }
        }
    }
}

/// Returns the name of a model or of a kind of points, as on the command line.
pub(super) fn name(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).expect("a name is plain");
    text.trim_matches('"').to_owned()
}

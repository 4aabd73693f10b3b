//! The states that a second power cut leaves: power failed while the check repaired a state.
//!
//! What the check did is a small timeline whose base is the state. Its contents are those of the
//! recording's timeline, so its states are states of the device as all others.

use super::args::{At, CrashesArgs, Model};
use super::case::Case;
use super::content::{Content, ZEROS};
use super::cursor::{Cursor, Point};
use super::explore;
use super::judge::Judge;
use super::models::{self, State};
use super::places::Places;
use super::report::About;
use super::tape::Recovery;
use super::timeline::{Timeline, What};
use super::worker::{Shared, Source, Work, Worker};
use ftld_kit::convert::{index, narrow, to_u32};
use ftld_kit::failure::Failure;
use ftld_traces::recording::Entry;
use std::collections::BTreeMap;
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// Smallest number of points of a recovery that are visited, if it has more.
const POINTS: usize = 64;

/// How often a recovery is begun again to find a case in it.
const ATTEMPTS: u32 = 10;

/// Which states of a recovery are checked.
pub(super) struct Plan {
    /// Of each recovery.
    most: usize,
    model: Model,
    at: At,
    /// States per point.
    states: u32,
    seed: u64,
    /// All of it in words: equal words, equal states.
    pub(super) text: String,
}

impl Plan {
    /// Returns the plan; `None` if recoveries are not cut.
    pub(super) fn of(args: &CrashesArgs) -> Option<Plan> {
        // With --case one case alone is checked.
        let most = args.nested.filter(|_| args.case.is_none())?;
        let (model, at) = (args.model, args.at);
        let (states, seed, loss) = (args.states, args.seed, &args.loss);
        Some(Plan {
            most: index(most),
            model,
            at,
            states,
            seed,
            text: format!("{most} {model:?} {at:?} {states} {seed} {loss:?}"),
        })
    }
}

/// Returns whether what checks do is kept: recoveries are cut, or a case of one is shown.
pub fn is_kept(args: &CrashesArgs) -> bool {
    let is_nested = |case: &String| case.contains('+');
    args.nested.is_some() || args.case.as_ref().is_some_and(is_nested)
}

/// A state, and what the check did on it.
pub(super) struct Nested<'a> {
    of: &'a Timeline,
    outer: &'a State,
    timeline: Timeline,
    /// Sum of the touched units before the recovery.
    base_sum: u128,
}

impl<'a> Nested<'a> {
    /// Returns the recovery from a state; `None` if nothing was changed.
    ///
    /// # Errors
    /// The scratch folder is full.
    pub(super) fn of(
        of: &'a Timeline,
        outer: &'a State,
        recovery: Recovery,
    ) -> Result<Option<Nested<'a>>, Failure> {
        let entries = recovery.entries;
        if !entries.iter().any(|entry| entry.kind.is_change()) {
            return Ok(None);
        }
        let base = touched(of, outer, &entries);
        let terms = base.iter().map(|(unit, now)| of.contents.term(*unit, *now));
        let base_sum = terms.fold(0, u128::wrapping_add);
        Ok(Some(Nested {
            of,
            outer,
            timeline: Timeline::of_recovery(of, base, entries)?,
            base_sum,
        }))
    }

    /// Returns the states to check with their cases, none of them equal to another or to the state
    /// before the recovery. If they are more than the plan has, the seed chooses, at each state
    /// anew.
    ///
    /// # Errors
    /// The scratch folder is full.
    pub(super) fn states(&self, plan: &Plan) -> Result<Vec<(Case, State)>, Failure> {
        let points = self.points(plan);
        let mut chosen: BTreeMap<u64, (usize, Case, State)> = BTreeMap::new();
        let (mut cursor, mut number) = (Cursor::new(&self.timeline), 0);
        while let Some(event) = cursor.step() {
            if points.binary_search(&event).is_err() {
                continue;
            }
            let point = self.timeline.damaged(cursor.point())?;
            let choices = match plan.model {
                Model::Prefix => vec![models::newest(&point)],
                Model::Cache | Model::Flash => {
                    models::cache(&point, &self.timeline.losses, plan.states, plan.seed)
                }
            };
            for choice in choices {
                let state = State::of(&point, &choice, &self.timeline.contents);
                let sum = self.sum(&state);
                let lot = self.lot(plan.seed, sum);
                let is_full = chosen.len() >= plan.most;
                let is_late = chosen.last_key_value().is_some_and(|(last, _)| lot > *last);
                if sum == self.outer.sum || chosen.contains_key(&lot) || is_full && is_late {
                    continue;
                }
                let case = match plan.model {
                    Model::Prefix => models::prefix(&point).0,
                    _ => Case::cache(point.number, &point.open, &choice),
                };
                number += 1;
                chosen.insert(lot, (number, case, self.state(&point, &choice)));
                if chosen.len() > plan.most {
                    chosen.pop_last();
                }
            }
        }
        let mut chosen: Vec<_> = chosen.into_values().collect();
        chosen.sort_by_key(|(number, ..)| *number);
        Ok(chosen
            .into_iter()
            .map(|(_, case, state)| (case, state))
            .collect())
    }

    /// Returns the events after which power fails.
    fn points(&self, plan: &Plan) -> Vec<usize> {
        let events = &self.timeline.events;
        let is_flush = |event: usize| {
            let event = events.get(event).map(|event| &event.what);
            matches!(event, Some(What::Flush { .. }))
        };
        let mut points: Vec<usize> = (0..events.len())
            .filter(|event| plan.at != At::Flush || is_flush(event + 1))
            .collect();
        let most = POINTS.max(plan.most);
        if points.len() > most {
            points.sort_by_key(|event| self.lot(plan.seed, u128::from(events[*event].number)));
            points.truncate(most);
            points.sort_unstable();
        }
        points
    }

    /// Returns a number by which the seed chooses.
    fn lot(&self, seed: u64, of: u128) -> u64 {
        let both = [of.to_le_bytes(), self.outer.sum.to_le_bytes()].concat();
        XxHash3_64::oneshot_with_seed(seed, &both)
    }

    /// Returns the sum of the device in a state of the touched units.
    fn sum(&self, touched: &State) -> u128 {
        let outer = self.outer.sum.wrapping_sub(self.base_sum);
        outer.wrapping_add(touched.sum)
    }

    /// Returns the point after an entry, and the choice of a case.
    ///
    /// # Errors
    /// The recovery has no such case.
    pub(super) fn find(&self, inner: &Case) -> Result<(Point, Vec<u32>), Failure> {
        explore::find(&self.timeline, inner.entry(), inner.units())
    }

    /// Returns first byte and bytes of its requests.
    fn requests(&self) -> Vec<(u64, u64)> {
        let events = self.timeline.events.iter();
        events.map(|event| (event.offset, event.length)).collect()
    }

    /// Returns the device's state of a choice.
    pub(super) fn state(&self, point: &Point, choice: &[u32]) -> State {
        let touched = State::of(point, choice, &self.timeline.contents);
        let mut changed: BTreeMap<u32, Content> = self.outer.changed.iter().copied().collect();
        let mut extra = Vec::new();
        touched.each(|slot, content| {
            let unit = self.timeline.written[index(slot)];
            match self.of.written.binary_search(&unit) {
                Ok(at) if self.outer.durable[at] == content => {
                    changed.remove(&to_u32(at));
                }
                Ok(at) => drop(changed.insert(to_u32(at), content)),
                Err(_) if content == ZEROS => {}
                Err(_) => extra.push((unit, content)),
            }
        });
        State {
            durable: self.outer.durable.clone(),
            changed: changed.into_iter().collect(),
            extra,
            contents: Some(self.timeline.contents.clone()),
            sum: self.sum(&touched),
        }
    }

    /// Returns what a case of it means, one sentence a line.
    pub(super) fn explain(&self, inner: &Case) -> Vec<String> {
        let about = About {
            timeline: &self.timeline,
            places: &Places::default(),
        };
        about.explain(inner)
    }
}

/// Refuses options that no recovery has.
///
/// # Errors
/// Power fails in a recovery, and the model is that of a flash.
pub(super) fn check_arguments(args: &CrashesArgs) -> Result<(), Failure> {
    match args.nested.is_some() && args.model == Model::Flash {
        true => Err(Failure::usage(
            "--nested: only with the models cache and prefix; leave --model out",
        )),
        false => Ok(()),
    }
}

/// Lets the check repair the state of the first cut again. Returns the state of the second one, and
/// what that means.
///
/// # Errors
/// The check fails before the second cut, or does not do what it did when the case was found.
pub(super) fn again<J: Judge>(
    shared: &Arc<Shared>,
    worker: &mut Worker<J>,
    outer: &Case,
    inner: &Case,
) -> Result<(Work, Vec<String>), Failure> {
    if [outer, inner]
        .iter()
        .any(|case| matches!(case, Case::Flash { .. }))
    {
        return Err(Failure::usage(
            "a recovery is cut by the models cache and prefix only",
        ));
    }
    let timeline = &shared.timeline;
    let (point, choice) = explore::find(timeline, outer.entry(), outer.units())?;
    let state = State::of(&point, &choice, &timeline.contents);
    let mut last = Vec::new();
    for attempt in 1.. {
        let checked = worker.check(&state, point.mark, outer, || false)?;
        let checked = checked.expect("this check is wanted");
        if !checked.verdict.passed() {
            return Err(Failure::failed(format!(
                "{outer}: the check already fails there: {}\n{}",
                checked.verdict.text(),
                checked.output
            )));
        }
        let nested = worker.nested(timeline, &state)?.ok_or_else(|| {
            Failure::failed(format!(
                "{outer}: the check changed nothing through a device this time, so the case cannot \
                 be repeated"
            ))
        })?;
        match nested.find(inner) {
            Ok((second, choice)) => {
                let work = Work {
                    case: Case::of_recovery(outer, inner.clone()),
                    mark: point.mark,
                    state: Source::State(nested.state(&second, &choice)),
                };
                return Ok((work, nested.explain(inner)));
            }
            // A kernel does not write in the same order each time.
            Err(failure) if attempt == ATTEMPTS || last == nested.requests() => {
                return Err(Failure::failed(format!(
                    "{outer}: the check changed its state in another way each of {attempt} times, \
                     so the case cannot be repeated: {failure}"
                )));
            }
            Err(_) => last = nested.requests(),
        }
    }
    unreachable!("the last attempt")
}

/// Returns the contents of the units that changes touch and that had data before.
fn touched(of: &Timeline, outer: &State, entries: &[Entry]) -> BTreeMap<u32, Content> {
    let unit = u64::from(of.unit_bytes);
    let mut base = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.kind.is_change()) {
        let end = entry.offset.saturating_add(entry.length).min(of.head.size);
        if entry.offset >= end {
            continue;
        }
        let units = narrow(entry.offset / unit)..narrow(end.div_ceil(unit));
        let slot = |unit: u32| of.written.partition_point(|at| *at < unit);
        for slot in slot(units.start)..slot(units.end) {
            let content = outer.content(slot);
            if content != ZEROS {
                base.insert(of.written[slot], content);
            }
        }
    }
    base
}

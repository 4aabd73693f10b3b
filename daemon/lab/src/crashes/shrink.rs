//! Shrinks a failing case of the model `cache`: as few units as possible keep an older content.

use super::case::Case;
use super::check::Checked;
use super::cursor::Point;
use super::judge::Judge;
use super::models::{State, newest};
use super::worker::{Shared, Worker};
use ftld_kit::failure::Failure;
use std::time::{Duration, Instant};

/// Maximum number of checks while shrinking.
const CHECKS_MAX: u32 = 400;
/// Longest time of shrinking.
const TIME_MAX: Duration = Duration::from_secs(60);

/// A smaller case that fails, with what the check said.
pub(super) struct Shrunk {
    pub(super) case: Case,
    pub(super) checked: Checked,
}

/// Gives parts of the deviating units their newest content, in halves, quarters and so on, as long
/// as the check fails. Returns `None` if no smaller case fails.
///
/// # Errors
/// The check cannot be run.
pub(super) fn shrink<J: Judge>(
    worker: &mut Worker<J>,
    shared: &Shared,
    point: &Point,
    mut choice: Vec<u32>,
) -> Result<Option<Shrunk>, Failure> {
    let newest = newest(point);
    let end = Instant::now() + TIME_MAX;
    let deviating = |choice: &[u32]| -> Vec<usize> {
        (0..choice.len())
            .filter(|at| choice[*at] != newest[*at])
            .collect()
    };
    let (mut found, mut checks) = (None, 0);
    let mut parts = 2;
    loop {
        let units = deviating(&choice);
        if units.len() < 2 || checks >= CHECKS_MAX || Instant::now() >= end {
            return Ok(found);
        }
        parts = parts.min(units.len());
        let mut shrunk = false;
        for part in units.chunks(units.len().div_ceil(parts)) {
            if checks >= CHECKS_MAX || Instant::now() >= end {
                break;
            }
            let mut fewer = choice.clone();
            for at in part {
                fewer[*at] = newest[*at];
            }
            if deviating(&fewer).is_empty() {
                continue;
            }
            let case = Case::cache(point.number, &point.open, &fewer);
            let state = State::of(point, &fewer, &shared.timeline.contents);
            let checked = worker.check(&state, point.mark, &case, || shared.is_interrupted())?;
            let Some(checked) = checked else {
                return Ok(found);
            };
            checks += 1;
            if shared.fails(&checked) {
                found = Some(Shrunk { case, checked });
                choice = fewer;
                shrunk = true;
                break;
            }
        }
        match shrunk {
            true => parts = (parts - 1).max(2),
            false if parts >= units.len() => return Ok(found),
            false => parts *= 2,
        }
    }
}

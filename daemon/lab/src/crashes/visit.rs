//! The states of a recording without a check.

use super::args::{CrashesArgs, Model};
use super::cursor::Cursor;
use super::explore::points;
use super::flash::{Device, Run};
use super::ledger::Ledger;
use super::models::{self, State};
use super::scratch::Scratch;
use super::timeline::{Timeline, What};
use ftld_kit::failure::Failure;
use std::sync::Arc;

/// Makes every state that [`super::crashes`] would check, and reads the ledger. Returns the number
/// of states. A fuzzer does so with forged recordings.
///
/// # Errors
/// The recording or the ledger cannot be used, or a flash of the model `flash` does not mount.
pub fn visit(args: &CrashesArgs) -> Result<u64, Failure> {
    let scratch = Scratch::create(args)?;
    let timeline = Timeline::of(args, scratch.path())?;
    scratch.has_room(&timeline, 1, false)?;
    Ledger::open(args)?;
    let points = points(&timeline, args);
    match args.model {
        Model::Flash => visit_flash(args, &timeline, &points),
        Model::Prefix | Model::Cache => visit_contents(args, &timeline, &points),
    }
}

fn visit_contents(
    args: &CrashesArgs,
    timeline: &Timeline,
    points: &[usize],
) -> Result<u64, Failure> {
    let (mut cursor, mut states) = (Cursor::new(timeline), 0);
    while let Some(event) = cursor.step() {
        if points.binary_search(&event).is_err() {
            continue;
        }
        let point = timeline.damaged(cursor.point())?;
        let choices = match args.model {
            Model::Prefix => vec![models::newest(&point)],
            Model::Cache | Model::Flash => {
                models::cache(&point, &timeline.losses, args.states, args.seed)
            }
        };
        for choice in choices {
            let state = State::of(&point, &choice, &timeline.contents);
            state.each(|slot, _| assert!(timeline.written.len() > ftld_kit::convert::index(slot)));
            states += 1;
        }
    }
    Ok(states)
}

fn visit_flash(args: &CrashesArgs, timeline: &Timeline, points: &[usize]) -> Result<u64, Failure> {
    let device = Arc::new(Device::of(&args.recording, timeline)?);
    let (mut run, mut states) = (Run::start(device, timeline)?, 0);
    for (index, event) in timeline.events.iter().enumerate() {
        if points.binary_search(&index).is_err() || matches!(event.what, What::Mark(_)) {
            run.step(index)?;
            continue;
        }
        let mut operations = run.step_recorded(index)?;
        for (op, outcome) in run.draw(&operations, args.states, args.seed) {
            let dead = run.cut(&mut operations, op, outcome).expect("a drawn cut");
            dead.mount(timeline, None)?;
            states += 1;
        }
    }
    Ok(states)
}

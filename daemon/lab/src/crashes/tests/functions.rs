//! A run of this process, and a check that is a function, against the same recording and a command.

use super::*;
use crate::crashes::in_process::{Plan, Recorded, Snapshot};
use ftld_traces::recording::Reader;

/// As [`COMMITTED`].
fn committed(state: &Snapshot, mark: Option<&str>) -> Result<(), String> {
    let Some(mark) = mark else { return Ok(()) };
    let mut bytes = [0; 4096];
    state
        .read_unit(mark.parse().unwrap(), &mut bytes)
        .map_err(|error| error.to_string())?;
    match bytes.starts_with(format!("r{mark} ").as_bytes()) {
        true => Ok(()),
        false => Err("not committed".into()),
    }
}

#[test]
fn a_function_finds_what_a_command_finds() {
    for with_flush in [false, true] {
        let saved = commits(with_flush);
        let entries: Result<Vec<_>, _> = Reader::open(&saved.path, false).unwrap().collect();
        let recorded = Recorded::new(16 * UNIT, 4096, entries.unwrap()).unwrap();
        for model in [Model::Cache, Model::Prefix] {
            let args = CrashesArgs {
                model,
                jobs: Some(1),
                ..saved.args(COMMITTED)
            };
            let (by_command, timeline) = saved.explored(&args).unwrap();
            let plan = Plan {
                model,
                failures: 0,
                ..Plan::default()
            };
            let by_function = recorded
                .explore(&plan, &mut |state, mark| committed(&state, mark))
                .unwrap();
            let found = (by_function.points, by_function.states, by_function.checked);
            let expected = (by_command.points, by_command.states, by_command.checked);
            assert_eq!(found, expected, "{}", by_function.text);
            assert_eq!(by_function.failed, by_command.failed);
            let places = Default::default();
            let about = About {
                timeline: &timeline,
                places: &places,
            };
            let expected = by_command.shortest().map(|failed| {
                let lines = about.explain(&failed.case);
                (failed.case.to_string(), failed.mark.clone(), lines)
            });
            let found = by_function.shortest.map(|failed| {
                let mark = failed.mark.unwrap_or_default();
                (failed.case, mark, failed.explanation)
            });
            assert_eq!(found, expected);
            assert_eq!(found.is_none(), with_flush || model == Model::Prefix);
        }
    }
}

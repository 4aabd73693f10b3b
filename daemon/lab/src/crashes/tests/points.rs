//! Which points are visited, which failures count, and what the report says of both.

use super::*;

#[test]
fn points_are_chosen_by_entry_and_by_the_first_mark() {
    let saved = commits(true);
    // Of 40 entries, the first mark is the fourth.
    let run = |change: &dyn Fn(&mut CrashesArgs)| {
        let mut args = saved.args("true");
        change(&mut args);
        saved.explored(&args).map(|(report, _)| report.points)
    };
    assert_eq!(run(&|args| args.after_mark = true).unwrap(), 37);
    assert_eq!(run(&|args| (args.from, args.to) = (11, 20)).unwrap(), 10);
    let both = run(&|args| (args.after_mark, args.to) = (true, 5));
    assert_eq!(both.unwrap(), 2);
    let beyond = run(&|args| args.from = 41).unwrap_err();
    assert!(beyond.message.contains("has entries 1 to 40"), "{beyond}");
    let mut recorder = Recorder::new(4);
    recorder.write(0, "unmarked");
    let unmarked = recorder.save();
    let args = CrashesArgs {
        after_mark: true,
        ..unmarked.args("true")
    };
    let none = unmarked.explored(&args).map(drop).unwrap_err();
    assert!(none.message.contains("has no mark"), "{none}");
}

/// A check with two faults: the record of a mark is missing, or the head names a later one.
fn two_faults() -> String {
    format!(
        r#"({COMMITTED}) || {{ echo "record $FTLD_MARK is missing"; exit 1; }}
        [ "$FTLD_MARK" != 3 ] || {{ echo "three is unlucky, as known"; exit 1; }}"#
    )
}

#[test]
fn failures_are_grouped_by_message_and_the_known_ones_ignored() {
    let saved = commits(false);
    let check = two_faults();
    let (report, timeline) = saved.explored(&saved.args(&check)).unwrap();
    let about = About {
        timeline: &timeline,
    };
    let json = report.json(&about);
    let messages: BTreeSet<_> = json["groups"]
        .as_array()
        .unwrap()
        .iter()
        .collect::<Vec<_>>()
        .iter()
        .map(|group| group["message"].as_str().unwrap())
        .collect();
    let all = BTreeSet::from(["record # is missing", "three is unlucky, as known"]);
    assert_eq!(messages, all);
    // The earliest point of failure is the first mark, whose record was not flushed.
    assert!(
        json["earliest"]["case"]
            .as_str()
            .unwrap()
            .starts_with("cache/3/"),
        "{json}"
    );
    let page = text(&report, &about);
    assert!(page.contains("failed states by message"), "{page}");
    assert!(html(&report, &about).contains("<rect class=\"bad\""));

    let known = CrashesArgs {
        ignore: vec!["as known".into()],
        ..saved.args(&check)
    };
    let (fewer, timeline) = saved.explored(&known).unwrap();
    assert_eq!(fewer.failed + fewer.ignored, report.failed);
    assert_eq!(fewer.checked, report.checked);
    let json = fewer.json(&About {
        timeline: &timeline,
    });
    assert_eq!(json["groups"].as_array().unwrap().len(), 1, "{json}");
    // They do not end an exploration either, and a shrunk case is not one of them.
    let all_known = CrashesArgs {
        ignore: vec!["as known".into(), "is missing".into()],
        failures: 1,
        ..saved.args(&check)
    };
    let (none, _) = saved.explored(&all_known).unwrap();
    assert_eq!((none.failed, none.points), (0, none.points_all));
    assert_eq!(none.ignored, report.failed);
}

#[test]
fn time_ends_an_exploration_without_an_error() {
    let saved = commits(true);
    let args = CrashesArgs {
        time: Some(Duration::from_millis(600)),
        jobs: Some(1),
        ..saved.args("sleep 0.1")
    };
    let began = std::time::Instant::now();
    let (report, timeline) = saved.explored(&args).unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    let about = About {
        timeline: &timeline,
    };
    assert!(
        report.time_is_up && report.points < report.points_all,
        "{report:?}"
    );
    assert!(text(&report, &about).contains("the time of --for is up"));
    assert!(!junit(&report, &about).contains("<error"));
    crashes(&args, true).unwrap();
}

#[test]
fn a_report_says_how_completely_points_were_visited() {
    let mut recorder = Recorder::new(16);
    (0..10).for_each(|unit| recorder.write(unit, "x"));
    let saved = recorder.save();
    let (report, timeline) = saved.explored(&saved.args("true")).unwrap();
    // Up to four open units have at most 16 states.
    let coverage = report.coverage;
    assert_eq!(
        (coverage.exhaustive, coverage.sampled, coverage.largest),
        (4, 6, 1024)
    );
    let page = text(
        &report,
        &About {
            timeline: &timeline,
        },
    );
    assert!(
        page.contains("all states of 4 points, 16 of each of 6, of which the largest has 1024"),
        "{page}"
    );
}

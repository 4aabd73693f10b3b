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
        places: &report.places,
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
    // The first mark, whose record was not flushed: that state was first met after entry 5.
    let earliest = json["earliest"]["case"].as_str().unwrap();
    assert!(earliest.starts_with("cache/5/"), "{earliest}");
    let page = text(&report, &about);
    assert!(page.contains("failed states by message"), "{page}");
    assert!(html(&report, &about).contains("<rect class=\"failed\""));

    let known = CrashesArgs {
        ignore: vec!["as known".into()],
        ..saved.args(&check)
    };
    let (fewer, timeline) = saved.explored(&known).unwrap();
    assert_eq!(fewer.failed + fewer.ignored, report.failed);
    assert_eq!(fewer.checked, report.checked);
    let json = fewer.json(&About {
        timeline: &timeline,
        places: &fewer.places,
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
        places: &report.places,
    };
    assert!(
        report.time_is_up && report.points < report.points_all,
        "{report:?}"
    );
    assert!(text(&report, &about).starts_with("the time of --for is up"));
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
            places: &report.places,
        },
    );
    assert!(
        page.contains("all states of 4 points, 16 of each of 6, of which the largest has 1024"),
        "{page}"
    );
}

/// Commits two units with a FLUSH each; the second is open at its write.
fn overwritten(losses: &[Loss]) -> (Saved, CrashesArgs) {
    let mut recorder = Recorder::new(32);
    (0..16).for_each(|unit| recorder.write(unit, "old"));
    recorder.flush();
    (0..16).for_each(|unit| recorder.write(unit, "new"));
    let saved = recorder.save();
    let args = CrashesArgs {
        loss: losses.to_vec(),
        states: 64,
        from: 33,
        ..saved.args("true")
    };
    (saved, args)
}

/// A shell test that is true for a unit of the image whose content is whole.
const ALL_WHOLE: &str = r#"for unit in $(seq 0 15); do
  dd if="$FTLD_IMAGE" bs=4096 skip=$unit count=1 2> /dev/null > $FTLD_WORK/unit
  read -r text < $FTLD_WORK/unit; case $text in old*|new*) ;; *) echo "garbage in $unit"; exit 1 ;; esac
done"#;

#[test]
fn losses_beyond_whole_contents_are_off_by_default_and_explained() {
    let (saved, args) = overwritten(&[]);
    let whole = CrashesArgs {
        check: ALL_WHOLE.into(),
        ..args
    };
    let (report, _) = saved.explored(&whole).unwrap();
    assert_eq!((report.failed, report.points), (0, 1), "{report:?}");

    let (saved, args) = overwritten(&[Loss::Garbage]);
    let garbage = CrashesArgs {
        check: ALL_WHOLE.into(),
        ..args
    };
    let (report, timeline) = saved.explored(&garbage).unwrap();
    let shortest = report.shortest().unwrap();
    assert_eq!(shortest.case.deviating(), 1, "{shortest:?}");
    let about = About {
        timeline: &timeline,
        places: &report.places,
    };
    let explained = about.explain(&shortest.case);
    assert!(
        explained[1].contains("have garbage instead of entry"),
        "{explained:?}"
    );
    let command = report.command(&shortest.case);
    assert!(command.contains("--loss garbage"), "{command}");
    // Its name gives the same state again.
    let again = CrashesArgs {
        case: Some(shortest.case.to_string()),
        ..garbage
    };
    assert_eq!(crashes(&again, true).unwrap_err().exit, Exit::Failed);
}

#[test]
fn a_shorn_unit_is_new_up_to_three_or_seven_eighths() {
    let (saved, args) = overwritten(&[Loss::Shorn]);
    let scratch = Scratch::create(&args).unwrap();
    let timeline = Timeline::of(&args, scratch.path()).unwrap();
    let mut cursor = Cursor::new(&timeline);
    while cursor.step().is_some() {}
    let point = timeline.damaged(cursor.point()).unwrap();
    let unit = &point.open[5];
    assert_eq!((unit.candidates.len(), unit.requests.len()), (4, 2));
    let bytes = |at: usize| {
        let mut bytes = vec![0; 4096];
        timeline
            .contents
            .read(unit.candidates[at], &mut bytes)
            .unwrap();
        bytes
    };
    let (old, new) = (bytes(0), bytes(1));
    assert_eq!(bytes(2), [&new[..1536], &old[1536..]].concat());
    assert_eq!(bytes(3), [&new[..3584], &old[3584..]].concat());
    let refused = CrashesArgs {
        model: Model::Prefix,
        ..args.clone()
    };
    let refused = saved.explored(&refused).map(drop).unwrap_err();
    assert!(
        refused.message.contains("only the model cache"),
        "{refused}"
    );
}

#[test]
fn a_channel_loses_all_its_last_writes_together() {
    let (_saved, args) = overwritten(&[Loss::Channel]);
    let scratch = Scratch::create(&args).unwrap();
    let timeline = Timeline::of(&args, scratch.path()).unwrap();
    let mut cursor = Cursor::new(&timeline);
    while cursor.step().is_some() {}
    let point = cursor.point();
    let by_channel: BTreeSet<Vec<u32>> = (0..16)
        .filter_map(|of| {
            let choice: Vec<u32> = (0..16).map(|unit| u32::from(unit % 8 != of)).collect();
            let all = models::cache(&point, &timeline.losses, 64, 1);
            all.contains(&choice).then_some(choice)
        })
        .collect();
    assert!(by_channel.len() >= 4, "{by_channel:?}");
}

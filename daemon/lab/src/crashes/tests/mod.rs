//! Explorations of recordings made here, against states that follow from the definition of a FLUSH.

mod definition;
mod flash;
mod functions;
mod group;
mod hostile;
mod leaves;
mod nested;
mod points;
mod stays_up;

use super::args::{At, CrashesArgs, Loss, Model};
use super::case::Case;
use super::content::ZEROS;
use super::cursor::Cursor;
use super::explore::{explore, points};
use super::losses::Losses;
use super::models;
use super::report::{About, Report, html, junit, text};
use super::scratch::Scratch;
use super::timeline::{Timeline, What};
use super::worker::Shared;
use super::{crashes, visit};
use ftld_kit::failure::{Exit, Failure};
use ftld_traces::recording::{Entry, Flash, Head, Kind, Moment, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tempfile::TempDir;

const UNIT: u64 = 4096;

/// A recording in progress; every request ends before the next begins, unless said.
struct Recorder {
    writer: Writer<Vec<u8>>,
    seq: u64,
}

fn head(units: u64, flash: Option<Flash>) -> Head {
    Head {
        program: "test".into(),
        size: units * UNIT,
        logical_block: 512,
        physical_block: 4096,
        has_data: true,
        started_unix_s: 0,
        clock: None,
        flash,
        write_cache: None,
    }
}

impl Recorder {
    fn new(units: u64) -> Recorder {
        Recorder::on(&head(units, None))
    }

    fn on(head: &Head) -> Recorder {
        let writer = Writer::create(Vec::new(), head).unwrap();
        Recorder { writer, seq: 0 }
    }

    fn moment(&mut self) -> Moment {
        self.seq += 1;
        let seq = self.seq;
        Moment {
            seq,
            ns: seq * 1000,
        }
    }

    fn entry(&mut self, kind: Kind, offset: u64, length: u64, data: &[u8]) {
        let (begin, end) = (self.moment(), self.moment());
        self.push(kind, false, 0, (offset, length), (begin, end), data);
    }

    fn push(
        &mut self,
        kind: Kind,
        fua: bool,
        errno: u16,
        (offset, length): (u64, u64),
        (begin, end): (Moment, Moment),
        data: &[u8],
    ) {
        let entry = Entry {
            kind,
            fua,
            errno,
            offset,
            length,
            begin,
            end,
            data: Vec::new(),
        };
        self.writer.push(&entry, data).unwrap();
    }

    /// Writes one unit that begins with a text.
    fn write(&mut self, unit: u64, text: &str) {
        let mut data = vec![b' '; 4096];
        data[..text.len()].copy_from_slice(text.as_bytes());
        self.entry(Kind::Write, unit * UNIT, UNIT, &data);
    }

    fn flush(&mut self) {
        self.entry(Kind::Flush, 0, 0, &[]);
    }

    fn mark(&mut self, text: &str) {
        self.entry(Kind::Mark, 0, 0, text.as_bytes());
    }

    fn save(self) -> Saved {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("run.rec");
        std::fs::write(&path, self.writer.finish().unwrap().0).unwrap();
        Saved { folder, path }
    }
}

struct Saved {
    folder: TempDir,
    path: PathBuf,
}

impl Saved {
    fn timeline(&self) -> Timeline {
        Timeline::read(&self.path, false, self.folder.path()).unwrap()
    }

    fn args(&self, check: &str) -> CrashesArgs {
        CrashesArgs {
            recording: self.path.clone(),
            others: Vec::new(),
            check: check.into(),
            model: Model::Cache,
            at: At::Request,
            every: 1,
            states: 16,
            seed: 1,
            jobs: Some(2),
            timeout: Duration::from_secs(20),
            loss: Vec::new(),
            after_mark: false,
            from: 0,
            to: u64::MAX,
            files: None,
            server: false,
            nested: None,
            ignore: Vec::new(),
            time: None,
            failures: 0,
            case: None,
            keep: None,
            ledger: None,
            junit: None,
            html: None,
            cut_off: false,
            scratch: Some(self.folder.path().into()),
            mounts: None,
        }
    }

    fn explored(&self, args: &CrashesArgs) -> Result<(Report, Arc<Timeline>), Failure> {
        let scratch = Scratch::create(args)?;
        let timeline = Timeline::of(args, scratch.path())?;
        let shared = Shared::new(timeline, args, Arc::default());
        let report = explore(args, &shared, scratch.path(), args.jobs.unwrap())?;
        Ok((report, shared.timeline.clone()))
    }
}

/// Not a test: the supervisor of the other tests' checks, which start this program with its name.
#[test]
#[ignore = "other tests enter it"]
fn supervisor_of_checks() {
    if std::env::var_os("FTLD_WORK").is_some() {
        super::supervisor::serve().unwrap();
    }
}

/// The record of the last mark is in the unit that it names.
const COMMITTED: &str = r#"[ -z "$FTLD_MARK" ] ||
  [ "$(dd if="$FTLD_IMAGE" bs=4096 skip="$FTLD_MARK" count=1 2> /dev/null | cut -c1-3)" = "r$FTLD_MARK " ]"#;

/// All records up to the last mark are in their units.
const ALL_COMMITTED: &str = r#"[ -z "$FTLD_MARK" ] || for unit in $(seq 0 "$FTLD_MARK"); do
    [ "$(dd if="$FTLD_IMAGE" bs=4096 skip="$unit" count=1 2> /dev/null | cut -c1-3)" = "r$unit " ] || exit 1
  done"#;

/// Ten commits: a record in its unit, then a mark; with or without a FLUSH between.
fn commits(with_flush: bool) -> Saved {
    let mut recorder = Recorder::new(16);
    for unit in 0..10 {
        recorder.write(unit, &format!("r{unit} "));
        recorder.write(12, &format!("head {unit}"));
        if with_flush {
            recorder.flush();
        }
        recorder.mark(&unit.to_string());
    }
    recorder.save()
}

#[test]
fn a_program_that_flushes_before_it_commits_has_no_failed_state() {
    let saved = commits(true);
    for (model, states) in [(Model::Cache, 70), (Model::Prefix, 40)] {
        let args = CrashesArgs {
            model,
            ..saved.args(COMMITTED)
        };
        let (report, _) = saved.explored(&args).unwrap();
        assert_eq!((report.failed, report.points), (0, 40), "{report:?}");
        assert!(report.states >= states, "{report:?}");
        assert!(report.checked < report.states, "{report:?}");
    }
}

#[test]
fn a_missing_flush_is_found_and_shrunk_to_one_unit() {
    let saved = commits(false);
    let args = saved.args(COMMITTED);
    let (report, timeline) = saved.explored(&args).unwrap();
    assert!(report.failed > 0, "{report:?}");
    let shortest = report.shortest().unwrap();
    assert_eq!(shortest.case.deviating(), 1, "{:?}", shortest.case);
    let about = About {
        timeline: &timeline,
        places: &report.places,
    };
    let text = text(&report, &about);
    assert!(
        text.contains("keep the content of the last FLUSH"),
        "{text}"
    );
    assert!(text.contains("ftld crashes"), "{text}");
    // The command of the report shows the same failure; without the cut there is none.
    let again = |case: String| {
        crashes(
            &CrashesArgs {
                case: Some(case),
                ..args.clone()
            },
            true,
        )
    };
    let failure = again(shortest.case.to_string()).unwrap_err();
    assert_eq!(failure.exit, Exit::Failed, "{failure}");
    again(
        Case::Prefix {
            entry: shortest.case.entry(),
        }
        .to_string(),
    )
    .unwrap();
    let xml = junit(&report, &about);
    assert!(
        xml.contains("<failure") && xml.contains("failures=\""),
        "{xml}"
    );
}

#[test]
fn enough_failures_end_the_exploration() {
    let saved = commits(false);
    let args = CrashesArgs {
        failures: 1,
        jobs: Some(1),
        ..saved.args("exit 3")
    };
    let (report, timeline) = saved.explored(&args).unwrap();
    assert!(report.stopped, "{report:?}");
    assert_eq!((report.checked, report.failed), (1, 1), "{report:?}");
    assert!(report.states >= report.checked, "{report:?}");
    assert_eq!(report.cases[0].said, "exit code 3");
    let about = About {
        timeline: &timeline,
        places: &report.places,
    };
    let xml = junit(&report, &about);
    assert!(
        xml.contains("<error") && xml.contains("stopped after enough"),
        "{xml}"
    );
    // Several workers fail at the same time, and no more are counted than were asked for.
    let args = CrashesArgs {
        failures: 3,
        jobs: Some(4),
        ..args
    };
    let (report, _) = saved.explored(&args).unwrap();
    assert_eq!((report.failed, report.checked), (3, 3), "{report:?}");
    assert!(report.states >= report.checked, "{report:?}");
}

/// A check that an interruption ends gives no verdict, and no report of such a run is green.
#[test]
fn an_interruption_ends_the_running_check_and_no_report_is_green() {
    let saved = commits(false);
    let args = CrashesArgs {
        jobs: Some(1),
        ..saved.args("touch $FTLD_IMAGE.began; sleep 30")
    };
    let scratch = Scratch::create(&args).unwrap();
    let timeline = Timeline::read(&saved.path, false, scratch.path()).unwrap();
    let interrupted = Arc::new(AtomicBool::new(false));
    let shared = Shared::new(timeline, &args, interrupted.clone());
    let began = scratch.path().join("0/image.began");
    let report = std::thread::scope(|scope| {
        let exploring = scope.spawn(|| explore(&args, &shared, scratch.path(), 1));
        while !began.exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        interrupted.store(true, Relaxed);
        exploring.join().unwrap().unwrap()
    });
    assert!(report.interrupted && report.checked == 0, "{report:?}");
    let about = About {
        timeline: &shared.timeline,
        places: &report.places,
    };
    let xml = junit(&report, &about);
    assert!(
        xml.contains("errors=\"1\"") && xml.contains("interrupted, "),
        "{xml}"
    );
    let page = html(&report, &about);
    assert!(!page.contains("class=\"good\""), "{page}");
}

/// Before a FLUSH has taken effect, everything since the one before it can be lost.
#[test]
fn a_cut_at_a_flush_loses_what_the_flush_would_keep() {
    let saved = commits(true);
    let newest = r#"[ "$(tr -d '\0 ' < "$FTLD_IMAGE" | wc -c)" -gt 0 ]"#;
    let at = |model, at, check: &str| {
        let args = CrashesArgs {
            model,
            at,
            ..saved.args(check)
        };
        saved.explored(&args).unwrap().0
    };
    let report = at(Model::Cache, At::Flush, "true");
    // Two writes before each FLUSH: neither, one, the other, both.
    assert_eq!((report.points, report.states), (10, 40), "{report:?}");
    assert!(at(Model::Cache, At::Flush, newest).failed > 0);
    // All acknowledged requests, in order, are one state each.
    let report = at(Model::Prefix, At::Flush, newest);
    assert_eq!((report.points, report.states, report.failed), (10, 10, 0));
    // A FLUSH with nothing before it can lose nothing.
    let mut recorder = Recorder::new(4);
    recorder.flush();
    recorder.mark("first");
    let saved = recorder.save();
    let args = CrashesArgs {
        at: At::Flush,
        ..saved.args("true")
    };
    let failure = saved.explored(&args).map(|_| ()).unwrap_err();
    assert!(
        failure.message.contains("no point of this kind"),
        "{failure}"
    );
}

#[test]
fn a_check_that_hangs_resizes_or_is_missing_is_named() {
    let saved = commits(true);
    let last = CrashesArgs {
        at: At::Mark,
        every: 10,
        ..saved.args("")
    };
    let run = |check: &str, timeout| {
        saved.explored(&CrashesArgs {
            check: check.into(),
            timeout: Duration::from_millis(timeout),
            ..last.clone()
        })
    };
    let (report, _) = run("sleep 60 & sleep 60", 300).unwrap();
    assert_eq!(
        (report.failed, report.timed_out),
        (report.checked, report.checked)
    );
    assert_eq!(report.cases[0].said, "no answer within 0.3 s");
    let (report, _) = run("truncate -s 5 $FTLD_IMAGE", 20_000).unwrap();
    assert_eq!(
        report.cases[0].said,
        "the check changed the length of its image"
    );
    let (report, _) = run("kill -9 $$", 20_000).unwrap();
    assert_eq!(report.cases[0].said, "ended by signal 9");
    let failure = run("no-such-checker --fast", 20_000)
        .map(|_| ())
        .unwrap_err();
    assert!(
        failure.message.contains("cannot be run (exit code 127)"),
        "{failure}"
    );
}

/// A check that writes to its image and to its folder finds both as new the next time.
#[test]
fn a_check_may_change_its_image_and_its_folder() {
    let saved = commits(true);
    let check =
        "[ ! -e $FTLD_WORK/left ] && touch $FTLD_WORK/left && [ $FTLD_WORK = $TMPDIR ] || exit 1
        dd if=/dev/zero of=$FTLD_IMAGE bs=4096 count=16 conv=notrunc 2>/dev/null; exit 0";
    let (report, _) = saved.explored(&saved.args(check)).unwrap();
    assert_eq!(report.failed, 0, "{report:?}");
    // The image is whole again, although every check destroys it afterwards.
    let check = format!(
        "({COMMITTED}) || exit 1; dd if=/dev/zero of=$FTLD_IMAGE bs=64k count=1 conv=notrunc 2>/dev/null"
    );
    let (report, _) = saved.explored(&saved.args(&check)).unwrap();
    assert_eq!(report.failed, 0, "{report:?}");
}

#[test]
fn a_ledger_continues_and_refuses_another_check() {
    let saved = commits(false);
    let args = CrashesArgs {
        ledger: Some(saved.folder.path().join("ledger")),
        ..saved.args(COMMITTED)
    };
    let few = CrashesArgs {
        states: 2,
        ..args.clone()
    };
    let (first, _) = saved.explored(&few).unwrap();
    // A killed run leaves a part of a line.
    let ledger = args.ledger.clone().unwrap();
    let text = std::fs::read_to_string(&ledger).unwrap();
    std::fs::write(&ledger, text + "{\"key\":\"12").unwrap();
    let (second, _) = saved.explored(&args).unwrap();
    assert_eq!((first.from_ledger, second.from_ledger), (0, first.checked));
    let (whole, _) = saved.explored(&saved.args(COMMITTED)).unwrap();
    assert_eq!(
        (second.checked, second.failed),
        (whole.checked, whole.failed)
    );
    // A line that is no verdict, and a verdict on a case of another recording, are no end.
    let text = std::fs::read_to_string(&ledger).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let case = lines[1].find("\"case\":\"").unwrap() + 8;
    let wrong = format!("{}cache/nonsense\"}}", &lines[1][..case]);
    let forged = lines[2].replacen("\"case\":\"", "\"case\":\"cache/9/9=9\",\"x\":\"", 1);
    let mut some = vec![lines[0], "not JSON", &wrong, &forged];
    some.extend(&lines[3..]);
    std::fs::write(&ledger, some.join("\n") + "\n").unwrap();
    let (third, _) = saved.explored(&args).unwrap();
    assert_eq!((third.checked, third.failed), (whole.checked, whole.failed));
    assert_eq!(third.from_ledger, whole.checked - 1);
    let endless = CrashesArgs {
        ledger: Some("/dev/full".into()),
        ..args.clone()
    };
    let failure = saved.explored(&endless).map(|_| ()).unwrap_err();
    assert!(failure.message.contains("is no regular file"), "{failure}");
    let other = CrashesArgs {
        check: "true".into(),
        ..args
    };
    let failure = saved.explored(&other).map(|_| ()).unwrap_err();
    assert!(
        failure.message.contains("give another --ledger"),
        "{failure}"
    );
}

#[test]
fn what_cannot_be_explored_is_one_message() {
    let mut recorder = Recorder::new(4);
    recorder.entry(Kind::Read, 0, UNIT, &[]);
    let saved = recorder.save();
    let message =
        |saved: &Saved, args: CrashesArgs| saved.explored(&args).map(|_| ()).unwrap_err().message;
    let text = message(&saved, saved.args("true"));
    assert!(text.contains("nothing can be lost"), "{text}");
    let without = Head {
        has_data: false,
        ..head(4, None)
    };
    let mut recorder = Recorder::on(&without);
    recorder.entry(Kind::Write, 0, UNIT, &[]);
    let saved = recorder.save();
    let text = message(&saved, saved.args("true"));
    assert!(text.contains("recorded without data"), "{text}");
    let saved = commits(true);
    let flash = CrashesArgs {
        model: Model::Flash,
        ..saved.args("true")
    };
    let text = message(&saved, flash);
    assert!(
        text.contains("names no flash; use --model cache or prefix"),
        "{text}"
    );
    let nowhere = CrashesArgs {
        scratch: Some("/nonexistent".into()),
        ..saved.args("true")
    };
    let text = message(&saved, nowhere);
    assert!(text.contains("by --scratch or TMPDIR"), "{text}");
    let mut recorder = Recorder::new(4);
    recorder.write(0, "x");
    let saved = recorder.save();
    let marks = CrashesArgs {
        at: At::Mark,
        ..saved.args("true")
    };
    assert!(message(&saved, marks).contains("no point of this kind"));
}

#[test]
fn all_choices_are_taken_if_they_are_few() {
    let mut recorder = Recorder::new(8);
    for unit in 0..3 {
        recorder.write(unit, "a");
        recorder.write(unit, "b");
    }
    let saved = recorder.save();
    let timeline = saved.timeline();
    let mut cursor = Cursor::new(&timeline);
    while cursor.step().is_some() {}
    let point = cursor.point();
    let all = models::cache(&point, &Losses::default(), 27, 1);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 27);
    let some = models::cache(&point, &Losses::default(), 26, 1);
    assert_eq!(some.len(), 26);
    assert_eq!((&some[0], &some[1]), (&vec![2, 2, 2], &vec![0, 0, 0]));
    assert_eq!(
        models::cache(&point, &Losses::default(), 26, 1),
        some,
        "states follow from the seed"
    );
    let fourth = CrashesArgs {
        every: 4,
        ..saved.args("true")
    };
    assert_eq!(points(&timeline, &fourth).len(), 2);
    let whole = |what: &What| timeline.changed(what).all(|(_, content)| content != ZEROS);
    assert!(timeline.events.iter().all(|event| whole(&event.what)));
}

#[test]
fn a_kept_image_is_as_sparse_as_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["state", "kept"].map(|name| folder.path().join(name));
    let file = std::fs::File::create(&from).unwrap();
    file.set_len(1 << 30).unwrap();
    let places = [0, (5 << 20) + 512, (1 << 30) - 100];
    for at in places {
        file.write_all_at(&[7; 100], at).unwrap();
    }
    super::keep_image(&from, &to).unwrap();
    let kept = std::fs::File::open(&to).unwrap();
    let metadata = kept.metadata().unwrap();
    assert_eq!(metadata.len(), 1 << 30);
    assert!(metadata.blocks() < 1024, "{} blocks", metadata.blocks());
    for at in places {
        let mut seen = [0; 100];
        kept.read_exact_at(&mut seen, at).unwrap();
        assert_eq!(seen, [7; 100], "at {at}");
    }
    assert!(
        super::keep_image(&from, &to).is_err(),
        "an image was overwritten"
    );
}

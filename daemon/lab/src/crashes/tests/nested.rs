//! Power fails again in the recovery: a store with a log whose recovery is right or wrong, and the
//! states of random recoveries beside those of a recording of the same requests.

use super::*;
use crate::crashes::image::{ImageDevice, RawImage};
use crate::crashes::models::State;
use crate::crashes::recovery::{Nested, Plan};
use crate::crashes::tape::{OnTape, Recovery, Tape};
use ftld_device::device::{BlockDevice, FlushOf};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Three records. Each goes to the log in unit 0, then to a unit of its own; then the log is empty.
fn logged() -> Saved {
    let mut recorder = Recorder::new(16);
    for unit in 1..=3 {
        recorder.write(0, &format!("log {unit} "));
        recorder.flush();
        recorder.mark(&unit.to_string());
        recorder.write(unit, &format!("r{unit} "));
        recorder.flush();
        recorder.write(0, "empty ");
        recorder.flush();
    }
    recorder.save()
}

/// The check: this program again, as a client of FTLD_URI.
fn store(how: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let name = "crashes::tests::nested::opens_the_store";
    let program = ftld_kit::quote::shell(&[program.display().to_string()]);
    format!("STORE={how} {program} --ignored --exact {name}")
}

fn nested(saved: &Saved, how: &str) -> CrashesArgs {
    CrashesArgs {
        nested: Some(64),
        ..saved.args(&store(how))
    }
}

/// The NBD protocol as far as the store needs it.
struct Client(UnixStream);

impl Client {
    fn open() -> Client {
        let uri = std::env::var("FTLD_URI").unwrap();
        let (_, socket) = uri.split_once("socket=").unwrap();
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        // Fixed newstyle without zeros; the default export.
        let hello = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &[0, 0, 0, 1], &[0; 4]];
        stream.write_all(&hello.concat()).unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        Client(stream)
    }

    fn request(&mut self, kind: u16, unit: u64, len: u32, data: &[u8]) {
        let request = [
            &0x2560_9513_u32.to_be_bytes()[..],
            &[0, 0],
            &kind.to_be_bytes(),
            &[0; 8],
            &(unit * UNIT).to_be_bytes(),
            &len.to_be_bytes(),
            data,
        ];
        self.0.write_all(&request.concat()).unwrap();
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], [0; 4], "an error");
    }

    /// Reads the first word of a unit.
    fn read(&mut self, unit: u64) -> String {
        self.request(0, unit, 4096, &[]);
        let mut bytes = [0; 4096];
        self.0.read_exact(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.trim_end_matches([' ', '\0']).to_owned()
    }

    fn write(&mut self, unit: u64, text: &str) {
        let mut data = vec![b' '; 4096];
        data[..text.len()].copy_from_slice(text.as_bytes());
        self.request(1, unit, 4096, &data);
    }

    fn flush(&mut self) {
        self.request(3, 0, 0, &[]);
    }
}

/// Not a test: the check of the other tests. It repairs the store, and looks for what was reported.
#[test]
#[ignore = "other tests start it"]
fn opens_the_store() {
    let Ok(how) = std::env::var("STORE") else {
        return;
    };
    let mut base = Client::open();
    let log = base.read(0);
    if let Some(unit) = log.strip_prefix("log ").filter(|_| how != "no recovery") {
        base.write(unit.parse().unwrap(), &format!("r{unit} "));
        if how == "dies" && unit == "2" {
            std::process::abort();
        }
        if how != "wrong" {
            base.flush();
        }
        base.write(0, "empty ");
        base.flush();
    }
    let mark = std::env::var("FTLD_MARK").unwrap();
    for unit in 1..=mark.parse().unwrap_or(0) {
        let is_there = how == "no recovery" || base.read(unit) == format!("r{unit}");
        if !is_there {
            // A failed test would print a summary, which is not one of this program.
            let _ = writeln!(std::io::stderr(), "record {unit} is missing");
            std::process::exit(101);
        }
    }
}

#[test]
fn a_wrong_recovery_is_found_only_if_it_is_cut_too() {
    let saved = logged();
    for how in ["right", "wrong"] {
        let once = saved.args(&store(how));
        let (report, _) = saved.explored(&once).unwrap();
        assert_eq!((report.failed, report.nested_checked), (0, 0), "{report:?}");
        let args = nested(&saved, how);
        let (twice, timeline) = saved.explored(&args).unwrap();
        assert!(twice.recoveries > 0, "{how}: {twice:?}");
        assert!(twice.checked > report.checked, "{how}: {twice:?}");
        let about = About {
            timeline: &timeline,
            places: &twice.places,
        };
        let page = text(&twice, &about);
        let count = format!(
            "{} of them are states of {} recoveries",
            twice.nested_checked, twice.recoveries
        );
        assert!(page.contains(&count), "{page}");
        assert!(html(&twice, &about).contains(&count));
        if how == "right" {
            assert_eq!(twice.failed, 0, "{twice:?}");
            continue;
        }
        assert!(twice.failed > 0, "{twice:?}");
        let failed = twice.cases.first().unwrap();
        assert!(failed.case.is_nested(), "{failed:?}");
        for line in [
            "power fails again in the recovery, after its entry 2 (write of 4096 bytes at 0)",
            "bytes 4096 to 8191 keep what the first cut left, not of its entry 1 (write of 4096 bytes at 4096)",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(failed.output.contains("is missing"), "{failed:?}");
        let json = twice.json(&about);
        assert_eq!(json["recoveries"], twice.recoveries);
        assert_eq!(
            json["shortest"]["explanation"][1].as_str(),
            failed.explained.first().map(String::as_str)
        );
        let xml = junit(&twice, &about);
        assert!(
            xml.contains(&format!("testcase name=\"{}\"", failed.case)),
            "{xml}"
        );
        // The command of the report repeats it, and names a case that is none.
        assert!(page.contains(&format!("--case {}", failed.case)), "{page}");
        let again = |case: String, check: &str| {
            let args = CrashesArgs {
                case: Some(case),
                ..saved.args(check)
            };
            crashes(&args, true).unwrap_err()
        };
        let failure = again(failed.case.to_string(), &store(how));
        assert!(
            failure.message.starts_with(&failed.case.to_string()),
            "{failure}"
        );
        let outer = failed.case.outer();
        for (case, check, why) in [
            (
                format!("{outer}+cache/99"),
                store(how),
                "in another way each of 2 times",
            ),
            (
                failed.case.to_string(),
                store("'no recovery'"),
                "changed nothing through a device",
            ),
            (
                failed.case.to_string(),
                "exit 3".into(),
                "the check already fails there: exit code 3",
            ),
            (
                format!("{outer}+flash/1/1/1"),
                store(how),
                "by the models cache and prefix only",
            ),
        ] {
            let failure = again(case, &check);
            assert!(failure.message.contains(why), "{failure}");
        }
    }
}

#[test]
fn a_ledger_keeps_what_recoveries_were() {
    let saved = logged();
    let args = nested(&saved, "wrong");
    let counts = |report: &Report| {
        let cases: BTreeSet<_> = report.cases.iter().map(|of| of.case.to_string()).collect();
        let all = [report.states, report.checked, report.failed];
        (
            all,
            report.recoveries,
            cases.len(),
            report.cases.first().map(|of| of.explained.clone()),
        )
    };
    let (whole, _) = saved.explored(&args).unwrap();
    let kept = CrashesArgs {
        ledger: Some(saved.folder.path().join("ledger")),
        ..args.clone()
    };
    // Without --nested, and then stopped early.
    let without = CrashesArgs {
        nested: None,
        ..kept.clone()
    };
    saved.explored(&without).unwrap();
    let early = CrashesArgs {
        failures: 1,
        ..kept.clone()
    };
    let (early, _) = saved.explored(&early).unwrap();
    assert!(early.stopped && early.checked < whole.checked, "{early:?}");
    let (second, _) = saved.explored(&kept).unwrap();
    assert_eq!(counts(&second), counts(&whole));
    assert!(second.from_ledger < second.checked, "{second:?}");
    let (third, _) = saved.explored(&kept).unwrap();
    assert_eq!(counts(&third), counts(&whole));
    assert_eq!(third.from_ledger, third.checked, "{third:?}");
    // Other states of recoveries are asked for.
    let other = CrashesArgs {
        nested: Some(1),
        ..kept
    };
    let (fourth, _) = saved.explored(&other).unwrap();
    assert!(fourth.from_ledger < fourth.checked, "{fourth:?}");
}

#[test]
fn a_check_that_changes_nothing_or_dies_in_its_recovery_has_none() {
    let saved = logged();
    let (once, _) = saved
        .explored(&saved.args(&store("'no recovery'")))
        .unwrap();
    let (twice, timeline) = saved.explored(&nested(&saved, "'no recovery'")).unwrap();
    let counts = |of: &Report| (of.states, of.checked, of.failed, of.recoveries);
    assert_eq!(counts(&twice), counts(&once));
    let about = About {
        timeline: &timeline,
        places: &twice.places,
    };
    let page = text(&twice, &about);
    assert!(
        page.contains("--nested: the check changed nothing"),
        "{page}"
    );
    let (dies, _) = saved.explored(&nested(&saved, "dies")).unwrap();
    assert!(dies.failed > 0 && dies.recoveries > 0, "{dies:?}");
    for failed in &dies.cases {
        // Also of a recovery that began anew after the second cut.
        assert!(failed.said == "exit code 134", "{failed:?}");
    }
    let (right, _) = saved.explored(&nested(&saved, "right")).unwrap();
    assert!(dies.recoveries < right.recoveries, "{dies:?} {right:?}");
}

#[test]
fn an_interruption_in_a_recovery_leaves_no_verdict_on_the_rest() {
    let saved = logged();
    let began = saved.folder.path().join("began");
    let slow = format!(
        "case $FTLD_CASE in *+*) touch {}; sleep 30;; esac; {}",
        began.display(),
        store("right")
    );
    let args = CrashesArgs {
        nested: Some(8),
        ledger: Some(saved.folder.path().join("ledger")),
        jobs: Some(1),
        ..saved.args(&slow)
    };
    let scratch = Scratch::create(&args).unwrap();
    let timeline = Timeline::of(&args, scratch.path()).unwrap();
    let interrupted = Arc::new(AtomicBool::new(false));
    let shared = Shared::new(timeline, &args, interrupted.clone());
    let report = std::thread::scope(|scope| {
        let exploring = scope.spawn(|| explore(&args, &shared, scratch.path(), 1));
        while !began.exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        interrupted.store(true, Relaxed);
        exploring.join().unwrap().unwrap()
    });
    assert!(report.interrupted && report.failed == 0, "{report:?}");
    assert_eq!(report.nested_checked, 0, "{report:?}");
    let lines = std::fs::read_to_string(args.ledger.unwrap()).unwrap();
    // The state whose recovery was cut short has to be checked again.
    assert!(!lines.contains("\"keys\":[\""), "{lines}");
}

#[test]
fn a_recovery_that_is_too_long_is_cut_off_and_one_of_a_flash_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let size = 64 << 20;
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    let tape = Arc::new(Tape::default());
    let device = ImageDevice {
        path,
        size,
        unit: 4096,
    };
    let device = OnTape::new(Arc::new(device), tape.clone());
    let data = vec![7; 24 << 20];
    device.write(0, &data).unwrap();
    tape.start();
    for at in 0..3 {
        device.write(at * UNIT, &data).unwrap();
        device.write(at * UNIT, &[1; 512]).unwrap();
    }
    let saved = folder.path().join("saved");
    tape.save(&saved, size).unwrap();
    let recovery = Recovery::read(&saved, size).unwrap().unwrap();
    assert!(recovery.was_cut_off);
    let lengths: Vec<_> = recovery.entries.iter().map(|of| of.length).collect();
    assert_eq!(lengths, [24 << 20, 512, 24 << 20, 512]);
    let other = Recovery::read(&saved, size / 2).unwrap_err();
    assert!(other.message.contains("instead of"), "{other}");
    assert!(tape.take().entries.is_empty());

    let saved = logged();
    let flash = CrashesArgs {
        model: Model::Flash,
        ..nested(&saved, "right")
    };
    let failure = crashes(&flash, true).unwrap_err();
    assert!(failure.message.contains("--nested: only with"), "{failure}");
}

/// A request of a random recovery: kind, first sector and number of sectors, value.
type Random = (u8, u64, u64, u8);

fn random() -> impl Strategy<Value = Vec<Random>> {
    prop::collection::vec((0u8..6, 0u64..40, 1u64..20, 1u8..5), 1..8)
}

const UNITS: u64 = 6;

/// Brings requests into a recording, or onto a device.
fn each(requests: &[Random], mut run: impl FnMut(Kind, bool, u64, u64, &[u8])) {
    for &(kind, sector, sectors, value) in requests {
        let end = (UNITS * UNIT).min((sector + sectors) * 512);
        let (offset, len) = (sector * 512, end - sector * 512);
        let data = vec![value; usize::try_from(len).unwrap()];
        match kind {
            0 => run(Kind::Trim, false, offset, len, &[]),
            1 => run(Kind::WriteZeroes, false, offset, len, &[]),
            2 => run(Kind::Flush, false, 0, 0, &[]),
            3 => run(Kind::Flush, true, offset, len, &[]),
            _ => run(Kind::Write, false, offset, len, &data),
        }
    }
}

fn recorded(requests: &[Random], mut recorder: Recorder) -> Saved {
    each(requests, |kind, fua, offset, length, data| {
        let moments = (recorder.moment(), recorder.moment());
        recorder.push(kind, fua, 0, (offset, length), moments, data);
    });
    recorder.mark("the end");
    recorder.save()
}

/// Returns an image of the device.
fn image_of(timeline: &Timeline, path: &Path) -> RawImage {
    let (device, unit) = (&timeline.devices[0], timeline.unit_bytes);
    RawImage::create(path.into(), device, unit, timeline.written.clone()).unwrap()
}

/// Returns the device in a state.
fn bytes(timeline: &Timeline, state: &State, path: &Path) -> Vec<u8> {
    let _ = std::fs::remove_file(path);
    let mut image = image_of(timeline, path);
    image.put(state, &timeline.contents).unwrap();
    std::fs::read(path).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The states of a recovery are those of a recording that begins with the state and has the
    /// same requests; an image takes one after the other.
    #[test]
    fn states_of_a_recovery_are_those_of_a_recording_of_it(
        first in random(), second in random(), pick in 0usize..64, at_flush in any::<bool>()
    ) {
        let saved = recorded(&first, Recorder::new(UNITS));
        let timeline = saved.timeline();
        let mut cursor = Cursor::new(&timeline);
        while cursor.step().is_some() {}
        let point = cursor.point();
        let choices = models::cache(&point, &Losses::default(), 64, 3);
        let outer = State::of(&point, &choices[pick % choices.len()], &timeline.contents);
        let path = saved.folder.path().join("image");
        let before = bytes(&timeline, &outer, &path);

        // On a tape.
        let tape = Arc::new(Tape::default());
        let device = ImageDevice { path: path.clone(), size: UNITS * UNIT, unit: 4096 };
        let device = OnTape::new(Arc::new(device), tape.clone());
        tape.start();
        each(&second, |kind, fua, offset, len, data| {
            let flush = match fua {
                true => FlushOf::Request { offset, len },
                false => FlushOf::Everything,
            };
            match kind {
                Kind::Trim => drop(device.trim(offset, len).unwrap()),
                Kind::WriteZeroes => drop(device.write_zeroes(offset, len).unwrap()),
                Kind::Write => drop(device.write(offset, data).unwrap()),
                _ => drop(device.flush(flush).unwrap()),
            }
        });
        let args = CrashesArgs {
            nested: Some(1 << 20),
            states: 1 << 20,
            at: if at_flush { At::Flush } else { At::Request },
            ..saved.args("true")
        };
        let plan = Plan::of(&args).unwrap();
        let contents = timeline.contents.count();
        let nested = Nested::of(&timeline, &outer, tape.take()).unwrap();
        let mut image = image_of(&timeline, &saved.folder.path().join("states"));
        let mut found = BTreeSet::new();
        for (case, state) in nested.iter().flat_map(|of| of.states(&plan).unwrap()) {
            image.put(&state, &timeline.contents).unwrap();
            let content = std::fs::read(image.path()).unwrap();
            prop_assert_ne!(&content, &before);
            // Its name says all.
            let nested = nested.as_ref().unwrap();
            let (point, choice) = nested.find(&case).unwrap();
            prop_assert_eq!(nested.state(&point, &choice).sum, state.sum);
            prop_assert!(found.insert(content), "{} is there twice", case);
        }
        // They end with the recovery.
        prop_assert_eq!(timeline.contents.count(), contents);

        // By hand.
        let mut recorder = Recorder::new(UNITS);
        recorder.entry(Kind::Base, 0, UNITS * UNIT, &before);
        let by_hand = recorded(&second, recorder);
        let timeline = by_hand.timeline();
        let (mut cursor, mut expected) = (Cursor::new(&timeline), BTreeSet::new());
        let is_point = |event: usize| {
            let next = timeline.events.get(event + 1).map(|of| &of.what);
            !at_flush || matches!(next, Some(What::Flush { .. }))
        };
        while let Some(event) = cursor.step() {
            if is_point(event) {
                let point = cursor.point();
                for choice in models::cache(&point, &Losses::default(), 1 << 20, 1) {
                    let state = State::of(&point, &choice, &timeline.contents);
                    expected.insert(bytes(&timeline, &state, &path));
                }
            }
        }
        expected.remove(&before);
        prop_assert_eq!(found.len(), expected.len());
        prop_assert!(found == expected);
    }
}

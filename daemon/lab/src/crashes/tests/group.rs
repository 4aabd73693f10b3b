//! Several recordings as one timeline.

use super::definition::{Random, Timed, allowed, random, timed, value};
use super::*;
use crate::crashes::cursor::Point;
use crate::crashes::group::nth_file;
use crate::crashes::models::State;
use ftld_traces::recording::Clock;
use proptest::prelude::*;

/// Head of a device of 9 units that began to record at this time.
fn began(began_ns: u64) -> Head {
    Head {
        clock: Some(Clock {
            id: "a boot".into(),
            began_ns,
        }),
        ..head(9, None)
    }
}

/// A request with its times in nanoseconds of the host's clock.
struct At<'a> {
    kind: Kind,
    unit: u64,
    text: &'a str,
    times: [u64; 2],
}

fn write(unit: u64, text: &str, times: [u64; 2]) -> At<'_> {
    At {
        kind: Kind::Write,
        unit,
        text,
        times,
    }
}

fn other(kind: Kind, text: &str, times: [u64; 2]) -> At<'_> {
    At {
        kind,
        unit: 0,
        text,
        times,
    }
}

/// Records requests one after the other.
fn recorded(head: &Head, requests: &[At<'_>]) -> Recorder {
    let mut recorder = Recorder::on(head);
    let began = head.clock.as_ref().map_or(0, |clock| clock.began_ns);
    for at in requests {
        let (mut begin, mut end) = (recorder.moment(), recorder.moment());
        (begin.ns, end.ns) = (at.times[0] - began, at.times[1] - began);
        let mut data = at.text.as_bytes().to_vec();
        let range = match at.kind {
            Kind::Write => {
                data.resize(4096, b' ');
                (at.unit * UNIT, UNIT)
            }
            _ => (0, 0),
        };
        recorder.push(at.kind, false, 0, range, (begin, end), &data);
    }
    recorder
}

impl Saved {
    /// Saves recordings side by side.
    fn group(recorders: Vec<Recorder>) -> Saved {
        let mut recorders = recorders.into_iter();
        let saved = recorders.next().unwrap().save();
        for (device, recorder) in (1..).zip(recorders) {
            let bytes = recorder.writer.finish().unwrap().0;
            std::fs::write(nth_file(&saved.path, device), bytes).unwrap();
        }
        saved
    }

    fn group_args(&self, devices: usize, check: &str) -> CrashesArgs {
        CrashesArgs {
            others: (1..devices).map(|of| nth_file(&self.path, of)).collect(),
            ..self.args(check)
        }
    }

    fn group_timeline(&self, devices: usize) -> Result<Timeline, Failure> {
        Timeline::of(&self.group_args(devices, "true"), self.folder.path())
    }
}

/// Device and first byte of each event.
fn order(timeline: &Timeline) -> Vec<(usize, u64)> {
    let events = timeline.events.iter();
    events
        .map(|event| (event.device, event.offset / UNIT))
        .collect()
}

/// Points by the numbers of their entries.
fn each_point(timeline: &Timeline) -> Vec<Point> {
    let mut cursor = Cursor::new(timeline);
    std::iter::from_fn(|| cursor.step().map(|_| cursor.point())).collect()
}

/// Units that are open at a point: device, unit on it, number of contents.
fn open(timeline: &Timeline, point: &Point) -> Vec<(usize, u32, usize)> {
    let of = |unit: &crate::crashes::cursor::OpenUnit| {
        let device = timeline.device_of(unit.unit);
        let own = unit.unit - timeline.devices[device].first;
        (device, own, unit.candidates.len())
    };
    point.open.iter().map(of).collect()
}

#[test]
fn requests_of_two_devices_are_in_the_order_of_the_clock() {
    let first = [write(1, "a", [5500, 5600]), write(2, "b", [5900, 5950])];
    let second = [write(3, "c", [5100, 5200]), write(4, "d", [5550, 5700])];
    let saved = Saved::group(vec![
        recorded(&began(1000), &first),
        recorded(&began(5000), &second),
    ]);
    let timeline = saved.group_timeline(2).unwrap();
    assert_eq!(order(&timeline), [(1, 3), (0, 1), (1, 4), (0, 2)]);
    let numbers: Vec<_> = timeline.events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let points = each_point(&timeline);
    assert_eq!(open(&timeline, &points[0]), [(1, 3, 2)]);
    // Unit 4 of the second device is in flight.
    let wanted = [(0, 1, 2), (1, 3, 2), (1, 4, 2)];
    assert_eq!(open(&timeline, &points[1]), wanted);
    assert_eq!(points[1].open[2].newest, 0);
    assert_eq!(points[2].open[2].newest, 1);
}

/// A time that is read late does not turn the order of a device, and its number was taken before.
#[test]
fn a_late_time_is_no_later_moment() {
    // The end of `a` has the time 900, but the FLUSH after it began at 300.
    let first = [
        write(1, "a", [100, 900]),
        other(Kind::Flush, "", [300, 400]),
    ];
    let second = [write(2, "b", [500, 600])];
    let saved = Saved::group(vec![
        recorded(&began(0), &first),
        recorded(&began(10), &second),
    ]);
    let timeline = saved.group_timeline(2).unwrap();
    assert_eq!(order(&timeline), [(0, 1), (0, 0), (1, 2)]);
    let last = each_point(&timeline).pop().unwrap();
    assert_eq!(open(&timeline, &last), [(1, 2, 2)]);
}

#[test]
fn a_flush_covers_its_own_device_alone() {
    let first = [
        write(1, "a", [100, 200]),
        other(Kind::Flush, "", [700, 800]),
    ];
    let second = [
        write(1, "b", [300, 400]),
        other(Kind::Flush, "", [500, 600]),
    ];
    let saved = Saved::group(vec![
        recorded(&began(0), &first),
        recorded(&began(10), &second),
    ]);
    let timeline = saved.group_timeline(2).unwrap();
    let points = each_point(&timeline);
    let opens: Vec<_> = points.iter().map(|point| open(&timeline, point)).collect();
    let both = vec![(0, 1, 2), (1, 1, 2)];
    assert_eq!(opens, [vec![(0, 1, 2)], both, vec![(0, 1, 2)], vec![]]);
    assert_eq!(points[2].last_flush, [0, 3]);
    assert_eq!(points[3].last_flush, [4, 3]);
}

/// What a device did before it began to record, or after its recording was cut off, is not known.
#[test]
fn power_fails_only_while_all_devices_are_recorded() {
    let first = [
        write(1, "a", [100, 200]),
        write(2, "b", [400, 500]),
        write(3, "c", [700, 800]),
    ];
    let second = [write(1, "d", [410, 600])];
    let whole = |second: Vec<u8>, cut_off: bool| {
        let saved = recorded(&began(0), &first).save();
        std::fs::write(nth_file(&saved.path, 1), second).unwrap();
        let args = CrashesArgs {
            cut_off,
            ..saved.group_args(2, "true")
        };
        let timeline = Timeline::of(&args, saved.folder.path());
        timeline.map(|timeline| points(&timeline, &args))
    };
    let bytes = recorded(&began(300), &second).writer.finish().unwrap().0;
    assert_eq!(whole(bytes.clone(), false).unwrap(), [1, 2, 3]);
    // Without the end mark, a chunk of 24 bytes.
    let cut = bytes[..bytes.len() - 24].to_vec();
    assert_eq!(whole(cut.clone(), true).unwrap(), [1, 2]);
    let refused = whole(cut, false).unwrap_err();
    assert!(refused.message.contains("--cut-off"), "{refused}");
    let late = recorded(&began(900), &[]).writer.finish().unwrap().0;
    let refused = whole(late, false).unwrap_err();
    assert!(refused.message.contains("at the same time"), "{refused}");
}

#[test]
fn recordings_that_are_no_group_are_refused_with_the_way_out() {
    let requests = [write(1, "a", [1100, 1200])];
    let on = |head: &Head| {
        Saved::group(vec![
            recorded(&began(0), &requests),
            recorded(head, &requests),
        ])
    };
    let old = on(&head(9, None));
    let other_boot = on(&Head {
        clock: Some(Clock {
            id: "another".into(),
            began_ns: 10,
        }),
        ..head(9, None)
    });
    let larger = on(&Head {
        physical_block: 8192,
        size: 16 * UNIT,
        ..began(10)
    });
    let huge = on(&Head {
        size: u64::from(u32::MAX) * UNIT,
        ..began(10)
    });
    let without_data = on(&Head {
        has_data: false,
        ..began(10)
    });
    for (saved, what) in [
        (&old, "record again, or explore it alone"),
        (&other_boot, "in different boots"),
        (&larger, "with units of 4096 and 8192 bytes"),
        (&huge, "too large together"),
        (&without_data, "--record-data off"),
    ] {
        let refused = saved.group_timeline(2).err().unwrap();
        assert!(refused.message.contains(what), "{refused}");
    }
    // Alone, an old recording is explored as before.
    Timeline::read(&nth_file(&old.path, 1), false, old.folder.path()).unwrap();
    let fits = on(&began(10));
    fits.group_timeline(2).unwrap();
    let twice = |devices| CrashesArgs {
        others: vec![fits.path.clone(); devices],
        ..fits.args("true")
    };
    let of = || fits.group_args(2, "true");
    for (args, what) in [
        (twice(1), "the same recording; name"),
        (twice(8), "9 recordings: a group has at most 8"),
        (
            CrashesArgs {
                model: Model::Flash,
                ..of()
            },
            "--model flash",
        ),
        (
            CrashesArgs {
                loss: vec![Loss::Shorn, Loss::Channel],
                ..of()
            },
            "--loss channel",
        ),
        (
            CrashesArgs {
                files: Some("/data".into()),
                ..of()
            },
            "--files FOLDER",
        ),
        (
            CrashesArgs {
                nested: Some(8),
                ..of()
            },
            "--nested: with one device only",
        ),
        (
            CrashesArgs {
                case: Some("cache/1+cache/2".into()),
                ..of()
            },
            "--nested: with one device only",
        ),
    ] {
        let refused = Timeline::of(&args, fits.folder.path()).err().unwrap();
        assert!(refused.message.contains(what), "{refused}");
    }
}

/// A log on the second device, which is written after the data on the first, or before it.
fn logged(log_first: bool) -> Saved {
    let (data, log) = (began(0), began(10));
    let [mut data, log] = [(data, 1000), (log, 1500)].map(|(head, at)| {
        let at = if log_first { 2500 - at } else { at };
        let requests = [
            write(2, "r1", [at, at + 100]),
            other(Kind::Flush, "", [at + 200, at + 300]),
        ];
        recorded(&head, &requests)
    });
    let moment = |recorder: &mut Recorder| {
        let mut moment = recorder.moment();
        moment.ns = 3000;
        moment
    };
    let moments = (moment(&mut data), moment(&mut data));
    data.push(Kind::Mark, false, 0, (0, 0), moments, b"1");
    Saved::group(vec![data, log])
}

/// The record in the log is there if it is in the data.
const LOG_FIRST: &str = r#"at() { dd if="$1" bs=4096 skip=2 count=1 2> /dev/null | cut -c1-2; }
  [ "$(at "$FTLD_IMAGE")" != r1 ] || [ "$(at "$FTLD_IMAGE_2")" = r1 ] || { echo "no record"; exit 1; }"#;

#[test]
fn a_check_gets_all_images_and_a_case_names_the_device() {
    let (report, _) = {
        let saved = logged(true);
        saved.explored(&saved.group_args(2, LOG_FIRST)).unwrap()
    };
    assert_eq!((report.failed, report.points), (0, 5), "{report:?}");
    let saved = logged(false);
    let args = saved.group_args(2, LOG_FIRST);
    let (report, timeline) = saved.explored(&args).unwrap();
    assert!(report.failed > 0, "{report:?}");
    let about = About {
        timeline: &timeline,
        places: &report.places,
    };
    let text = text(&report, &about);
    let both = format!("{0} {0}.2 --check", saved.path.display());
    for part in ["write of 4096 bytes at 8192 of device 1)", &both] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The second unit of the case is on the second device, whose units begin after a gap.
    let keep = saved.folder.path().join("kept");
    let case = |case: &str, keep: &PathBuf| {
        crashes(
            &CrashesArgs {
                case: Some(case.into()),
                keep: Some(keep.clone()),
                ..args.clone()
            },
            true,
        )
    };
    case("cache/3/12=0", &keep).unwrap_err();
    let images = [&keep, &nth_file(&keep, 1)].map(|image| std::fs::read(image).unwrap());
    for (image, has) in images.iter().zip([&b"r1"[..], &[0, 0]]) {
        assert_eq!(image.len() as u64, 9 * UNIT);
        assert_eq!(&image[2 * 4096..2 * 4096 + 2], has);
    }
    let refused = case("cache/3/12=0", &keep).unwrap_err();
    assert!(refused.message.contains("the file exists"), "{refused}");
    std::fs::remove_file(&keep).unwrap();
    let refused = case("cache/3/12=0", &keep).unwrap_err();
    assert!(
        refused.message.contains("kept.2: the file exists"),
        "{refused}"
    );
    let (point, _) = crate::crashes::explore::find(&timeline, 3, None).unwrap();
    let of = |unit| Case::Cache {
        entry: point.number,
        units: vec![(unit, unit, 0)],
    };
    let lines = about.explain(&of(12)).join("\n");
    assert!(lines.contains("bytes 8192 to 12287 of device 2"), "{lines}");
    assert!(lines.contains("at 8192 of device 2)"), "{lines}");
}

/// One line has the images of all devices.
#[test]
fn a_check_that_stays_up_reads_all_images() {
    let saved = logged(true);
    let tab = "\t";
    let check = format!(
        r#"while IFS='{tab}' read -r one two mark; do
             [ -s "$one" ] && [ -s "$two" ] && [ "$two" = "$FTLD_IMAGE_2" ] && echo ok || echo "no $two"
           done"#
    );
    let args = CrashesArgs {
        server: true,
        ..saved.group_args(2, &check)
    };
    let (report, _) = saved.explored(&args).unwrap();
    assert!(report.failed == 0 && report.checked > 3, "{report:?}");
}

#[test]
fn a_ledger_is_for_all_recordings_of_a_group() {
    let saved = logged(true);
    let args = |devices| CrashesArgs {
        ledger: Some(saved.folder.path().join("ledger")),
        ..saved.group_args(devices, "true")
    };
    let (first, _) = saved.explored(&args(2)).unwrap();
    let (again, _) = saved.explored(&args(2)).unwrap();
    assert_eq!(
        (again.from_ledger, again.checked),
        (first.checked, first.checked)
    );
    let refused = saved.explored(&args(1)).err().unwrap();
    assert!(refused.message.contains("another recording"), "{refused}");
}

/// Records random requests with the times that they have.
fn record(requests: &[Timed], began_ns: u64) -> Recorder {
    let mut recorder = Recorder::on(&began(began_ns));
    let mut moments: Vec<u64> = requests.iter().flat_map(|of| [of.begin, of.end]).collect();
    moments.sort_unstable();
    for request in requests {
        let Random {
            kind,
            unit,
            units,
            value,
            fua,
            fails,
            ..
        } = request.of;
        let moment = |ns: u64| Moment {
            seq: moments.partition_point(|at| *at < ns) as u64,
            ns: ns - began_ns,
        };
        let fua = kind == Kind::Flush && fua;
        let length = units * UNIT;
        let (range, data) = match kind {
            Kind::Flush if !fua => ((0, 0), Vec::new()),
            Kind::Mark => ((0, 0), Vec::new()),
            Kind::Write => ((unit * UNIT, length), vec![value; length as usize]),
            _ => ((unit * UNIT, length), Vec::new()),
        };
        let moments = (moment(request.begin), moment(request.end));
        recorder.push(kind, fua, if fails { 5 } else { 0 }, range, moments, &data);
    }
    recorder
}

/// All combinations of a content for each place.
fn product(sets: &[BTreeSet<u8>]) -> BTreeSet<Vec<u8>> {
    let mut all = BTreeSet::from([Vec::new()]);
    for set in sets {
        let longer = |part: &Vec<u8>| {
            let part = part.clone();
            set.iter().map(move |value| [&part[..], &[*value]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The states of a group at a moment are those of each device at this moment, combined.
    #[test]
    fn states_of_a_group_are_the_product_of_its_devices(
        first in prop::collection::vec(random(), 1..6),
        second in prop::collection::vec(random(), 1..6),
        third in prop::collection::vec(random(), 0..3),
    ) {
        let devices: Vec<Vec<Timed>> = [(first, 0), (second, 4_300), (third, 8_700)]
            .into_iter()
            .map(|(requests, shift)| {
                let mut requests = timed(&requests);
                for request in &mut requests {
                    (request.begin, request.end) = (request.begin + shift, request.end + shift);
                }
                requests
            })
            .collect();
        let began_ns = [200, 0, 900];
        let recorders = devices.iter().zip(began_ns).map(|(requests, began)| record(requests, began));
        let saved = Saved::group(recorders.collect());
        // A failed FLUSH is no event.
        let mut ends: Vec<(u64, usize)> = Vec::new();
        for (device, requests) in devices.iter().enumerate() {
            let events = requests.iter().filter(|at| at.of.kind != Kind::Flush || !at.of.fails);
            ends.extend(events.map(|at| (at.end, device)));
        }
        ends.sort_unstable();
        prop_assume!(!ends.is_empty());
        let timeline = saved.group_timeline(3).unwrap();
        prop_assert_eq!(&timeline.whole, &(0..ends.len()));
        let points = each_point(&timeline);
        prop_assert_eq!(points.len(), ends.len());
        for ((point, event), (now, device)) in points.iter().zip(&timeline.events).zip(ends) {
            prop_assert_eq!(event.device, device);
            let sets: Vec<BTreeSet<u8>> = devices
                .iter()
                .flat_map(|requests| (0..9).map(move |unit| allowed(requests, unit, now)))
                .collect();
            // Equal contents are several choices.
            if models::count(point) > 500 {
                continue;
            }
            let wanted: u64 = sets.iter().map(|set| set.len() as u64).product();
            prop_assert!(wanted <= 500, "{} states at {}", wanted, now);
            let mut found = BTreeSet::new();
            let choices = models::cache(point, &Losses::default(), 500, 1);
            for choice in &choices {
                let state = State::of(point, choice, &timeline.contents);
                let mut values = vec![0; 27];
                state.each(|slot, content| {
                    let unit = timeline.written[slot as usize];
                    let device = timeline.device_of(unit);
                    let own = unit - timeline.devices[device].first;
                    values[9 * device + own as usize] = value(&timeline, content);
                });
                found.insert(values);
            }
            prop_assert_eq!(found, product(&sets), "at {}", now);
            // The model `prefix` has one of them.
            prop_assert!(choices.contains(&models::prefix(point).1));
        }
    }
}

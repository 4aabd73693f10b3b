//! Recordings that no device made, and what docs/RECORDING.md allows at its edges.

use super::*;
use ftl_core::Params;
use ftl_core::schemes::Scheme;
use ftld_device::record::recorded_profile;
use ftld_kit::profile_file;
use nand_model::Profile;

/// A recording of a device of this size, with these units.
fn device(size: u64, physical_block: u32) -> Recorder {
    Recorder::on(&Head {
        size,
        physical_block,
        ..head(1, None)
    })
}

fn states(recorder: Recorder) -> Result<u64, Failure> {
    let saved = recorder.save();
    visit(&saved.args("true"))
}

/// Memory and time follow from what was written, not from the size of the device or of a trim.
#[test]
fn a_large_device_costs_what_was_written() {
    let mut recorder = device(8 << 40, 4096);
    recorder.entry(Kind::Trim, 0, 8 << 40, &[]);
    recorder.write((8 << 40) / UNIT - 1, "the last unit");
    let moments = (recorder.moment(), recorder.moment());
    // A failed trim of the whole device, and beyond its end.
    recorder.push(Kind::Trim, false, 5, (UNIT, 16 << 40), moments, &[]);
    recorder.mark("here");
    let saved = recorder.save();
    let timeline = saved.timeline();
    assert_eq!(
        *timeline.written,
        [u32::try_from((8u64 << 40) / UNIT - 1).unwrap()]
    );
    assert_eq!(visit(&saved.args("true")).unwrap(), 1 + 2 + 3 + 3);
}

/// A failed request may reach beyond the end; what is within may have happened.
#[test]
fn a_failed_request_beyond_the_end_may_have_happened_within() {
    for kind in [Kind::Write, Kind::Trim, Kind::WriteZeroes] {
        let mut recorder = Recorder::new(4);
        recorder.write(3, "old");
        recorder.flush();
        let moments = (recorder.moment(), recorder.moment());
        let data = vec![7; if kind == Kind::Write { 8192 } else { 0 }];
        recorder.push(kind, false, 22, (3 * UNIT, 2 * UNIT), moments, &data);
        let moments = (recorder.moment(), recorder.moment());
        recorder.push(kind, false, 22, (1 << 62, 2 * UNIT), moments, &data);
        // The write: old or none. Both failed ones: old or new.
        assert_eq!(states(recorder).unwrap(), 2 + 1 + 2 + 2, "{kind:?}");
    }
}

/// An unreadable piece of the initial content is unknown: the states have zeros, the report says
/// so.
#[test]
fn unreadable_content_is_unknown_and_the_report_says_so() {
    let mut recorder = Recorder::new(16);
    recorder.entry(Kind::Base, 0, UNIT, &[1; 4096]);
    let moments = (recorder.moment(), recorder.moment());
    recorder.push(Kind::Base, false, 5, (2 * UNIT, 3 * UNIT), moments, &[]);
    recorder.write(3, "known from here on");
    let saved = recorder.save();
    let (report, timeline) = saved.explored(&saved.args("true")).unwrap();
    assert!(matches!(&timeline.devices[0].unreadable[..], [only] if *only == (2 * UNIT..5 * UNIT)));
    let about = About {
        timeline: &timeline,
        places: &report.places,
    };
    let text = text(&report, &about);
    let line = " of initial content, first at byte 8192, could not be read";
    assert!(text.contains(line), "{text}");
    assert!(html(&report, &about).contains(line));
    assert_eq!(report.json(&about)["unreadable_bytes"], 3 * UNIT);
}

#[test]
fn a_mark_with_a_nul_reaches_the_check_without_it() {
    let mut recorder = Recorder::new(4);
    recorder.write(0, "x");
    recorder.mark("one\0two");
    let saved = recorder.save();
    let args = CrashesArgs {
        at: At::Mark,
        ..saved.args("[ \"$FTLD_MARK\" = \"one\u{fffd}two\" ]")
    };
    let (report, _) = saved.explored(&args).unwrap();
    assert_eq!((report.checked > 0, report.failed), (true, 0), "{report:?}");
}

#[test]
fn units_that_are_none_are_refused() {
    for (size, unit) in [
        (1 << 20, 0),
        (1 << 20, 256),
        (1 << 20, 3072),
        (1 << 20, 1 << 17),
    ] {
        let mut recorder = device(size, unit);
        recorder.mark("x");
        let failure = states(recorder).unwrap_err();
        assert!(failure.message.contains("is damaged"), "{unit}: {failure}");
    }
    let mut recorder = device(4096 * 5 + 512, 4096);
    recorder.mark("x");
    assert!(states(recorder).unwrap_err().message.contains("is damaged"));
    let mut recorder = device(1 << 60, 4096);
    recorder.mark("x");
    assert!(states(recorder).unwrap_err().message.contains("too large"));
}

/// The head of a recording on the flash is as foreign as its entries.
#[test]
fn a_flash_that_the_recording_does_not_fit_is_refused() {
    let scheme = Scheme::find("pagemap").unwrap();
    let layout = scheme
        .layout(
            Profile::default_profile(),
            1 << 20,
            0.07,
            &Params::default(),
        )
        .unwrap();
    let toml = profile_file::to_toml(&recorded_profile(layout.profile));
    let flash = || Flash {
        scheme: scheme.name.into(),
        params: BTreeMap::new(),
        profile: toml.clone(),
        shards: None,
        logical_pages: layout.logical_pages,
        seed: 3,
    };
    let pages = |pages| Flash {
        logical_pages: pages,
        ..flash()
    };
    let blocks = |blocks: &str| {
        let line = toml
            .lines()
            .find(|line| line.starts_with("blocks"))
            .unwrap();
        Flash {
            profile: toml.replace(line, &format!("blocks = {blocks}")),
            ..flash()
        }
    };
    let page = |bytes: &str| {
        let line = toml
            .lines()
            .find(|line| line.starts_with("page_bytes"))
            .unwrap();
        Flash {
            profile: toml.replace(line, &format!("page_bytes = {bytes}")),
            ..flash()
        }
    };
    let size = u64::from(layout.logical_pages) * UNIT;
    let cases = [
        ("do not fit", size + UNIT, 4096, flash()),
        ("do not fit", size, 4096, pages(1)),
        ("do not fit", size, 4096, pages(0)),
        ("do not fit", 1 << 20, 8192, flash()),
        ("do not fit", 1 << 20, 4096, page("6144")),
        ("", 1 << 20, 4096, pages(u32::MAX)),
        ("", 1 << 20, 4096, blocks("1")),
    ];
    for (part, size, unit, flash) in cases {
        let mut recorder = Recorder::on(&Head {
            size,
            physical_block: unit,
            ..head(1, Some(flash))
        });
        recorder.entry(Kind::Write, 0, UNIT, &[1; 4096]);
        let saved = recorder.save();
        let args = CrashesArgs {
            model: Model::Flash,
            ..saved.args("true")
        };
        let failure = visit(&args).unwrap_err();
        assert!(failure.message.contains(part), "{part}: {failure}");
        // The other models need no flash.
        visit(&saved.args("true")).unwrap();
    }
}

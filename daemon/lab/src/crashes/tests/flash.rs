//! The model `flash`: what its states are, and that they are what a mount finds.

use super::*;
use crate::crashes::content::Content;
use crate::crashes::flash::{Dead, Device, Run};
use ftl_core::schemes::Scheme;
use ftl_core::{Lpn, Params, Start};
use ftld_device::record::recorded_profile;
use ftld_kit::profile_file;
use nand_model::{Chip, Profile, SplitMix};

/// A device of 256 units, so many of them in a page.
fn recorded(scheme: &str, units_per_page: u32) -> Flash {
    let scheme = Scheme::find(scheme).unwrap();
    let params = Params::default();
    let mut profile = *Profile::default_profile();
    profile.geometry.page_bytes *= units_per_page;
    let layout = scheme.layout(&profile, 1 << 20, 0.07, &params).unwrap();
    Flash {
        scheme: scheme.name.into(),
        params: BTreeMap::new(),
        profile: profile_file::to_toml(&recorded_profile(layout.profile)),
        shards: None,
        logical_pages: layout.logical_pages,
        seed: 3,
    }
}

/// The real scheme on the real chip: flushed data survives a cut in any operation.
#[test]
fn flash_states_keep_what_was_flushed() {
    for scheme in ["pagemap", "lazyftl", "fast"] {
        let flash = recorded(scheme, 1);
        for with_flush in [true, false] {
            let mut recorder = Recorder::on(&head(256, Some(flash.clone())));
            recorder.entry(Kind::Base, 200 * UNIT, UNIT, &[7; 4096]);
            for unit in 0..10 {
                recorder.write(unit, &format!("r{unit} "));
                if with_flush {
                    recorder.flush();
                }
                recorder.mark(&unit.to_string());
            }
            let saved = recorder.save();
            let check = format!(
                "[ \"$(dd if=$FTLD_IMAGE bs=4096 skip=200 count=1 2>/dev/null | od -An -tu1 -N1 | tr -d ' ')\" = 7 ] || exit 9; {ALL_COMMITTED}"
            );
            let args = CrashesArgs {
                model: Model::Flash,
                states: 12,
                ..saved.args(&check)
            };
            let (report, _) = saved.explored(&args).unwrap();
            assert!(report.states > 50, "{report:?}");
            assert!(
                report
                    .cases
                    .iter()
                    .all(|failed| failed.said == "exit code 1"),
                "{report:?}"
            );
            assert_eq!(report.failed == 0, with_flush, "{scheme}: {report:?}");
            // Cases checked before are not checked again, but are counted.
            let kept = CrashesArgs {
                ledger: Some(saved.folder.path().join("ledger")),
                failures: 0,
                ..args.clone()
            };
            let (first, _) = saved.explored(&kept).unwrap();
            let (second, _) = saved.explored(&kept).unwrap();
            assert_eq!((first.from_ledger, second.from_ledger), (0, first.checked));
            assert_eq!(
                (second.checked, second.failed),
                (first.checked, first.failed)
            );
            if let Some(failed) = report.shortest() {
                let again = CrashesArgs {
                    case: Some(failed.case.to_string()),
                    ..args
                };
                assert_eq!(crashes(&again, true).unwrap_err().exit, Exit::Failed);
            }
        }
    }
}

/// Mounts the flash and reads each unit that was ever written: its content, or that it has none.
fn read(dead: &Dead, timeline: &Timeline) -> Result<Vec<Content>, String> {
    let flash = &dead.device.flash;
    let chip = Chip::over(flash.profile, dead.store.clone()).unwrap();
    let ftl = flash.scheme.start(chip, &flash.config, Start::Mount);
    let mut ftl = ftl.map_err(|error| error.to_string())?;
    let mut page = vec![0; flash.profile.geometry.page_bytes as usize];
    let per_page = page.len() as u32 / UNIT as u32;
    let units = timeline.written.iter();
    let mut read = |unit| {
        let lpn = unit / per_page;
        let read = ftl.read(0, Lpn::new(lpn), &mut page);
        read.map_err(|error| format!("logical page {lpn}: {error}"))?;
        let from = (unit % per_page) as usize * UNIT as usize;
        Ok(timeline
            .contents
            .id_of(&page[from..][..UNIT as usize])
            .unwrap())
    };
    units.map(|unit| read(*unit)).collect()
}

/// A mount does not read what is known of the flash, and shares the contents of the last one.
#[test]
fn every_state_is_what_reads_find() {
    let schemes = ["pagemap", "lazyftl", "mnftl", "fast", "superblock"];
    let devices = schemes.map(|scheme| (scheme, 1));
    for (scheme, units_per_page) in devices.into_iter().chain([("pagemap", 4), ("fast", 2)]) {
        let flash = recorded(scheme, units_per_page);
        let mut recorder = Recorder::on(&head(256, Some(flash)));
        let mut rng = SplitMix::new(7);
        for number in 0..600 {
            let unit = rng.below(256);
            match rng.below(40) {
                0 => recorder.entry(Kind::Trim, unit * UNIT, UNIT, &[]),
                1 => recorder.flush(),
                _ => recorder.write(unit, &format!("{number} ")),
            }
        }
        let saved = recorder.save();
        let timeline = saved.timeline();
        let device = Arc::new(Device::of(&saved.path, &timeline).unwrap());
        let mut run = Run::start(device, &timeline).unwrap();
        let (mut near, mut shared) = (None, 0);
        for event in 0..timeline.events.len() {
            if event % 61 > 1 {
                run.step(event).unwrap();
                continue;
            }
            let mut operations = run.step_recorded(event).unwrap();
            for (op, outcome) in run.draw(&operations, 2, event as u64) {
                let dead = run.cut(&mut operations, op, outcome).unwrap();
                let case = format!("{scheme}: flash/{}/{op}/{outcome}", event + 1);
                let found = read(&dead, &timeline);
                let state = dead.mount(&timeline, near.as_ref());
                let contents = state.as_ref().map(|state| {
                    let slots = 0..timeline.written.len();
                    slots.map(|slot| state.content(slot)).collect::<Vec<_>>()
                });
                let contents = contents.map_err(|failure| failure.message.clone());
                assert_eq!(contents, found, "{case}");
                let Ok(state) = state else { continue };
                let units = timeline.written.iter().zip(found.unwrap());
                let terms = units.map(|(unit, content)| timeline.contents.term(*unit, content));
                assert_eq!(state.sum, terms.fold(0, u128::wrapping_add), "{case}");
                shared += usize::from(!state.changed.is_empty());
                near = Some(state);
            }
        }
        assert!(
            shared > 0,
            "{scheme}: no state shares the contents of the last one"
        );
    }
}

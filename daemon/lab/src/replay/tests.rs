use super::*;
use ftl_core::schemes::SCHEMES;
use ftld_device::device::{BlockDevice, FlushOf};
use ftld_device::record::{NewRecording, Recorded, Recorder, head_of};
use ftld_kit::convert::to_u64;
use nand_model::SplitMix;

#[test]
fn a_device_without_room_in_memory_is_refused() {
    let job = Job {
        size: Some("1TiB".into()),
        ..Job::default()
    };
    let device = Run::resolve(&job).unwrap().device(None).unwrap();
    let failure = device.fits_memory(Some(1 << 30)).unwrap_err();
    assert!(
        failure
            .message
            .contains("of memory, 1 GiB are available; choose a smaller --size"),
        "{failure}"
    );
    assert_eq!(
        (device.fits_memory(Some(1 << 40)), device.fits_memory(None)),
        (Ok(()), Ok(()))
    );
    assert!(ftld_device::sys::memory_available().unwrap() > 1 << 20);
}

/// A live device of this scheme, without background work and network, serves random requests and is
/// recorded. Returns its flash operations by cause.
fn serve_recorded(
    scheme: &str,
    folder: &std::path::Path,
    requests: u64,
) -> std::collections::BTreeMap<String, ftld_device::counters::Operations> {
    let options = ftld_device::options::DeviceOptions {
        scheme: Some(scheme.into()),
        image: Some(folder.join("image")),
        profile: Some("mlc-4k".into()),
        size: Some("8MiB".into()),
        ..ftld_device::options::DeviceOptions::default()
    };
    let args = ftld_device::options::DeviceArgs {
        options,
        ..ftld_device::options::DeviceArgs::default()
    };
    let config =
        ftld_device::config::Config::new(&args, &ftld_device::instance::Dirs::from_env()).unwrap();
    let stack = ftld_device::stack::open_or_create(&config).unwrap();
    let volume = std::sync::Arc::new(stack.volume);
    let file = NewRecording::create(&folder.join("rec")).unwrap();
    let head = head_of(&*volume, Some(&config.image), false).unwrap();
    let recorder = Recorder::start(file.handle().unwrap(), file.path(), &head).unwrap();
    recorder.record_content(&*volume).unwrap();
    let device = Recorded::new(volume.clone(), recorder.clone());
    volume.publish(true);
    let before = volume.flash().counters.clone();
    let (mut rng, mut waits) = (SplitMix::new(7), Vec::new());
    let data = vec![1; 64 << 10];
    for _ in 0..requests {
        let at = rng.below(2000) * 4096;
        // Whole pages, parts of pages and several pages; FLUSHes that end later, or at once.
        let len = [512, 4096, 4096, 16 << 10][rng.below(4) as usize];
        let of = FlushOf::Request {
            offset: at,
            len: to_u64(len),
        };
        match rng.below(40) {
            0 => drop(device.trim(at, to_u64(len)).unwrap()),
            1 => drop(device.write_zeroes(at, 512).unwrap()),
            2 => drop(device.read(at, &mut vec![0; len]).unwrap()),
            3 => waits.push(device.flush(FlushOf::Everything).unwrap()),
            4 => drop(device.flush(of).unwrap().wait().unwrap()),
            5 => waits
                .drain(..)
                .for_each(|flush| drop(flush.wait().unwrap())),
            _ => drop(device.write(at, &data[..len]).unwrap()),
        }
    }
    waits
        .drain(..)
        .for_each(|flush| drop(flush.wait().unwrap()));
    volume.publish(true);
    let flash = row::by_cause(&before, &volume.flash().counters);
    recorder.finish().unwrap();
    file.keep();
    flash
}

/// The counters of a replay are those of the live device, for every scheme.
#[test]
fn a_replayed_recording_has_the_counters_of_its_device() {
    for scheme in SCHEMES {
        let folder = tempfile::tempdir().unwrap();
        let live = serve_recorded(scheme.name, folder.path(), 6_000);
        let job = Job {
            workload: folder.path().join("rec").display().to_string(),
            ..Job::default()
        };
        let row = run(&job, &mut |_, _| ()).unwrap();
        assert_eq!(row.flash, live, "{}", scheme.name);
        let erases: u64 = live.values().map(|of| of.erases).sum();
        let pads = live.get("pad").map_or(0, |of| of.programs);
        assert!(erases > 0 && pads > 0, "{}: {live:?}", scheme.name);
        assert_eq!(row.scheme, scheme.name);
        assert!(row.requests.flushes > 0 && row.response_ns.flush.is_some());
        assert_eq!(row.precondition.drive_writes, 0.0);
        if scheme.name == SCHEMES[0].name {
            // The row repeats its run. Another over-provisioning changes the layout.
            assert_eq!(run(&row.job, &mut |_, _| ()).unwrap().flash, live);
            let op = Some(28.0);
            let other = run(&Job { op, ..job }, &mut |_, _| ()).unwrap();
            assert_eq!(other.device.size_bytes, row.device.size_bytes);
            assert!(other.device.raw_bytes > row.device.raw_bytes);
        }
    }
}

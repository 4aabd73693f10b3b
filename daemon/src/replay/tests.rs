use super::*;

#[test]
fn a_device_without_room_in_memory_is_refused() {
    let job = Job {
        size: Some("1TiB".into()),
        ..Job::default()
    };
    let bench = Bench::new(&job, &job.requirements().unwrap(), None).unwrap();
    let failure = bench.fits_memory(Some(1 << 30)).unwrap_err();
    assert!(
        failure
            .message
            .contains("of memory, 1 GiB are available; choose a smaller --size"),
        "{failure}"
    );
    assert_eq!(
        (bench.fits_memory(Some(1 << 40)), bench.fits_memory(None)),
        (Ok(()), Ok(()))
    );
    assert!(crate::sys::memory_available().unwrap() > 1 << 20);
}

use super::*;
use ftld_traces::Op;
use ftld_traces::recording::Head;

/// Returns a plan on a device of 1 MiB.
fn plan(text: &str) -> TwinPlan {
    let head = Head {
        program: "test".into(),
        size: 1 << 20,
        logical_block: 512,
        physical_block: 4096,
        has_data: false,
        started_unix_s: 0,
        clock: None,
        flash: None,
        write_cache: None,
    };
    TwinPlan::new(&ShadowOptions::parse(text).unwrap(), &head, Latency::None).unwrap()
}

fn follower(text: &str) -> (Follower, Receiver<Arc<[Request]>>) {
    let (batches, taken) = channel();
    let follower = Follower {
        plan: plan(text),
        live: LiveCounters::default(),
        lost_before: 7,
        batches,
        behind: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
        is_made: AtomicBool::new(false),
        ended: AtomicBool::new(false),
        failure: OnceLock::new(),
        view: Mutex::default(),
    };
    (follower, taken)
}

fn writes(count: usize, length: u64) -> Arc<[Request]> {
    let write = Request {
        ns: 0,
        op: Op::Write,
        offset: 0,
        length,
        depth: 1,
    };
    vec![write; count].into()
}

#[test]
fn a_shadow_that_is_too_far_behind_drops_and_is_inexact() {
    let (slow, _taken) = follower("pagemap");
    let batch = writes(100_000, 4096);
    (0..5).for_each(|_| slow.give(&batch));
    let view = slow.view(&LiveCounters::default(), 7);
    assert_eq!((view.behind, view.dropped, view.exact), (500_000, 0, true));
    slow.give(&batch);
    let view = slow.view(&LiveCounters::default(), 9);
    assert_eq!(
        (view.behind, view.dropped, view.exact),
        (500_000, 100_002, false)
    );
}

#[test]
fn a_shadow_that_fails_says_so_and_is_given_nothing() {
    let (broken, taken) = follower("pagemap");
    // Beyond the end of the device, as no request that succeeded is.
    broken.give(&writes(3, 64 << 20));
    broken.follow(&[], &taken);
    let view = broken.view(&LiveCounters::default(), 7);
    let why = view.failure.unwrap();
    assert!(why.starts_with("shadow \"pagemap\": "), "{why}");
    broken.give(&writes(3, 4096));
    assert_eq!((broken.behind.load(Relaxed), view.exact), (0, false));
}

#[test]
fn shadows_larger_than_memory_are_refused_with_what_each_takes() {
    let plans = [plan("pagemap"), plan("dftl:op=28")];
    let least = plans[0].memory_bytes() + plans[1].memory_bytes();
    let needed = least / 2 * 3 + RESERVE;
    fits_memory(&plans, 0, Some(needed)).unwrap();
    fits_memory(&plans, least, None).unwrap();
    fits_memory(&plans, least, Some(needed)).unwrap_err();
    let why = fits_memory(&plans, 0, Some(needed - 1))
        .unwrap_err()
        .message;
    assert!(
        why.contains("pagemap ") && why.contains("dftl:op=28 "),
        "{why}"
    );
    assert!(why.contains("leave some out"), "{why}");
}

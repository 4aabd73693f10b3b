//! `--latency emulate` from the client's side. Time is only ever asserted to have been at least so
//! long; what has to be short or to overlap is read from the counters of emulated time.

use crate::support::ram::Ram;
use crate::support::{MIB, Rig, Serving};
use ftl_core::schemes::Scheme;
use ftl_core::{FtlConfig, Params, Start};
use ftld_device::transport::nbd::Limits;
use ftld_device::volume::{Op, Volume, VolumeOptions};
use ftld_nbd_client::{Client, FLUSH, FUA, READ, Style, TRIM, WRITE};
use nand_model::store::MemStore;
use nand_model::{Chip, Geometry, PageOrder, Pairing, Profile, Suspend, Timing};
use std::sync::Arc;
use std::time::{Duration, Instant};

const READ_NS: u64 = 4_000_000;
const BUS_NS: u64 = 1_000_000;
const PROGRAM_NS: u64 = 3_000_000;
const PAGE: u64 = 4096;
const BLOCK: u64 = 8 * PAGE;
const DIES: u64 = 8;
/// Longer than any test may take.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// A slow chip: eight dies, each with a bus of its own.
fn profile() -> Profile {
    let geometry = Geometry {
        channels: 8,
        ways: 1,
        planes: 1,
        multi_plane: nand_model::MultiPlane::Off,
        blocks: 128,
        pages_per_block: 8,
        page_bytes: 4096,
        oob_bytes: 128,
    };
    let timing = Timing {
        read_ns: [READ_NS; 4],
        partial_read_ns: READ_NS,
        program_ns: [PROGRAM_NS; 4],
        oob_program_ns: 0,
        erase_ns: PROGRAM_NS,
        bus_ns: BUS_NS,
        controller_ns: 0,
        suspend: Suspend::NONE,
        cache: nand_model::Cache::NONE,
    };
    let mut profile = *Profile::find("slc-2k").unwrap();
    (profile.geometry, profile.timing, profile.pairing) = (geometry, timing, Pairing::None);
    (profile.order, profile.factory_bad_permille) = (PageOrder::Consecutive, 0);
    profile
}

fn volume(scheme: &str, emulate: bool) -> Arc<Volume> {
    let profile = profile();
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    let config = FtlConfig {
        logical_pages: 256,
        params: Params::default(),
    };
    let ftl = Scheme::find(scheme)
        .unwrap()
        .start(chip, &config, Start::Format)
        .unwrap();
    Arc::new(Volume::new(
        ftl,
        VolumeOptions {
            size: 256 * PAGE,
            read_only: false,
            emulate,
        },
        None,
    ))
}

/// How long a request took its client.
fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

#[test]
fn one_at_a_time_requests_take_as_long_as_the_flash() {
    for scheme in ["pagemap", "lazyftl"] {
        let volume = volume(scheme, true);
        let serving = Serving::start(volume.clone(), Limits::default());
        let mut client = Client::ready(&serving.socket, Style::Structured);
        for page in 0..4 {
            let took = timed(|| {
                assert_eq!(
                    client
                        .write(0, page * PAGE, &[page as u8 | 1; PAGE as usize])
                        .error,
                    0
                )
            });
            assert!(
                took >= Duration::from_nanos(PROGRAM_NS + BUS_NS),
                "{scheme}: program of {took:?}"
            );
        }
        for page in 0..4 {
            let took = timed(|| {
                assert_eq!(
                    client.read(page * PAGE, PAGE).data,
                    [page as u8 | 1; PAGE as usize]
                )
            });
            assert!(
                took >= Duration::from_nanos(READ_NS + BUS_NS),
                "{scheme}: read of {took:?}"
            );
        }
        let host = volume.host();
        for op in [Op::Read, Op::Write] {
            let view = host.of(op);
            assert_eq!(
                (view.completed, view.delayed, view.in_flight),
                (4, 4, 0),
                "{scheme} {op:?}"
            );
            assert!(
                view.wall.sum_ns >= view.emulated.sum_ns,
                "{scheme} {op:?}: the wall clock shows the holds"
            );
        }
    }
}

#[test]
fn requests_on_different_dies_overlap_and_on_one_die_they_queue() {
    let volume = volume("pagemap", true);
    let serving = Serving::start(volume.clone(), Limits::default());
    let mut client = Client::ready(&serving.socket, Style::Structured);
    for block in 0..DIES {
        assert_eq!(
            client
                .write(0, block * BLOCK, &[block as u8 | 1; BLOCK as usize])
                .error,
            0
        );
    }
    let mut read_all = |stride: u64| {
        let before = volume.host();
        let took = timed(|| {
            let cookies: Vec<_> = (0..DIES)
                .map(|i| client.request(READ, 0, i * stride, PAGE, &[]))
                .collect();
            let mut answered: Vec<_> = cookies.iter().map(|_| client.any_answer(PAGE).0).collect();
            answered.sort_unstable();
            assert_eq!(answered, cookies);
        });
        let after = volume.host();
        let (before, after) = (before.of(Op::Read), after.of(Op::Read));
        assert_eq!(after.delayed - before.delayed, DIES);
        (took, after.emulated.sum_ns - before.emulated.sum_ns)
    };
    // Eight at a time take no longer each than one alone: eight times the throughput.
    assert_eq!(
        read_all(BLOCK).1,
        DIES * (READ_NS + BUS_NS),
        "a page of every die"
    );
    // Eight times as long as one: no more throughput than one at a time.
    assert!(
        read_all(PAGE).0 >= Duration::from_nanos(DIES * READ_NS + BUS_NS),
        "eight pages of one die"
    );
}

#[test]
fn without_it_nothing_is_held() {
    let volume = volume("pagemap", false);
    let serving = Serving::start(volume.clone(), Limits::default());
    let mut client = Client::ready(&serving.socket, Style::Structured);
    assert_eq!(client.write(FUA, 0, &[1; PAGE as usize]).error, 0);
    assert_eq!(client.read(0, PAGE).error, 0);
    let host = volume.host();
    assert!(host.ops.iter().all(|op| op.delayed == 0));
    assert_eq!(host.of(Op::Read).emulated.sum_ns, READ_NS + BUS_NS);
}

#[test]
fn a_flush_is_held_like_the_programs_it_takes() {
    // Pages of this chip are safe at once, so only a FLUSH of a write in flight takes time: that of
    // FUA.
    let volume = volume("pagemap", true);
    let serving = Serving::start(volume.clone(), Limits::default());
    let mut client = Client::ready(&serving.socket, Style::Structured);
    let took = timed(|| assert_eq!(client.write(FUA, 0, &[1; PAGE as usize]).error, 0));
    assert!(
        took >= Duration::from_nanos(PROGRAM_NS + BUS_NS),
        "{took:?}"
    );
    let took = timed(|| assert_eq!(client.ask(TRIM, FUA, 0, PAGE).error, 0));
    assert!(
        took >= Duration::from_nanos(PROGRAM_NS + BUS_NS),
        "a trim is a page on flash: {took:?}"
    );
    assert_eq!(volume.host().of(Op::Flush).completed, 2);
}

/// Memory where the completion of the first request is delayed for ever, and no other.
fn first_held() -> Rig {
    let ram = Ram::new(MIB);
    *ram.due.lock().unwrap() = Box::new(
        [Some(Instant::now() + FOR_EVER)]
            .into_iter()
            .chain(std::iter::repeat(None)),
    );
    Rig::with(ram, Limits::default())
}

#[test]
fn while_a_write_is_held_others_go_on_and_shutdown_answers_it() {
    let mut rig = first_held();
    let mut delayed = Client::ready(&rig.socket, Style::Simple);
    let mut other = Client::ready(&rig.socket, Style::Structured);
    let cookie = delayed.request(WRITE, 0, 0, 512, &[7; 512]);
    while rig.stats.snapshot().in_flight == 0 {
        std::thread::yield_now();
    }
    assert_eq!(other.read(0, 512).data, [7; 512], "another connection");
    assert_eq!(other.ask(FLUSH, 0, 0, 0).error, 0);
    assert_eq!(
        delayed.read(4096, 512).data,
        [0; 512],
        "the same connection"
    );
    assert_eq!(delayed.write(0, 4096, &[8; 512]).error, 0);
    while rig.stats.snapshot().in_flight != 1 {
        std::thread::yield_now();
    }
    rig.stop();
    assert_eq!(delayed.answer(cookie, 0).error, 0);
    rig.join();
}

#[test]
fn replies_leave_in_the_order_they_are_due() {
    let ram = Ram::new(MIB);
    let start = Instant::now();
    let dues = [30, 10, 20].map(|ms| Some(start + Duration::from_millis(ms)));
    *ram.due.lock().unwrap() = Box::new(dues.into_iter());
    let rig = Rig::with(ram, Limits::default());
    let mut client = Client::ready(&rig.socket, Style::Structured);
    let cookies = [0, 512, 1024].map(|at| client.request(READ, 0, at, 512, &[]));
    let last = (0..3).map(|_| client.any_answer(512).0).last().unwrap();
    assert_eq!(last, cookies[0]);
    assert!(start.elapsed() >= Duration::from_millis(30));
}

//! Every command, in every style of reply, good and bad.

use crate::support::{MIB, Rig, eventually, ram::Ram};
use ftld_device::transport::nbd::Limits;
use ftld_nbd_client::*;
use std::sync::atomic::Ordering;

const SIZE: u64 = 64 * MIB;

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| ((i * 31) >> 3) as u8 ^ seed).collect()
}

/// Pieces so small that ordinary requests are cut.
fn small_pieces() -> Limits {
    Limits {
        piece: 64 << 10,
        backlog: 16 << 10,
        resting: 8 << 10,
        ..Limits::default()
    }
}

fn in_all_styles(limits: Limits, test: impl Fn(&Rig, &mut Client)) {
    for style in STYLES {
        let rig = Rig::with_limits(limits);
        test(&rig, &mut Client::ready(&rig.socket, style));
    }
}

#[test]
fn what_is_written_is_read() {
    for limits in [Limits::default(), small_pieces()] {
        in_all_styles(limits, |_, client| {
            let mut model = vec![0; SIZE as usize];
            for (i, (at, length)) in [
                (0, 512),
                (1, 1),
                (4095, 2),
                (100_001, 70_003),
                (3 * MIB - 7, 3 << 20),
                (SIZE - 1, 1),
            ]
            .iter()
            .enumerate()
            {
                let data = pattern(*length, i as u8);
                model[*at as usize..*at as usize + length].copy_from_slice(&data);
                assert_eq!(client.write(0, *at, &data).error, 0);
                assert_eq!(client.read(*at, *length as u64).data, data);
            }
            for at in (0..SIZE).step_by(16 << 20) {
                assert!(
                    client.read(at, 16 * MIB).data == model[at as usize..][..16 << 20],
                    "differs from {at}"
                );
            }
        });
    }
}

#[test]
fn the_largest_payload_passes() {
    in_all_styles(Limits::default(), |_, client| {
        let data = pattern(32 << 20, 5);
        assert_eq!(client.write(0, 12345, &data).error, 0);
        assert!(client.read(12345, 32 * MIB).data == data);
        assert_eq!(
            client.read(0, 32 * MIB + 1).error,
            EINVAL,
            "one more byte is an error, not an end"
        );
        assert_eq!(client.read(0, 1).error, 0);
    });
}

#[test]
fn flush_and_fua_reach_the_device() {
    in_all_styles(Limits::default(), |rig, client| {
        let flushes = || rig.ram.flushes.load(Ordering::SeqCst);
        assert_eq!(client.write(0, 0, &[1; 512]).error, 0);
        assert_eq!(flushes(), 0);
        assert_eq!(client.ask(FLUSH, 0, 0, 0).error, 0);
        assert_eq!(flushes(), 1);
        assert_eq!(client.write(FUA, 0, &[1; 512]).error, 0);
        assert_eq!(client.ask(TRIM, FUA, 0, 4096).error, 0);
        assert_eq!(client.ask(WRITE_ZEROES, FUA, 0, 4096).error, 0);
        assert_eq!(flushes(), 4);
        assert_eq!(client.ask(FLUSH, 0, 0, 1).error, EINVAL);
        assert_eq!(
            client.ask(READ, FUA, 0, 1).error,
            0,
            "FUA is allowed everywhere"
        );
        assert_eq!(flushes(), 4, "and means nothing for a read");
    });
}

#[test]
fn trim_and_zeroes() {
    in_all_styles(Limits::default(), |_, client| {
        for (command, flags) in [
            (TRIM, 0),
            (WRITE_ZEROES, 0),
            (WRITE_ZEROES, NO_HOLE),
            (WRITE_ZEROES, FAST_ZERO),
            (WRITE_ZEROES, 18),
        ] {
            client.write(0, 0, &[9; 20_000]);
            assert_eq!(client.ask(command, flags, 10, 12_000).error, 0);
            let data = client.read(0, 20_000).data;
            assert!(data[..10].iter().chain(&data[12_010..]).all(|b| *b == 9));
            assert!(data[10..12_010].iter().all(|b| *b == 0));
        }
        assert_eq!(
            client.ask(TRIM, 0, 0, SIZE).error,
            0,
            "far larger than any payload"
        );
        assert_eq!(client.ask(WRITE_ZEROES, FAST_ZERO, 0, SIZE).error, 0);
        assert_eq!(client.ask(CACHE, 0, 0, SIZE).error, 0);
    });
}

#[test]
fn block_status() {
    for style in [Style::Structured, Style::Extended] {
        let rig = Rig::new();
        let mut client = Client::ready(&rig.socket, style);
        client.write(0, 4096, &[1; 8192]);
        client.write(0, 40960, &[1; 1]);
        let all = client.ask(BLOCK_STATUS, 0, 0, SIZE).extents;
        assert_eq!(
            all,
            [
                (4096, 3),
                (8192, 0),
                (28672, 3),
                (4096, 0),
                (SIZE - 45056, 3)
            ]
        );
        assert_eq!(
            client.ask(BLOCK_STATUS, REQ_ONE, 4097, SIZE - 4097).extents,
            [(8191, 0)]
        );
        assert_eq!(
            client.ask(BLOCK_STATUS, REQ_ONE, 5000, 10).extents,
            [(10, 0)],
            "never longer than the request"
        );
        assert_eq!(client.ask(BLOCK_STATUS, 0, 1, SIZE).error, EINVAL);
        assert_eq!(client.ask(BLOCK_STATUS, DF, 0, 1).error, EINVAL);
    }
}

#[test]
fn block_status_was_not_negotiated() {
    let rig = Rig::new();
    let mut client = Client::ready(&rig.socket, Style::Simple);
    assert_eq!(client.ask(BLOCK_STATUS, 0, 0, 4096).error, EINVAL);
    let mut client = Client::hello(&rig.socket);
    client.option(8, &[]);
    client.option(7, &go_data("", &[]));
    client.style = Style::Structured;
    assert_eq!(client.ask(BLOCK_STATUS, 0, 0, 4096).error, EINVAL);
}

#[test]
fn block_status_takes_a_list_of_contexts_in_extended_mode() {
    let rig = Rig::new();
    let mut client = Client::ready(&rig.socket, Style::Extended);
    let mut ask = |ids: &[u32], effect: u64, extra: &[u8]| {
        let mut payload = effect.to_be_bytes().to_vec();
        ids.iter().for_each(|id| payload.extend(id.to_be_bytes()));
        payload.extend(extra);
        let cookie = client.request(BLOCK_STATUS, PAYLOAD_LEN, 0, payload.len() as u64, &payload);
        client.answer(cookie, 0)
    };
    assert_eq!(ask(&[1], SIZE, &[]).extents, [(SIZE, 3)]);
    assert_eq!(ask(&[2], SIZE, &[]).error, EINVAL);
    assert_eq!(ask(&[1, 1], SIZE, &[]).error, EINVAL);
    assert_eq!(ask(&[], SIZE, &[]).error, EINVAL);
    assert_eq!(ask(&[1], SIZE, &[0]).error, EINVAL);
    assert_eq!(ask(&[1], SIZE + 1, &[]).error, EINVAL);
    assert_eq!(ask(&[1], 0, &[]).error, EINVAL);
    assert_eq!(
        ask(&[1; 1000], SIZE, &[]).error,
        EINVAL,
        "a long list is read away"
    );
    assert_eq!(ask(&[1], 1, &[]).extents, [(1, 3)]);
}

#[test]
fn holes_are_not_sent() {
    for style in [Style::Structured, Style::Extended] {
        let rig = Rig::new();
        let mut client = Client::ready(&rig.socket, style);
        client.write(0, 4096, &[7; 4096]);
        let answer = client.read(0, MIB);
        assert_eq!(
            answer.parts,
            [
                (0, 4096, false),
                (4096, 4096, true),
                (8192, MIB - 8192, false)
            ]
        );
        assert_eq!(answer.data[4096..8192], [7; 4096]);
        assert_eq!(
            client.ask(READ, DF, 0, MIB).parts,
            [(0, MIB, true)],
            "unless the client wants one piece"
        );
        assert_eq!(client.ask(READ, DF, 0, 9 * MIB).parts, [(0, 9 * MIB, true)]);
        assert_eq!(
            client.read(0, 4096).parts,
            [(0, 4096, true)],
            "small reads are not looked through"
        );
    }
}

#[test]
fn mistakes_get_errors_and_the_session_goes_on() {
    in_all_styles(Limits::default(), |_, client| {
        let far = u64::MAX - 10;
        for command in [READ, TRIM, CACHE] {
            assert_eq!(
                client.ask(command, 0, 0, 0).error,
                EINVAL,
                "length zero, {command}"
            );
            assert_eq!(
                client.ask(command, 0, SIZE, 1).error,
                EINVAL,
                "beyond the end, {command}"
            );
            assert_eq!(
                client.ask(command, 0, SIZE - 1, 2).error,
                EINVAL,
                "across the end, {command}"
            );
            assert_eq!(
                client.ask(command, 0, far, 100).error,
                EINVAL,
                "offset + length wraps, {command}"
            );
            for flag in [NO_HOLE, REQ_ONE, 64, 0x8000] {
                assert_eq!(
                    client.ask(command, flag, 0, 1).error,
                    EINVAL,
                    "flag {flag}, {command}"
                );
            }
        }
        assert_eq!(client.write(0, 0, &[]).error, EINVAL);
        assert_eq!(client.write(0, SIZE - 1, &[0; 2]).error, ENOSPC);
        assert_eq!(client.write(0, far, &[0; 100]).error, ENOSPC);
        assert_eq!(client.write(DF, 0, &[5; 100_000]).error, EINVAL);
        assert_eq!(client.ask(WRITE_ZEROES, 0, 0, 0).error, EINVAL);
        assert_eq!(client.ask(WRITE_ZEROES, 0, SIZE - 1, 2).error, ENOSPC);
        assert_eq!(client.ask(WRITE_ZEROES, 0, far, 100).error, ENOSPC);
        for command in [8, 9, 1000, u16::MAX] {
            assert_eq!(
                client.ask(command, 0, 0, 512).error,
                EINVAL,
                "command {command}"
            );
        }
        assert_eq!(
            client.read(0, 100_000).data,
            vec![0; 100_000],
            "and nothing was written"
        );
    });
    let rig = Rig::new();
    let mut client = Client::ready(&rig.socket, Style::Simple);
    assert_eq!(
        client.ask(READ, DF, 0, 1).error,
        EINVAL,
        "DF needs structured replies"
    );
}

#[test]
fn errors_come_with_a_text_where_there_is_room() {
    let rig = Rig::new();
    let mut client = Client::ready(&rig.socket, Style::Structured);
    assert_eq!(client.read(SIZE, 1).text, "beyond the end of the device");
}

#[test]
fn unexpected_payload_is_read_away() {
    let rig = Rig::new();
    let mut client = Client::ready(&rig.socket, Style::Extended);
    for command in [READ, FLUSH, TRIM, 99] {
        let cookie = client.request(command, PAYLOAD_LEN, 0, 5000, &[0x55; 5000]);
        assert_eq!(client.answer(cookie, 0).error, EINVAL, "command {command}");
    }
    let cookie = client.request(WRITE, 0, 0, 3, b"abc");
    assert_eq!(
        client.answer(cookie, 0).error,
        0,
        "a write always has its payload, flagged or not"
    );
    assert_eq!(client.read(0, 3).data, b"abc");
}

#[test]
fn extended_lengths_are_64_bits_wide() {
    let rig = Rig::with(Ram::new(5 << 30), Limits::default());
    let mut client = Client::ready(&rig.socket, Style::Extended);
    client.write(0, 4 << 30, &[3; 4096]);
    assert_eq!(
        client.ask(BLOCK_STATUS, 0, 0, 5 << 30).extents,
        [(4 << 30, 3), (4096, 0), ((1 << 30) - 4096, 3)]
    );
    assert_eq!(client.ask(TRIM, 0, 4 << 30, 1 << 30).error, 0);
    assert_eq!(
        client.ask(BLOCK_STATUS, 0, 0, 5 << 30).extents,
        [(5 << 30, 3)]
    );
    assert_eq!(client.ask(TRIM, 0, 0, u64::MAX).error, EINVAL);
    assert_eq!(
        client.read(0, 1 << 32).error,
        EINVAL,
        "no truncation to zero"
    );
}

#[test]
fn a_read_only_export_refuses_to_change() {
    for style in STYLES {
        let rig = Rig::with(Ram::read_only(MIB), Limits::default());
        let mut client = Client::ready(&rig.socket, style);
        assert_eq!(client.write(0, 0, &[1; 100]).error, EPERM);
        assert_eq!(client.ask(TRIM, 0, 0, 100).error, EPERM);
        assert_eq!(client.ask(WRITE_ZEROES, 0, 0, 100).error, EPERM);
        assert_eq!(client.read(0, 100).data, [0; 100]);
        assert_eq!(client.ask(FLUSH, 0, 0, 0).error, 0);
    }
}

#[test]
fn a_failing_device_is_an_error_of_that_request() {
    in_all_styles(Limits::default(), |rig, client| {
        *rig.ram.broken.lock().unwrap() = Some(MIB..MIB + 4096);
        assert_eq!(client.read(MIB - 1, 2).error, EIO);
        assert_eq!(client.write(FUA, MIB, &[1; 10]).error, EIO);
        assert_eq!(client.ask(TRIM, 0, 0, SIZE).error, EIO);
        assert_eq!(client.read(0, 4096).error, 0);
        *rig.ram.broken.lock().unwrap() = None;
        assert_eq!(client.read(MIB, 4096).error, 0);
    });
}

#[test]
fn a_large_read_that_fails_late_tells_where_or_ends_the_session() {
    let broken = |style| {
        let rig = Rig::with_limits(small_pieces());
        let mut client = Client::ready(&rig.socket, style);
        client.write(0, 0, &pattern(1 << 20, 1));
        *rig.ram.broken.lock().unwrap() = Some(500_000..500_001);
        (rig, client)
    };
    for style in [Style::Structured, Style::Extended] {
        let (_rig, mut client) = broken(style);
        let cookie = client.request(READ, 0, 0, MIB, &[]);
        let (found, answer) = client.any_answer(MIB);
        assert_eq!((found, answer.error), (cookie, EIO));
        assert_eq!(
            answer.data,
            pattern(1 << 20, 1)[..458_752],
            "what came before it is good"
        );
        assert_eq!(client.read(0, 10).error, 0);
    }
    let (_rig, mut client) = broken(Style::Simple);
    client.request(READ, 0, 0, MIB, &[]);
    assert_eq!(client.take(16)[4..8], [0; 4]);
    client.take(458_752);
    assert!(
        client.is_closed(),
        "a simple reply that has begun cannot carry an error"
    );
}

#[test]
fn requests_may_be_piled_up() {
    in_all_styles(small_pieces(), |_, client| {
        let mut cookies = Vec::new();
        for i in 0..100u64 {
            let payload = vec![i as u8; 4096];
            let extra = if client.style == Style::Extended {
                PAYLOAD_LEN
            } else {
                0
            };
            cookies.push((client.request(WRITE, extra, i * 4096, 4096, &payload), 0));
            cookies.push((client.request(READ, 0, i * 4096, 100, &[]), 100));
        }
        for (i, (cookie, length)) in cookies.into_iter().enumerate() {
            let answer = client.answer(cookie, length);
            assert_eq!(answer.error, 0);
            assert!(
                answer.data.iter().all(|b| usize::from(*b) == i / 2),
                "request {i}"
            );
        }
    });
}

#[test]
fn connections_see_each_other_s_writes() {
    let rig = Rig::new();
    let mut a = Client::ready(&rig.socket, Style::Structured);
    let mut b = Client::ready(&rig.socket, Style::Simple);
    a.write(0, 77, b"hello");
    assert_eq!(b.read(77, 5).data, b"hello");
}

#[test]
fn counters_count() {
    let rig = Rig::new();
    let mut client = Client::ready(&rig.socket, Style::Structured);
    client.write(0, 0, &[1; 1000]);
    client.read(0, 300);
    client.read(SIZE, 1);
    client.ask(1234, 0, 0, 1);
    client.ask(FLUSH, 0, 0, 0);
    client.request(DISC, 0, 0, 0, &[]);
    assert!(client.is_closed());
    // The last counts are added before the connection closes; the gauges fall right after.
    let seen = rig.stats.snapshot();
    assert_eq!(seen.requests, [2, 1, 1, 1, 0, 0, 0, 0, 1]);
    assert_eq!(
        (seen.accepted, seen.errors, seen.read, seen.written),
        (1, 2, 300, 1000)
    );
    eventually("nothing is in flight", || {
        rig.stats.snapshot().in_flight == 0
    });
}

//! Peers that lie, stall, crowd and vanish: every limit holds, and other clients are not affected.

mod crowd;
mod handshake;

use crate::support::ram::Ram;
use crate::support::{MIB, Rig, eventually};
use ftld_device::transport::nbd::{Limits, attach_stream};
use ftld_nbd_client::*;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Short deadlines, so that a test need not wait long.
fn hasty() -> Limits {
    let short = Duration::from_millis(150);
    Limits {
        stall: short,
        drain: short,
        ..Limits::default()
    }
}

fn works(rig: &Rig) {
    assert_eq!(
        Client::ready(&rig.socket, Style::Structured)
            .read(0, 1)
            .error,
        0
    );
}

#[test]
fn a_bad_magic_number_ends_the_session() {
    for style in STYLES {
        let rig = Rig::new();
        let mut client = Client::ready(&rig.socket, style);
        client.send(&[0; 4]);
        assert!(client.is_closed());
        eventually("it is counted", || rig.stats.snapshot().dropped == 1);
        works(&rig);
    }
}

#[test]
fn an_oversized_payload_ends_the_session() {
    let rig = Rig::new();
    let mut client = Client::ready(&rig.socket, Style::Simple);
    client.request(WRITE, 0, 0, 32 * MIB + 1, &[]);
    assert!(client.is_closed());
    for (command, length) in [
        (WRITE, u64::MAX),
        (READ, 1 << 40),
        (BLOCK_STATUS, 32 * MIB + 1),
    ] {
        let mut client = Client::ready(&rig.socket, Style::Extended);
        client.request(command, PAYLOAD_LEN, 0, length, &[]);
        assert!(client.is_closed(), "command {command}");
    }
    works(&rig);
}

#[test]
fn silence_is_punished_inside_a_message_only() {
    let rig = Rig::with_limits(hasty());
    let mut quiet = Client::ready(&rig.socket, Style::Simple);
    let mut header = Client::ready(&rig.socket, Style::Simple);
    header.send(&[0x25, 0x60]);
    let mut payload = Client::ready(&rig.socket, Style::Simple);
    payload.request(WRITE, 0, 0, 1000, &[1; 999]);
    let mut refused = Client::ready(&rig.socket, Style::Simple);
    refused.request(WRITE, 0, u64::MAX, 1000, &[1; 999]);
    for client in [&mut header, &mut payload, &mut refused] {
        assert!(client.is_closed());
    }
    assert_eq!(quiet.read(0, 4).data, [0; 4]);
}

#[test]
fn slow_but_steady_is_fine() {
    let rig = Rig::with_limits(Limits {
        stall: Duration::from_secs(1),
        ..Limits::default()
    });
    let mut client = Client::ready(&rig.socket, Style::Simple);
    let cookie = client.request(WRITE, 0, 0, 10, &[]);
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(120));
        client.send(&[8]);
    }
    assert_eq!(
        client.answer(cookie, 0).error,
        0,
        "more than the stall in all, but never in one go"
    );
}

#[test]
fn a_client_that_does_not_take_its_answers_is_dropped() {
    let rig = Rig::with_limits(hasty());
    let mut client = Client::ready(&rig.socket, Style::Simple);
    client.request(READ, 0, 0, 32 * MIB, &[]);
    eventually("it is dropped", || rig.stats.snapshot().dropped == 1);
    works(&rig);
}

#[test]
fn vanishing_at_any_byte_disturbs_nobody() {
    let rig = Rig::new();
    let mut bytes = 3u32.to_be_bytes().to_vec();
    bytes.extend(b"IHAVEOPT\0\0\0\x08\0\0\0\0IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0");
    bytes.extend([
        0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 9,
    ]);
    bytes.extend([7; 9]);
    for end in 0..=bytes.len() {
        UnixStream::connect(&rig.socket)
            .unwrap()
            .write_all(&bytes[..end])
            .unwrap();
    }
    works(&rig);
    eventually("all are gone", || {
        let seen = rig.stats.snapshot();
        seen.accepted == bytes.len() as u64 + 2
            && (seen.negotiating, seen.connected, seen.in_flight) == (0, 0, 0)
    });
}

#[test]
fn answers_still_come_after_half_a_close() {
    let rig = Rig::new();
    let mut client = Client::ready(&rig.socket, Style::Structured);
    let cookies = [
        client.request(FLUSH, 0, 0, 0, &[]),
        client.request(READ, 0, 0, 9 * MIB, &[]),
    ];
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut found = [client.any_answer(9 * MIB).0, 0];
    found[1] = client
        .any_answer(if found[0] == cookies[0] { 9 * MIB } else { 0 })
        .0;
    found.sort_unstable();
    assert_eq!(found, cookies);
    assert!(client.is_closed());
}

#[test]
fn reads_go_on_during_a_slow_flush_on_the_same_connection_and_others() {
    let rig = Rig::new();
    for style in STYLES {
        let mut same = Client::ready(&rig.socket, style);
        let mut other = Client::ready(&rig.socket, style);
        rig.ram.gate.set_closed(true);
        let flush = same.request(FLUSH, 0, 0, 0, &[]);
        let extra = if style == Style::Extended {
            PAYLOAD_LEN
        } else {
            0
        };
        let fua = same.request(WRITE, FUA | extra, 0, 3, b"abc");
        for client in [&mut same, &mut other] {
            for _ in 0..300 {
                assert_eq!(client.read(0, 3).data, b"abc");
            }
            assert_eq!(client.write(0, 4096, b"x").error, 0);
        }
        eventually("flush and write alone are under way", || {
            rig.stats.snapshot().in_flight == 2
        });
        rig.ram.gate.set_closed(false);
        let mut found = [same.any_answer(0), same.any_answer(0)];
        found.sort_by_key(|f| f.0);
        assert_eq!(found.map(|f| (f.0, f.1.error)), [(flush, 0), (fua, 0)]);
    }
}

#[test]
fn requests_under_way_are_bounded() {
    let rig = Rig::with_limits(Limits {
        in_flight: 8,
        ..Limits::default()
    });
    let mut client = Client::ready(&rig.socket, Style::Simple);
    rig.ram.gate.set_closed(true);
    let cookies: Vec<_> = (0..20)
        .map(|_| client.request(FLUSH, 0, 0, 0, &[]))
        .collect();
    eventually("eight are taken", || rig.stats.snapshot().in_flight == 8);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(rig.stats.snapshot().requests[3], 8, "and no ninth");
    rig.ram.gate.set_closed(false);
    for cookie in cookies {
        assert_eq!(client.answer(cookie, 0).error, 0);
    }
}

#[test]
fn waiting_for_us_is_no_stall() {
    let rig = Rig::with_limits(Limits {
        in_flight: 1,
        ..hasty()
    });
    let mut client = Client::ready(&rig.socket, Style::Simple);
    rig.ram.gate.set_closed(true);
    let flush = client.request(FLUSH, 0, 0, 0, &[]);
    let read = client.request(READ, 0, 0, 1, &[]);
    std::thread::sleep(Duration::from_millis(400));
    rig.ram.gate.set_closed(false);
    assert_eq!(client.answer(flush, 0).error, 0);
    assert_eq!(client.answer(read, 1).error, 0);
}

#[test]
fn a_shutdown_finishes_what_is_under_way_and_refuses_the_rest() {
    let mut rig = Rig::new();
    let mut busy = Client::ready(&rig.socket, Style::Structured);
    let mut idle = Client::ready(&rig.socket, Style::Simple);
    let mut negotiating = Client::hello(&rig.socket);
    rig.ram.gate.set_closed(true);
    let flush = busy.request(FLUSH, 0, 0, 0, &[]);
    eventually("it is under way", || rig.stats.snapshot().in_flight == 1);
    rig.stop();
    assert!(idle.is_closed());
    assert!(negotiating.is_closed());
    assert!(!rig.socket.exists(), "nobody else gets in");
    eventually("new requests are refused", || {
        busy.read(0, 1).error == ESHUTDOWN
    });
    rig.ram.gate.set_closed(false);
    assert_eq!(busy.answer(flush, 0).error, 0);
    assert!(busy.is_closed());
    rig.join();
}

#[test]
fn a_shutdown_does_not_wait_for_ever() {
    let mut rig = Rig::with_limits(hasty());
    let mut client = Client::ready(&rig.socket, Style::Simple);
    rig.ram.gate.set_closed(true);
    client.request(FLUSH, 0, 0, 0, &[]);
    eventually("it is under way", || rig.stats.snapshot().in_flight == 1);
    rig.stop();
    assert!(
        client.is_closed(),
        "without an answer: nothing was promised"
    );
    rig.join();
}

/// In a process of its own: the other tests of this program take and free memory, too.
#[test]
fn memory_follows_what_arrives_and_not_what_is_announced() {
    let program = std::env::current_exe().unwrap();
    let name = "hostile::memory_for_announced_bytes_in_this_process";
    let output = std::process::Command::new(program)
        .args(["--exact", name, "--ignored"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
#[ignore = "run by `memory_follows_what_arrives_and_not_what_is_announced`"]
fn memory_for_announced_bytes_in_this_process() {
    let rig = Rig::new();
    let before = resident();
    let clients: Vec<_> = (0..60)
        .map(|_| {
            let mut client = Client::ready(&rig.socket, Style::Simple);
            client.request(WRITE, 0, 0, 32 * MIB, &[1; 100]);
            client
        })
        .collect();
    let grown = resident().saturating_sub(before);
    assert!(
        grown < 64 * MIB,
        "{} MiB for 60 announcements of 32 MiB",
        grown / MIB
    );
    drop(clients);
}

/// Anonymous memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        << 10
}

#[test]
fn a_socket_that_was_handed_over_is_in_transmission_at_once() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            ours.set_nonblocking(true).unwrap();
            let stream = tokio::net::UnixStream::from_std(ours).unwrap();
            let (limits, stats) = (Limits::default(), Default::default());
            attach_stream(
                stream,
                Arc::new(Ram::new(MIB)),
                &limits,
                &stats,
                std::future::pending(),
            )
            .await
            .unwrap();
        });
    });
    let mut kernel = Client {
        stream: theirs,
        style: Style::Simple,
        next: 1,
    };
    assert_eq!(kernel.write(FUA, 5, b"x").error, 0);
    assert_eq!(kernel.read(5, 1).data, b"x");
    kernel.request(DISC, 0, 0, 0, &[]);
    server.join().unwrap();
}

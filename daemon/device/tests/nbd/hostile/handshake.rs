//! Bounds of the handshake.

use super::works;
use crate::support::{Rig, eventually};
use ftld_device::transport::nbd::Limits;
use ftld_nbd_client::*;
use std::io::Write;
use std::time::{Duration, Instant};

const ERR_TOO_BIG: u32 = ERR + 9;

#[test]
fn the_handshake_has_a_deadline_however_busy_the_peer_is() {
    let rig = Rig::with_limits(Limits {
        handshake: Duration::from_millis(600),
        ..Limits::default()
    });
    let mut silent = Client::connect(&rig.socket);
    assert!(silent.is_closed());
    let mut busy = Client::hello(&rig.socket);
    let start = Instant::now();
    for byte in b"IHAVEOPT\0\0\0\x03\0\0\0\x40".iter().cycle() {
        if busy.stream.write_all(&[*byte]).is_err() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "still connected");
        std::thread::sleep(Duration::from_millis(20));
    }
    eventually("both are counted", || rig.stats.snapshot().dropped == 2);
    works(&rig);
}

#[test]
fn garbage_ends_the_handshake() {
    let rig = Rig::new();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        &[0xff; 4],
        &[0, 0, 0, 3, b'X', 0, 0, 0, 0, 0, 0, 0],
    ] {
        let mut client = Client::connect(&rig.socket);
        client.send(bytes);
        assert!(client.is_closed(), "{bytes:?}");
    }
    works(&rig);
}

#[test]
fn at_most_32_options() {
    let rig = Rig::new();
    let mut client = Client::hello(&rig.socket);
    for _ in 0..32 {
        assert_eq!(client.option(3, &[]).len(), 2);
    }
    client.send_option(3, &[]);
    assert!(client.is_closed());
}

#[test]
fn option_data_is_bounded() {
    let rig = Rig::new();
    let mut client = Client::hello(&rig.socket);
    assert_eq!(
        client.option(99, &[0; 4160])[0].0,
        ERR + 1,
        "the largest that is looked at"
    );
    assert_eq!(client.option(99, &[0; 4161])[0].0, ERR_TOO_BIG);
    assert_eq!(client.option(7, &[0; 64 << 10])[0].0, ERR_TOO_BIG);
    assert_eq!(
        client.option(7, &go_data(&"x".repeat(4097), &[]))[0].0,
        ERR_TOO_BIG,
        "a name"
    );
    assert_eq!(client.option(3, &[]).len(), 2, "and negotiation goes on");
    client.send(b"IHAVEOPT\0\0\0\x07\0\x01\0\x01");
    assert!(client.is_closed(), "too much to read away");
    for length in [4097u32, 4161, u32::MAX] {
        let mut client = Client::hello(&rig.socket);
        let mut bytes = b"IHAVEOPT\0\0\0\x01".to_vec();
        bytes.extend(length.to_be_bytes());
        client.send(&bytes);
        if length == 4097 {
            client.send(&[b'x'; 4097]);
        }
        assert!(client.is_closed(), "export name of {length}");
    }
}

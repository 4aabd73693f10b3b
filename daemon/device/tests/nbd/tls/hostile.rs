//! TLS from peers that send malformed bytes, or none.

use super::clients::run;
use super::{Secured, ask, encrypt, hasty, on_tcp, secured, start_tls};
use crate::support::eventually;
use ftld_device::transport::nbd::Endpoint;
use ftld_nbd_client::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[test]
fn malformed_tls_ends_the_session_and_nobody_else_notices() {
    let secured = secured(None, true, true, hasty());
    let hello = client_hello(&secured);
    let mut hostile: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 64],
        vec![0xff; 1 << 16],
    ];
    // A record that announces more than TLS allows, a handshake message of 16 MiB, SSL 2.
    hostile.push(vec![22, 3, 1, 0xff, 0xff]);
    hostile.push(
        [
            &[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..],
            &[0; 0x4000 - 4],
        ]
        .concat(),
    );
    hostile.push(vec![0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10]);
    for at in (5..hello.len()).step_by(7) {
        let mut bytes = hello.clone();
        bytes[at] ^= 0x55;
        hostile.push(bytes);
    }
    let count = hostile.len() as u64;
    for bytes in &hostile {
        let mut client = start_tls(&secured.rig);
        // It may be gone before it has taken all of it.
        let _ = client.stream.write_all(bytes);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
    }
    eventually("all are gone", || {
        secured.rig.stats.snapshot().negotiating == 0
    });
    assert_eq!(secured.rig.stats.snapshot().accepted, count);
    let mut stream = encrypt(start_tls(&secured.rig), &secured.certificates);
    assert_eq!(
        ask(&mut stream, 7, &go_data("disk", &[])).last(),
        Some(&ACK)
    );
}

#[test]
fn a_slow_or_silent_tls_handshake_meets_the_deadline_of_every_handshake() {
    let secured = secured(None, true, false, hasty());
    let hello = client_hello(&secured);
    let mut silent = start_tls(&secured.rig);
    let mut half = start_tls(&secured.rig);
    half.send(&hello[..hello.len() / 2]);
    assert!(silent.is_closed() && half.is_closed());
    let mut slow = start_tls(&secured.rig);
    let closed = hello.iter().any(|byte| {
        std::thread::sleep(Duration::from_millis(5));
        slow.stream.write_all(&[*byte]).is_err()
    });
    assert!(closed || slow.is_closed());
    eventually("all are counted", || secured.dropped() == 3);
}

/// A first message as a good client sends it.
fn client_hello(secured: &Secured) -> Vec<u8> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut stream = encrypt(
        Client {
            stream: ours,
            style: Style::Simple,
            next: 0,
        },
        &secured.certificates,
    );
    stream.conn.write_tls(&mut stream.sock).unwrap();
    drop(stream);
    let mut bytes = Vec::new();
    theirs.read_to_end(&mut bytes).unwrap();
    assert!(bytes.len() > 100 && bytes[0] == 22);
    bytes
}

#[test]
fn a_thousand_stuck_tls_handshakes_lock_nobody_out() {
    let secured = on_tcp(false);
    let Endpoint::Tcp(address) = secured.rig.served_at.endpoint else {
        panic!("a TCP server")
    };
    let stuck: Vec<_> = (0..1000)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            // Fails on connections that the server has already evicted.
            let _ = stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0");
            stream
        })
        .collect();
    let start = std::time::Instant::now();
    assert_eq!(
        run(
            "libnbd-bin",
            "nbdinfo",
            &["--size", &secured.uri(secured.certificates.folder())]
        ),
        "67108864\n"
    );
    eprintln!(
        "a new client behind {} stuck ones: {:?}",
        stuck.len(),
        start.elapsed()
    );
    assert!(secured.rig.stats.snapshot().evicted >= 1000 - 64);
}

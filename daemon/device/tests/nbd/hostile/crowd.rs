//! More clients than there are places.

use super::works;
use crate::support::{MIB, Rig, eventually};
use ftld_device::transport::nbd::Limits;
use ftld_nbd_client::*;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const ERR_POLICY: u32 = ERR + 2;

#[test]
fn a_thousand_idle_sockets_lock_nobody_out() {
    let rig = Rig::new();
    let mut early = Client::ready(&rig.socket, Style::Simple);
    let idle: Vec<_> = (0..1000)
        .map(|_| UnixStream::connect(&rig.socket).unwrap())
        .collect();
    let start = Instant::now();
    works(&rig);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "took {took:?}");
    assert_eq!(early.read(0, 1).error, 0, "nor out of what it had");
    let seen = rig.stats.snapshot();
    assert!(
        seen.negotiating <= 63 && seen.evicted >= 1001 - 64 && seen.refused == 0,
        "{seen:?}"
    );
    drop(idle);
}

#[test]
fn when_all_places_are_taken_the_next_is_told() {
    let rig = Rig::with_limits(Limits {
        connections: 3,
        ..Limits::default()
    });
    let mut clients: Vec<_> = (0..3)
        .map(|_| Client::ready(&rig.socket, Style::Simple))
        .collect();
    let mut late = Client::hello(&rig.socket);
    for option in [8, 6, 7, 3] {
        let data = if option == 8 || option == 3 {
            vec![]
        } else {
            go_data("disk", &[])
        };
        let replies = late.option(option, &data);
        assert_eq!(replies[0].0, ERR_POLICY);
        let text = String::from_utf8_lossy(&replies[0].1);
        assert!(text.contains("all 3 connections are taken"), "{text}");
    }
    let mut old = Client::hello(&rig.socket);
    old.send_option(1, b"disk");
    assert!(old.is_closed(), "the old way in has no words for it");
    for client in &mut clients {
        assert_eq!(client.read(0, 1).error, 0, "those inside are left alone");
    }
    clients.pop().unwrap().request(DISC, 0, 0, 0, &[]);
    assert_eq!(rig.stats.snapshot().refused, 2);
    let admitted = || {
        Client::hello(&rig.socket)
            .option(7, &go_data("disk", &[]))
            .last()
            .unwrap()
            .0
            == ACK
    };
    eventually("the place is free", admitted);
}

#[test]
fn when_all_places_are_taken_the_silent_in_mid_message_make_way_and_nobody_else() {
    let rig = Rig::with_limits(Limits {
        connections: 4,
        patience: Duration::from_millis(200),
        ..Limits::default()
    });
    let mut idle = Client::ready(&rig.socket, Style::Simple);
    let mut waiting = Client::ready(&rig.socket, Style::Simple);
    rig.ram.gate.set_closed(true);
    let flush = waiting.request(FLUSH, 0, 0, 0, &[]);
    let mut half = Client::ready(&rig.socket, Style::Simple);
    half.request(WRITE, 0, 0, 32 * MIB, &[1; 1000]);
    let mut deaf = Client::ready(&rig.socket, Style::Simple);
    deaf.request(READ, 0, 0, 32 * MIB, &[]);
    // Once both are known to be silent, newcomers wait in the queue until one has been so for too
    // long.
    std::thread::sleep(Duration::from_millis(120));
    let mut clients = [
        Client::ready(&rig.socket, Style::Simple),
        Client::ready(&rig.socket, Style::Extended),
    ];
    assert!(half.is_closed());
    let mut late = Client::hello(&rig.socket);
    assert_eq!(
        late.option(3, &[])[0].0,
        ERR_POLICY,
        "one that waits for us is not silent, nor is one between messages"
    );
    rig.ram.gate.set_closed(false);
    assert_eq!(waiting.answer(flush, 0).error, 0);
    assert_eq!(idle.read(0, 1).error, 0);
    for client in &mut clients {
        assert_eq!(client.read(0, 1).error, 0);
    }
    assert_eq!(rig.stats.snapshot().evicted, 2);
    eventually("who was evicted is gone", || {
        rig.stats.snapshot().connected == 4
    });
}

#[test]
fn even_being_refused_is_limited() {
    let rig = Rig::with_limits(Limits {
        connections: 1,
        refusals: 2,
        ..Limits::default()
    });
    let _inside = Client::ready(&rig.socket, Style::Simple);
    let _told = [Client::connect(&rig.socket), Client::connect(&rig.socket)];
    let mut third = Client {
        stream: UnixStream::connect(&rig.socket).unwrap(),
        style: Style::Simple,
        next: 1,
    };
    assert!(third.is_closed());
}

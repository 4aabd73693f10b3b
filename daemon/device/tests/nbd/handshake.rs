//! Every way through the handshake, byte by byte.

use crate::support::{MIB, Rig, ram::Ram};
use ftld_device::transport::nbd::Limits;
use ftld_nbd_client::{ACK, Client, DISC, ERR, Style, go_data, meta_query, u16_at, u32_at, u64_at};

const ERR_UNSUP: u32 = ERR + 1;
const ERR_INVALID: u32 = ERR + 3;
const ERR_UNKNOWN: u32 = ERR + 6;
const ERR_EXT_HEADER_REQD: u32 = ERR + 10;

/// The info replies to INFO by type, and the last reply.
fn info(client: &mut Client, name: &str, wanted: &[u16]) -> (Vec<(u16, Vec<u8>)>, u32) {
    let mut replies = client.option(6, &go_data(name, wanted));
    let (last, _) = replies.pop().unwrap();
    let infos = replies.into_iter().map(|(kind, data)| {
        assert_eq!(kind, 3);
        (u16_at(&data, 0), data[2..].to_vec())
    });
    (infos.collect(), last)
}

fn flags(client: &mut Client) -> u16 {
    let (infos, _) = info(client, "disk", &[]);
    u16_at(&infos.iter().find(|(kind, _)| *kind == 0).unwrap().1, 8)
}

#[test]
fn info_tells_what_was_asked_and_the_sizes() {
    let rig = Rig::new();
    let mut client = Client::hello(&rig.socket);
    let (infos, last) = info(&mut client, "disk", &[1, 2, 3, 99]);
    assert_eq!(last, ACK);
    let get = |kind: u16| &infos.iter().find(|(k, _)| *k == kind).unwrap().1[..];
    assert_eq!(u64_at(get(0), 0), 64 * MIB);
    assert_eq!(get(1), b"disk");
    assert_eq!(get(2), b"a disk");
    assert_eq!(
        [u32_at(get(3), 0), u32_at(get(3), 4), u32_at(get(3), 8)],
        [1, 4096, 32 << 20]
    );
    let (infos, _) = info(&mut client, "", &[]);
    assert!(
        infos.iter().all(|(kind, _)| [0, 3].contains(kind)),
        "names only when asked for: {infos:?}"
    );
}

#[test]
fn flags_follow_the_mode_and_the_device() {
    const SIMPLE: u16 = 1 | 4 | 8 | 32 | 64 | 256 | 1024 | 2048;
    let rig = Rig::new();
    let mut client = Client::hello(&rig.socket);
    assert_eq!(flags(&mut client), SIMPLE);
    client.option(8, &[]);
    assert_eq!(flags(&mut client), SIMPLE | 128);
    client.option(11, &[]);
    assert_eq!(flags(&mut client), SIMPLE | 128 | 4096);
    let rig = Rig::with(Ram::without_volatile_cache(MIB), Limits::default());
    let mut client = Client::hello(&rig.socket);
    assert_eq!(flags(&mut client), SIMPLE & !(4 | 8), "no FLUSH, no FUA");
    let rig = Rig::with(Ram::read_only(MIB), Limits::default());
    assert_eq!(
        flags(&mut Client::hello(&rig.socket)),
        1 | 2 | 4 | 256 | 1024
    );
}

#[test]
fn an_unknown_export_is_an_error_and_no_end() {
    let rig = Rig::new();
    let mut client = Client::hello(&rig.socket);
    for option in [6, 7] {
        let replies = client.option(option, &go_data("other", &[]));
        assert_eq!(replies[0].0, ERR_UNKNOWN);
        assert!(String::from_utf8_lossy(&replies[0].1).contains("disk"));
    }
    assert_eq!(
        client.option(7, &go_data("disk", &[])).last().unwrap().0,
        ACK
    );
    assert_eq!(client.read(0, 1).data, [0]);
}

#[test]
fn the_old_way_in() {
    let rig = Rig::new();
    for (client_flags, zeroes) in [(3u32, 0), (1, 124), (0, 124), (2, 0)] {
        for name in ["disk", ""] {
            let mut client = Client::connect(&rig.socket);
            client.send(&client_flags.to_be_bytes());
            client.send_option(1, name.as_bytes());
            let reply = client.take(10 + zeroes);
            assert_eq!(u64_at(&reply, 0), 64 * MIB);
            assert!(reply[10..].iter().all(|b| *b == 0));
            assert_eq!(
                client.read(0, 1).data,
                [0],
                "transmission begins right after"
            );
        }
    }
    let mut client = Client::hello(&rig.socket);
    client.send_option(1, b"other");
    assert!(client.is_closed());
}

#[test]
fn the_old_way_in_works_with_structured_replies_but_not_with_extended_headers() {
    let rig = Rig::new();
    let mut client = Client::hello(&rig.socket);
    client.option(8, &[]);
    client.send_option(1, b"disk");
    client.take(10);
    client.style = Style::Structured;
    assert_eq!(client.read(0, 4).parts, [(0, 4, true)]);
    let mut client = Client::hello(&rig.socket);
    client.option(11, &[]);
    client.send_option(1, b"disk");
    assert!(client.is_closed());
}

#[test]
fn unknown_options_and_tls_are_refused_and_life_goes_on() {
    let rig = Rig::new();
    let mut client = Client::hello(&rig.socket);
    for option in [0, 4, 5, 12, 77, u32::MAX] {
        assert_eq!(
            client.option(option, b"whatever")[0].0,
            ERR_UNSUP,
            "option {option}"
        );
    }
    let (_, text) = &client.option(5, &[])[0];
    assert!(String::from_utf8_lossy(text).contains("TLS"));
    let list = client.option(3, &[]);
    assert_eq!(list[0], (2, b"\0\0\0\x04diska disk".to_vec()));
    assert_eq!(list[1].0, ACK);
    assert_eq!(client.option(3, &[0])[0].0, ERR_INVALID);
    assert_eq!(client.option(2, &[]), [(ACK, vec![])]);
    assert!(client.is_closed());
}

#[test]
fn metadata_contexts() {
    let rig = Rig::new();
    let mut client = Client::hello(&rig.socket);
    for option in [9, 10] {
        assert_eq!(
            client.option(option, &meta_query("disk", &[]))[0].0,
            ERR_INVALID,
            "structured replies come first"
        );
    }
    client.option(8, &[]);
    let named = |id: u32| (4, [&id.to_be_bytes()[..], b"base:allocation"].concat());
    for queries in [
        &[][..],
        &["base:"],
        &["base:allocation"],
        &["x", "base:allocation"],
    ] {
        let replies = client.option(9, &meta_query("disk", queries));
        assert_eq!(replies, [named(0), (ACK, vec![])], "{queries:?}");
    }
    assert_eq!(
        client.option(9, &meta_query("disk", &["qemu:dirty"])),
        [(ACK, vec![])]
    );
    assert_eq!(
        client.option(10, &meta_query("disk", &["base:allocation"])),
        [named(1), (ACK, vec![])]
    );
    assert_eq!(
        client.option(10, &meta_query("disk", &["base:"])),
        [(ACK, vec![])],
        "no wildcard in SET"
    );
    assert_eq!(
        client.option(10, &meta_query("other", &[]))[0].0,
        ERR_UNKNOWN
    );
    assert_eq!(client.option(10, &[0, 0, 0, 9])[0].0, ERR_INVALID);
    assert_eq!(
        client.option(10, &[0, 0, 0, 0, 255, 255, 255, 255])[0].0,
        ERR_INVALID
    );
}

#[test]
fn modes_only_go_up_and_only_once() {
    let rig = Rig::new();
    let mut client = Client::hello(&rig.socket);
    assert_eq!(client.option(8, &[1])[0].0, ERR_INVALID);
    assert_eq!(client.option(8, &[])[0].0, ACK);
    assert_eq!(client.option(8, &[])[0].0, ERR_INVALID);
    assert_eq!(client.option(11, &[])[0].0, ACK);
    assert_eq!(client.option(11, &[])[0].0, ERR_INVALID);
    assert_eq!(client.option(8, &[])[0].0, ERR_EXT_HEADER_REQD);
}

#[test]
fn malformed_requests_for_an_export() {
    let rig = Rig::new();
    let mut client = Client::hello(&rig.socket);
    let data = go_data("disk", &[3]);
    for bad in [
        &data[..data.len() - 1],
        &[&data[..], &[0]].concat(),
        &[],
        &[255, 255, 255, 255, 0, 0],
    ] {
        assert_eq!(client.option(7, bad)[0].0, ERR_INVALID, "{bad:?}");
    }
}

#[test]
fn a_hurried_client_may_send_everything_at_once() {
    let rig = Rig::new();
    let mut bytes = 3u32.to_be_bytes().to_vec();
    bytes.extend(b"IHAVEOPT\0\0\0\x07\0\0\0\x0a\0\0\0\x04disk\0\0");
    bytes.extend([
        0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 3,
    ]);
    // The greeting comes whether or not it is waited for.
    let mut client = Client::connect(&rig.socket);
    client.send(&bytes);
    assert_eq!(client.option_reply(7).0, 3);
    assert_eq!(client.option_reply(7).0, 3);
    assert_eq!(client.option_reply(7).0, ACK);
    assert_eq!(client.answer(9, 3).data, [0; 3]);
    client.request(DISC, 0, 0, 0, &[]);
    assert!(client.is_closed());
}
